"""What the keeper's samples say: the backlog curve as a picture, and the figures of each queue."""

from pathlib import Path

import psycopg
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from observe import QUEUES, samples
from stage import Stage


def show_figures(stage: Stage, operator: psycopg.Connection) -> None:
    """Throughput and percentiles of each queue, as taskq.history has them."""
    story = stage.story
    story.more("from taskq.history; the times in seconds, 95 % as in the worst second:")
    story.more(
        f"  {'':8}{'started':>8}{'done':>6}{'failed':>8}{'done/s':>8}{'most':>7}"
        f"{'waiting':>10}{'95 %':>7}{'run':>8}{'95 %':>7}{'enqueue to end':>16}{'95 %':>7}"
    )
    for queue, *figures in operator.execute(
        """select queue, sum(started), sum(succeeded), sum(failed),
                  sum(succeeded) / greatest(sum(seconds) filter (where started > 0), 1), max(succeeded_per_second),
                  percentile_disc(0.5) within group (order by waiting_p50), max(waiting_p95),
                  percentile_disc(0.5) within group (order by run_p50), max(run_p95),
                  percentile_disc(0.5) within group (order by total_p50), max(total_p95)
             from taskq.history where queue = any(%s)
            group by queue order by array_position(%s, queue)""",
        (list(QUEUES), list(QUEUES)),
    ):
        started, done, failed, rate, most, *seconds = figures
        waiting, waiting95, run, run95, total, total95 = (f"{value or 0:.2f}" for value in seconds)
        story.more(
            f"  {queue:8}{started:8}{done:6}{failed:8}{rate:8.1f}{most:7.1f}"
            f"{waiting:>10}{waiting95:>7}{run:>8}{run95:>7}{total:>16}{total95:>7}"
        )


def draw_curve(operator: psycopg.Connection, file: Path) -> None:
    """The unfinished tasks of each queue over time."""
    curve = samples(operator)
    begin = min(curve)
    seconds = [(at - begin).total_seconds() for at in curve]
    figure = Figure(figsize=(7, 3.5), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.stackplot(seconds, [[point[queue].total() for point in curve.values()] for queue in QUEUES], labels=QUEUES)
    axes.set_xlabel("seconds")
    axes.set_ylabel("unfinished tasks")
    axes.legend()
    FigureCanvasAgg(figure)
    figure.savefig(file, format="png")
