#!/usr/bin/env bash
# Runs a command, and all that it starts, while it stands still now and then, as on a shared machine: every 0.3 to
# 2.3 seconds for 0.03 to 0.7 seconds. A test that fails then does so elsewhere some day. Needs root and a control
# group that can be frozen.
#
#   tests/halts.sh make test STAGE="regress server"
set -euo pipefail

[[ $# -gt 0 ]] || { echo "usage: tests/halts.sh COMMAND..." >&2; exit 2; }
for groups in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/freezer; do
    group=$groups/taskq-halts.$$
    mkdir "$group" 2> /dev/null || continue
    [[ ! -w $group/cgroup.freeze ]] || { switch=$group/cgroup.freeze on=1 off=0; break; }         # version 2
    [[ ! -w $group/freezer.state ]] || { switch=$group/freezer.state on=FROZEN off=THAWED; break; }   # version 1
    rmdir "$group"
done
[[ ${switch:-} ]] || { echo "no control group can be frozen here (or not by this user)" >&2; exit 1; }
trap 'echo $off > "$switch"; rmdir "$group" 2> /dev/null || true' EXIT

(echo "$BASHPID" > "$group/cgroup.procs"; exec "$@") &
command=$!
seconds() { awk -v least="$1" -v most="$2" -v seed=$RANDOM 'BEGIN { srand(seed); print least + (most - least) * rand() ^ 3 }'; }
while kill -0 $command 2> /dev/null; do
    sleep "$(seconds 0.3 2.3)"
    echo $on > "$switch"
    sleep "$(seconds 0.03 0.7)"
    echo $off > "$switch"
done
wait $command
