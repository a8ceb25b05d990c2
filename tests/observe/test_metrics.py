"""taskq.metrics() itself: its form, and whether it says what is there."""

import pathlib
import re
import subprocess
import tomllib
import unittest

import psycopg

import stage

VERSION = tomllib.loads((pathlib.Path(__file__).parents[2] / "Cargo.toml").read_text())["package"]["version"]
SAMPLE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? ([-+.\deInf]+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def parse(text: str) -> Samples:
    """The samples of an exposition, by name and labels."""
    samples: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            found = SAMPLE.match(line)
            assert found, line
            labels = tuple(sorted((name, unescape(content)) for name, content in LABEL.findall(found[2] or "")))
            assert (found[1], labels) not in samples, f"twice: {line}"
            samples[found[1], labels] = float(found[3])
    return samples


def metrics(conn: psycopg.Connection) -> Samples:
    return parse(str(stage.value(conn, "select taskq.metrics()")))


def of(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


class Form(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.conn = stage.new_database("metrics")
        stage.work(cls.conn)
        stage.eventually("the keeper has counted", lambda: stage.value(
            cls.conn, "select bool_and(exact) from taskq.queues"))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.conn.close()

    def test_promtool_has_nothing_to_say(self) -> None:
        text = str(stage.value(self.conn, "select taskq.metrics()"))
        checked = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""))

    def test_every_metric_has_help_and_type_once_before_its_samples(self) -> None:
        text = str(stage.value(self.conn, "select taskq.metrics()"))
        seen: dict[str, str] = {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name, _, words = line.removeprefix("# HELP ").partition(" ")
                self.assertNotIn(name, seen)
                self.assertTrue(words.endswith("."), line)
                seen[name] = ""
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertEqual(seen.get(name), "", line)
                seen[name] = kind
                self.assertEqual(kind == "counter", name.endswith("_total"), line)
                self.assertTrue(kind != "histogram" or name.endswith("_seconds"), line)
            else:
                name = re.split(r"[{ ]", line, maxsplit=1)[0]
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue(seen.get(name) or seen.get(base) == "histogram", line)
        self.assertGreater(len(seen), 20)

    def test_gauges_are_what_the_views_say(self) -> None:
        samples = metrics(self.conn)
        rows = self.conn.execute(
            """select t.queue, t.task_type, count(*) filter (where t.state = 'ready'), count(*) filter (where t.state = 'scheduled'),
                      count(*) filter (where t.state = 'running'), count(*) filter (where t.state = 'blocked')
                 from taskq.tasks t group by t.queue, t.task_type"""
        ).fetchall()
        self.assertGreaterEqual(len(rows), 6)
        for queue, task_type, *counts in rows:
            for name, count in zip(("ready", "scheduled", "running", "blocked"), counts, strict=True):
                with self.subTest(queue=queue, task_type=task_type, name=name):
                    self.assertEqual(of(samples, f"taskq_{name}_tasks", queue=queue, task_type=task_type), count)
        self.assertEqual(of(samples, "taskq_dead_letters", queue="mail", task_type="mail.invoice"), 6)
        self.assertEqual(of(samples, "taskq_blocked_tasks", queue="bills", task_type="bill.post"), 2)
        self.assertEqual(of(samples, "taskq_queue_paused", queue="newsletter"), 1)
        self.assertEqual(of(samples, "taskq_queue_paused", queue="mail"), 0)
        self.assertEqual(of(samples, "taskq_workers_asking", queue="newsletter"), 0)
        self.assertEqual(of(samples, "taskq_database_keeper_running", version=VERSION), 1)
        age = of(samples, "taskq_queue_oldest_ready_age_seconds", queue="mail")
        assert age is not None
        self.assertTrue(0 < age < 600, age)

    def test_counters_and_histograms_are_what_was_done(self) -> None:
        samples = metrics(self.conn)
        done = {
            "mail.invoice": {"enqueued": 6, "started": 6, "succeeded": 0, "failed": 6, "died": 6, "expired": 0, "cancelled": 0},
            "mail.welcome": {"enqueued": 40, "started": 16, "succeeded": 10, "failed": 6, "died": 0, "expired": 0, "cancelled": 0},
        }
        for task_type, counts in done.items():
            for name, count in counts.items():
                with self.subTest(name=name, task_type=task_type):
                    self.assertEqual(of(samples, f"taskq_tasks_{name}_total", queue="mail", task_type=task_type), count)
        for name, count in (("waiting", 16), ("run", 10), ("turnaround", 10)):
            labels = {"queue": "mail", "task_type": "mail.welcome"}
            metric = f"taskq_tasks_{name}_seconds"
            buckets = [
                (float(dict(key[1])["le"]), number) for key, number in samples.items()
                if key[0] == f"{metric}_bucket" and dict(key[1])["queue"] == "mail" and dict(key[1])["task_type"] == "mail.welcome"
            ]
            self.assertEqual(len(buckets), 15)
            numbers = [number for _, number in sorted(buckets)]
            self.assertEqual(numbers, sorted(numbers), "buckets are cumulative")
            self.assertEqual(numbers[-1], count)
            self.assertEqual(of(samples, f"{metric}_count", **labels), count)
            total = of(samples, f"{metric}_sum", **labels)
            assert total is not None
            self.assertGreater(total, 0)
            self.assertLess(total, 600 * count)

    def test_names_from_outside_are_escaped(self) -> None:
        name = 'a"b\\c d\u00e9'
        self.conn.execute("select taskq.enqueue(%s, queue => %s)", (name, name))
        self.assertEqual(of(metrics(self.conn), "taskq_ready_tasks", queue=name, task_type=name), 1)
        self.conn.execute("select taskq.purge('ready', queue => %s)", (name,))
        self.assertEqual(of(metrics(self.conn), "taskq_ready_tasks", queue=stage.EVIL, task_type=stage.EVIL), 2)

    def test_only_readers(self) -> None:
        with stage.connect("metrics", "observer") as reader:
            self.assertTrue(metrics(reader))
        with stage.connect("postgres") as admin:
            admin.execute("drop role if exists stranger")
            admin.execute("create role stranger login")
        with stage.connect("metrics", "stranger") as stranger, self.assertRaises(psycopg.errors.InsufficientPrivilege):
            stranger.execute("select taskq.metrics()")

    def test_alerts_and_duties(self) -> None:
        samples = stage.eventually(
            "the alert is raised",
            lambda: (found := metrics(self.conn)) and of(found, "taskq_alerts_open", kind="dead_letters", queue="mail") and found,
        )
        self.assertEqual(of(samples, "taskq_alerts_open", kind="dead_letters", queue="mail"), 1)
        self.assertEqual(of(samples, "taskq_alerts_acknowledged", kind="dead_letters", queue="mail"), 0)
        duties = [row[0] for row in self.conn.execute("select duty from taskq.duties")]
        self.assertEqual(len(duties), 8)
        for duty in duties:
            self.assertEqual(of(samples, "taskq_duty_failing", duty=duty), 0)
        self.conn.execute("update taskq.duty set error = 'XX000: staged' where name = 'limits'")
        self.assertEqual(of(metrics(self.conn), "taskq_duty_failing", duty="limits"), 1)
        self.conn.execute("update taskq.duty set error = null where name = 'limits'")


class Bounds(unittest.TestCase):
    """Names from outside do not become series without end."""

    def test_the_first_pairs_have_series_and_the_rest_is_added_up(self) -> None:
        with stage.new_database("many") as conn:
            conn.execute("select taskq.enqueue('first', queue => 'zz')")
            conn.execute("select from taskq.claim(1) c, taskq.complete(c.id, c.token)")
            conn.execute("select taskq.enqueue('t' || n, queue => 'q' || n % 120) from generate_series(1, 600) n")
            conn.execute("select from taskq.claim(600, worker => 'w') c, taskq.complete(c.id, c.token)")
            conn.execute("select taskq.enqueue('t' || n, queue => 'q' || n % 120) from generate_series(1, 600) n")
            samples = metrics(conn)
            pairs = {(dict(key[1])["queue"], dict(key[1])["task_type"]) for key in samples if key[0] == "taskq_ready_tasks"}
            own = {pair for pair in pairs if pair[1] != "other"}
            self.assertEqual(len(own), 200)
            self.assertLessEqual(len({queue for queue, _ in pairs}), 101)
            self.assertIn(("other", "other"), pairs)
            self.assertIn(("zz", "first"), own, "first come, first served")
            for name, number in (("ready_tasks", 600), ("tasks_enqueued_total", 1201), ("tasks_succeeded_total", 601)):
                with self.subTest(name=name):
                    self.assertEqual(sum(number for key, number in samples.items() if key[0] == f"taskq_{name}"), number)
            whole = sum(number for key, number in samples.items() if key[0] == "taskq_tasks_run_seconds_count")
            inf = sum(number for key, number in samples.items()
                      if key[0] == "taskq_tasks_run_seconds_bucket" and dict(key[1])["le"] == "+Inf")
            self.assertEqual((whole, inf), (601, 601))
            series = len(samples)
            self.assertLess(series, 100 * 64 + 200 * 64 + 700)

            # a name that comes before all others takes no series away
            conn.execute("select taskq.enqueue('a', queue => 'a')")
            after = metrics(conn)
            self.assertEqual({key for key in after if key[0].startswith("taskq_tasks_")},
                             {key for key in samples if key[0].startswith("taskq_tasks_")})

    def test_without_a_keeper_the_tasks_are_counted(self) -> None:
        with stage.new_database("keeperless") as conn:
            conn.execute("select taskq.enqueue('t', queue => 'q', delay => case when n > 3 then interval '1 hour' end) from generate_series(1, 5) n")
            conn.execute("alter database keeperless set taskq.keeper = off")
            stage.eventually("the keeper has left", lambda: not stage.value(
                conn, "select count(*) from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'keeperless'"))
            samples = metrics(conn)
            self.assertEqual(of(samples, "taskq_database_keeper_running", version=VERSION), 0)
            self.assertEqual(of(samples, "taskq_ready_tasks", queue="q", task_type="t"), 3)
            self.assertEqual(of(samples, "taskq_scheduled_tasks", queue="q", task_type="t"), 2)
            self.assertIsNone(of(samples, "taskq_workers_asking", queue="q"))
