"""The account at the end: every approval has what it must have, once, and nothing is lost."""

import hashlib
import html
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

import nightly
from aftermath import CANCEL_REASON, Step
from diagnosis import Diagnosis
from handlers import message_id
from nightly import Nights
from observe import LIMITS, Held, LimitWatch, events, read_mails, scalar
from stage import DRILL_QUEUE, OPERATOR_ADDRESS
from story import Story

RATE, BURST = 5, 5  # of the cache's queue, in settings.sql
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Stop:
    """How a worker that slept ended."""

    worker: str
    asleep_in: str  # taskq.wait or LISTEN
    status: int
    seconds: float


def check_tasks(story: Story, conn: psycopg.Connection, cancelled: int) -> None:
    """The company's own account of its enqueues against taskq's."""
    submitted = scalar(conn, "select count(*) from approval_task")
    enqueued = {row[0] for row in conn.execute("select task_id from approval_task")}
    succeeded = Counter(
        row[0]
        for row in conn.execute(
            "select id from taskq.finished where state = 'succeeded' and task_type <> 'approval.summary'"
        )
    )
    dead = Counter(row[0] for row in conn.execute("select id from taskq.dead_letters"))
    superseded = superseded_by(conn)
    other = {row[0] for row in conn.execute("select id from taskq.finished where state <> 'succeeded'")}
    left = scalar(conn, "select count(*) from taskq.tasks")
    ended = succeeded + dead + Counter(superseded.keys())
    replaced = f" + {len(superseded)} whose work a later one did" if superseded else ""
    story.expect(
        set(ended) == enqueued and max(ended.values()) == 1 and left == 0
        and other == {cancelled, *superseded} and set(superseded.values()) <= set(succeeded),
        f"nothing is lost: {submitted} committed enqueues, {len(enqueued)} distinct tasks = "
        f"{succeeded.total()} succeeded + {dead.total()} dead{replaced}, {left} left over",
    )  # fmt: skip


def superseded_by(conn: psycopg.Connection) -> dict[int, int]:
    """Refreshes of the cache that came back (their worker died, they failed) when a later one with the
    same key was there already: taskq cancels them and names the other one."""
    return {
        task_id: int(reason.removeprefix("superseded by "))
        for task_id, reason in conn.execute(
            """select id, cancel_reason from taskq.finished
                where state = 'cancelled' and task_type = 'approval.cache' and cancel_reason like 'superseded by %'"""
        )
    }


def check_reports(story: Story, conn: psycopg.Connection, charts: Path) -> None:
    """One row and one whole chart file for each approval."""
    approvals = {row[0] for row in conn.execute("select id from approval")}
    rows = conn.execute("select approval_id, file_name, sha256 from report").fetchall()
    files = {file.name: file.read_bytes() for file in charts.glob("[!.]*")}
    per_approval = Counter(approval_id for approval_id, _, _ in rows)
    whole = [name for _, name, digest in rows if is_chart(files.get(name, b""), digest)]
    story.expect(
        per_approval == Counter(approvals) and len(whole) == len(files) == len(approvals),
        f"{len(approvals)} approvals, {len(rows)} report rows, {len(files)} chart files, "
        f"{len(whole)} with the content their row names",
    )


def is_chart(content: bytes, sha256: str) -> bool:
    """Whether a file is the PNG that was noted."""
    return content.startswith(PNG) and hashlib.sha256(content).hexdigest() == sha256


