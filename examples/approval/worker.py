"""A worker: claim, work, complete.

The loop is general; what it does for each task type stands in handlers.py. It takes
the database from the PG… environment variables and says what it does in one line
of JSON for each event. Start as many as you like.

How it treats a task:

- It claims on an autocommit connection, so a claim is committed before the work
  begins: when the worker dies, the attempt has been counted.
- The effect, once() and complete() are one transaction: all of them or none.
- On an error it rolls back, then fails the task in a new transaction.
- TQ001 says that the lease was taken back: somebody else may have the task now, so
  roll back and move on. It is not a failure of the task.
- A type it does not know is released, for a worker that does.
"""

import argparse
import json
import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import psycopg
from psycopg.rows import class_row

from effects import PermanentFailure, Surroundings
from handlers import HANDLERS
from heartbeat import Heartbeat

LEASE_LOST = "TQ001"


@dataclass(frozen=True)
class Task:
    """One row of taskq.claim()."""

    id: int
    token: int
    task_type: str
    payload: dict[str, Any]
    attempt: int
    priority: int
    lease_seconds: float


class Worker:
    """Claims up to `batch` tasks at a time from every queue and works through them."""

    def __init__(self, name: str, batch: int, poll_seconds: float) -> None:
        self.name = name
        self.batch = batch
        self.poll_seconds = poll_seconds
        self.to = Surroundings.from_environment()
        self.stopping = threading.Event()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Signal handler: finish the task at hand, give the others back, leave."""
        self.stopping.set()

    def log(self, event: str, **details: Any) -> None:
        """Print one event."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"at": at, "worker": self.name, "event": event, **details}), flush=True)

    def run(self) -> None:
        """Work until told to stop; connect again when the server goes away."""
        self.log("started")
        while not self.stopping.is_set():
            try:
                with psycopg.connect(autocommit=True, application_name=self.name) as conn:
                    self.serve(conn)
            except psycopg.OperationalError as error:
                # What we held is not lost: its lease ends and the tasks come back.
                self.log("disconnected", error=str(error).strip())
                self.stopping.wait(1.0)
        self.log("stopped")

    def serve(self, conn: psycopg.Connection) -> None:
        """Claim and work on one connection."""
        with Heartbeat(self.name, self.log) as heartbeat:
            while not self.stopping.is_set():
                tasks = self.claim(conn)
                if not tasks:
                    self.stopping.wait(self.poll_seconds)
                heartbeat.hold((task.id, task.token, task.lease_seconds) for task in tasks)
                for task in tasks:
                    if self.stopping.is_set() or heartbeat.cancel_requested(task.id):
                        # Released, a task goes back to its place in the queue and spends no
                        # attempt; one that somebody wants cancelled ends cancelled.
                        self.release(conn, task, heartbeat)
                    elif heartbeat.lost(task.id):
                        self.log("lease lost before the work", task=task.id)
                    else:
                        self.work(conn, task, heartbeat)

    def claim(self, conn: psycopg.Connection) -> list[Task]:
        """Take the next tasks, highest priority first."""
        with conn.cursor(row_factory=class_row(Task)) as cursor:
            tasks = cursor.execute(
                """select id, token, task_type, payload, attempt, priority,
                          extract(epoch from lease_expires_at - clock_timestamp())::float8 as lease_seconds
                     from taskq.claim(n => %s, worker => %s)""",
                (self.batch, self.name),
            ).fetchall()
        if tasks:
            claimed = [{"task": t.id, "type": t.task_type, "priority": t.priority, "attempt": t.attempt} for t in tasks]
            self.log("claimed", tasks=claimed)
        return tasks

    def work(self, conn: psycopg.Connection, task: Task, heartbeat: Heartbeat) -> None:
        """Do one task."""
        handler = HANDLERS.get(task.task_type)
        if handler is None:
            # Perhaps the other half of a deploy knows it. The delay keeps it from
            # coming straight back to us.
            self.release(conn, task, heartbeat, delay="10 s")
            return
        begin = time.monotonic()
        try:
            with conn.transaction():
                result = handler(conn, self.to, task.id, task.payload)
                heartbeat.drop(task.id)
                conn.execute(
                    "select taskq.complete(%s, %s, %s)",
                    (task.id, task.token, json.dumps(result)),
                )
            self.log("completed", task=task.id, ms=round((time.monotonic() - begin) * 1000, 1))
        except Exception as error:
            # The transaction is rolled back: no row of the effect is left.
            heartbeat.drop(task.id)
            if conn.closed:
                raise psycopg.OperationalError("the connection was lost during a task") from error
            if lease_lost(error):
                self.log("lease lost", task=task.id, error=str(error))
            else:
                self.fail(conn, task, error)

    def fail(self, conn: psycopg.Connection, task: Task, error: Exception) -> None:
        """Say that the task failed; its type's settings decide when it is tried again."""
        try:
            row = conn.execute(
                """select failed.state, extract(epoch from failed.run_at - clock_timestamp())::float8
                     from taskq.fail(%s, %s, %s, retry => %s) failed""",
                (task.id, task.token, str(error), not isinstance(error, PermanentFailure)),
            ).fetchone()
        except psycopg.Error as failing:
            if not lease_lost(failing):
                raise
            self.log("lease lost", task=task.id, error=str(failing))
            return
        assert row is not None
        state, wait = row
        self.log(
            "failed", task=task.id, type=task.task_type, attempt=task.attempt, error=str(error), state=state, wait=wait
        )

    def release(self, conn: psycopg.Connection, task: Task, heartbeat: Heartbeat, delay: str | None = None) -> None:
        """Give a task back without working on it."""
        heartbeat.drop(task.id)
        try:
            conn.execute("select taskq.release(%s, %s, %s::interval)", (task.id, task.token, delay))
        except psycopg.Error as error:
            if not lease_lost(error):
                raise
        self.log("released", task=task.id, type=task.task_type)


def lease_lost(error: Exception) -> bool:
    """Whether the database says that the lease is not ours any more."""
    return isinstance(error, psycopg.Error) and error.sqlstate == LEASE_LOST


def main() -> None:
    """Run one worker until SIGTERM or SIGINT."""
    options = argparse.ArgumentParser(description="A worker of the approval system.")
    options.add_argument("name", help="how this worker calls itself in taskq.running")
    options.add_argument("--batch", type=int, default=5, help="tasks to claim at a time")
    options.add_argument("--poll", type=float, default=0.15, metavar="SECONDS", help="pause when nothing is due")
    arguments = options.parse_args()

    worker = Worker(arguments.name, arguments.batch, arguments.poll)
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    worker.run()


if __name__ == "__main__":
    main()
