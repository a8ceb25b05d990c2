"""The account at the end: every approval has what it must have, once, and nothing is lost."""

import hashlib
from collections import Counter, defaultdict
from pathlib import Path

import psycopg

from handlers import message_id
from observe import Held, events, read_mails, scalar
from stage import OPERATOR_ADDRESS
from story import Story

PNG = b"\x89PNG\r\n\x1a\n"


def check_tasks(story: Story, conn: psycopg.Connection) -> None:
    """The company's own account of its enqueues against taskq's."""
    enqueued = Counter(row[0] for row in conn.execute("select task_id from approval_task"))
    succeeded = Counter(row[0] for row in conn.execute("select id from taskq.finished where state = 'succeeded'"))
    other = scalar(conn, "select count(*) from taskq.finished where state <> 'succeeded'")
    dead = Counter(row[0] for row in conn.execute("select id from taskq.dead_letters"))
    left = scalar(conn, "select count(*) from taskq.tasks")
    ended = succeeded + dead
    story.expect(
        ended == enqueued and max(ended.values()) == 1 and left == 0 and other == 0,
        f"nothing is lost: {enqueued.total()} committed enqueues = {succeeded.total()} succeeded "
        f"+ {dead.total()} dead, {left} left over, and they are the same tasks",
    )


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
    """One refresh for each approval, and the figures are right."""
    refreshes = Counter(row[0] for row in conn.execute("select approval_id from cache_refresh"))
    approvals = Counter(row[0] for row in conn.execute("select id from approval"))
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
        refreshes == approvals and stale == 0,
        f"{approvals.total()} approvals, {refreshes.total()} cache refreshes, {stale} cached figures wrong",
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
    story.expect(
        expired == Counter(expected) and expected <= claimed_next,
        f"the {len(held)} tasks of the killed worker were taken back once, claimed by another worker, and have ended",
    )


def check_leases(story: Story, logs: Path) -> None:
    """No living worker lost a lease: their heartbeats kept them."""
    lost = [event["task"] for event in events(logs) if event["event"].startswith("lease lost")]
    story.expect(not lost, "no living worker lost a lease" + named("lost", lost))


def check_alerts(story: Story, maildir: Path) -> None:
    """The operator was told, when it began and when it was over."""
    # Distinct Message-IDs: the listener may send an alert twice, never zero times.
    subjects = {mail.message_id: mail.subject for mail in read_mails(maildir) if mail.recipient == OPERATOR_ADDRESS}
    raised = sum("raised" in subject for subject in subjects.values())
    cleared = sum("cleared" in subject for subject in subjects.values())
    story.expect(raised == 1 and cleared == 1, f"the operator got {raised} mail: raised, and {cleared} mail: cleared")


def named(what: str, found: list[int]) -> str:
    """The first few of a list that should be empty."""
    return f" ({what}: {', '.join(map(str, found[:10]))})" if found else ""
