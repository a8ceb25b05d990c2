"""A worker: claim, work, complete; and sleep while there is nothing to do.

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
- When somebody wants a running task cancelled, the heartbeat learns of it. A handler that
  asks should_stop() now and then stops; the task is released, and ends cancelled.
- Nothing to claim: it sleeps until there may be something (waiting.py). SIGTERM wakes it.
"""

import argparse
import json
import signal
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import psycopg
from psycopg.rows import class_row

from effects import PermanentFailure, Surroundings
from handlers import HANDLERS, Job, Stopped
from heartbeat import Heartbeat
from waiting import ByCall, ByListening, Waiting

LEASE_LOST = "TQ001"


@dataclass(frozen=True)
class Task:
    """One row of taskq.claim()."""

    id: int
    token: int
    task_type: str
    payload: dict[str, Any]
    headers: dict[str, Any] | None
    attempt: int
    priority: int
    lease_seconds: float


class Worker:
    """Claims up to `batch` tasks at a time from every queue and works through them."""

    def __init__(self, name: str, batch: int, listen: bool) -> None:
        self.name = name
        self.batch = batch
        self.listen = listen
        self.to = Surroundings.from_environment()
        self.stopping = threading.Event()
        self.asleep = False

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Signal handler: finish the task at hand, give the others back, leave."""
        self.stopping.set()
        if self.asleep:
            # Wakes sleep(): psycopg ends the statement in the server and passes the exception on.
            self.asleep = False
            raise KeyboardInterrupt

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
        waiting = ByListening(self.name) if self.listen else ByCall(conn)
        with closing(waiting), Heartbeat(self.name, self.log) as heartbeat:
            while not self.stopping.is_set():
                tasks = self.claim(conn)
                if not tasks:
                    self.sleep(waiting)
                    continue
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

    def sleep(self, waiting: Waiting) -> None:
        """Wait for something to claim, or to be told to stop."""
        try:
            self.asleep = True
            if not self.stopping.is_set():
                waiting.wait()
        except KeyboardInterrupt:
            pass
        finally:
            self.asleep = False

    def claim(self, conn: psycopg.Connection) -> list[Task]:
        """Take the next tasks, highest priority first."""
        with conn.cursor(row_factory=class_row(Task)) as cursor:
            tasks = cursor.execute(
                """select id, token, task_type, payload, headers, attempt, priority,
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
        job = Job(conn, self.to, task.id, task.payload, task.headers or {}, lambda: heartbeat.should_stop(task.id))
        try:
            with conn.transaction():
                result = handler(job)
                heartbeat.drop(task.id)
                conn.execute(
                    "select taskq.complete(%s, %s, %s)",
                    (task.id, task.token, json.dumps(result)),
                )
            self.log("completed", task=task.id, ms=round((time.monotonic() - begin) * 1000, 1))
        except Stopped as stopped:
            # Rolled back, too. Released, a task that somebody wants cancelled ends cancelled.
            self.log("stopped at", task=task.id, done=stopped.done)
            self.release(conn, task, heartbeat)
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
    options.add_argument("--listen", action="store_true", help="wait by LISTEN instead of CALL taskq.wait")
    arguments = options.parse_args()

    worker = Worker(arguments.name, arguments.batch, arguments.listen)
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    with suppress(KeyboardInterrupt):  # stop() may come when sleep() has just ended: nothing is held then
        worker.run()


if __name__ == "__main__":
    main()
