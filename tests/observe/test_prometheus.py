"""The files of docker/ with the real programs: exporter, Prometheus, promtool."""

import json
import os
import re
import subprocess
import unittest
import urllib.parse

import stage
from test_metrics import metrics, parse

DOCKER = stage.ROOT / "docker"
# What changes by itself from one look to the next.
MOVES = re.compile(r"age_seconds|timestamp|held_seconds|workers_asking")


class Files(unittest.TestCase):
    def promtool(self, *arguments: str) -> None:
        checked = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn("SUCCESS", checked.stdout)

    def test_rules_are_valid(self) -> None:
        self.promtool("check", "rules", str(DOCKER / "prometheus/taskq.rules.yml"))

    def test_rules_raise_what_they_should_and_nothing_else(self) -> None:
        self.promtool("test", "rules", str(DOCKER / "prometheus/taskq.rules.test.yml"))

    def test_configuration_is_valid(self) -> None:
        self.promtool("check", "config", str(DOCKER / "prometheus/prometheus.yml"))

    def test_every_rule_has_a_test_of_both_kinds(self) -> None:
        rules = re.findall(r"- alert: (\w+)", (DOCKER / "prometheus/taskq.rules.yml").read_text())
        tests = (DOCKER / "prometheus/taskq.rules.test.yml").read_text()
        self.assertGreaterEqual(len(rules), 10)
        for rule in rules:
            with self.subTest(rule=rule):
                self.assertRegex(tests, rf"alertname: {rule}\}}")
                self.assertRegex(tests, rf"alertname: {rule}\n\s+exp_alerts:")


