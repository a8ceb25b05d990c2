#!/usr/bin/env bash
# Runs examples/approval/demo.py in its own Python environment against a fresh cluster.
# CLUSTER names the cluster (demo); KEEP=1 leaves its server running for `make psql`.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

name=${CLUSTER:-demo} venv=$ROOT/.venv
lock "$name"
python_env "$venv" "$ROOT/examples/approval/requirements.txt"

export TASKQ_DEMO_OUT=$RUN/$name-out
rm -rf "$TASKQ_DEMO_OUT"
mkdir "$TASKQ_DEMO_OUT"
cd "$ROOT"
say "running the demo (under 90 seconds); what it writes is in $TASKQ_DEMO_OUT"
# At the demo's pace: a point of the backlog curve every second, and an open alert again every 10 s.
export CONF="taskq.sample_interval = '1 s'
taskq.alert_repeat = '10 s'
${CONF:-}"
exec tools/cluster.sh run "$name" "$venv/bin/python" -u examples/approval/demo.py
