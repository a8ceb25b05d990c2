"""The load: users submit, workers work, the mail server fails, a worker is killed."""

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg

import diagnosis
import nightly
from curve import draw_curve, show_figures
from observe import QUEUES, Held, backlog, held_by, samples, scalar, sessions_of, unfinished
from stage import Stage
from story import StoryEnds, bar, median_and_p95
from submit import make_request, submit

LOAD = 220
LOAD_PER_SECOND = 30
TASKS_PER_CHARACTER = 14
WORKERS = {"worker-1": (), "worker-2": (), "worker-3": ("--listen",)}  # waiting.py has both ways to wait
VICTIM = "worker-2"
REPLACEMENT = "worker-4"
FEW = 20  # with fewer unfinished tasks the workers would be idle in a moment; so many mails fail in the outage
HANDFUL = 5  # approvals submitted at once then
FIRST_OF_MORE = 4000  # their numbers


@dataclass(frozen=True)
class Forecast:
    """When a report was expected."""

    task_id: int
    approval_id: int
    asked_at: datetime
    seconds: float


def look_around(stage: Stage, operator: psycopg.Connection) -> None:
    """What is printed regularly: alerts that came, and the newest point of the backlog curve."""
    for alert in stage.new_alerts():
        stage.story.say(f"ALERT over LISTEN: {alert}")
    curve = samples(operator, stage.sample_told)
    if not curve:
        return
    stage.sample_told = max(curve)
    cells = []
    for queue, found in curve[stage.sample_told].items():
        picture = bar(found.ready, found.later, found.running, TASKS_PER_CHARACTER)
        cells.append(f"{queue} {found.total():3} {picture}".ljust(30))
    stage.story.say("| " + " ".join(cells).rstrip())


@dataclass(frozen=True)
class Load:
    """What happened under load."""

    held: list[Held]  # by the killed worker
    forecast: Forecast | None
    first_night: datetime
    diagnoses: list[diagnosis.Diagnosis]


def run_the_load(stage: Stage, operator: psycopg.Connection) -> Load:
    """Act 4: load, an outage, a crash."""
    story = stage.story
    story.heading("4. The load")
    story.say(f"users submit {LOAD} approvals, {LOAD_PER_SECOND} a second; {len(WORKERS)} workers begin")
    story.more("limits: 8 e-mails and 2 reports at a time, 5 cache refreshes a second")
    story.more(f"the backlog as taskq.history has it, a character for {TASKS_PER_CHARACTER} unfinished tasks:")
    story.more("> running, # ready, ~ waiting for the next try")
    # A new database takes its first sample after 10 seconds; by hand it can come now.
    operator.execute("call taskq.maintain()")
    story.regularly = lambda: look_around(stage, operator)
    pids = {name: stage.start_worker(name, *options) for name, options in WORKERS.items()}
    first_night = nightly.begin(stage, operator)
    stage.start_load(LOAD, LOAD_PER_SECOND)

    with more_users(stage, operator) as keep_busy:
        outage = mail_outage(stage, operator, keep_busy)
        held, crash = kill_worker(stage, operator, pids[VICTIM], keep_busy)

    story.wait_until("the users have submitted everything", lambda: submitted_by_load(stage) == LOAD)
    if stage.processes.wait("load", 10) != 0:
        raise StoryEnds("the load ended with an error")
    story.say("the last approval is submitted; the workers catch up")
    story.interval = 2.0
    forecast = ask_for_forecast(stage, operator)
    story.wait_until("the backlog is gone", lambda: unfinished(operator) == 0, at_most=120)
    story.regularly = None
    story.say("nothing is waiting and nothing is running")

    show_times(stage, operator)
    show_figures(stage, operator)
    draw_curve(operator, stage.out / "backlog.png")
    story.more(f"the curve as a picture: {stage.out / 'backlog.png'}")
    return Load(held, forecast, first_night, [outage, crash])


