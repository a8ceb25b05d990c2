#!/usr/bin/env bash
# How long the board and the metrics take with many tasks, fifty queues and a day of samples. Takes about three
# minutes, most of it to make the tasks.
#
#   BENCH_TASKS=1000000   waiting     BENCH_RUNS=20   calls of each, of which the median and the slowest are told
set -euo pipefail
tasks=${BENCH_TASKS:-1000000} runs=${BENCH_RUNS:-20} hours=24
[[ -z ${BENCH_QUICK:-} ]] || tasks=10000 hours=1
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }

sql -c 'set client_min_messages = warning' -c 'drop extension if exists taskq cascade' -c 'create extension taskq'
echo "== $tasks tasks in 50 queues of 5 types each, and $hours hours of samples" >&2
sql > /dev/null <<SQL
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't' || n % 5, 'queue', 'q' || n % 50))
                                           from generate_series(1, least($tasks, 10000)) n));
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select nextval('taskq.task_id_seq'), queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload
  from taskq.task, generate_series(2, $tasks / 10000);
select count(*) from taskq.claim(500, worker => 'w1');
select taskq.fail(c.id, c.token, 'connect to 10.0.0.' || c.id || ' timed out', retry => c.id % 3 = 0)
  from taskq.claim(300, worker => 'w2') c;
insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired, cancelled, ready,
                          scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95, run_p50, run_p95, total_p50, total_p95, claimers)
select now() - g * interval '10 s', 'q' || q, 't' || t, 10, 20, 20, 19, 1, 1, 0, 0, 0, 4000 + (1000 * sin(g / 200.0))::int, 3, 2, 0,
       '10 s', 0.1, 0.5, 0.2, 0.9, 0.3, 1, 4
  from generate_series($hours * 360, 1, -1) g, generate_series(0, 49) q, generate_series(0, 4) t;
vacuum (analyze) taskq.task, taskq.sample;
select taskq._run_duty('sample');
SQL
until [[ $(sql -c 'select bool_and(exact) from taskq.queues') == t ]]; do sleep 1; done

# Milliseconds of so many calls in one session, the first one left out: median and slowest.
took() {
    { echo '\timing on'; for ((run = 0; run <= runs; run++)); do echo "$1;"; done; } | sql |
        sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n "$runs" | sort -n |
        awk '{ms[NR] = $1} END {printf "%.0f ms (median), %.0f ms (slowest of %d)", ms[int((NR + 1) / 2)], ms[NR], NR}'
}
echo "| with $tasks tasks waiting in 50 queues of 5 types each, $hours hours of samples | takes | bytes |"
echo '|---|---|--:|'
for verb in dashboard metrics health; do
    call="select length(taskq.$verb())"
    [[ $verb != health ]] || call='select count(*) from taskq.health()'
    size=$(sql -c "select to_char(octet_length(taskq.$verb()::text), 'FM9,999,999')" 2> /dev/null || echo –)
    [[ $verb != health ]] || size=–
    echo "| \`$verb()\` | $(took "$call") | $size |"
done
