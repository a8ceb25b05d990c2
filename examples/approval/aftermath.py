"""After the load: retries, dead letters, the alert, a redrive, a cancelled report, and the drill."""

from collections import Counter
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from observe import events, read_mails, scalar, unfinished
from stage import CORRECT_ADDRESS, DRILL_QUEUE, FULL_ADDRESS, MISTYPED_ADDRESS, OPERATOR_ADDRESS, Stage

MISTYPED = 5  # approvals of the load whose mail goes to the mistyped address
FULL = 3  # and to the full mailbox
CANCEL_REASON = "the user does not need it any more"


@dataclass(frozen=True)
class Step:
    """A row of taskq.drill()."""

    step: str
    ok: bool
    seconds: float | None
    detail: str


def show_retries(stage: Stage) -> None:
    """Act 5: how often, and after which waits."""
    story = stage.story
    story.heading("5. Retries and their waits")
    failed = [event for event in events(stage.logs) if event["event"] == "failed"]
    waits: dict[int, list[float]] = {}
    for event in failed:
        if event["state"] != "dead":
            waits.setdefault(event["attempt"], []).append(event["wait"])
    story.say(
        f"{len(failed)} tries failed; the e-mails' policy: 0.4 s, doubled each time, at most 3 s, plus up to 10 %"
    )
    for attempt, seconds in sorted(waits.items()):
        policy = min(3.0, 0.4 * 2 ** (attempt - 1))
        story.more(
            f"  after failure {attempt}: {len(seconds):4} tasks waited {min(seconds):4.2f} to {max(seconds):4.2f} s"
            f"   (policy {policy:4.2f} to {policy * 1.1:4.2f})"
        )
    reasons: dict[str, int] = {}
    for event in failed:
        reasons[event["error"]] = reasons.get(event["error"], 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:4]:
        story.more(f"  {count:4} x {reason}")


def show_dead_letters(stage: Stage, operator: psycopg.Connection) -> None:
    """Act 6: dead letters, the alert, a redrive."""
    story = stage.story
    story.heading("6. Dead letters, the alert, and a redrive")
    print_dead_letters(stage, operator)
    dead = dead_by_address(operator)
    story.expect(
        (dead[MISTYPED_ADDRESS], dead[FULL_ADDRESS]) == (MISTYPED, FULL),
        f"every mail to these two addresses is a dead letter: {MISTYPED} + {FULL}",
    )
    story.wait_until("the alert is mailed", lambda: alert_mails(stage, "raised") > 0)
    story.say("over LISTEN taskq_alert came, and went to the operator by mail (repeated while it is open):")
    print_alert(stage, "raised")
    print_alert(stage, "repeated")

    redriven = correct_and_redrive(operator)
    story.say(f"the operator corrects the address to {CORRECT_ADDRESS} and redrives {redriven} tasks")
    story.wait_until("the redriven tasks are finished", lambda: unfinished(operator) == 0)
    arrived = sum(mail.recipient == CORRECT_ADDRESS for mail in read_mails(stage.maildir))
    story.expect(arrived == MISTYPED, f"{arrived} mails have arrived at {CORRECT_ADDRESS}")
    dead = dead_by_address(operator)
    story.expect(
        dead == {FULL_ADDRESS: FULL}, f"{dead.total()} mails to the full mailbox stay dead until somebody decides"
    )
    story.wait_until("the end of the alert is mailed", lambda: alert_mails(stage, "cleared") > 0)
    story.say("no more than the limit of 3 dead letters, so the alert is cleared and the operator told:")
    print_alert(stage, "cleared")


def correct_and_redrive(operator: psycopg.Connection) -> int:
    """Correct the address and redrive the dead letters that can now succeed, in one transaction."""
    with operator.transaction():
        operator.execute("update partner set address = %s where address = %s", (CORRECT_ADDRESS, MISTYPED_ADDRESS))
        redriven: int = scalar(
            operator,
            """select redriven
                 from taskq.redrive(ids => array(
                     select dead.id from taskq.dead_letters dead
                       join approval on approval.id = (dead.payload ->> 'approval_id')::bigint
                       join partner on partner.id = approval.partner_id
                      where partner.address <> %s))""",
            FULL_ADDRESS,
        )
    return redriven


