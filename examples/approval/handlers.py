"""What a worker does for each task type.

A handler runs inside the worker's transaction and the worker completes the task in
the same one. It asks taskq.once() first: when this effect was already committed,
by whichever task or attempt, there is nothing left to do.
"""

from collections.abc import Callable
from typing import Any

import psycopg

import effects

Payload = dict[str, Any]
Handler = Callable[[psycopg.Connection, effects.Surroundings, int, Payload], dict[str, Any]]


def first_time(conn: psycopg.Connection, scope: str, approval_id: int) -> bool:
    """Record the effect in this transaction and say whether it is new."""
    row = conn.execute("select taskq.once(%s, %s)", (scope, str(approval_id))).fetchone()
    return row is not None and bool(row[0])


def message_id(task_id: int) -> str:
    """The Message-ID carries the task's id: a repeated delivery can be recognised as one."""
    return f"<task-{task_id}@approval.example.com>"


def report(conn: psycopg.Connection, to: effects.Surroundings, task_id: int, payload: Payload) -> dict[str, Any]:
    """approval.report: draw the chart."""
    if not first_time(conn, "report", payload["approval_id"]):
        return {"already": True}
    return {"file": effects.write_report(conn, to, payload["approval_id"])}


def mail(conn: psycopg.Connection, to: effects.Surroundings, task_id: int, payload: Payload) -> dict[str, Any]:
    """approval.mail: send the confirmation."""
    if not first_time(conn, "mail", payload["approval_id"]):
        return {"already": True}
    return {"to": effects.send_mail(conn, to, payload["approval_id"], message_id(task_id))}


def cache(conn: psycopg.Connection, to: effects.Surroundings, task_id: int, payload: Payload) -> dict[str, Any]:
    """approval.cache: refresh the start page."""
    if not first_time(conn, "cache", payload["approval_id"]):
        return {"already": True}
    effects.refresh_cache(conn, payload["approval_id"])
    return {}


HANDLERS: dict[str, Handler] = {
    "approval.mail": mail,
    "approval.report": report,
    "approval.cache": cache,
}
