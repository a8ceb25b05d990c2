"""The approval system at work, told as a story of about a minute.

Needs a server with taskq preloaded, named by PGHOST and PGPORT, where PGUSER is a
superuser; TASKQ_DEMO_OUT is a folder for the charts, the mails and the logs. Ends
with an account of everything that was submitted, and exits with 1 when it does not
add up.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psycopg

import checks
import nightly
from aftermath import Step, cancel_a_report, run_the_drill, show_dead_letters, show_retries
from checks import Stop
from diagnosis import Diagnosis
from effects import Surroundings, write_report
from inline import submit_inline
from load import REPLACEMENT, VICTIM, WORKERS, Forecast, run_the_load
from nightly import Nights
from observe import Held, LimitWatch, save_board, scalar, unfinished
from stage import FULL_ADDRESS, MISTYPED_ADDRESS, OPERATOR_ADDRESS, Stage
from story import StoryEnds, median_and_p95
from submit import Request, insert_and_enqueue, make_request, submit

COMPARED = 30
PROMISED = 90  # seconds, on a machine that does nothing else
TOO_LONG = 4 * PROMISED  # on any machine


@dataclass(frozen=True)
class Facts:
    """What the acts leave for the account."""

    held: list[Held]  # by the killed worker
    diagnoses: list[Diagnosis]
    cancelled: int  # the long report
    drill: list[Step]
    nights: Nights
    watch: LimitWatch


def set_the_stage(stage: Stage) -> None:
    """Act 1."""
    story = stage.story
    stage.create_database()
    with stage.connect("approval_operator") as operator:
        save_board(operator, stage.board)
    print(f"The board, to look at in a browser: {stage.board} (now, and anew at the end)", flush=True)
    story.heading("1. The stage")
    story.say("database with the extension, the company's tables, and roles for web, workers, operator, listener")
    stage.start_mail_server()
    story.say(f"a mail server listens on port {stage.smtp_port}; it knows no mailbox {MISTYPED_ADDRESS},")
    story.more(f"and the mailbox {FULL_ADDRESS} is full")
    stage.start_alert_listener()
    story.say(f"the alert listener listens and will write to {OPERATOR_ADDRESS}")


def compare_response_times(stage: Stage) -> None:
    """Act 2: what the user waits for."""
    story = stage.story
    story.heading("2. What the user waits for")
    to = Surroundings(stage.charts, "127.0.0.1", stage.smtp_port)
    inline, queued = [], []
    with stage.connect("approval_web") as web:
        warm_up(web, to)
        # In turns, so that whatever else the machine does hits both alike.
        for number in range(COMPARED):
            begin = time.monotonic()
            submit_inline(web, to, make_request(1000 + number))
            between = time.monotonic()
            submit(web, make_request(2000 + number))
            inline.append(between - begin)
            queued.append(time.monotonic() - between)
    inline_median, inline_p95 = median_and_p95(inline)
    queued_median, queued_p95 = median_and_p95(queued)
    story.say(f"{COMPARED} submissions each, in turns, while no worker runs:")
    story.more(f"{'':34}{'median':>10}{'95 %':>12}")
    story.more(f"{'chart, mail and cache done inline':34}{inline_median:7.1f} ms{inline_p95:9.1f} ms")
    story.more(f"{'three tasks enqueued':34}{queued_median:7.1f} ms{queued_p95:9.1f} ms")
    story.expect(queued_median < inline_median, f"enqueueing is {inline_median / queued_median:.1f} times as fast")


def warm_up(web: psycopg.Connection, to: Surroundings) -> None:
    """Let the chart library load its fonts, outside the measurement; nothing of it stays."""
    with web.transaction(force_rollback=True):
        probe = insert_and_enqueue(web, make_request(0))
        file_name = write_report(web, to, probe.approval_id)
    (to.charts / file_name).unlink()


def roll_back(stage: Stage) -> None:
    """Act 3: the tasks of a submission that fails."""
    story = stage.story
    story.heading("3. A submission that is rolled back")
    with stage.connect("approval_web") as web, stage.connect("approval_operator") as operator:
        before = unfinished(operator), scalar(operator, "select count(*) from approval")
        try:
            with web.transaction():
                submitted = insert_and_enqueue(web, Request(1, "too much", [("arabica", 70_000)]))
                mail, report, cache = submitted.task_ids
                story.say(
                    f"inside the transaction: approval {submitted.approval_id} with the new tasks {mail} and {report},"
                )
                story.more(f"and with {cache}, a refresh of that partner's figures that waited already")
        except psycopg.errors.CheckViolation as error:
            story.say(f"the commit is refused: {error.diag.message_primary}")
        else:
            raise StoryEnds("the credit limit was not enforced")
        found = scalar(operator, "select count(*) from unnest(%s::bigint[]) id, taskq.status(id)", [mail, report])
        after = unfinished(operator), scalar(operator, "select count(*) from approval")
    story.expect(
        found == 0 and before == after, f"no approval and no task is left of it ({after[0]} tasks wait, as before)"
    )


def compare_forecast(stage: Stage, operator: psycopg.Connection, forecast: Forecast) -> None:
    """What was forecast and what came; for information, as a forecast cannot know what happens next."""
    finished_at = scalar(operator, "select finished_at from taskq.status(%s)", forecast.task_id)
    took = (finished_at - forecast.asked_at).total_seconds()
    stage.story.more(
        f"the report of approval {forecast.approval_id} was expected in {forecast.seconds:.1f} s; it took {took:.1f} s"
    )


def stop_workers(stage: Stage) -> list[Stop]:
    """The workers sleep, in both ways there are: how soon do they end when they are told to?"""
    story = stage.story
    stops = []
    for name, options in {**WORKERS, REPLACEMENT: ()}.items():
        if name != VICTIM:
            begin = time.monotonic()
            status = stage.processes.stop(name)
            stops.append(
                Stop(name, "LISTEN" if "--listen" in options else "taskq.wait", status, time.monotonic() - begin)
            )
    ended = ", ".join(f"{stop.worker} (in {stop.asleep_in}) after {stop.seconds:.2f} s" for stop in stops)
    story.say("the workers, which sleep, get SIGTERM and end:")
    story.more(f"  {ended}")
    return stops


def settle_the_account(stage: Stage, operator: psycopg.Connection, facts: Facts) -> None:
    """Act 9: does everything add up?"""
    story = stage.story
    story.heading("9. The account")
    stops = stop_workers(stage)
    checks.check_tasks(story, operator, facts.cancelled)
    checks.check_reports(story, operator, stage.charts)
    checks.check_mails(story, operator, stage.maildir, facts.held)
    checks.check_cache(story, operator)
    checks.check_recovered(story, operator, stage.logs, facts.held, VICTIM)
    checks.check_nights(story, operator, facts.nights)
    checks.check_cancelled(story, operator, stage.logs, stage.charts, facts.cancelled)
    checks.check_claims(story, stage.logs)
    checks.check_limits(story, facts.watch)
    checks.check_rate(story, operator)
    checks.check_leases(story, stage.logs)
    checks.check_waiting(story, operator, facts.cancelled, stops)
    checks.check_samples(story, operator)
    checks.check_alerts(story, operator, stage.maildir)
    checks.check_drill(story, facts.drill)
    checks.check_diagnoses(story, facts.diagnoses)
    save_board(operator, stage.board)
    checks.check_board(story, operator, stage.board)


def play(stage: Stage) -> None:
    """All acts."""
    set_the_stage(stage)
    compare_response_times(stage)
    roll_back(stage)
    with (
        stage.connect("approval_operator") as operator,
        LimitWatch(stage.connect("approval_operator")) as watch,
    ):
        load = run_the_load(stage, operator)
        if load.forecast is not None:
            compare_forecast(stage, operator, load.forecast)
        show_retries(stage)
        show_dead_letters(stage, operator)
        cancelled = cancel_a_report(stage)
        drill = run_the_drill(stage, operator)
        nights = nightly.end(stage, operator, load.first_night)
        settle_the_account(stage, operator, Facts(load.held, load.diagnoses, cancelled, drill, nights, watch))


def leave(number: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGINT: leave through the same door as every other end."""
    raise SystemExit(128 + number)


def main() -> int:
    """Play, stop everything that was started, and say how it ended."""
    stage = Stage(Path(os.environ["TASKQ_DEMO_OUT"]).resolve())
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    story = stage.story
    try:
        play(stage)
        if story.seconds() > TOO_LONG:
            story.expect(False, f"it took no more than {TOO_LONG} s")
    except StoryEnds as end:
        story.expect(False, str(end))
        print(f"\nthe logs of the processes are in {stage.logs}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stage.processes.stop_all()
    if story.broken:
        print(f"\nThe demo FAILED after {story.seconds():.0f} s; what did not hold:")
        for text in story.broken:
            print(f"  - {text}")
        return 1
    print(f"\nEverything adds up, after {story.seconds():.0f} s. Look at {stage.board},\nand at the rest of {stage.out}.")
    if story.seconds() > PROMISED:
        print(f"(On a machine that does nothing else it takes less than {PROMISED} s.)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
