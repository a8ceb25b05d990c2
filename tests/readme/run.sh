#!/usr/bin/env bash
# Runs what README.md shows, so that it cannot rot: the SQL tour and the questions, whose output is compared with the
# printed one, and the Python worker. Needs PG* of a fresh cluster with taskq preloaded; makes the
# database "shop" in it. ACCEPT=1 writes the tour's real output into README.md.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

# A Python with psycopg: the demo's, the user's own, or one made here.
with_psycopg() { "$1" -c 'import psycopg; assert psycopg.__version__ >= "3.2"' 2> /dev/null; }
run_dir
interpreter=$ROOT/.venv/bin/python
with_psycopg "$interpreter" || interpreter=$(python)
if ! with_psycopg "$interpreter"; then
    interpreter=$RUN/readme-venv/bin/python
    if ! with_psycopg "$interpreter"; then
        say "installing psycopg into $RUN/readme-venv (seconds)"
        "$(python)" -m venv "$RUN/readme-venv"
        grep '^psycopg' "$ROOT/examples/approval/requirements.txt" > "$RUN/readme-venv/requirements.txt"
        "$interpreter" -m pip install --quiet --disable-pip-version-check -r "$RUN/readme-venv/requirements.txt"
    fi
fi
exec "$interpreter" "$ROOT/tests/readme/check.py" "$ROOT/README.md"
