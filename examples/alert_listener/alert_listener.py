#!/usr/bin/env python3
r"""Mails taskq's alerts to the person on duty.

    PGDATABASE=app PGUSER=alerts python alert_listener.py \
        --smtp mail.example.com:25 --from taskq@example.com --to operator@example.com

Listens on the channel taskq_alert of one database and sends a mail for each alert
that is raised, repeated (it is still open and nobody has acknowledged it) or
cleared. The database is named by libpq's environment variables
or by --dsn; the role needs taskq.grant_reader and nothing else. It needs Python
3.11 and psycopg 3.2.4 or newer.

A notification reaches only those who listen at that moment. So at every start, and
whenever the connection was lost, it also looks into taskq.alerts and mails what it
has missed. A mail that the SMTP server does not take is tried
again until it does: an alert may be mailed twice, never zero times. The Message-ID
carries the alert's id, its state and the time, so a second copy can be told from a
repeated alert.

With --acknowledge QUEUE it acknowledges the alerts of that queue as soon as their
mail is sent. That is for drills that must run without a person (in tests, in a
pipeline): they then prove the way to the mail server, and nothing about people. The
role also needs: grant execute on function taskq.acknowledge to ...
"""

import argparse
import json
import signal
import smtplib
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from types import FrameType
from typing import Any

import psycopg

CHANNEL = "taskq_alert"
STATES = ("raised", "repeated", "cleared")
LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Alert:
    """What a notification on taskq_alert says."""

    alert_id: int
    state: str
    kind: str
    queue: str | None
    value: Any
    limit: Any
    at: datetime

    @property
    def key(self) -> tuple[int, str, datetime]:
        """The same for the same news, also when they are read from taskq.alerts."""
        return self.alert_id, self.state, self.at

    @classmethod
    def from_json(cls, text: str) -> "Alert":
        """Read a payload; keys that a newer taskq may add are left alone."""
        found = json.loads(text)
        if found["state"] not in STATES:
            raise ValueError("unknown state")
        return cls(
            int(found["alert_id"]), str(found["state"]), str(found["kind"]),
            found.get("queue"), found.get("value"), found.get("limit"), datetime.fromisoformat(found["at"]),
        )  # fmt: skip

    def mail(self, sender: str, recipient: str) -> EmailMessage:
        """The alert as a mail."""
        where = f" in queue {self.queue}" if self.queue else ""  # some are about the whole database
        moment = self.at.astimezone(UTC)
        message = EmailMessage()
        message["From"] = sender
        message["To"] = recipient
        # On one line, whatever somebody has put into a notification.
        message["Subject"] = " ".join(f"[taskq] {self.state}: {self.kind}{where}".split())
        message["Message-ID"] = (
            f"<taskq-alert-{self.alert_id}-{self.state}-{moment:%Y%m%dT%H%M%S.%f}@{sender.split('@')[-1]}>"
        )
        message.set_content(
            f"Alert {self.alert_id} is {self.state}: {self.kind}{where}.\n\n"
            f"  value  {self.value}\n  limit  {self.limit}\n  at     {moment.isoformat()}\n\n"
            f"Look with: select * from taskq.alerts where id = {self.alert_id};\n"
        )
        return message