def check_mails(story: Story, conn: psycopg.Connection, maildir: Path, held: list[Held]) -> None:
    """One distinct mail or one dead letter for each approval; repeats only where they are allowed."""
    mails = [mail for mail in read_mails(maildir) if mail.approval_id is not None]
    by_approval: dict[int, Counter[str]] = defaultdict(Counter)
    for mail in mails:
        assert mail.approval_id is not None
        by_approval[mail.approval_id][mail.message_id] += 1
    rows = conn.execute(
        """select approval.id, task.task_id, dead.id is not null,
                  (select count(*) from sent_mail where sent_mail.approval_id = approval.id)
             from approval
             left join approval_task task on task.approval_id = approval.id and task.task_type = 'approval.mail'
             left join taskq.dead_letters dead on dead.id = task.task_id"""
    ).fetchall()
    wrong, dead_letters, repeats = [], 0, []
    for approval_id, task_id, is_dead, sent in rows:
        expected = message_id(task_id) if task_id else f"<inline-{approval_id}@approval.example.com>"
        copies = by_approval.pop(approval_id, Counter())
        dead_letters += is_dead
        if set(copies) != (set() if is_dead else {expected}) or sent != (0 if is_dead else 1):
            wrong.append(approval_id)
        if copies.total() > 1:
            repeats.append((task_id, copies.total()))
    distinct = len({mail.message_id for mail in mails})
    story.expect(
        not wrong and not by_approval and distinct + dead_letters == len(rows),
        f"{len(rows)} approvals, {distinct} distinct e-mails + {dead_letters} dead letters" + named("wrong", wrong),
    )
    for task_id, copies_seen in repeats:
        story.more(f"     the mail of task {task_id} was delivered {copies_seen} times, with one Message-ID")
    story.expect(
        {task_id for task_id, _ in repeats} <= {task.id for task in held},
        f"deliveries repeated: {len(repeats)}; allowed only for the tasks that the killed worker held",
    )


def check_cache(story: Story, conn: psycopg.Connection) -> None:
    """One refresh for each task, far fewer tasks than approvals, and the figures are right."""
    refreshes = Counter(row[0] for row in conn.execute("select task_id from cache_refresh"))
    tasks = Counter(
        row[0]
        for row in conn.execute(
            "select id from taskq.finished where task_type = 'approval.cache' and state = 'succeeded'"
        )
    )
    submitted = scalar(conn, "select count(*) from approval_task where task_type = 'approval.cache'")
    stale = scalar(
        conn,
        """select count(*)
             from partner_summary summary
             join lateral (select count(distinct approval.id) as approvals, coalesce(sum(item.amount), 0) as total
                             from approval join approval_item item on item.approval_id = approval.id
                            where approval.partner_id = summary.partner_id) truth on true
            where (summary.approvals, summary.total) is distinct from (truth.approvals, truth.total)""",
    )
    story.expect(
        refreshes == tasks and tasks.total() < submitted and stale == 0,
        f"{submitted} approvals asked for a cache refresh, the unique key made {refreshes.total()} of them, "
        f"{stale} cached figures wrong",
    )


def check_claims(story: Story, logs: Path) -> None:
    """Every claim brought the higher priorities first: e-mail, cache, reports."""
    claims = [[task["priority"] for task in event["tasks"]] for event in events(logs) if event["event"] == "claimed"]
    mixed = [claim for claim in claims if len(set(claim)) > 1]
    ordered = [claim for claim in claims if claim == sorted(claim, reverse=True)]
    story.expect(
        len(ordered) == len(claims) > 0,
        f"{len(claims)} claims, {len(mixed)} of several priorities, all with the higher priority first",
    )


def check_recovered(story: Story, conn: psycopg.Connection, logs: Path, held: list[Held], victim: str) -> None:
    """What the killed worker held was taken back once, run again by another worker, and ended.

    The number of attempts at the end would not show it: a redrive counts anew. The
    history of errors keeps what happened before, and the workers noted what they claimed.
    """
    expired = Counter(
        row
        for row in conn.execute(
            """with ended as (select id, errors from taskq.finished union all select id, errors from taskq.dead_letters)
               select ended.id, (error ->> 'attempt')::int
                 from ended, jsonb_array_elements(ended.errors) error
                where error ->> 'error' = 'lease expired' and error ->> 'worker' = %s""",
            (victim,),
        )
    )
    claimed_next = {
        (task["task"], task["attempt"] - 1)
        for event in events(logs)
        if event["event"] == "claimed" and event["worker"] != victim
        for task in event["tasks"]
    }
    expected = {(task.id, task.attempt) for task in held}
    again = {pair for pair in expected if pair[0] not in superseded_by(conn)}
    story.expect(
        expired == Counter(expected) and again <= claimed_next,
        f"the {len(held)} tasks of the killed worker were taken back once, claimed by another worker, and have ended",
    )


