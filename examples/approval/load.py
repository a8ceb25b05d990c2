"""The load: users submit, workers work, the mail server fails, a worker is killed."""

import json
import os
import signal
import time

import psycopg

from observe import QUEUES, Held, backlog, held_by, scalar, sessions_of, unfinished
from stage import Stage
from story import StoryEnds, bar, median_and_p95

LOAD = 220
LOAD_PER_SECOND = 30
TASKS_PER_CHARACTER = 14
WORKERS = ("worker-1", "worker-2", "worker-3")
VICTIM = "worker-2"
REPLACEMENT = "worker-4"


def look_around(stage: Stage, operator: psycopg.Connection) -> None:
    """What is printed regularly: alerts that came, and the backlog."""
    for alert in stage.new_alerts():
        stage.story.say(f"ALERT over LISTEN: {alert}")
    show_backlog(stage, operator)


def show_backlog(stage: Stage, operator: psycopg.Connection) -> None:
    """One line: the tasks of each queue as bars."""
    queues = backlog(operator)
    cells = []
    for queue in QUEUES:
        found = queues[queue]
        picture = bar(found.ready, found.later, found.running, TASKS_PER_CHARACTER)
        cells.append(f"{queue} {found.total():3} {picture}".ljust(30))
    stage.story.say("| " + " ".join(cells).rstrip())


def run_the_load(stage: Stage, operator: psycopg.Connection) -> list[Held]:
    """Act 4: load, an outage, a crash. Returns what the killed worker held."""
    story = stage.story
    story.heading("4. The load")
    story.say(f"users submit {LOAD} approvals, {LOAD_PER_SECOND} a second; {len(WORKERS)} workers begin")
    story.more(
        f"unfinished tasks, a character for {TASKS_PER_CHARACTER}: > running, # ready, ~ waiting for the next try"
    )
    story.regularly = lambda: look_around(stage, operator)
    pids = {name: stage.start_worker(name) for name in WORKERS}
    stage.start_load(LOAD, LOAD_PER_SECOND)

    mail_outage(stage, operator)
    held = kill_worker(stage, operator, pids[VICTIM])

    story.wait_until("the users have submitted everything", lambda: submitted_by_load(stage) == LOAD)
    if stage.processes.wait("load", 10) != 0:
        raise StoryEnds("the load ended with an error")
    story.say("the last approval is submitted; the workers catch up")
    story.interval = 2.0
    story.wait_until("the backlog is gone", lambda: unfinished(operator) == 0, at_most=120)
    story.regularly = None
    show_backlog(stage, operator)
    story.say("nothing is waiting and nothing is running")

    show_times(stage, operator)
    return held


def show_times(stage: Stage, operator: psycopg.Connection) -> None:
    """How fast the submissions were answered, and when their tasks were done."""
    story = stage.story
    seconds = [json.loads(line)["seconds"] for line in stage.processes.log_of("load").read_text().splitlines()]
    median, p95 = median_and_p95(seconds)
    story.more(f"response time of the {LOAD} submissions during all this: median {median:.1f} ms, 95 % {p95:.1f} ms")
    story.more("from submission to finish, median and longest:")
    for queue, middle, longest in operator.execute(
        """select queue, percentile_cont(0.5) within group (order by extract(epoch from finished_at - enqueued_at)),
                  max(extract(epoch from finished_at - enqueued_at))
             from taskq.finished group by queue order by max(priority) desc"""
    ):
        story.more(f"  {queue:10}{middle:6.1f} s{longest:8.1f} s")


def submitted_by_load(stage: Stage) -> int:
    """How many approvals the users have submitted."""
    return stage.processes.log_of("load").read_bytes().count(b"\n")


def delivered(stage: Stage) -> int:
    """How many mails the server has taken so far."""
    return stage.processes.log_of("mail-server").read_bytes().count(b"delivered ")


def mail_outage(stage: Stage, operator: psycopg.Connection) -> None:
    """The mail server goes down under load and comes back."""
    story = stage.story
    before = delivered(stage)
    story.wait_until("the workers send mails", lambda: delivered(stage) >= before + 25)
    stage.processes.stop("mail-server")
    story.say("MAIL SERVER DOWN: connections are refused")

    def enough() -> bool:
        later = scalar(operator, "select count(*) from taskq.tasks where queue = 'email' and state = 'scheduled'")
        tries = scalar(operator, "select coalesce(max(attempt), 0) from taskq.tasks where queue = 'email'")
        return bool(later >= 20 and tries >= 3)

    story.wait_until("mails wait for their next try, one for the third time", enough)
    waiting = backlog(operator)["email"].later
    stage.start_mail_server()
    story.say(f"MAIL SERVER UP AGAIN: {waiting} mails wait for their next try")
    resumed = delivered(stage)
    story.wait_until("mails are delivered again", lambda: delivered(stage) >= resumed + 10)


def kill_worker(stage: Stage, operator: psycopg.Connection, pid: int) -> list[Held]:
    """A worker dies in the middle of its tasks; returns those it held."""
    story = stage.story
    freeze_at_a_bad_moment(stage, operator, pid)
    # Paused, a queue gives nothing to claims. A claim that meets a task whose lease is
    # over takes it back too; so what comes back now is the work of the keeper alone.
    for queue in QUEUES:
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
    for queue in QUEUES:
        operator.execute("select taskq.resume(%s)", (queue,))
    stage.start_worker(REPLACEMENT)
    story.say(f"the operator resumes the queues and starts {REPLACEMENT}")
    return held


def describe(task: Held, mail_log: str) -> str:
    """A held task, and whether its mail has left: the case where a repeat cannot be avoided."""
    gone = "  its mail is delivered, but not committed" if f"<task-{task.id}@" in mail_log else ""
    return (
        f"  task {task.id:5}  {task.task_type:16} attempt {task.attempt}, lease ends in {task.lease_left:.1f} s{gone}"
    )


def freeze_at_a_bad_moment(stage: Stage, operator: psycopg.Connection, pid: int) -> None:
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
        if len(held) >= 3 and (worst or time.monotonic() > begin + 4):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    stage.story.wait_until(f"{VICTIM} is in the middle of its tasks", caught)