def dead_by_address(operator: psycopg.Connection) -> Counter[str]:
    """How many mails to each address are dead letters."""
    return Counter(
        row[0]
        for row in operator.execute(
            """select partner.address from taskq.dead_letters dead
                 join approval on approval.id = (dead.payload ->> 'approval_id')::bigint
                 join partner on partner.id = approval.partner_id"""
        )
    )


def print_dead_letters(stage: Stage, operator: psycopg.Connection) -> None:
    """The dead letters by their last error."""
    stage.story.say("the dead letters:")
    for count, attempts, error in operator.execute(
        "select count(*), max(attempt), last_error from taskq.dead_letters group by last_error order by 1 desc"
    ):
        stage.story.more(f"  {count} x after up to {attempts} attempts: {error}")


def alert_mails(stage: Stage, state: str) -> int:
    """How many alert mails of a kind the operator has got."""
    return sum(m.recipient == OPERATOR_ADDRESS and state in m.subject for m in read_mails(stage.maildir))


def print_alert(stage: Stage, state: str) -> None:
    """What the listener logged about it."""
    for line in stage.processes.log_of("alert-listener").read_text().splitlines():
        if f'"state": "{state}"' in line or (f"-{state}-" in line and "mailed" in line):
            at, text = line.split(" ", 1)
            stage.story.more(f"  {at[11:23]}  {text}")


def cancel_a_report(stage: Stage) -> int:
    """Act 7: a task that runs is cancelled, and its worker stops. Returns its id."""
    story = stage.story
    story.heading("7. A long report is cancelled while it runs")
    with stage.connect("approval_web") as web:
        task_id: int = scalar(web, "select taskq.enqueue('approval.yearbook')")
        story.say(f"a user wants all approvals in one document: task {task_id}")
        story.wait_until("it runs", lambda: state_of(web, task_id) == "running")
        worker = scalar(web, "select worker from taskq.status(%s)", task_id)
        answer = scalar(web, "select taskq.cancel(%s, %s)", task_id, CANCEL_REASON)
        story.say(f"{worker} is drawing; the user does not need it any more: taskq.cancel says '{answer}'")
        story.expect(answer == "requested", "a running task is not torn from its worker")
        seconds = story.wait_until("it is over", lambda: state_of(web, task_id) != "running")
        state = state_of(web, task_id)
    for event in events(stage.logs):
        if event["event"] == "stopped at" and event["task"] == task_id:
            story.say(f"{event['worker']} learned of it at its heartbeat, stopped at {event['done']}, and released it")
    story.expect(state == "cancelled", f"{seconds:.1f} s after the request it is {state}")
    return task_id


def state_of(conn: psycopg.Connection, task_id: int) -> str | None:
    """The state of a task; None if there is no such task."""
    row = conn.execute("select state from taskq.status(%s)", (task_id,)).fetchone()
    return None if row is None else str(row[0])


def run_the_drill(stage: Stage, operator: psycopg.Connection) -> list[Step]:
    """Act 8: does an alert reach somebody?"""
    story = stage.story
    story.heading("8. A drill")
    story.say("the operator calls taskq.drill(): a task that fails on purpose goes the whole way")
    with operator.cursor(row_factory=class_row(Step)) as cursor:
        steps = cursor.execute(
            "select step, ok, extract(epoch from took)::float8 as seconds, detail from taskq.drill()"
        ).fetchall()
    for step in steps:
        story.more(f"  {'held' if step.ok else 'NOT HELD':8}  {step.step:18}{step.seconds or 0:6.2f} s  {step.detail}")
    told = [m for m in read_mails(stage.maildir) if m.recipient == OPERATOR_ADDRESS and DRILL_QUEUE in m.subject]
    told.sort(key=lambda mail: mail.message_id.split("-")[-1])  # the time
    story.say(f"its mails: {', '.join(mail.subject for mail in told)}")
    return steps
