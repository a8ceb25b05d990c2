#!/usr/bin/env bash
# taskq against the same work hand-written in SQL on the same table layout. Takes about 20 minutes.
#
#   BENCH_SECONDS=3   of one run            BENCH_RUNS=5    pairs of runs of each case
#   BENCH_CASES="life backlog"              BENCH_SYNC="on off"     BENCH_CLIENTS="2 8"
#   BENCH_QUICK=1     one pair of 1 s each: only shows that everything works
#
# A pair is one run of each side, one right after the other, in turns with either side first: the
# machine's noise hits both, and the ratio within a pair says more than the rates. Before a run all
# task tables are emptied and those of its side are filled and vacuumed (fill.sql); after it the
# rows are counted (record.sql), and a run that lost or idled is an error. The statements are in
# taskq/ and plain/: files of the same name do the same work for the same client.
set -euo pipefail
cd "$(dirname "$0")"

if [[ -n ${BENCH_QUICK:-} ]]; then
    BENCH_SECONDS=1 BENCH_RUNS=1
fi
seconds=${BENCH_SECONDS:-3} runs=${BENCH_RUNS:-5}
cases=${BENCH_CASES:-life batch10 batch100 backlog running lanes}
syncs=${BENCH_SYNC:-on off} clients=${BENCH_CLIENTS:-2 8}

# What a case is: script, tasks of a batch, and what is there before: due tasks, running tasks,
# lanes with ten tasks each that are due tomorrow. Some due tasks are always there, so that no
# claim comes back empty when other clients are faster.
describe() {
    script=one batch=1 due=1000 running=0 lanes=0
    case $1 in
        life) title="one task" ;;
        batch10) title="batches of 10" script=many batch=10 due=10000 ;;
        batch100) title="batches of 100" script=many batch=100 due=10000 ;;
        backlog) title="one task, 100,000 waiting" due=100000 ;;
        running) title="one task, 5,000 running at the head" running=5000 ;;
        lanes) title="one task of any queue, 1,000 lanes not due" script=one_any lanes=1000 ;;
        *) echo "bench: no such case: $1" >&2; exit 2 ;;
    esac
}

sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }

# What a client sends: one payload, or a batch of them in the form that each side takes.
payload='{"order": 815, "customer": "c-4711", "template": "welcome", "language": "de"}'
repeat() { sql -v n="$batch" -v payload="$payload" <<< "$1"; }
arguments() {
    bytes=$(repeat "select pg_column_size(:'payload'::jsonb);")
    payloads=$(repeat "select array_fill(:'payload'::jsonb, array[:n]);")
    tasks=$(repeat "select jsonb_agg(jsonb_build_object('task_type', 'bench', 'payload', :'payload'::jsonb))
                      from generate_series(1, :n);")
}

run() {   # SIDE PAIR
    local side=$1 log before after number tps
    sql -v side="$side" -v due="$due" -v running="$running" -v lanes="$lanes" -v payload="$payload" -f fill.sql
    before=$(sql -c 'select pg_current_wal_insert_lsn()')
    log=$(PGOPTIONS="-c synchronous_commit=$sync" pgbench -n -M prepared -c "$client" -j 2 -T "$seconds" \
        -D n="$batch" -D payload="$payload" -D payloads="$payloads" -D bytes="$bytes" -D tasks="$tasks" \
        -f "$side/$script.sql" 2>&1) || { echo "$log" >&2; exit 1; }
    after=$(sql -c 'select pg_current_wal_insert_lsn()')
    number=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' <<< "$log")
    tps=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' <<< "$log")
    sql -v side="$side" -v title="$title" -v sync="$sync" -v clients="$client" -v pair="$2" -v batch="$batch" \
        -v due="$due" -v running="$running" -v number="$number" -v tps="$tps" -v before="$before" -v after="$after" \
        -f record.sql
}

sql -f schema.sql
for name in $cases; do
    describe "$name"
    arguments
    for sync in $syncs; do
        for client in $clients; do
            echo "== $title, synchronous_commit $sync, $client clients" >&2
            sql -c checkpoint
            for ((pair = 1; pair <= runs; pair++)); do
                if ((pair % 2)); then order="plain taskq"; else order="taskq plain"; fi
                for side in $order; do run "$side" "$pair"; done
            done
            sql -v title="$title" -v sync="$sync" -v clients="$client" -f pairs.sql >&2
        done
    done
done
echo "$runs pairs of $seconds s each."
echo
sql -f report.sql
