"""What the demo looks at while it runs: taskq's views, the mails, the workers' logs."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from mailbox import Maildir
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import class_row

QUEUES = ("email", "reports", "cache")
LIMITS = {"email": 8, "reports": 2}  # max_running in settings.sql


@dataclass(frozen=True)
class Backlog:
    """Unfinished tasks of a queue."""

    ready: int
    later: int  # waiting for its next try
    running: int

    def total(self) -> int:
        """All of them."""
        return self.ready + self.later + self.running


@dataclass(frozen=True)
class Held:
    """A task that a worker holds."""

    id: int
    task_type: str
    attempt: int
    lease_left: float


@dataclass(frozen=True)
class Mail:
    """A mail that reached the outside world."""

    message_id: str
    recipient: str
    subject: str
    approval_id: int | None


def scalar(conn: psycopg.Connection, query: str, *arguments: Any) -> Any:
    """The single value of a query."""
    row = conn.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def backlog(conn: psycopg.Connection) -> dict[str, Backlog]:
    """Unfinished tasks by queue."""
    rows = conn.execute("select queue, ready, scheduled, running from taskq.queues").fetchall()
    return {queue: Backlog(0, 0, 0) for queue in QUEUES} | {queue: Backlog(*counts) for queue, *counts in rows}


def samples(conn: psycopg.Connection, after: datetime | None = None) -> dict[datetime, dict[str, Backlog]]:
    """The backlog curve: what the keeper noted in taskq.history, by time and queue."""
    curve: dict[datetime, dict[str, Backlog]] = defaultdict(lambda: {queue: Backlog(0, 0, 0) for queue in QUEUES})
    for at, queue, *counts in conn.execute(
        """select at, queue, sum(ready)::int, sum(scheduled)::int, sum(running)::int
             from taskq.history
            where at > coalesce(%s::timestamptz, '-infinity') and queue = any(%s)
            group by at, queue order by at""",
        (after, list(QUEUES)),
    ):
        curve[at][queue] = Backlog(*counts)
    return curve


class LimitWatch:
    """Looks all the time how many tasks of each queue run, on a connection of its own.

    One statement is one look: it sees all tasks as they were at one moment.
    """

    EVERY = 0.03  # seconds

    def __init__(self, conn: psycopg.Connection) -> None:
        self.looks = 0
        self.most = dict.fromkeys(LIMITS, 0)
        self.error: Exception | None = None
        self._conn = conn
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limit watch", daemon=True)

    def __enter__(self) -> "LimitWatch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._thread.join()
        self._conn.close()

    def _run(self) -> None:
        """Look until closed."""
        try:
            while not self._closing.wait(self.EVERY):
                rows = self._conn.execute("select queue, count(*) from taskq.running group by queue").fetchall()
                self.looks += 1
                for queue, running in rows:
                    self.most[queue] = max(self.most.get(queue, 0), running)
        except psycopg.Error as error:
            self.error = error


def save_board(conn: psycopg.Connection, file: Path) -> None:
    """Write taskq's board as it is now; a browser shows the old page or the new one, never half of one."""
    new = file.with_suffix(".new")
    new.write_text(str(scalar(conn, "select taskq.dashboard()")))
    new.replace(file)


def unfinished(conn: psycopg.Connection) -> int:
    """How many tasks are waiting or running."""
    return int(scalar(conn, "select count(*) from taskq.tasks"))


def held_by(conn: psycopg.Connection, worker: str) -> list[Held]:
    """The tasks that a worker holds."""
    with conn.cursor(row_factory=class_row(Held)) as cursor:
        return cursor.execute(
            """select id, task_type, attempt,
                      extract(epoch from lease_expires_at - clock_timestamp())::float8 as lease_left
                 from taskq.running where worker = %s order by id""",
            (worker,),
        ).fetchall()


def sessions_of(conn: psycopg.Connection, worker: str) -> int:
    """How many database sessions a worker has."""
    query = "select count(*) from pg_stat_activity where application_name = %s or starts_with(application_name, %s)"
    return int(scalar(conn, query, worker, f"{worker} "))


def read_mails(maildir: Path) -> list[Mail]:
    """Every mail the SMTP server has accepted."""
    return [
        Mail(mail["Message-ID"], mail["To"], mail["Subject"], int(mail["X-Approval"]) if mail["X-Approval"] else None)
        for mail in Maildir(maildir, create=False)
    ]


def events(logs: Path) -> Iterator[dict[str, Any]]:
    """What the workers logged, each event once; a half line is what SIGKILL leaves."""
    for log in sorted(logs.glob("worker-*.log")):
        for line in log.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
