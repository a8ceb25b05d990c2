"""Sets the stage: folders, a database of the company's own, roles, settings, the mail server."""

import os
import random
import shutil
import socket
from datetime import datetime
from pathlib import Path

import psycopg

from processes import HERE, Processes
from story import Story, StoryEnds

DATABASE = "approval"
ROLES = ("approval_web", "approval_worker", "approval_operator", "approval_listener")
OPERATOR_ADDRESS = "operator@example.com"
MISTYPED_ADDRESS = "purchasng@example.org"
CORRECT_ADDRESS = "purchasing@example.org"
FULL_ADDRESS = "archive@example.org"
DRILL_QUEUE = "taskq.drill"


class Stage:
    """Everything the acts of the demo share."""

    def __init__(self, out: Path) -> None:
        self.story = Story()
        self.out = out
        self.charts, self.maildir, self.logs = out / "charts", out / "mail", out / "logs"
        self.board = out / "board.html"
        for folder in (self.charts, self.maildir, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.charts, self.logs):
            folder.mkdir(parents=True)
        self.processes = Processes(self.logs)
        self.story.watch = self.check_processes
        self.smtp_port = free_port()
        self._alerts_told = 0
        self.sample_told: datetime | None = None  # the newest point of the backlog curve that was printed
        # The chart library keeps a cache of fonts; the home folder may not be writable.
        os.environ["MPLCONFIGDIR"] = str(out / "matplotlib")

    def check_processes(self) -> None:
        """End the story when a process that should run has failed."""
        if died := self.processes.died():
            raise StoryEnds(f"ended by itself: {', '.join(died)}; see its log")

    def connect(self, role: str) -> psycopg.Connection:
        """A connection to the company's database."""
        return psycopg.connect(dbname=DATABASE, user=role, autocommit=True, application_name=f"demo {role}")

    def create_database(self) -> None:
        """Create the database, the extension, the tables and the roles."""
        with psycopg.connect(autocommit=True) as admin:
            admin.execute(f"drop database if exists {DATABASE} with (force)")
            for role in ROLES:
                admin.execute(f"drop role if exists {role}")
            admin.execute(f"create database {DATABASE}")
        with psycopg.connect(dbname=DATABASE, autocommit=True) as admin:
            self.create_extension(admin)
            for file in ("schema.sql", "roles.sql"):
                admin.execute((HERE / file).read_bytes())
        with self.connect("approval_operator") as operator:
            operator.execute((HERE / "settings.sql").read_bytes())

    def create_extension(self, admin: psycopg.Connection) -> None:
        """The one line that a company needs."""
        admin.execute("create extension taskq")

    def start_mail_server(self) -> None:
        """Start the SMTP server and wait until it answers."""
        refused = (f"{MISTYPED_ADDRESS}=550 5.1.1 no such mailbox", f"{FULL_ADDRESS}=452 4.2.2 mailbox full")
        command = ["mail_server.py", "--port", str(self.smtp_port), "--maildir", str(self.maildir)]
        self.processes.start("mail-server", *command, "--refuse", refused[0], "--refuse", refused[1])
        self.story.wait_until("the mail server answers", lambda: answers(self.smtp_port))

    def start_alert_listener(self) -> None:
        """Start the program that mails the operator."""
        self.processes.start(
            "alert-listener", str(HERE.parent / "alert_listener" / "alert_listener.py"),
            "--smtp", f"127.0.0.1:{self.smtp_port}", "--from", "taskq@example.com", "--to", OPERATOR_ADDRESS,
            "--acknowledge", DRILL_QUEUE,  # the person on duty, for the drill
            PGDATABASE=DATABASE, PGUSER="approval_listener",
        )  # fmt: skip
        log = self.processes.log_of("alert-listener")
        self.story.wait_until("the alert listener listens", lambda: "listening on" in log.read_text())

    def new_alerts(self) -> list[str]:
        """What the alert listener has received since the last call."""
        lines = self.processes.log_of("alert-listener").read_text().splitlines()
        received = [line.partition(" received ")[2] for line in lines if " received " in line]
        new, self._alerts_told = received[self._alerts_told :], len(received)
        return new

    def start_worker(self, name: str, *options: str) -> int:
        """Start one worker process and return its process id."""
        process = self.processes.start(
            name, "worker.py", name, *options, PGDATABASE=DATABASE, PGUSER="approval_worker",
            CHARTS=str(self.charts), SMTP_HOST="127.0.0.1", SMTP_PORT=str(self.smtp_port),
        )  # fmt: skip
        return process.pid

    def start_load(self, count: int, per_second: float) -> None:
        """Start the process that plays the users."""
        self.processes.start(
            "load", "submit.py", "--count", str(count), "--per-second", str(per_second),
            PGDATABASE=DATABASE, PGUSER="approval_web",
        )  # fmt: skip


def free_port() -> int:
    """A port nobody listens on, to be used again after the outage.

    Not one of those the system gives to outgoing connections (from 32768 on Linux):
    while the server is down a client could get it, and even connect to itself.
    """
    while True:
        port = random.randint(20000, 31999)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def answers(port: int) -> bool:
    """Whether an SMTP server greets on the port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            return probe.recv(3) == b"220"
    except OSError:
        return False