def check_nights(story: Story, conn: psycopg.Connection, nights: Nights) -> None:
    """The schedule enqueued each occurrence once, and each has its summary."""
    expected = Counter(nights.all())
    enqueued = Counter(
        row[0]
        for row in conn.execute(
            """select (headers ->> 'scheduled_at')::timestamptz from taskq.finished
                where task_type = 'approval.summary' and state = 'succeeded'"""
        )
    )
    written = Counter(row[0] for row in conn.execute("select night from summary"))
    # The keeper enqueues an occurrence within a second; a busy machine may take longer.
    story.expect(
        expected == enqueued == written and nights.last > nights.ended_at - nightly.EVERY - timedelta(seconds=15),
        f"{len(expected)} nights, {enqueued.total()} tasks of the schedule, {written.total()} summaries: "
        "each night once",
    )


def check_cancelled(story: Story, conn: psycopg.Connection, logs: Path, charts: Path, task_id: int) -> None:
    """The long report ended cancelled, its worker stopped by itself, and nothing of it is left."""
    row = conn.execute("select state, cancel_reason from taskq.finished where id = %s", (task_id,)).fetchone()
    stopped = [event for event in events(logs) if event["event"] == "stopped at" and event["task"] == task_id]
    files = [file.name for file in charts.glob("*yearbook*")] + [file.name for file in charts.glob(".*yearbook*")]
    story.expect(
        row == ("cancelled", CANCEL_REASON) and len(stopped) == 1 and not files,
        f"the long report is cancelled, its worker stopped {len(stopped)} time, {len(files)} files are left of it",
    )


def check_limits(story: Story, watch: LimitWatch) -> None:
    """No more of a queue ran at once than its max_running."""
    seen = ", ".join(f"{queue} {watch.most[queue]} of {limit}" for queue, limit in LIMITS.items())
    story.expect(
        watch.error is None
        and watch.looks > 100
        and all(watch.most[queue] <= limit for queue, limit in LIMITS.items()),
        f"the limits held in all {watch.looks:,} looks; the most that ran at once: {seen}",
    )


def check_rate(story: Story, conn: psycopg.Connection) -> None:
    """In any time, no more cache refreshes began than rate and burst allow."""
    claimed = [
        row[0]
        for row in conn.execute(
            """select extract(epoch from claimed_at)::float8 from taskq.finished
                where queue = 'cache' and claimed_at is not null order by claimed_at"""
        )
    ]
    # From each begin to each later one: the first takes from the burst like the rest.
    excess = max(
        (later - first + 1 - (RATE * (claimed[later] - claimed[first]) + BURST)
         for first in range(len(claimed)) for later in range(first, len(claimed))),
        default=0.0,
    )  # fmt: skip
    fastest = max((sum(0 <= other - begin < 1 for other in claimed) for begin in claimed), default=0)
    story.expect(
        len(claimed) > 0 and excess < 0.001,
        f"the rate held: {len(claimed)} cache refreshes, at most {fastest} began within a second "
        f"({RATE} a second with a burst of {BURST})",
    )


def check_leases(story: Story, logs: Path) -> None:
    """No living worker lost a lease: their heartbeats kept them."""
    lost = [event["task"] for event in events(logs) if event["event"].startswith("lease lost")]
    story.expect(not lost, "no living worker lost a lease" + named("lost", lost))


def check_waiting(story: Story, conn: psycopg.Connection, task_id: int, stops: list[Stop]) -> None:
    """Workers sleep instead of polling: a task that came when all slept woke one, and SIGTERM woke each."""
    woken = scalar(
        conn,
        "select extract(epoch from claimed_at - enqueued_at)::float8 from taskq.finished where id = %s",
        task_id,
    )
    # On a busy machine it may take a while, but not the 30 s after which they look anyway.
    story.expect(
        woken < 15 and {stop.asleep_in for stop in stops} == {"taskq.wait", "LISTEN"}
        and all(stop.status == 0 and stop.seconds < 12 for stop in stops),
        f"sleeping workers: one had the long report {woken * 1000:.0f} ms after it was enqueued, "
        f"and all {len(stops)} ended within {max(stop.seconds for stop in stops):.1f} s when told to",
    )  # fmt: skip