def ask_for_forecast(stage: Stage, operator: psycopg.Connection) -> Forecast | None:
    """One more approval, and what the web application can tell its user about the report."""
    story = stage.story
    with stage.connect("approval_web") as web:
        # A forecast comes from the samples, and needs 20 reports in them.
        known = "select expected_finish_at is not null and tasks_ahead < %s from taskq.estimate('approval.report')"
        story.wait_until(
            "half of the reports", lambda: scalar(web, known, LOAD // 2) or unfinished(operator) == 0, at_most=120
        )
        submitted = submit(web, make_request(3000))
        report = submitted.task_ids[1]
        row = web.execute(
            "select clock_timestamp(), tasks_ahead, expected_finish_at from taskq.status(%s)", (report,)
        ).fetchone()
    if row is None or row[2] is None:
        return None
    asked_at, tasks_ahead, expected_at = row
    forecast = Forecast(report, submitted.approval_id, asked_at, (expected_at - asked_at).total_seconds())
    story.say(
        f"approval {submitted.approval_id} is submitted. When will its report be there? taskq.status({report}) says:"
    )
    story.more(f"{tasks_ahead} are ahead of it; at the rate so far, when mails went first, {forecast.seconds:.1f} s")
    return forecast


def show_times(stage: Stage, operator: psycopg.Connection) -> None:
    """How fast the submissions were answered."""
    seconds = [json.loads(line)["seconds"] for line in stage.processes.log_of("load").read_text().splitlines()]
    median, p95 = median_and_p95(seconds)
    stage.story.more(f"response time of the {LOAD} submissions in all this: median {median:.1f} ms, 95 % {p95:.1f} ms")


def submitted_by_load(stage: Stage) -> int:
    """How many approvals the users have submitted."""
    return stage.processes.log_of("load").read_bytes().count(b"\n")


def delivered(stage: Stage) -> int:
    """How many mails the server has taken so far."""
    return stage.processes.log_of("mail-server").read_bytes().count(b"delivered ")


@contextmanager
def more_users(stage: Stage, operator: psycopg.Connection) -> Iterator[Callable[[], None]]:
    """Users beyond the load. When called, some submit if little is left to do.

    A fast machine may have done everything before the outage or the crash: nothing
    would fail then, and the victim would never hold a task.
    """
    numbers = itertools.count(FIRST_OF_MORE)
    with stage.connect("approval_web") as web:

        def keep_busy() -> None:
            if unfinished(operator) < FEW:
                for number in itertools.islice(numbers, HANDFUL):
                    submit(web, make_request(number))

        yield keep_busy


def mail_outage(stage: Stage, operator: psycopg.Connection, keep_busy: Callable[[], None]) -> diagnosis.Diagnosis:
    """The mail server goes down under load and comes back. Returns what the database said about it."""
    story = stage.story
    before = delivered(stage)
    story.wait_until("the workers send mails", lambda: delivered(stage) >= before + 25)
    stage.processes.stop("mail-server")
    story.say("MAIL SERVER DOWN: connections are refused")

    def enough() -> bool:
        keep_busy()
        later = scalar(operator, "select count(*) from taskq.tasks where queue = 'email' and state = 'scheduled'")
        tries = scalar(operator, "select coalesce(max(attempt), 0) from taskq.tasks where queue = 'email'")
        return bool(later >= FEW and tries >= 3)

    story.wait_until("mails wait for their next try, one for the third time", enough)
    said = diagnosis.ask(stage, operator, "the mail server is down", "type_fails", "approval.mail")
    waiting = backlog(operator)["email"].later
    stage.start_mail_server()
    story.say(f"MAIL SERVER UP AGAIN: {waiting} mails wait for their next try")
    resumed = delivered(stage)
    story.wait_until("mails are delivered again", lambda: delivered(stage) >= resumed + 10)
    return said


def kill_worker(
    stage: Stage, operator: psycopg.Connection, pid: int, keep_busy: Callable[[], None]
) -> tuple[list[Held], diagnosis.Diagnosis]:
    """A worker dies in the middle of its tasks; returns those it held, and what the database said about it."""
    story = stage.story
    freeze_at_a_bad_moment(stage, operator, pid, keep_busy)
    # Paused, a queue gives nothing to claims. A claim that meets a task whose lease is
    # over takes it back too; so what comes back now is the work of the keeper alone.
    for queue in (*QUEUES, nightly.QUEUE):
        operator.execute("select taskq.pause(%s)", (queue,))
    stage.processes.kill(VICTIM)
    # Its sessions roll back when the server notices: from then on its tasks stand still.
    story.wait_until("the killed worker's sessions are gone", lambda: sessions_of(operator, VICTIM) == 0)
    held = held_by(operator, VICTIM)
    if not held:
        raise StoryEnds(f"{VICTIM} held no task when it was killed")
    story.say(f"KILLED {VICTIM} with SIGKILL while it held {len(held)} tasks; the operator pauses the queues:")
    log = stage.processes.log_of("mail-server").read_text()
    for task in held:
        story.more(describe(task, log))
    longest = max(task.lease_left for task in held)
    seconds = story.wait_until("the keeper takes the tasks back", lambda: not held_by(operator, VICTIM))
    ids = [task.id for task in held]
    ready = scalar(operator, "select count(*) from taskq.tasks where id = any(%s) and state = 'ready'", ids)
    story.say(
        f"the keeper took all {len(held)} back, {max(0.0, seconds - longest):.1f} s after the last lease was over"
    )
    story.expect(ready == len(held), "they are ready again, at their old place")
    for queue in (*QUEUES, nightly.QUEUE):
        operator.execute("select taskq.resume(%s)", (queue,))
    story.say("the operator resumes the queues")
    said = diagnosis.ask(stage, operator, f"{VICTIM} is dead", "claimers_fewer", f"worker {VICTIM} was last seen")
    stage.start_worker(REPLACEMENT)
    story.say(f"the operator starts {REPLACEMENT}")
    return held, said


def describe(task: Held, mail_log: str) -> str:
    """A held task, and whether its mail has left: the case where a repeat cannot be avoided."""
    gone = "  its mail is delivered, but not committed" if f"<task-{task.id}@" in mail_log else ""
    return (
        f"  task {task.id:5}  {task.task_type:16} attempt {task.attempt}, lease ends in {task.lease_left:.1f} s{gone}"
    )


def freeze_at_a_bad_moment(
    stage: Stage, operator: psycopg.Connection, pid: int, keep_busy: Callable[[], None]
) -> None:
    """Stop the victim (SIGSTOP) while it holds tasks, so that nothing moves until it is killed.

    Tries for a while to catch it between the delivery of a mail and the commit: the
    worst moment, because nobody can know then that the mail has left.
    """
    log = stage.processes.log_of("mail-server")
    begin = time.monotonic()

    def caught() -> bool:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        held = held_by(operator, VICTIM)
        mails = log.read_text() if held else ""
        worst = any(f"<task-{task.id}@" in mails for task in held)
        if (len(held) >= 3 and worst) or (held and time.monotonic() > begin + 4):
            return True
        os.kill(pid, signal.SIGCONT)
        keep_busy()
        return False

    stage.story.wait_until(f"{VICTIM} is in the middle of its tasks", caught)
