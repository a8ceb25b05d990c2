#!/usr/bin/env bash
# Many sessions and faults: `make soak` with MINUTES, SEED or JUDGE, or, with `short`, the stage of `make test`.
# What a run found is kept in RUN/log/soak-SEED: its journal, and the server's log.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"
cd "$ROOT"

if [[ -n ${JUDGE:-} ]]; then
    exec cargo run --quiet -p taskq-soak -- judge "$JUDGE"
fi
servers=$RUN/soak
if [[ ${1:-} == short ]]; then
    what=(short) servers=$RUN/test/soak   # tests/run.sh stops what is left there
elif [[ -n ${SEED:-} ]]; then
    what=(seed "$SEED")
else
    what=(long "${MINUTES:-60}")
fi
if [[ ${1:-} != short ]]; then
    lock soak
    GRACE=20
    trap 'stop_servers "$servers" immediate; rm -rf "$servers"' EXIT
fi
mkdir -p "$RUN/log" "$(dirname "$servers")"
server_dir "$servers" 755
export TASKQ_TEST_BINDIR TASKQ_TEST_DIR=$servers TASKQ_TEST_USER='' TASKQ_SOAK_KEEP=$RUN/log
TASKQ_TEST_BINDIR=$(tree_bin "$TREE")
[[ $(id -u) != 0 ]] || TASKQ_TEST_USER=$SERVER_USER
if [[ ${1:-} == short ]]; then
    cargo test --quiet -p taskq-soak   # what judges the runs
    exec cargo run --quiet -p taskq-soak -- "${what[@]}"
fi
status=0
in_group cargo run --quiet -p taskq-soak -- "${what[@]}" || status=$?
if [[ ${what[0]} == long ]]; then
    say "a million verbs in one session"
    export TASKQ_TEST_VERBS=1000000
    in_group cargo test --quiet -p taskq-server-tests --test cancelled the_memory_of_a_session || status=$?
fi
exit "$status"
