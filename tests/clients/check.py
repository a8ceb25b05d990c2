"""The README's driver programs, directly and through a pooler; and the contract and a load through the pooler."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

from load import BURST, CLIENTS, LIMIT, LONG, RATE, SHORT, TASKS, Load
from pooler import Pooler

STATES = {  # what each program leaves: type, state, result, last error
    ("mail.welcome", "scheduled", None, None),
    ("a", "succeeded", '{"sent": true}', None),
    ("b", "succeeded", '{"sent": true}', None),
    ("c", "succeeded", None, None),
    ("d", "scheduled", None, "no such mailbox"),
}
LOOK = """
    select t.task_type, t.state, null, t.last_error from taskq.tasks t
    union all select f.task_type, f.state, f.result::text, null from taskq.finished f"""
results: list[bool] = []


def check(what: str, good: object, *more: object) -> None:
    good = bool(good)
    print(f"  {'ok' if good else 'NOT OK'}: {what}", *(() if good else more))
    results.append(good)


def environment(database: str) -> dict[str, str]:
    """Directly to the server, over TCP, as JDBC knows nothing else."""
    return {"PGHOST": "127.0.0.1", "PGPORT": os.environ["PGPORT"], "PGDATABASE": database, "PGUSER": "postgres"}


def database(name: str) -> psycopg.Connection:
    with psycopg.connect("dbname=postgres", autocommit=True) as conn:
        conn.execute(f"create database {name}")
    conn = psycopg.connect(f"dbname={name}", autocommit=True)
    conn.execute("create extension taskq")
    return conn


def programs(readme: str, folder: Path) -> dict[str, list[str]]:
    """The programs, written into the folder, and how each is run."""
    for name in ("driver.py", "driver.js", "Driver.java"):
        found = re.search(rf"<!-- {re.escape(name)} -->\n+```\w*\n(.*?)```\n", readme, re.DOTALL)
        (folder / name).write_text(found[1] if found else sys.exit(f"README.md has no block {name}"))
    return {
        "psycopg": [sys.executable, str(folder / "driver.py")],
        "node-postgres": ["node", str(folder / "driver.js")],
        "Rust": [f"{os.environ['BUILD']}/debug/taskq-client-tests"],
        "JDBC": ["java", "-cp", "/usr/share/java/postgresql.jar", str(folder / "Driver.java")],
    }


def drive(what: str, command: list[str], conn: psycopg.Connection, env: dict[str, str]) -> None:
    """Runs a program against an empty queue, and looks at what it left."""
    url = f"host={env['PGHOST']} port={env['PGPORT']} dbname={env['PGDATABASE']} user=postgres password={os.environ['PGPASSWORD']}"
    jdbc = f"jdbc:postgresql://{env['PGHOST']}:{env['PGPORT']}/{env['PGDATABASE']}?user=postgres&password={os.environ['PGPASSWORD']}"
    for statement in ("delete from taskq.task", "delete from taskq.done"):
        conn.execute(statement)
    done = subprocess.run(command, env={**os.environ, **env, "DATABASE_URL": url, "JDBC_URL": jdbc}, capture_output=True, text=True)
    left = conn.execute(LOOK).fetchall()
    good = done.returncode == 0 and done.stdout.split() == ["TQ001"] and set(left) == STATES and len(left) == len(STATES)
    check(what, good, done.stdout, done.stderr, left)


def check_drivers(readme: str, folder: Path, pooler: Pooler) -> None:
    with database("drivers") as conn:
        for name, command in programs(readme, folder).items():
            drive(f"{name}, directly", command, conn, environment("drivers"))
            # The Rust crate prepares every statement, which this pooler does not follow.
            if name != "Rust":
                drive(f"{name}, through PgBouncer", command, conn, pooler.environment("drivers"))


def check_keys(conn: psycopg.Connection, load: Load) -> None:
    """Of all clients with one key one got a new task; in each form the others were told what the form says."""
    told, done = load.answers, load.done
    good = [len(set(told[form])) == 1 and len(told[form]) == CLIENTS for form in ("ignore", "replace")]
    good += [told["skip"].count(None) == CLIENTS - 1 and len(told["skip"]) == CLIENTS]
    good += [len(told["error"]) == 1 and done["error TQ002"] == CLIENTS - 1]
    holders = {answer for answers in told.values() for answer in answers if answer is not None}
    kept = {task for task, in conn.execute("select id from taskq.task where queue = 'kept'")}
    keys = {task for task, in conn.execute("select task_id from taskq.unique_key where task_type = 'k'")}
    check("each key was given once, in all forms", all(good) and len(holders) == 4 and holders == kept == keys, good, told, kept, keys)


def check_load(pooler: Pooler) -> None:
    with database("loaded") as conn:
        conn.execute("create table business (client int, n int)")
        conn.execute("create table effect (task bigint)")
        where = pooler.environment("loaded")
        conn.execute("select taskq.configure_queue('work', %s)",
                     (Jsonb({"max_running": LIMIT, "rate": f"{RATE}/second", "burst": BURST}),))
        conn.execute("select taskq.configure_type('t', %s)", (Jsonb({"backoff_base": "0.2 s", "backoff_factor": 1}),))
        load = Load(f"host={where['PGHOST']} port={where['PGPORT']} dbname=loaded user=postgres")
        load.run(observer=conn)
        check("no client met an error", not load.errors, load.errors[:3])
        done = load.done
        connections = "select count(*) from pg_stat_activity where datname = 'loaded' and backend_type = 'client backend'"
        check("two server connections", conn.execute(connections).fetchone()[0] <= 3)  # and this one
        left = conn.execute(
            "select (select count(*) from taskq.task where queue = 'work'), (select count(*) from taskq.dead_letter),"
            " (select count(*) from taskq.done where queue = 'work'),"
            " (select count(*) from business), (select count(*) from effect), (select count(distinct task) from effect)"
        ).fetchone()
        print(f"  {CLIENTS} clients: {dict(done)}")
        check("every task was stored, and ended once", left[:3] == (0, done["dead"] - done["redriven"], done["succeeded"]), left)
        check("what was enqueued ended", done["enqueued"] == done["dead"] - done["redriven"] + done["succeeded"] and done["enqueued"] > 800)
        check("dead letters were redriven", done["redriven"] > 0)
        cancelled = conn.execute("select count(*) from taskq.done where queue = 'cancelled'").fetchone()[0]
        check("cancelled tasks were purged once", 0 < done["purged"] == done["cancelled"] - cancelled, cancelled)
        check_keys(conn, load)
        check("the limit was reached and kept", LIMIT / 2 <= load.most <= LIMIT, load.most)
        begun = conn.execute("select max(n) from (select count(*) over (order by claimed_at range between interval '1 s' preceding and current row)"
                             " from taskq.done where queue = 'work') x(n)").fetchone()[0]
        check("the rate was kept", 0 < begun <= RATE + BURST, begun)
        check("business and tasks are one", left[3] == done["enqueued"] - CLIENTS * TASKS // 2 and done["rolled_back"] > 0, left)
        check("each effect once", left[4] == left[5] == done["succeeded"] and done["repeated"] == 0, left)
        check("a second complete is told", done["TQ001"] == done["one_by_one"] > 0 and done["completed_again"] == 0)
        check("status knows what succeeded", done["status succeeded"] == done["one_by_one"])
        check("tasks ended together", done["together"] > 0 and done["failed_together"] > 0)
        check("leases ended", done["expired"] > 0)
        counted = conn.execute("select sum(succeeded), sum(retried), sum(dead), sum(expired), sum(running)"
                               " from taskq._figures() where queue = 'work'").fetchone()
        told = (done["succeeded"], done["retried"] + done["expired"], done["dead"], done["expired"], 0)
        check("the server counted the same", counted == told, counted, told)
        check("settings were changed", done["configured"] > 0 and done["misconfigured"] == 0)
        check("a pause held", done["pauses"] > 0 and done["claimed_in_pause"] == 0)
        none, woken = load.waits["none"], load.waits["woken"]
        check("a wait for nothing lasts its time", none and min(none) >= SHORT - 0.1, none)
        check("a wait ends when something comes", woken and max(woken) < LONG / 2 and done["woken"] == len(woken), woken)
        locks = "select count(*) from pg_locks where locktype = 'advisory'" \
            " and pid in (select pid from pg_stat_activity where backend_type = 'client backend')"
        check("no lock is left", conn.execute(locks).fetchone()[0] == 0)


def check_contract(pooler: Pooler) -> None:
    """pg_regress, with what it would ask for in its connections as settings of the database."""
    database("pooled").close()
    with psycopg.connect("dbname=postgres", autocommit=True) as conn:
        for setting in ("intervalstyle = 'postgres_verbose'", "timezone = 'PST8PDT'", "datestyle = 'Postgres, MDY'"):
            conn.execute(f"alter database pooled set {setting}")
    done = subprocess.run(["bash", "-c", "contract"], env={**os.environ, **pooler.environment("pooled")})
    if done.returncode:
        differences = Path(os.environ["work"], "regression.diffs")
        print(differences.read_text() if differences.exists() else "pg_regress did not run")
    ran = len(list(Path(os.environ["work"], "results").glob("*.out")))
    check("the contract, through PgBouncer", done.returncode == 0 and ran > 50, f"{ran} tests ran")


if __name__ == "__main__":
    work = Path(sys.argv[2])
    with Pooler(work) as pgbouncer:
        check_drivers(Path(sys.argv[1]).read_text(), work, pgbouncer)
        check_load(pgbouncer)
        check_contract(pgbouncer)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)
