"""Runs the blocks of the README that stand behind the comments <!-- tour --> and <!-- worker.py -->.

In the tour, lines that begin with a prompt of psql are typed in; the lines up to the next prompt must
be what comes out, except for times, long numbers and the width of columns. The worker is started on
tasks of every kind and must leave each in its right state.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

PROMPT = re.compile(r"^\w+([=-])[*!]?# ?")
TASKS = {  # payload of the task -> state it must reach; type, lease and expectations as in the README
    "good": ("mail.welcome", '{"customer": 71}', "succeeded"),
    "twice": ("mail.welcome", '{"customer": 71}', "succeeded"),
    "bad": ("mail.welcome", '{"customer": null}', "dead"),
    "slow": ("mail.welcome", '{"customer": 72, "seconds": 5}', "succeeded"),
    "unknown": ("no.such.handler", "{}", "scheduled"),
}


def block(readme: str, name: str) -> str:
    """The code behind a comment."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n+```\w*\n(.*?)```\n", readme, re.DOTALL)
    if found is None:
        sys.exit(f"README.md has no block {name}")
    return found[1]


def steps(tour: str) -> list[tuple[list[str], str]]:
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
    return [(typed, "\n".join(out)) for typed, out in found]


def masked(text: str) -> list[str]:
    """The text without what differs from run to run."""
    text = re.sub(r"\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d)?", "<time>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "<date>", text)
    text = re.sub(r"\d{3,}", "<number>", text)
    text = re.sub(r"--+", "--", re.sub(r" +", " ", text))
    return [line.strip() for line in text.splitlines() if line.strip()]


def psql(typed: list[list[str]]) -> list[str]:
    """Feed psql; what comes out of each step. A terminal keeps results and errors in their order."""
    terminal, end = pty.openpty()
    command = ["psql", "-X", "-P", "pager=off", "-v", "VERBOSITY=default", "-d", "postgres"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=end, stderr=end, text=True) as process:
        os.close(end)
        lines = [line for step in typed for line in ["\\echo @@step@@", *(PROMPT.sub("", line) for line in step)]]
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.close()
        output = b""
        while True:
            try:
                output += os.read(terminal, 65536)
            except OSError:  # Linux says EIO when the other end is closed
                break
    return output.decode().replace("\r\n", "\n").split("@@step@@\n")[1:]


def check_tour(path: Path) -> list[bool]:
    """One result for each step."""
    readme = path.read_text()
    tour = block(readme, "tour")
    shown = steps(tour)
    real = psql([typed for typed, _ in shown])
    if os.environ.get("ACCEPT"):
        lines = [part for (typed, _), out in zip(shown, real, strict=True) for part in [*typed, *out.splitlines()]]
        path.write_text(readme.replace(tour, "\n".join(line.rstrip() for line in lines).rstrip() + "\n"))
        return [True]
    results = []
    for (typed, expected), out in zip(shown, real, strict=True):
        results.append(masked(expected) == masked(out))
        if not results[-1]:
            print("tour differs at:", *typed, "README:", expected, "real:", out, sep="\n")
    return results


def check_worker(path: Path) -> list[bool]:
    """One result for each task, and one for the worker's end."""
    ids = {}
    with psycopg.connect("dbname=shop", autocommit=True) as conn, tempfile.TemporaryDirectory() as folder:
        for name, (task_type, payload, _) in TASKS.items():
            row = conn.execute("select taskq.enqueue(%s, %s)", (task_type, payload)).fetchone()
            ids[name] = row[0]
        script = Path(folder, "worker.py")
        script.write_text(block(path.read_text(), "worker.py").replace("LEASE = 60", "LEASE = 2"))
        with subprocess.Popen([sys.executable, script], env={**os.environ, "PGDATABASE": "shop"}) as worker:
            state = {}
            for _ in range(200):
                time.sleep(0.1)
                for name, task_id in ids.items():
                    row = conn.execute("select state, attempt from taskq.status(%s)", (task_id,)).fetchone()
                    state[name] = row[0]
                    if name == "slow" and row[1] > 1:
                        state[name] = "claimed twice"
                if all(state[name] == wanted for name, (_, _, wanted) in TASKS.items()):
                    break
            worker.send_signal(signal.SIGTERM)
        once = conn.execute("select count(*) from welcomed where customer = 71").fetchone()
    print("worker:", state, "exit", worker.returncode)
    return [*(state[name] == wanted for name, (_, _, wanted) in TASKS.items()), worker.returncode == 0, once == (1,)]


if __name__ == "__main__":
    readme_file = Path(sys.argv[1])
    outcome = [*check_tour(readme_file), *check_worker(readme_file)]
    print(f"{sum(outcome)} passed, {len(outcome) - sum(outcome)} failed")
    sys.exit(0 if all(outcome) else 1)
