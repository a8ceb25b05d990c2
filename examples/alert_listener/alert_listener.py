#!/usr/bin/env python3
r"""Mails taskq's alerts to the person on duty.

    PGDATABASE=app PGUSER=alerts python alert_listener.py \
        --smtp mail.example.com:25 --from taskq@example.com --to operator@example.com

Listens on the channel taskq_alert of one database and sends a mail for each alert
that is raised or cleared. The database is named by libpq's environment variables
or by --dsn; the role needs taskq.grant_reader and nothing else. It needs Python
3.11 and psycopg 3.2.4 or newer.

A notification reaches only those who listen at that moment. So at every start, and
whenever the connection was lost, it also looks into taskq.alerts and mails what it
has missed. A mail that the SMTP server does not take is tried
again until it does: an alert may be mailed twice, never zero times. The Message-ID
carries the alert's id and state.
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
    at: str

    @classmethod
    def from_json(cls, text: str) -> "Alert":
        """Read a payload; keys that a newer taskq may add are left alone."""
        found = json.loads(text)
        if found["state"] not in ("raised", "cleared"):
            raise ValueError("unknown state")
        return cls(
            int(found["alert_id"]), str(found["state"]), str(found["kind"]),
            found.get("queue"), found.get("value"), found.get("limit"), str(found.get("at")),
        )  # fmt: skip

    def mail(self, sender: str, recipient: str) -> EmailMessage:
        """The alert as a mail."""
        where = f" in queue {self.queue}" if self.queue else ""
        message = EmailMessage()
        message["From"] = sender
        message["To"] = recipient
        # On one line, whatever somebody has put into a notification.
        message["Subject"] = " ".join(f"[taskq] {self.state}: {self.kind}{where}".split())
        message["Message-ID"] = f"<taskq-alert-{self.alert_id}-{self.state}@{sender.split('@')[-1]}>"
        message.set_content(
            f"Alert {self.alert_id} is {self.state}: {self.kind}{where}.\n\n"
            f"  value  {self.value}\n  limit  {self.limit}\n  at     {self.at}\n\n"
            f"Look with: select * from taskq.alerts where id = {self.alert_id};\n"
        )
        return message


class Listener:
    """Turns notifications into mails, across restarts of either server."""

    def __init__(self, dsn: str, smtp: str, sender: str, recipient: str) -> None:
        self.dsn = dsn
        self.smtp_host, _, port = smtp.partition(":")
        self.smtp_port = int(port or 25)
        self.sender = sender
        self.recipient = recipient
        self.mailed: set[tuple[int, str]] = set()
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
        for alert in missed_alerts(conn, self.open_here()):
            self.send(alert)
        while not self.stopping.is_set():
            for note in conn.notifies(timeout=0.5):
                self.log(f"received {note.payload}")
                try:
                    alert = Alert.from_json(note.payload)
                except (ValueError, KeyError, TypeError) as error:
                    # Any role may NOTIFY: a foreign payload must not stop us.
                    self.log(f"not an alert: {error!r}")
                    continue
                self.send(alert)

    def open_here(self) -> list[int]:
        """The alerts whose beginning was mailed and whose end was not."""
        return [
            alert_id
            for alert_id, state in self.mailed
            if state == "raised" and (alert_id, "cleared") not in self.mailed
        ]

    def send(self, alert: Alert) -> None:
        """Mail one alert; keep trying while the SMTP server does not take it."""
        if (alert.alert_id, alert.state) in self.mailed:
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
                self.mailed.add((alert.alert_id, alert.state))
                self.log(f"mailed {message['Message-ID']} to {self.recipient}")
                return


def missed_alerts(conn: psycopg.Connection, open_here: list[int]) -> list[Alert]:
    """What may have happened while nobody listened.

    Alerts that are open and that nobody has acknowledged, and the end of those
    that are still open as far as we know.
    """
    rows = conn.execute(
        """select id, case when cleared_at is null then 'raised' else 'cleared' end, kind, queue, value, alert_limit,
                  coalesce(cleared_at, raised_at)::text
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
    arguments = options.parse_args()
    listener = Listener(arguments.dsn, arguments.smtp, arguments.sender, arguments.recipient)
    signal.signal(signal.SIGTERM, listener.stop)
    signal.signal(signal.SIGINT, listener.stop)
    listener.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
