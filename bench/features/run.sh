#!/usr/bin/env bash
# What the features cost: a task's life (enqueue, claim, complete: three transactions) in a queue that
# uses one, beside the same in a queue that uses none.
#
#   BENCH_SECONDS=3   of one run      BENCH_RUNS=5   pairs      BENCH_CLIENTS=4
#
# A pair is one run with the feature and one without, one right after the other, in turns with either
# first. Some due tasks are always there. synchronous_commit is off: else the disk is measured.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${BENCH_SECONDS:-3} runs=${BENCH_RUNS:-5} clients=${BENCH_CLIENTS:-4}
[[ -z ${BENCH_QUICK:-} ]] || seconds=1 runs=1
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }

# The rates and limits are out of reach: what costs is that they are looked at.
sql <<'SQL'
set client_min_messages = warning;
create extension if not exists taskq;
select from taskq.configure_queue('limited', '{"max_running": 100}');
select from taskq.configure_queue('rated', '{"rate": "1000000/second", "burst": 10000}');
drop schema if exists features cascade;
create schema features;
create table features.run (feature text, pair int, side text, tps float8, wal float8);
SQL

feature() {   # what is given to enqueue
    case $1 in
        plain | limited | rated) more='' ;;
        grouped) more=", group_key => (random() * 1000)::int::text" ;;
        keyed) more=", unique_key => gen_random_uuid()::text" ;;
    esac
}

run() {   # FEATURE QUEUE PAIR SIDE
    local log before after tps number script
    feature "$1"
    script=$(mktemp)
    sed "s/MORE/$more/" life.sql > "$script"
    sql -c 'truncate taskq.task, taskq.done, taskq.parked, taskq.group_turn, taskq.unique_key' \
        -c "update taskq.slot set task_id = null" -c 'vacuum (analyze) taskq.slot, taskq.rate_token' \
        -c "select count(taskq.enqueue('bench', queue => '$2' $more)) from generate_series(1, 1000)" \
        -c 'vacuum (analyze) taskq.task' > /dev/null
    before=$(sql -c 'select pg_current_wal_insert_lsn()')
    log=$(PGOPTIONS="-c synchronous_commit=off" pgbench -n -M prepared -c "$clients" -j 2 -T "$seconds" \
        -D queue="$2" -f "$script" 2>&1) || { echo "$log" >&2; exit 1; }
    after=$(sql -c 'select pg_current_wal_insert_lsn()')
    rm -f "$script"
    number=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' <<< "$log")
    tps=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' <<< "$log")
    sql -c "insert into features.run values ('$5', $3, '$4', $tps, ('$after'::pg_lsn - '$before'::pg_lsn) / $number)"
    [[ $(sql -c 'select count(*) from taskq.done') == "$number" ]] || { echo "features: a run lost or idled" >&2; exit 1; }
}

for name in limited rated grouped keyed; do
    queue=$name
    [[ $name == limited || $name == rated ]] || queue=plain
    for ((pair = 1; pair <= runs; pair++)); do
        order="plain $name"
        ((pair % 2)) || order="$name plain"
        for side in $order; do
            if [[ $side == plain ]]; then run plain plain "$pair" plain "$name"; else run "$name" "$queue" "$pair" feature "$name"; fi
        done
    done
    echo "== $name" >&2
done

echo "$runs pairs of $seconds s each, $clients clients, synchronous_commit off."
echo
sql <<'SQL'
select '| feature | without, tasks/s | with, tasks/s | ratio (least to most) | WAL without, bytes/task | WAL with, bytes/task |'
union all select '|---|--:|--:|--:|--:|--:|';
select format('| %s | %s | %s | **%s** (%s to %s) | %s | %s |', f.feature,
              to_char(percentile_cont(0.5) within group (order by p.tps), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by f.tps), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by f.tps / p.tps), 'FM990.00'),
              to_char(min(f.tps / p.tps), 'FM990.00'), to_char(max(f.tps / p.tps), 'FM990.00'),
              to_char(percentile_cont(0.5) within group (order by p.wal), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by f.wal), 'FM999,999'))
  from features.run f join features.run p using (feature, pair)
 where f.side = 'feature' and p.side = 'plain' group by f.feature order by f.feature;
SQL
