"""What a worker does for each task type.

A handler runs inside the worker's transaction and the worker completes the task in
the same one. It asks taskq.once() first: when this effect was already committed,
by whichever task or attempt, there is nothing left to do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

import effects


@dataclass(frozen=True)
class Job:
    """A task as its handler sees it."""

    conn: psycopg.Connection
    to: effects.Surroundings
    task_id: int
    payload: dict[str, Any]
    headers: dict[str, Any]
    should_stop: Callable[[], bool]  # somebody wants the task cancelled, or its lease is lost


class Stopped(Exception):
    """The handler has stopped because should_stop() said so; `done` says how far it was."""

    def __init__(self, done: str) -> None:
        super().__init__(done)
        self.done = done


def first_time(job: Job, scope: str, key: str) -> bool:
    """Record the effect in this transaction and say whether it is new."""
    row = job.conn.execute("select taskq.once(%s, %s)", (scope, key)).fetchone()
    return row is not None and bool(row[0])


def message_id(task_id: int) -> str:
    """The Message-ID carries the task's id: a repeated delivery can be recognised as one."""
    return f"<task-{task_id}@approval.example.com>"


def report(job: Job) -> dict[str, Any]:
    """approval.report: draw the chart."""
    approval_id = job.payload["approval_id"]
    if not first_time(job, "report", str(approval_id)):
        return {"already": True}
    return {"file": effects.write_report(job.conn, job.to, approval_id)}


def mail(job: Job) -> dict[str, Any]:
    """approval.mail: send the confirmation."""
    approval_id = job.payload["approval_id"]
    if not first_time(job, "mail", str(approval_id)):
        return {"already": True}
    return {"to": effects.send_mail(job.conn, job.to, approval_id, message_id(job.task_id))}


def cache(job: Job) -> dict[str, Any]:
    """approval.cache: refresh the start page. It counts anew, so it needs no once()."""
    effects.refresh_cache(job.conn, job.payload["partner_id"], job.task_id)
    return {}


def yearbook(job: Job) -> dict[str, Any]:
    """approval.yearbook: a long report, which looks after each page whether it should stop."""
    with effects.Yearbook(job.conn, job.to) as book:
        for page in book.pages():
            if job.should_stop():
                raise Stopped(f"page {page} of {book.length}")
            book.draw(page)
        return {"file": book.publish()}


def summary(job: Job) -> dict[str, Any]:
    """approval.summary: comes by a schedule, which says in the headers for when."""
    night = job.headers["scheduled_at"]
    if not first_time(job, "summary", night):
        return {"already": True}
    effects.write_summary(job.conn, night, job.task_id)
    return {}


HANDLERS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "approval.mail": mail,
    "approval.report": report,
    "approval.cache": cache,
    "approval.yearbook": yearbook,
    "approval.summary": summary,
}
