"""Two ways to sleep until there may be something to claim. README.md says when to use which."""

from typing import Protocol

import psycopg

LOOK_ANYWAY = 30  # seconds


class Waiting(Protocol):
    """Sleeps; what ends it early is only a hint that a claim is worth trying."""

    def wait(self) -> None:
        """Return when something may be claimable, and now and then in any case."""

    def close(self) -> None:
        """Give back what it holds."""


class ByCall:
    """CALL taskq.wait on the connection that claims: nothing else is needed."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn

    def wait(self) -> None:
        """Sleep in the server. What has come since the last claim is not missed."""
        self._conn.execute(f"call taskq.wait(timeout => '{LOOK_ANYWAY} s')")

    def close(self) -> None:
        """Nothing: the connection is the worker's."""


class ByListening:
    """LISTEN taskq_ready on a connection of its own, and a look every 30 seconds beside it.

    To be made before the first claim: what comes after that is notified.
    """

    def __init__(self, name: str) -> None:
        self._conn = psycopg.connect(autocommit=True, application_name=f"{name} listening")
        self._conn.execute("listen taskq_ready")

    def wait(self) -> None:
        """Sleep until a notification comes; several that came meanwhile are read as one."""
        for _queue in self._conn.notifies(timeout=LOOK_ANYWAY, stop_after=1):
            pass  # this worker takes from every queue

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()
