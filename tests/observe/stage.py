"""Databases with work in them, made with the verbs, and processes beside them."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg

OUT = Path(os.environ["OUT"])
ROOT = Path(__file__).resolve().parents[2]
EVIL = "<script>document.title='owned'</script>"
EVIL_ERROR = "<img src=x onerror=\"document.title='owned'\"> & <b>550</b> no such 'mailbox'"
EVIL_WORKER = '"><svg/onload=alert(1)>\\ mailer'
PATIENCE = 60  # seconds
T = TypeVar("T")


def connect(database: str, user: str | None = None) -> psycopg.Connection:
    return psycopg.connect(dbname=database, user=user, autocommit=True)


def value(conn: psycopg.Connection, query: str, *args: object) -> object:
    row = conn.execute(query, args).fetchone()
    assert row is not None, query
    return row[0]


def eventually(what: str, look: Callable[[], T]) -> T:
    """The first answer that is true. What we wait for takes as long as the machine is slow."""
    end = time.monotonic() + PATIENCE
    while not (answer := look()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.1)
    return answer


def new_database(name: str) -> psycopg.Connection:
    """A database with taskq, and the role observer, a reader of it."""
    with connect("postgres") as admin:
        admin.execute(f'drop database if exists "{name}" with (force)')
        admin.execute(f'create database "{name}"')
        if not value(admin, "select count(*) from pg_roles where rolname = 'observer'"):
            admin.execute("create role observer login")
    conn = connect(name)
    conn.execute("create extension taskq")
    conn.execute("select taskq.grant_reader('observer')")
    return conn


def work(conn: psycopg.Connection) -> None:
    """Some of everything: a queue that drains, one that nobody works on, one that is paused, names and
    errors that try to become markup, dead letters, a stuck task, workers."""
    do = conn.execute
    do("select taskq.configure_type('mail.invoice', '{\"max_retries\": 0}')")
    do("select taskq.configure_type('mail.welcome', '{\"backoff_base\": \"2 hours\"}')")  # they stay scheduled
    do("select taskq.enqueue('mail.welcome', queue => 'mail') from generate_series(1, 40)")
    do("select taskq.enqueue('mail.invoice', queue => 'mail', priority => 5) from generate_series(1, 6)")
    do("select taskq.enqueue('report.daily', queue => 'reports') from generate_series(1, 7)")
    do("select taskq.enqueue('report.monthly', queue => 'reports', delay => '2 days') from generate_series(1, 3)")
    do("select taskq.enqueue('news', queue => 'newsletter') from generate_series(1, 25)")
    do("select taskq.pause('newsletter')")
    do("select taskq.enqueue(%s, queue => %s) from generate_series(1, 2)", (EVIL, EVIL))
    do("select taskq.enqueue('bill.post', queue => 'bills', group_key => 'customer 1') from generate_series(1, 3)")
    for _ in range(6):  # dead letters
        fail(conn, "mail", EVIL_WORKER, EVIL_ERROR)
    # failures that are retried
    do("select taskq.fail(c.id, c.token, 'connect to 10.0.0.' || c.id || ' timed out') "
       "from taskq.claim(6, '{mail}', 'mailer-2') c")
    do("select taskq.complete(c.id, c.token) from taskq.claim(10, '{mail}', 'mailer-2') c")
    do("select from taskq.claim(2, '{reports}', 'reporter', '1 hour')")
    do("select from taskq.claim(3, '{bills}', 'biller', '1 hour')")


def fail(conn: psycopg.Connection, queue: str, worker: str, error: str) -> None:
    conn.execute(
        "select taskq.fail(c.id, c.token, %s) from taskq.claim(1, array[%s], %s) c", (error, queue, worker)
    )


def backfill(conn: psycopg.Connection) -> None:
    """A day of samples of two queues: nobody can wait for it."""
    conn.execute(
        """insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired,
                 cancelled, ready, scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95, run_p50, run_p95,
                 total_p50, total_p95, claimers)
           select date_trunc('second', clock_timestamp()) - g * interval '60 s', v.queue, v.task_type, 60, v.enqueued, v.started, v.started - 1,
                  case when g % 3 = 0 then 1 else 0 end, 1, 0, 0, 0, greatest(0, v.base * (1.3 + sin(g / 140.0) + 0.2 * sin(g / 17.0)))::int,
                  3, 2, 0, '10 s', 0.4, 1.5, v.run, v.run * 3, 1, 4, 2
             from generate_series(1, 1600) g,
                  (values ('mail', 'mail.welcome', 20, 0.2, 24, 20), ('reports', 'report.daily', 4, 4.5, 3, 4))
                    v(queue, task_type, base, run, enqueued, started)"""
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(name: str, command: list[str], **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the block ends; its output is in OUT."""
    with open(OUT / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}, cwd=OUT
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def fetch(url: str) -> str | None:
    """What a page says; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return None