class Chain(unittest.TestCase):
    """taskq, the exporter with our queries, a Prometheus with our rules."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.conn = stage.new_database("chain")
        cls.addClassCleanup(cls.conn.close)
        stage.work(cls.conn)
        exporter_port, prometheus_port = stage.free_port(), stage.free_port()
        cls.exporter = f"http://127.0.0.1:{exporter_port}/metrics"
        cls.prometheus = f"http://127.0.0.1:{prometheus_port}"
        cls.enterClassContext(
            stage.running(
                "exporter",
                ["prometheus-postgres-exporter", f"--web.listen-address=127.0.0.1:{exporter_port}",
                 f"--extend.query-path={DOCKER / 'exporter/queries.yaml'}"],
                DATA_SOURCE_NAME=f"host={os.environ['PGHOST']} port={os.environ['PGPORT']} user=observer dbname=chain sslmode=disable",
            )
        )  # fmt: skip
        config = stage.OUT / "prometheus.yml"
        text = (DOCKER / "prometheus/prometheus.yml").read_text()
        for found, wanted in (("15s", "1s"), ("127.0.0.1:9187", f"127.0.0.1:{exporter_port}"),
                              ("[taskq.rules.yml]", f"['{DOCKER / 'prometheus/taskq.rules.yml'}']")):
            assert found in text
            text = text.replace(found, wanted)
        config.write_text(text)
        cls.enterClassContext(
            stage.running(
                "prometheus",
                ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{prometheus_port}",
                 f"--storage.tsdb.path={stage.OUT / 'prometheus-data'}"],
            )
        )  # fmt: skip
        stage.eventually("the exporter tells of taskq", lambda: "taskq_database_keeper_running" in (stage.fetch(cls.exporter) or ""))
        stage.eventually("Prometheus has scraped", lambda: stage.fetch(f"{cls.prometheus}/-/ready") and cls.query("taskq_ready_tasks"))

    @classmethod
    def query(cls, expression: str) -> list[dict[str, object]]:
        """What Prometheus answers, as it does for a board."""
        answer = stage.fetch(f"{cls.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        if answer is None:
            return []
        said = json.loads(answer)
        assert said["status"] == "success", answer
        return list(said["data"]["result"])

    def exposition(self) -> str:
        text = stage.fetch(self.exporter)
        assert text is not None
        return "".join(line + "\n" for line in text.splitlines() if re.match(r"(# \w+ )?taskq_", line))

    def test_the_exporter_says_what_metrics_says(self) -> None:
        def differences() -> list[object]:
            ours = {key: number for key, number in metrics(self.conn).items() if not MOVES.search(key[0])}
            theirs = {}
            for (name, labels), number in parse(self.exposition()).items():
                if not MOVES.search(name):
                    theirs[name, tuple(label for label in labels if label[0] != "server")] = number
            self.assertGreater(len(ours), 100)
            self.last = sorted(set(ours.items()) ^ set(theirs.items()), key=str)
            return self.last

        # (an alert may just be raised between the two)
        stage.eventually("both say the same", lambda: not differences() or None)
        self.assertEqual(self.last, [])

    def test_help_and_types_are_the_same(self) -> None:
        def notes(text: str) -> set[str]:
            return {line for line in text.splitlines() if line.startswith("# ")}

        ours = notes(str(stage.value(self.conn, "select taskq.metrics()")))
        self.assertEqual(ours, notes(self.exposition()))

    def test_prometheus_answers_with_what_is_in_the_database(self) -> None:
        found = self.query('sum by (queue) (taskq_ready_tasks{queue="newsletter"})')
        self.assertEqual([(one["metric"], one["value"][1]) for one in found], [({"queue": "newsletter"}, "25")])
        found = self.query(f'taskq_ready_tasks{{queue={json.dumps(stage.EVIL)}}}')
        self.assertEqual(found[0]["value"][1], "2")
        self.conn.execute("select taskq.enqueue('news', queue => 'newsletter')")
        stage.eventually("the new task is scraped", lambda: self.query('sum(taskq_ready_tasks{queue="newsletter"}) == 26'))

    def test_an_alert_fires_and_ends(self) -> None:
        def state(name: str) -> set[tuple[str, str, str]]:
            said = json.loads(stage.fetch(f"{self.prometheus}/api/v1/alerts") or '{"data": {"alerts": []}}')
            return {(alert["state"], alert["labels"].get("kind", ""), alert["labels"].get("queue", ""))
                    for alert in said["data"]["alerts"] if alert["labels"]["alertname"] == name}

        alert = ("firing", "dead_letters", "breaks")
        self.assertNotIn(alert, state("TaskqAlert"))
        self.conn.execute("select taskq.enqueue('t', queue => 'breaks') from generate_series(1, 4)")
        self.conn.execute("select taskq.fail(c.id, c.token, 'no', retry => false) from taskq.claim(4, '{breaks}') c")
        stage.eventually("TaskqAlert fires", lambda: alert in state("TaskqAlert"))
        self.conn.execute("select taskq.purge('dead', queue => 'breaks')")
        stage.eventually("TaskqAlert is over", lambda: alert not in state("TaskqAlert"))

    def test_every_query_of_the_board_works(self) -> None:
        board = json.loads((DOCKER / "grafana/taskq.json").read_text())
        targets = [(panel["title"], target) for panel in board["panels"] for target in panel["targets"]]
        self.assertGreater(len(targets), 20)
        # some traffic, so that every panel has something to show
        for query in (
            "select taskq.enqueue('t', queue => 'traffic') from generate_series(1, 9)",
            "select from taskq.claim(1, '{traffic}', 'w', '1 ms')",
            "select taskq.fail(c.id, c.token, 'no', retry => false) from taskq.claim(1, '{traffic}', 'w') c",
            "select taskq.complete(c.id, c.token) from taskq.claim(2, '{traffic}', 'w') c",
        ):
            self.conn.execute(query)
        optional = {"Keeper: seconds since a duty went well/B"}  # shows only duties that fail
        with stage.connect("chain", "observer") as reader:
            for title, target in targets:
                with self.subTest(panel=title, target=target["refId"]):
                    if "rawSql" in target:
                        rows = reader.execute(target["rawSql"]).fetchall()
                        self.assertTrue(rows, "no rows")
                        continue
                    expression = target["expr"].replace("$queue", ".*").replace("$__rate_interval", "30s")
                    self.assertNotIn("$", expression)
                    self.query(expression)  # it must be understood, even where it has nothing to show
                    if f"{title}/{target['refId']}" not in optional:
                        stage.eventually(expression, lambda e=expression: self.query(e))

    def test_the_board_names_only_metrics_that_exist(self) -> None:
        names = stage.eventually("an alert is open", lambda: (
            names := {key[0] for key in metrics(self.conn)}) and "taskq_alerts_open" in names and names)
        text = (DOCKER / "grafana/taskq.json").read_text() + (DOCKER / "prometheus/taskq.rules.yml").read_text()
        used = set(re.findall(r"\btaskq_[a-z_]+", text))
        self.assertGreater(len(used), 20)
        self.assertEqual(used - names, set())

