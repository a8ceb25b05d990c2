"""The heartbeat: prolongs the leases of a worker's tasks while it works.

A thread with a connection of its own, because the worker's connection is busy with
the work, for minutes perhaps. It beats at a third of the lease, so that one
beat may fail without harm.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import psycopg


@dataclass
class Lease:
    """A lease to be kept alive."""

    token: int
    interval: float
    next_beat: float


class Heartbeat:
    """Holds the tasks whose leases are to be prolonged."""

    def __init__(self, name: str, log: Callable[..., None]) -> None:
        self._name = name
        self._log = log
        self._changed = threading.Condition()  # guards everything below
        self._held: dict[int, Lease] = {}
        self._lost: set[int] = set()
        self._cancel: set[int] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def hold(self, tasks: Iterable[tuple[int, int, float]]) -> None:
        """Prolong these tasks, given as id, token and seconds of lease, from now on."""
        with self._changed:
            self._lost.clear()
            self._cancel.clear()
            for task_id, token, seconds in tasks:
                interval = max(seconds / 3, 0.05)
                self._held[task_id] = Lease(token, interval, time.monotonic() + interval)
            self._changed.notify()

    def drop(self, task_id: int) -> None:
        """Stop prolonging a task: called right before the task ends."""
        with self._changed:
            self._held.pop(task_id, None)

    def lost(self, task_id: int) -> bool:
        """Whether the lease was taken back."""
        with self._changed:
            return task_id in self._lost

    def cancel_requested(self, task_id: int) -> bool:
        """Whether somebody asked for the task to be cancelled."""
        with self._changed:
            return task_id in self._cancel

    def should_stop(self, task_id: int) -> bool:
        """Whether to go on with the task has no use: it is to be cancelled, or not ours any more."""
        return self.cancel_requested(task_id) or self.lost(task_id)

    def _run(self) -> None:
        """Beat until closed; a lost connection is replaced at the next beat."""
        while not self._closing:
            with ExitStack() as stack:
                try:
                    self._wait_until_due()
                    conn = psycopg.connect(autocommit=True, application_name=f"{self._name} heartbeat")
                    stack.enter_context(conn)
                    while not self._closing:
                        self._beat(conn)
                        self._wait_until_due()
                except psycopg.Error as error:
                    self._log("heartbeat failed", error=str(error).strip())
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, timeout=1.0)

    def _wait_until_due(self) -> None:
        """Sleep until a lease is a third over, or until closing."""
        with self._changed:
            while not self._closing:
                due = min((lease.next_beat for lease in self._held.values()), default=None)
                pause = None if due is None else due - time.monotonic()
                if pause is not None and pause <= 0:
                    return
                self._changed.wait(pause)

    def _beat(self, conn: psycopg.Connection) -> None:
        """Prolong the leases that are due."""
        now = time.monotonic()
        with self._changed:
            due = [(task_id, lease.token) for task_id, lease in self._held.items() if lease.next_beat <= now]
        for task_id, token in due:
            try:
                row = conn.execute("select cancel_requested from taskq.extend(%s, %s)", (task_id, token)).fetchone()
            except psycopg.Error as error:
                if error.sqlstate != "TQ001":
                    raise
                self._note_loss(task_id, token, error)
                continue
            with self._changed:
                if row is not None and row[0]:
                    self._cancel.add(task_id)
                if lease := self._held.get(task_id):
                    lease.next_beat = time.monotonic() + lease.interval

    def _note_loss(self, task_id: int, token: int, error: psycopg.Error) -> None:
        """The lease is gone, unless the worker itself has just ended the task."""
        with self._changed:
            lease = self._held.get(task_id)
            if lease is None or lease.token != token:
                return
            del self._held[task_id]
            self._lost.add(task_id)
        self._log("lease lost", task=task_id, error=str(error))
