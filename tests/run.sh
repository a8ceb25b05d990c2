#!/usr/bin/env bash
# All tests, stage by stage. A failing stage does not hide the others; the last line sums them up.
# STAGE="regress demo" runs only these (and builds first), SERVER_TESTS="crash wake" only these of the
# stage server. The counts are those of the tools' own result lines; a stage of tests that ran none
# has failed. With PG=16 and so on all of it is for that version of PostgreSQL.
set -euo pipefail
"$(dirname "$0")/../tools/prerequisites.sh" tests
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../tools/lib.sh"
cd "$ROOT"
lock "test$PG"
GRACE=20   # seconds; longer than what a stage itself needs to stop its servers

stage_lint() {   # formatting and warnings
    cargo fmt --all --check &&
        cargo clippy --workspace --all-targets --no-default-features --features "pg$PG pg_test" -- -D warnings &&
        tests/cases.sh
}
stage_build() { tools/build.sh; }
stage_pgrx() {   # tests in Rust, some of them inside a server
    local runas=()
    [[ $(id -u) != 0 ]] || runas=(--runas "$SERVER_USER")
    server_dir "$RUN/test/pgrx" 700
    USER=$(id -un) "$(cargo_pgrx)" pgrx test "pg$PG" --pgdata "$RUN/test/pgrx/data" "${runas[@]}"
}
stage_regress() { CONF='fsync = off' tools/cluster.sh run regress tests/regress/run.sh; }
stage_isolation() { CONF=$'fsync = off\nmax_prepared_transactions = 4' tools/cluster.sh run isolation tests/isolation/run.sh; }
stage_server() {   # tests in Rust that start servers of their own
    server_dir "$RUN/test/servers" 755
    local programs at half halves=() status=0
    read -ra programs <<< "${SERVER_TESTS:-$(basename -as .rs tests/server/tests/*.rs | tr '\n' ' ')}"
    export TASKQ_TEST_BINDIR TASKQ_TEST_USER TASKQ_TEST_DIR=$RUN/test/servers
    TASKQ_TEST_BINDIR=$(tree_bin "$TREE") TASKQ_TEST_USER=$([[ $(id -u) != 0 ]] || echo "$SERVER_USER")
    cargo test -p taskq-server-tests --no-run "${programs[@]/#/--test=}" || return
    # They mostly wait: two programs at a time, whose lines are not to be mixed.
    for half in 0 1; do
        local tests=()
        for ((at = half; at < ${#programs[@]}; at += 2)); do tests+=("--test=${programs[at]}"); done
        ((${#tests[@]})) || continue
        (cargo test -p taskq-server-tests --no-fail-fast "${tests[@]}" -- --test-threads=5 2>&1 | sed -u '') &
        halves+=($!)
    done
    for half in "${halves[@]}"; do wait "$half" || status=$?; done
    return "$status"
}
stage_docker() { tests/docker/run.sh; }   # the image, without a container engine
stage_security() { tests/security/run.sh; }
stage_clients() {   # drivers and a pooler
    tools/prerequisites.sh clients && CONF='fsync = off' tools/cluster.sh run clients tests/clients/run.sh
}
stage_model() {   # the model alone, and its histories on a server
    server_dir "$RUN/test/model" 755
    TASKQ_TEST_BINDIR=$(tree_bin "$TREE") TASKQ_TEST_DIR=$RUN/test/model \
        TASKQ_TEST_USER=$([[ $(id -u) != 0 ]] || echo "$SERVER_USER") cargo test -p taskq-model --no-fail-fast
}
stage_soak() { tests/soak/run.sh short; }   # many sessions and faults
stage_observe() {   # board and metrics, with a browser and Prometheus
    CONF=$'fsync = off\ntaskq.sample_interval = 1s' tools/cluster.sh run observe tests/observe/run.sh
}
stage_demo() { CLUSTER=demotest tools/demo.sh; }
stage_readme() { CONF='fsync = off' tools/cluster.sh run readme tests/readme/run.sh; }   # what it shows
# The contract, the races and the life cycle on another version of PostgreSQL.
LIFE='crash databases drop dump keeper leases standby update'
other_version() {   # VERSION SERVER_TESTS
    PG=$1 STAGE='regress isolation server' SERVER_TESTS=$2 tests/run.sh
}
stage_pg16() { other_version 16 "$LIFE"; }
stage_pg18() { other_version 18 "$LIFE leftovers notify plans unhindered wake"; }

# Each pair is from one source, of one time: PostgreSQL 15.20 writes what only the minor releases of its
# time can read, and 18.4 is older.
stage_pg_upgrade() { upgrade_between 15 17 && upgrade_between 16 18; }
upgrade_between() {   # OLDER NEWER
    local version programs=()
    for version in "$@"; do
        (export PG=$version; tools/prerequisites.sh && tools/build.sh) || return
        programs+=("$(PG=$version bash -c '. tools/lib.sh; tree_bin "$TREE"')")
    done
    server_dir "$RUN/test/servers" 755
    TASKQ_TEST_BINDIR=${programs[0]} TASKQ_TEST_NEWER=${programs[1]} TASKQ_TEST_DIR=$RUN/test/servers \
        TASKQ_TEST_USER=$([[ $(id -u) != 0 ]] || echo "$SERVER_USER") \
        cargo test -p taskq-server-tests --test pg_upgrade -- --ignored
}

stop_all() {
    local name
    for name in regress isolation clients observe demotest readme; do stop_server "$RUN/$name/data" fast; done
    stop_servers "$RUN/test" immediate
    rm -rf "$RUN/test"
}
trap stop_all EXIT

logged() { "${@:2}" 2>&1 | (trap '' INT TERM HUP; exec tee "$1"); }

# Sums up the results of cargo test, pg_regress, the soak's runs, the demo's expectations and the README's check.
# Other versions sum up their own stages.
count() {
    if [[ $1 == */pg[0-9][0-9] ]]; then
        awk '/^[0-9]+ passed, [0-9]+ failed$/ { p = $1; f = $3 } END { print p + 0, f + 0 }' "$1"
        return
    fi
    awk '/^test result: / { p += $4; f += $6 }
         match($0, /All [0-9]+ tests passed/) { split(substr($0, RSTART), w, " "); p += w[2] }
         match($0, /[0-9]+ of [0-9]+ tests failed/) { split(substr($0, RSTART), w, " "); f += w[1]; p += w[3] - w[1] }
         /^ +\[ok\] / { p++ }
         /^ +\[NOT OK\] / { f++ }
         /^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3 }
         END { print p + 0, f + 0 }' "$1"
}

# What a failed stage said of its failures: the log is long, and may be on another machine.
excerpt() { grep -nE -A 16 'panicked at|NOT OK|^not ok |^error(\[|:)' "$1" | head -n 120 || true; }

all='lint build pgrx security regress isolation server model soak clients observe demo readme pg18 pg16 pg_upgrade docker'
stages=${STAGE:-$all}
if [[ -z ${STAGE:-} && $(id -u) != 0 ]]; then
    say 'stage docker is left out: building an image without a container engine needs root'
    stages=${stages/ docker/}
fi
# Another version is tested for itself, and what is the same for all is left to 15.
[[ -n ${STAGE:-} || $PG == 15 ]] || stages='lint build pgrx regress isolation server'
for stage in $stages; do
    [[ " $all " == *" $stage "* ]] || die "no such stage: $stage (there are: $all)"
done
tools/build.sh prepare   # that is enough for these two; pgrx makes its own build
[[ " $stages " == *" build "* || $stages =~ ^((lint|pgrx|pg16|pg18)\ ?)+$ ]] || stages="build $stages"
log=$RUN/log${PG/#15/}
mkdir -p "$log"
table=() failures=() total_passed=0 total_failed=0 built=yes
for stage in $stages; do
    say "stage $stage"
    start=$SECONDS result=ok passed=- failed=-
    if [[ $built == no ]]; then
        result='FAILED (not built)' failed=1
    else
        status=0
        in_group logged "$log/$stage" "stage_$stage" || status=$?
        [[ $stage == lint || $stage == build ]] || read -r passed failed < <(count "$log/$stage")
        if ((status)) || [[ $failed != [-0] ]]; then
            result=FAILED
            [[ $failed != [-0] ]] || failed=1
            [[ $stage != build ]] || built=no
            failures+=("$stage")
        elif [[ $passed == 0 ]]; then
            result='FAILED (no tests ran)' failed=1
        fi
    fi
    [[ $passed == - ]] || ((total_passed += passed)) || true
    [[ $failed == - ]] || ((total_failed += failed)) || true
    table+=("$(printf '%-10s %6s passed %6s failed %5d s  %s' "$stage" "$passed" "$failed" $((SECONDS - start)) "$result")")
done

for stage in "${failures[@]}"; do
    say "failures of stage $stage"
    excerpt "$log/$stage"
done
say "summary (PostgreSQL $PG; logs are in $log)"
printf '%s\n' "${table[@]}"
echo "$total_passed passed, $total_failed failed"
((total_failed == 0))
