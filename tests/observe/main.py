"""Runs the tests of this folder and ends with the line that tests/run.sh adds up."""

import os
import sys
import unittest

MODULES = ("metrics", "prometheus", "board", "serve")

if __name__ == "__main__":
    wanted = os.environ.get("TESTS", "").split() or MODULES
    tests = unittest.defaultTestLoader.loadTestsFromNames([f"test_{module}" for module in wanted])
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(0 if failed == 0 and result.testsRun else 1)