class Listener:
    """Turns notifications into mails, across restarts of either server."""

    def __init__(self, dsn: str, smtp: str, sender: str, recipient: str, acknowledge: str | None) -> None:
        self.dsn = dsn
        self.smtp_host, _, port = smtp.partition(":")
        self.smtp_port = int(port or 25)
        self.sender = sender
        self.recipient = recipient
        self.acknowledge = acknowledge
        self.mailed: set[tuple[int, str, datetime]] = set()
        self.open_here: set[int] = set()  # alerts whose beginning was mailed and whose end was not
        self.stopping = threading.Event()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Signal handler."""
        self.stopping.set()

    def log(self, text: str) -> None:
        """Print one line with the time."""
        print(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}", flush=True)

    def run(self) -> None:
        """Listen until told to stop; connect again when the server goes away."""
        pause = 1.0
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True, application_name="taskq alert listener") as conn:
                    pause = 1.0
                    self.listen(conn)
            except psycopg.OperationalError as error:
                self.log(f"no connection, next try in {pause:.0f} s: {str(error).strip()}")
                self.stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def listen(self, conn: psycopg.Connection) -> None:
        """LISTEN first and look second, so that nothing falls in between."""
        conn.execute(f"listen {CHANNEL}")
        self.log(f"listening on {CHANNEL}")
        for alert in missed_alerts(conn, sorted(self.open_here)):
            self.tell(conn, alert)
        while not self.stopping.is_set():
            # (read to the end first: while notifies() is at work it has the connection to itself)
            for note in list(conn.notifies(timeout=0.5, stop_after=1)):
                self.log(f"received {note.payload}")
                try:
                    alert = Alert.from_json(note.payload)
                except (ValueError, KeyError, TypeError) as error:
                    # Any role may NOTIFY: a foreign payload must not stop us.
                    self.log(f"not an alert: {error!r}")
                    continue
                self.tell(conn, alert)

    def tell(self, conn: psycopg.Connection, alert: Alert) -> None:
        """Mail one alert, and acknowledge it if that was asked for."""
        self.send(alert)
        asked_for = self.acknowledge is not None and alert.queue == self.acknowledge
        if asked_for and alert.state != "cleared" and alert.key in self.mailed:
            # Any role may NOTIFY: only an alert that really is about this queue is acknowledged.
            conn.execute(
                "select taskq.acknowledge(id) from taskq.alerts where id = %s and queue = %s",
                (alert.alert_id, alert.queue),
            )
            self.log(f"acknowledged alert {alert.alert_id}")

    def send(self, alert: Alert) -> None:
        """Mail one alert; keep trying while the SMTP server does not take it."""
        if alert.key in self.mailed:
            return
        message = alert.mail(self.sender, self.recipient)
        pause = 0.5
        while not self.stopping.is_set():
            try:
                with smtplib.SMTP(self.smtp_host, self.smtp_port, timeout=15) as smtp:
                    smtp.send_message(message)
            except OSError as error:  # every error of smtplib is an OSError
                self.log(f"mail not sent, next try in {pause:.1f} s: {error}")
                self.stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self.mailed.add(alert.key)
                if alert.state == "cleared":
                    self.open_here.discard(alert.alert_id)
                else:
                    self.open_here.add(alert.alert_id)
                self.log(f"mailed {message['Message-ID']} to {self.recipient}")
                return


def missed_alerts(conn: psycopg.Connection, open_here: list[int]) -> list[Alert]:
    """What may have happened while nobody listened.

    Alerts that are open and that nobody has acknowledged (of one that was repeated
    the last time), and the end of those that are still open as far as we know.
    """
    rows = conn.execute(
        """select id,
                  case when cleared_at is not null then 'cleared' when repeated_at is not null then 'repeated'
                       else 'raised' end,
                  kind, queue, value, alert_limit, coalesce(cleared_at, repeated_at, raised_at)
             from taskq.alerts
            where state = 'open' or (cleared_at is not null and id = any(%s))
            order by id""",
        (open_here,),
    )
    return [Alert(*row) for row in rows]


def main() -> int:
    """Read the options and listen."""
    options = argparse.ArgumentParser(description="Mail taskq's alerts to the person on duty.")
    options.add_argument("--dsn", default="", help="connection string; default: the PG… environment variables")
    options.add_argument("--smtp", default="localhost:25", metavar="HOST:PORT")
    options.add_argument("--from", dest="sender", required=True, metavar="ADDRESS")
    options.add_argument("--to", dest="recipient", required=True, metavar="ADDRESS")
    options.add_argument("--acknowledge", metavar="QUEUE", help="acknowledge the alerts of this queue, for drills")
    arguments = options.parse_args()
    listener = Listener(arguments.dsn, arguments.smtp, arguments.sender, arguments.recipient, arguments.acknowledge)
    signal.signal(signal.SIGTERM, listener.stop)
    signal.signal(signal.SIGINT, listener.stop)
    listener.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