def check_samples(story: Story, conn: psycopg.Connection) -> None:
    """The keeper's samples tell the same as the tasks themselves."""
    truth = scalar(conn, "select count(*) from taskq.finished where state = 'succeeded'")

    def sampled() -> int:
        return int(scalar(conn, "select sum(succeeded) from taskq.history"))

    # The last ones are in the next sample.
    every = scalar(conn, "select extract(epoch from every)::float8 from taskq.duties where duty = 'sample'")
    begin = time.monotonic()
    while sampled() < truth and time.monotonic() < begin + 2 * every + 5:
        time.sleep(0.1)
    found = sampled()
    story.expect(found == truth, f"the samples of taskq.history add up: {found} tasks succeeded, as there are")


def check_alerts(story: Story, conn: psycopg.Connection, maildir: Path) -> None:
    """The operator was told of each alert when it began, when it was repeated, and when it was over."""
    # Distinct Message-IDs: the listener may send an alert twice, never zero times.
    mails = {mail.message_id: mail.subject for mail in read_mails(maildir) if mail.recipient == OPERATOR_ADDRESS}
    told = Counter(tuple(subject.removeprefix("[taskq] ").split(": ", 1)) for subject in mails.values())
    of_email, of_drill = "dead_letters in queue email", f"dead_letters in queue {DRILL_QUEUE}"
    repeated = told.pop(("repeated", of_email), 0)
    told.pop(("repeated", of_drill), 0)  # on a machine that is very busy
    due = scalar(
        conn,
        """select floor(extract(epoch from cleared_at - raised_at) / nullif(extract(epoch from
                        current_setting('taskq.alert_repeat')::interval), 0))
             from taskq.alerts where queue = 'email'""",
    )
    # (each repetition counts from the one before, and a round of the keeper may come late)
    story.expect(
        told == Counter([("raised", of_email), ("cleared", of_email), ("raised", of_drill), ("cleared", of_drill)])
        and int(due or 0) // 2 <= repeated <= int(due or 0),
        f"the operator got a mail when each of 2 alerts was raised, {repeated} while one stayed open, "
        "and one when each was cleared",
    )


def check_drill(story: Story, steps: list[Step]) -> None:
    """Every step held, a person who was told included."""
    failed = [step.step for step in steps if not step.ok]
    missing = f" (not: {', '.join(failed)})" if failed else ""
    story.expect(
        len(steps) > 0 and not failed, f"the drill: {len(steps) - len(failed)} of {len(steps)} steps held{missing}"
    )


def check_board(story: Story, conn: psycopg.Connection, board: Path) -> None:
    """The board shows what the views say."""
    page = board.read_text()
    shown = {name: int(value.replace(",", "")) for name, value in re.findall(r"<dt>(\w[\w ]+)</dt><dd>([\d,]+)</dd>", page)}
    dead = scalar(conn, "select count(*) from taskq.dead_letters")
    redrives = html.unescape(page).count("select * from taskq.redrive(queue =>")
    pairs = scalar(conn, "select count(distinct (queue, task_type)) from taskq.dead_letters")
    story.expect(
        shown.get("Dead letters") == dead and shown.get("Ready") == 0 and redrives == pairs and "No samples yet" not in page,
        f"the board shows them, too: {shown.get('Dead letters')} dead letters, with the calls that redrive them, and the curve",
    )


def named(what: str, found: list[int]) -> str:
    """The first few of a list that should be empty."""
    return f" ({what}: {', '.join(map(str, found[:10]))})" if found else ""


def check_diagnoses(story: Story, diagnoses: list[Diagnosis]) -> None:
    """What was wrong, and what the database said first."""
    for said in diagnoses:
        text = f"{said.first.cause}; {said.first.evidence}"
        story.expect(
            said.first.finding == said.expected and said.names in text,
            f"{said.fault}: diagnose said first: {said.first.cause}",
        )
