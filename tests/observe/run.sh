#!/usr/bin/env bash
# Tests of the board and of the metrics with the real things: Chromium, Prometheus, its exporter for PostgreSQL.
# Needs PG* of a fresh cluster with taskq preloaded. OUT is where logs and screenshots go; TESTS="board" runs
# only some of the modules; SCREENSHOT=FILE also writes the picture of the README.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

venv=$RUN/observe-venv
python_env "$venv" "$ROOT/tests/observe/requirements.txt"
export OUT=${OUT:-$RUN/observe-out}
rm -rf "$OUT"
mkdir -p "$OUT"
cargo build --quiet --package taskq-server-tests --example serve_board
export SERVE_BOARD=$BUILD/debug/examples/serve_board
exec "$venv/bin/python" -u "$ROOT/tests/observe/main.py"
