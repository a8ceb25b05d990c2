"""taskq.dashboard() in a real browser: what would a person look for?"""

import json
import os
import re
import shutil
import unittest
from pathlib import Path

import psycopg

import stage
from browser import CONTRASTS, DESKTOP, PHONE, browser

PARTS = ["Health", "Now", "Queues", "Types", "Errors", "Dead letters", "Running", "Workers", "Keeper"]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def save(conn: psycopg.Connection, name: str) -> Path:
    """Writes the board to a file, as one would from psql."""
    file = stage.OUT / f"{name}.html"
    file.write_text(str(stage.value(conn, "select taskq.dashboard()")))
    return file


class Board(unittest.TestCase):
    """A page of a busy database, that does not change while the tests look at it."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.conn = stage.new_database("board")
        cls.addClassCleanup(cls.conn.close)
        stage.backfill(cls.conn)
        stage.work(cls.conn)
        stage.eventually("the alert is raised", lambda: stage.value(
            cls.conn, "select count(*) from taskq.alerts where state = 'open'"))
        stage.eventually("the keeper has taken samples", lambda: stage.value(
            cls.conn, "select count(distinct at) > 1 from taskq.history where seconds < 60"))
        cls.well = save(cls.conn, "well")
        cls.conn.execute("alter database board set taskq.keeper = off")
        stage.eventually("the keeper has left", lambda: not stage.value(
            cls.conn, "select count(*) from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'board'"))
        cls.conn.close()
        cls.conn = stage.connect("board")  # which knows the database's new setting
        cls.addClassCleanup(cls.conn.close)
        # A worker that died: with the keeper away its lease stays over.
        cls.conn.execute("select from taskq.claim(1, '{reports}', 'dead-worker', '1 ms')")
        stage.eventually("the lease is over", lambda: stage.value(cls.conn, "select bool_or(stuck) from taskq.running"))
        cls.stuck = stage.value(cls.conn, "select count(*) from taskq.running where stuck")
        cls.page = save(cls.conn, "board")
        cls.failing = stage.value(
            cls.conn, "select count(*) from taskq.health() where not ok and \"check\" <> 'open alerts'")
        cls.html = cls.page.read_text()
        cls.browser = cls.enterClassContext(browser())

    def setUp(self) -> None:
        self.browser.show(self.page)

    def test_its_parts_are_there_in_order_under_one_heading(self) -> None:
        self.assertEqual(self.browser.texts("h1"), ["Queues of board"])
        self.assertEqual(self.browser.texts("h2"), PARTS)
        self.assertEqual(self.browser.texts("nav a"), PARTS)
        self.assertEqual(self.browser.driver.title, "Queues of board · taskq")
        self.assertEqual(self.browser.run("return document.documentElement.lang"), "en")

    def test_trouble_comes_first(self) -> None:
        verdict = self.browser.texts(".verdict")[0]
        self.assertRegex(verdict, r"^\d+ checks? fails?, 1 alert is open$")
        self.assertEqual(int(verdict.split(" ")[0]), self.failing)
        first = self.browser.texts("#health .troubles li")
        self.assertIn("mail: dead letters: ", first[0])
        self.assertIn("the limit is 3", first[0])
        self.assertIn("select taskq.acknowledge(", first[0])
        self.assertTrue(any("keeper running" in one for one in first), first)
        self.assertTrue(any("taskq.keeper is off here: switch it on" in one for one in first), first)
        top = self.browser.run("return document.querySelector('.troubles').getBoundingClientRect().top")
        self.assertLess(top, DESKTOP[1], "seen without scrolling")

    def test_the_figures_are_those_of_the_database(self) -> None:
        tiles = dict(zip(self.browser.texts(".tiles dt"), self.browser.texts(".tiles dd"), strict=True))
        query = "select sum(ready), sum(running), sum(scheduled), sum(blocked), sum(dead) from taskq.queues"
        row = self.conn.execute(query).fetchone()
        shown = [number(tiles[name]) for name in ("Ready", "Running", "Scheduled", "Blocked", "Dead letters")]
        self.assertEqual(shown, list(row))
        self.assertEqual(row[4], 6)

        queues = {one["Queue"].split(" ")[0]: one for one in self.browser.table("queues")}
        rows = self.conn.execute("select queue, ready, running, scheduled + blocked, dead from taskq.queues").fetchall()
        self.assertEqual(len(queues), len(rows))
        for queue, ready, running, later, dead in rows:
            with self.subTest(queue=queue):
                one = queues[queue.split(" ")[0]]
                self.assertEqual([number(one["Ready"]), number(one["Running"]), number(one["Later"])], [ready, running, later])
                self.assertEqual(f"{dead} dead" in one["Queue"], dead > 0)

    def test_rates_times_and_forecasts(self) -> None:
        queues = {one["Queue"].split(" ")[0]: one for one in self.browser.table("queues")}
        mail, reports = queues["mail"], queues["reports"]
        # as in the samples: 24 tasks a minute came in and 20 were taken, so it grows
        self.assertAlmostEqual(float(mail["In/min"].replace(",", "")), 24, delta=6)
        self.assertEqual(mail["Empty in"], "grows")
        self.assertRegex(mail["Run"], r"^(19\d|20\d) ms$")
        self.assertRegex(reports["Run 95 %"], r"^1[34] s$")
        self.assertRegex(mail["Failed"], r"^[\d.]+ %$")
        # 3 came in and 4 were taken: one fewer a minute
        self.assertRegex(reports["Empty in"], r"^([2-9]|1\d) min$")
        self.assertEqual(queues["newsletter"]["Empty in"], "paused")
        self.assertIn("paused", queues["newsletter"]["Queue"])
        self.assertEqual(queues[stage.EVIL.split(" ")[0]]["Empty in"], "nobody takes")
        slow = self.browser.table("types")
        self.assertEqual([(one["Type"], one["Queue"]) for one in slow][:2], [("report.daily", "reports"), ("mail.welcome", "mail")])
        failing = self.browser.run(
            "return [...document.querySelectorAll('#types table')[1].querySelectorAll('tbody tr')].map(x => x.cells[0].textContent)")
        self.assertEqual(set(failing), {"report.daily", "mail.welcome", "mail.invoice"} & set(failing))
        self.assertIn("mail.welcome", failing)

    def test_the_curves_say_what_history_says(self) -> None:
        charts = self.browser.texts("figure h3")
        self.assertEqual(charts, ["Ready tasks in the last hour", "Ready tasks in the last day"])
        words = self.browser.texts("figcaption")
        rows = self.browser.run(
            """return [...document.querySelectorAll('figure')].map(
                 figure => [...figure.querySelectorAll('tbody tr')].map(row => row.cells[1].textContent))""")
        # the newest value of the table is the newest sum in the view
        newest = stage.value(self.conn, "select sum(ready) from taskq.history group by at order by at desc limit 1")
        for chart, caption in zip(rows, words, strict=True):
            self.assertGreaterEqual(len(chart), 12)
            self.assertEqual(number(chart[0]), newest)
            self.assertTrue(caption.startswith(f"{newest} at the end, "), caption)
        highest = stage.value(self.conn, """
            select max(sum) from (select sum(ready) from taskq.history where at > now() - interval '1 hour' group by at) x""")
        most = int(re.search(r", ([\d,]+) at most", words[0])[1].replace(",", ""))
        self.assertTrue(0.7 * float(highest) <= most <= highest, (most, highest))
        # what is drawn is what is said: the highest point of the line
        drawn = self.browser.run(
            "return document.querySelector('figure .line').getAttribute('d').match(/[\\d.]+,[\\d.]+/g).map(p => Number(p.split(',')[1]))")
        top = number(self.browser.texts("figure .y span")[0])
        self.assertAlmostEqual((120 - min(drawn)) / 120 * top, most, delta=top / 100)
        self.assertEqual(len(drawn), 61)

    def test_errors_and_dead_letters_with_the_call_that_redrives_them(self) -> None:
        errors = self.browser.table("errors")
        self.assertEqual({(one["Type"], int(one["Runs"])) for one in errors}, {("mail.invoice", 6), ("mail.welcome", 6)})
        folded = [one["Error"] for one in errors if one["Type"] == "mail.welcome"]
        self.assertEqual(folded, ["connect to # timed out"])
        (dead,) = self.browser.table("dead")
        self.assertEqual((dead["Queue"], dead["Type"], dead["Letters"]), ("mail", "mail.invoice", "6"))
        self.assertEqual(dead["Its error"], stage.EVIL_ERROR)
        call = dead["To bring them back"]
        with self.conn.transaction(force_rollback=True):
            self.assertEqual(self.conn.execute(call).fetchone()[0], 6)

    def test_running_and_stuck_tasks_workers_and_duties(self) -> None:
        self.assertEqual(self.stuck, 1)
        running = self.browser.table("running")
        rows = self.conn.execute("select id, worker from taskq.running").fetchall()
        self.assertEqual({(int(one["Task"]), one["Worker"]) for one in running}, {(row[0], row[1]) for row in rows})
        self.assertEqual([one["State"] for one in running].count("stuck"), 1)
        self.assertEqual((running[0]["Worker"], running[0]["State"]), ("dead-worker", "stuck"), "it comes first")
        self.assertIn("1 task is stuck", self.browser.texts("#running .note")[0])
        workers = {one["Worker"]: one for one in self.browser.table("workers")}
        self.assertEqual(set(workers), {stage.EVIL_WORKER, "mailer-2", "reporter", "biller", "dead-worker"})
        self.assertEqual((workers["reporter"]["Holds"], workers["reporter"]["Tasks so far"]), ("2", "2"))
        self.assertEqual(workers["mailer-2"]["Queues"], "mail")
        duties = [one["Duty"] for one in self.browser.table("keeper")]
        self.assertEqual(duties, [row[0] for row in self.conn.execute("select duty from taskq.duties order by 1")])

    def test_what_comes_from_outside_stays_text(self) -> None:
        self.assertNotIn("<script", self.html)
        self.assertEqual(self.browser.run("return document.querySelectorAll('script, img, iframe, object, embed, link[rel=stylesheet]').length"), 0)
        self.assertIn(stage.EVIL, self.browser.texts("#queues .name"))
        self.assertIn(stage.EVIL_WORKER, self.browser.texts("#workers .name"))
        self.assertIn(stage.EVIL_ERROR, self.browser.texts("#dead .error"))
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('*')].filter(x => [...x.attributes].some(a => a.name.startsWith('on'))).length"), 0)
        self.assertEqual(self.browser.driver.title, "Queues of board · taskq")
        self.assertEqual(self.browser.driver.get_log("browser"), [])

    def test_it_asks_for_nothing_else(self) -> None:
        self.browser.driver.get_log("performance")
        self.browser.show(self.page)
        asked = [
            message["params"]["request"]["url"]
            for entry in self.browser.driver.get_log("performance")
            if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
        ]
        self.assertEqual([url for url in asked if not url.startswith("data:")], [self.page.as_uri()])

    def test_it_works_without_javascript(self) -> None:
        with_scripts = self.browser.run("return document.body.innerText")
        self.browser.command("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.show(self.page)
            root = self.browser.command("DOM.getDocument", depth=0)["root"]["nodeId"]
            found = self.browser.command("DOM.querySelectorAll", nodeId=root, selector="#queues tbody tr")["nodeIds"]
        finally:
            self.browser.command("Emulation.setScriptExecutionDisabled", value=False)
        self.assertEqual(len(found), 5)
        self.browser.show(self.page)
        self.assertEqual(self.browser.run("return document.body.innerText"), with_scripts)

    def test_a_phone_needs_no_sideways_scrolling(self) -> None:
        for size in (PHONE, (768, 1024), DESKTOP):
            self.browser.show(self.page, size)
            self.browser.run("for (const x of document.querySelectorAll('details')) x.open = true")
            with self.subTest(size=size):
                self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), size[0])
                wide = self.browser.run(
                    """return [...document.querySelectorAll('main *, header *, nav *')].filter(x => !x.closest('svg, caption, thead')
                         && x.getBoundingClientRect().right > innerWidth + 1).map(x => x.outerHTML.slice(0, 80))""")
                self.assertEqual(wide, [])
        self.browser.show(self.page, PHONE)
        self.assertGreaterEqual(self.browser.run(
            "return Math.min(...[...document.querySelectorAll('main *')].filter(x => x.textContent.trim() && !x.closest('svg, caption, thead'))"
            ".map(x => parseFloat(getComputedStyle(x).fontSize)))"), 11)

    def test_light_is_light_and_dark_is_dark(self) -> None:
        def grey(selector: str) -> float:
            colour = self.browser.run("return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", selector)
            return sum(map(int, re.findall(r"\d+", str(colour))[:3])) / 3

        for scheme, wanted in (("light", lambda shade: shade > 230), ("dark", lambda shade: shade < 50)):
            self.browser.show(self.page, scheme=scheme)
            for selector in ("body", "section"):
                with self.subTest(scheme=scheme, selector=selector):
                    self.assertTrue(wanted(grey(selector)), grey(selector))

    def test_text_stands_out(self) -> None:
        for scheme in ("light", "dark"):
            for size in (DESKTOP, PHONE):
                self.browser.show(self.page, size, scheme)
                self.browser.run("for (const x of document.querySelectorAll('details')) x.open = true")
                contrasts = self.browser.run(CONTRASTS)
                self.assertGreater(len(contrasts), 200)
                with self.subTest(scheme=scheme, size=size):
                    self.assertEqual([pair for pair in contrasts if pair[0] < 4.5], [])

    def test_lines_of_curves_stand_out(self) -> None:
        for scheme in ("light", "dark"):
            self.browser.show(self.page, scheme=scheme)
            pair = self.browser.run(
                """const line = document.querySelector('.plot .line');
                   return [getComputedStyle(line).stroke, getComputedStyle(line.closest('section')).backgroundColor]""")
            light, dark = sorted((luminance(colour) for colour in pair), reverse=True)
            with self.subTest(scheme=scheme):
                self.assertGreater((light + 0.05) / (dark + 0.05), 3)

    def test_nothing_is_said_by_colour_alone(self) -> None:
        badges = self.browser.texts(".badge")
        self.assertGreater(len(badges), 8)
        self.assertNotIn("", badges)
        kinds = {"good": {"yes", "well", "All well"}, "bad": None, "warn": None}
        for kind in kinds:
            for other in kinds:
                if kind < other:  # no word has two colours
                    self.assertEqual(set(self.browser.texts(f".{kind}.badge")) & set(self.browser.texts(f".{other}.badge")), set())

    def test_assistive_technology_finds_its_way(self) -> None:
        for size in (DESKTOP, PHONE):
            self.browser.show(self.page, size)
            nodes = self.browser.accessible()
            roles = [node["role"] for node in nodes]
            with self.subTest(size=size):
                for role in ("banner", "navigation", "main", "contentinfo"):
                    self.assertEqual(roles.count(role), 1, role)
                levels = [int(node["level"]) for node in nodes if node["role"] == "heading"]
                self.assertEqual(levels.count(1), 1)
                self.assertTrue(all(after - before <= 1 for before, after in zip(levels, levels[1:])), levels)
                regions = [node["name"] for node in nodes if node["role"] == "region"]
                self.assertEqual(regions, PARTS)
                pictures = [str(node["name"]) for node in nodes if node["role"] in ("image", "img")]
                self.assertGreaterEqual(len(pictures), 4)
                self.assertTrue(all(name.startswith("Ready tasks in the last ") for name in pictures), pictures)
                tables = [str(node["name"]) for node in nodes if node["role"] == "table"]
                self.assertEqual(len(tables), 8)
                self.assertEqual(len(set(tables)), len(tables))
                self.assertTrue(all(tables), tables)
                self.assertGreaterEqual(roles.count("columnheader"), 50)
                self.assertGreaterEqual(roles.count("rowheader"), 20)

    def test_keys_are_enough(self) -> None:
        from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

        def focused() -> str:
            return str(self.browser.run("return document.activeElement.textContent.trim()"))

        body = self.browser.driver.find_element("tag name", "body")
        body.send_keys(Keys.TAB)
        self.assertEqual(focused(), "Skip to the content")
        self.assertGreaterEqual(self.browser.run("return document.activeElement.getBoundingClientRect().left"), 0, "it can be seen now")
        order = []
        for _ in range(len(PARTS) + 1):
            self.browser.driver.switch_to.active_element.send_keys(Keys.TAB)
            order.append(focused())
            outline = self.browser.run("return getComputedStyle(document.activeElement).outlineStyle")
            self.assertNotEqual(outline, "none")
        self.assertEqual(order, [*PARTS, "All checks"])
        self.browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.assertTrue(self.browser.run("return document.querySelector('#health details').open"))
        checks = self.browser.texts("#health details tbody th")
        self.assertEqual(checks, [row[0] for row in self.conn.execute('select "check" from taskq.health()')])

    def test_pictures_for_people(self) -> None:
        """Kept beside the logs; SCREENSHOT names the one that the README shows."""
        for name, size, scheme in (("desktop", DESKTOP, "light"), ("desktop-dark", DESKTOP, "dark"),
                                   ("phone", PHONE, "light"), ("phone-dark", PHONE, "dark")):
            self.browser.show(self.page, size, scheme)
            self.browser.screenshot(stage.OUT / f"{name}.png")
            self.assertGreater((stage.OUT / f"{name}.png").stat().st_size, 30_000)
        if wanted := os.environ.get("SCREENSHOT"):
            self.browser.show(self.well, (1280, 1010))
            (Path(wanted)).write_bytes(self.browser.driver.get_screenshot_as_png())


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class Others(unittest.TestCase):
    """Pages of other databases."""

    def test_an_empty_database_has_a_calm_page(self) -> None:
        with stage.new_database("empty") as conn, browser() as looking:
            stage.eventually("the keeper is at work", lambda: stage.value(conn, "select bool_and(ok) from taskq.health() where \"check\" !~ 'vacuum'"))
            looking.show(save(conn, "empty"), PHONE)
            self.assertEqual(looking.texts(".verdict"), ["All well"])
            self.assertRegex(looking.texts("#health .calm")[0], r"All \d+ checks hold, and no alert is open\.$")
            for words in ("There are no queues.", "There are no dead letters.", "Nothing runs.", "No errors are known.",
                          "Nothing failed lately.", "Nothing was completed lately."):
                self.assertIn(words, looking.texts(".nothing"))
            self.assertIn("No samples yet.", looking.texts("figcaption")[0])
            self.assertEqual(looking.run("return document.documentElement.scrollWidth"), PHONE[0])

    def test_only_readers_see_it(self) -> None:
        with stage.new_database("rights") as conn:
            conn.execute("select taskq.enqueue('t')")
            with stage.connect("rights", "observer") as reader:
                self.assertIn("<h1>Queues of rights</h1>", str(stage.value(reader, "select taskq.dashboard()")))
            with stage.connect("postgres") as admin:
                admin.execute("drop role if exists outsider")
                admin.execute("create role outsider login")
            with stage.connect("rights", "outsider") as outsider, self.assertRaises(psycopg.errors.InsufficientPrivilege):
                outsider.execute("select taskq.dashboard()")

    def test_it_shows_no_payload(self) -> None:
        with stage.new_database("secrets") as conn:
            conn.execute("""select taskq.enqueue('t', '{"card": "4111-1111"}', headers => '{"who": "4111-1111"}', unique_key => '4111-1111')""")
            conn.execute("select from taskq.claim(worker => 'w') c, taskq.extend(c.id, c.token, progress => '\"4111-1111\"')")
            self.assertNotIn("4111", str(stage.value(conn, "select taskq.dashboard()")))

    def test_many_queues_and_tasks_make_neither_a_large_page_nor_much_work(self) -> None:
        def blocks(conn: psycopg.Connection) -> int:
            """Pages that a second call looks at; the first one also fills the caches."""
            stage.value(conn, "select taskq.dashboard()")
            plan = stage.value(conn, "explain (analyze, buffers, format json) select taskq.dashboard()")
            return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])

        fill = """insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
                  select nextval('taskq.task_id_seq'), rpad('queue ' || n %% 50 || ' ', 63, 'q'), 0, clock_timestamp() - interval '1 minute', 3,
                         clock_timestamp(), 2, rpad('type ' || n %% 250 || ' ', 63, 't'), '{}' from generate_series(1, %s) n"""
        with stage.new_database("large") as conn:
            conn.execute(fill, (2_000,))
            conn.execute("""
                insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired,
                    cancelled, ready, scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95, run_p50, run_p95, total_p50, total_p95, claimers)
                select clock_timestamp() - g * interval '60 s', rpad('queue ' || q || ' ', 63, 'q'), rpad('type ' || q * 5 + t || ' ', 63, 't'), 60, 9, 9, 8, 1, 1, 0, 0, 0,
                       1000 + (random() * 1000)::int, 0, 2, 0, null, 1, 2, 1.5, 2.5, 2, 3, 5
                  from generate_series(1, 1600) g, generate_series(0, 49) q, generate_series(0, 4) t""")
            # errors and dead letters as long as they may be, in all queues
            conn.execute("select taskq.fail(c.id, c.token, repeat('<&> \"' || c.id, 900), retry => false) from taskq.claim(1000, worker => repeat('w', 255)) c")
            conn.execute("select from taskq.claim(400, worker => repeat('v', 255))")
            conn.execute("analyze taskq.task")
            conn.execute("analyze taskq.sample")
            stage.eventually("the keeper has counted", lambda: stage.value(conn, "select _run_duty = 0 from taskq._run_duty('sample')"))
            few = blocks(conn)
            page = save(conn, "large")
            self.assertEqual(page.read_text().count('class="spark"'), 50)
            self.assertLess(page.stat().st_size, 300_000)

            conn.execute(fill, (150_000,))
            conn.execute("analyze taskq.task")
            many = blocks(conn)
            self.assertLess(many, few * 1.3 + 1_000, f"{few} pages with 2,000 tasks, {many} with 150,000")
            self.assertLess(many, 100_000)
            with browser() as looking:
                looking.show(page, PHONE)
                self.assertEqual(looking.run("return document.documentElement.scrollWidth"), PHONE[0])


if not shutil.which("chromium"):
    raise SystemExit("chromium is missing: tools/prerequisites.sh installs it")
