#!/usr/bin/env bash
# Runs what README.md shows, so that it cannot rot: the SQL tour and the questions, whose output is compared with the
# printed one, and the Python worker. Needs PG* of a fresh cluster with taskq preloaded; makes the
# database "shop" in it. ACCEPT=1 writes the tour's real output into README.md.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

# shellcheck source=tests/psycopg.sh
. "$ROOT/tests/psycopg.sh"

run_dir
exec "$(psycopg_python)" "$ROOT/tests/readme/check.py" "$ROOT/README.md"
