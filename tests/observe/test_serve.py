"""The programs of the README that serve board and metrics, and what it says of psql."""

import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request

import stage
from test_metrics import parse

README = (stage.ROOT / "README.md").read_text()
PG = "8.23.1"  # the npm package


def block(name: str) -> str:
    """The code behind a comment in the README."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n+```\w*\n(.*?)```\n", README, re.DOTALL)
    assert found, f"README.md has no block {name}"
    return found[1]


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.conn = stage.new_database("served")
        cls.addClassCleanup(cls.conn.close)
        stage.work(cls.conn)

    def check(self, name: str, command: list[str], port: int) -> None:
        address = f"http://127.0.0.1:{port}"
        with stage.running(name, command, PGDATABASE="served", PGUSER="observer"):
            stage.eventually(f"{name} answers", lambda: stage.fetch(f"{address}/"))
            for path, kind, sign in (("/", "text/html", "<h1>Queues of served</h1>"), ("/metrics", "text/plain", "taskq_ready_tasks")):
                with urllib.request.urlopen(address + path, timeout=30) as answer:
                    body = answer.read().decode()
                    self.assertEqual(answer.headers["Content-Type"].partition(";")[0], kind)
                    self.assertIn("charset=utf-8", answer.headers["Content-Type"])
                self.assertIn(sign, body)
                if kind == "text/html":
                    self.assertTrue(body.rstrip().endswith("</html>"))
                else:
                    self.assertGreater(len(parse(body)), 100)

    def script(self, name: str) -> tuple[str, int]:
        """Writes a program of the README to a file, with another port."""
        port = stage.free_port()
        code = block(name)
        self.assertEqual(code.count("8080"), 1)
        file = stage.OUT / name
        file.write_text(code.replace("8080", str(port)))
        return str(file), port

    def test_python(self) -> None:
        file, port = self.script("board.py")
        self.check("python", [sys.executable, file], port)

    @unittest.skipUnless(shutil.which("node") and shutil.which("npm"), "there is no Node.js")
    def test_node(self) -> None:
        file, port = self.script("board.js")
        installed = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", stage.OUT, f"pg@{PG}"],
                                   capture_output=True, text=True, check=False)
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.check("node", ["node", file], port)

    def test_rust(self) -> None:
        port = stage.free_port()
        shown, compiled = block("board.rs"), (stage.ROOT / "tests/server/examples/serve_board.rs").read_text()
        self.assertEqual(shown, re.sub(r"^//!.*\n", "", compiled), "the README shows the program that is compiled")
        os.environ["DATABASE_URL"] = f"host={os.environ['PGHOST']} port={os.environ['PGPORT']} user=observer dbname=served"
        os.environ["LISTEN"] = f"127.0.0.1:{port}"
        self.check("rust", [os.environ["SERVE_BOARD"]], port)

    def test_psql(self) -> None:
        line = re.search(r"^ {4}(psql .*taskq\.dashboard\(\).*) > board\.html$", README, re.MULTILINE)
        assert line
        page = subprocess.run(["bash", "-c", line[1].replace(" app ", " served ")], capture_output=True, text=True, check=True).stdout
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertTrue(page.rstrip().endswith("</html>"))
