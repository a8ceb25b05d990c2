"""Runs the blocks of the README behind the comments <!-- tour -->, <!-- questions --> and <!-- worker.py -->.

In the tour and the questions, lines that begin with a prompt of psql are typed in; the lines up to the next prompt must be
what comes out, except for times, long numbers and the width of columns. The worker is started on tasks of
every kind and must bring each into its right state.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

QUESTIONS = Path(__file__).with_name("questions.sql")
PROMPT = re.compile(r"^\w+([=-])[*!]?# ?")
TASKS = [  # type, payload, the state it must reach with the settings of the tour
    ("mail.welcome", '{"customer": 71}', "succeeded"),
    ("mail.welcome", '{"customer": 71}', "succeeded"),
    ("mail.welcome", '{"address": "nobody"}', "dead"),
    ("mail.welcome", '{"customer": 72, "seconds": 5}', "succeeded"),  # lives from the heartbeat
    ("no.such.handler", "{}", "scheduled"),
    ("mail.welcome", '{"customer": 73, "seconds": 25}', "cancelled"),  # hears of it from the heartbeat
]


def block(readme: str, name: str) -> str:
    """The code behind a comment."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n+```\w*\n(.*?)```\n", readme, re.DOTALL)
    return found[1] if found else sys.exit(f"README.md has no block {name}")


def steps(tour: str) -> list[tuple[list[str], list[str]]]:
    """What is typed, with its prompts, and what comes out."""
    found: list[tuple[list[str], list[str]]] = []
    for line in tour.splitlines():
        prompt = PROMPT.match(line)
        if prompt is None:
            found[-1][1].append(line)
        elif prompt[1] == "=":
            found.append(([line], []))
        else:
            found[-1][0].append(line)
    return found


def masked(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run."""
    text = re.sub(r"\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d)?", "<time>", "\n".join(lines))
    text = re.sub(r"\b\d+(\.\d+)? (ms|s|min|h)\b", "<span>", text)
    text = re.sub(r"\d{3,}", "<number>", re.sub(r"\d{4}-\d\d-\d\d", "<date>", text))
    text = re.sub(r"--+", "--", re.sub(r" +", " ", text))
    return [line.strip() for line in text.splitlines() if line.strip()]


def psql(typed: list[list[str]], database: str) -> list[list[str]]:
    """What comes out of each step. A terminal keeps results and errors in their order."""
    terminal, end = pty.openpty()
    command = ["psql", "-X", "-P", "pager=off", "-d", database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=end, stderr=end, text=True) as process:
        os.close(end)
        lines = [line for step in typed for line in ["\\echo @@step@@", *(PROMPT.sub("", line) for line in step)]]
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.close()
        output = b""
        while True:
            try:
                output += os.read(terminal, 65536)
            except OSError:  # what Linux says when the other end is closed
                break
    return [out.splitlines() for out in output.decode().replace("\r\n", "\n").split("@@step@@\n")[1:]]


def check_session(path: Path, name: str, database: str) -> list[bool]:
    """One result for each step of a block."""
    readme = path.read_text()
    session = block(readme, name)
    shown = steps(session)
    real = psql([typed for typed, _ in shown], database)
    if os.environ.get("ACCEPT"):
        lines = [line.rstrip() for (typed, _), out in zip(shown, real, strict=True) for line in [*typed, *out]]
        path.write_text(readme.replace(session, "\n".join(lines) + "\n"))
        return []
    results = [masked(expected) == masked(out) for (_, expected), out in zip(shown, real, strict=True)]
    for good, (typed, expected), out in zip(results, shown, real, strict=True):
        if not good:
            print(f"the {name} differ:", *typed, "README:", *expected, "real:", *out, sep="\n")
    return results


def make_office() -> None:
    """The database in which the questions are asked."""
    with psycopg.connect("dbname=postgres", autocommit=True) as conn:
        conn.execute("create database office")
    subprocess.run(["psql", "-qXo", os.devnull, "-v", "ON_ERROR_STOP=1", "-d", "office", "-f", QUESTIONS], check=True)


def check_worker(path: Path) -> list[bool]:
    """One result for each task, one for its effects, and one for the worker's end."""
    look = "select s.state, s.attempt from unnest(%s::bigint[]) with ordinality i(id, n), taskq.status(i.id) s order by n"
    with psycopg.connect("dbname=shop", autocommit=True) as conn, tempfile.TemporaryDirectory() as folder:
        ids = [conn.execute("select taskq.enqueue(%s, %s)", task[:2]).fetchone()[0] for task in TASKS]
        script = Path(folder, "worker.py")
        script.write_text(block(path.read_text(), "worker.py").replace("LEASE = 60", "LEASE = 2"))
        with subprocess.Popen([sys.executable, script], env={**os.environ, "PGDATABASE": "shop"}) as worker:
            for _ in range(300):
                time.sleep(0.1)
                rows = conn.execute(look, (ids,)).fetchall()
                results = [state == wanted for (state, _), (_, _, wanted) in zip(rows, TASKS, strict=True)]
                if rows[5][0] == "running":
                    conn.execute("select taskq.cancel(%s, 'not wanted any more')", (ids[5],))
                if all(results) or worker.poll() is not None:
                    break
            worker.terminate()
        effects = conn.execute("select array_agg(customer order by customer) from welcomed where customer > 70").fetchone()
    print("worker:", rows, effects[0], "exit", worker.returncode)
    return [*results, rows[3][1] == 1, effects[0] == [71, 72], worker.returncode == 0]


if __name__ == "__main__":
    readme_file = Path(sys.argv[1])
    outcome = [*check_session(readme_file, "tour", "postgres"), *check_worker(readme_file)]
    make_office()
    outcome += check_session(readme_file, "questions", "office")
    print(f"{sum(outcome)} passed, {len(outcome) - sum(outcome)} failed")
    sys.exit(0 if all(outcome) else 1)
