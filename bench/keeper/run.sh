#!/usr/bin/env bash
# What the keeper costs, and how quick it is: wake-ups, recovery, samples, idleness. Takes about five
# minutes; the processor time is that of the keeper's process, from /proc.
#
#   BENCH_MINUTE=60   seconds of each observation     BENCH_TASKS=1000000   waiting, for the samples
set -euo pipefail
cd "$(dirname "$0")"

minute=${BENCH_MINUTE:-60} tasks=${BENCH_TASKS:-1000000}
[[ -z ${BENCH_QUICK:-} ]] || minute=10 tasks=10000
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }
say() { echo "== $*" >&2; }

# Ticks of 10 ms that the keeper has used.
used() { awk '{print $14 + $15}' "/proc/$(sql -c "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()")/stat"; }
# The keeper's share of one core during a command, in percent.
share() {
    local begin=$SECONDS before
    before=$(used)
    "$@" >&2
    awk -v ticks=$(($(used) - before)) -v seconds=$((SECONDS - begin)) 'BEGIN {printf "%.2f %%", ticks / seconds}'
}
observe() { sleep "$minute"; }
again() {   # a fresh extension, and its keeper's first rounds
    sql -c 'set client_min_messages = warning' -c 'drop extension if exists taskq cascade' -c 'create extension taskq'
    sleep 5
    sql -c 'select taskq._run_duty(name) from taskq.duty' > /dev/null
    sleep 2
}

say idle
again
idle=$(share observe)

say wake-ups
sql -c 'set client_min_messages = warning' -c 'drop schema if exists wakeup cascade' -c 'create schema wakeup' \
    -c 'create table wakeup.latency (kind text, ms float8)'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
pgbench -n -c 4 -T "$minute" -f waiter.sql > "$log" 2>&1 &
waiters=$!
pgbench -n -c 2 -T $((minute - 2)) -R 10 -f producer.sql > /dev/null
wait "$waiters" || { cat "$log" >&2; exit 1; }

say recovery
again
sql -f recovery.sql > /dev/null
recover=$(share observe)
recovered=$(sql <<'SQL'
select format('%s of %s after %s ms (median), %s ms (the last)', count(t.errors), count(*),
              round(percentile_cont(0.5) within group (order by late)::numeric), round(max(late)::numeric))
  from (select t.errors, 1000 * extract(epoch from (t.errors -> 0 ->> 'at')::timestamptz - l.ends_at) as late
          from wakeup.lease l join taskq.task t using (id)) t;
SQL
)

say samples
again
sql -c "select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't' || n % 5, 'queue', 'q' || n % 50))
          from generate_series(1, $tasks / 10) n)), generate_series(1, 1)" > /dev/null
for ((part = 1; part < 10; part++)); do
    sql -c "insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
            select nextval('taskq.task_id_seq'), queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload
              from taskq.task limit $tasks / 10"
done
sql -c 'vacuum (analyze) taskq.task'
samples=$(share observe)
# Processor time of a session that takes samples as the keeper does, one a second.
sample=$(sql <<'SQL' | tail -1
set taskq.sample_interval = '1 s';
create temp table used (ticks bigint);
create procedure pg_temp.note() language sql as $$
  insert into used select sum(w::bigint) from string_to_table(pg_read_file('/proc/self/stat', 0, 1000), ' ') with ordinality s(w, n) where n in (14, 15)
$$;
create procedure pg_temp.samples(number int) language plpgsql as $$
begin
  for n in 1..number loop
    perform taskq._run_duty('sample');
    commit;
    perform pg_sleep(1);
  end loop;
end
$$;
call pg_temp.samples(3);
call pg_temp.note();
call pg_temp.samples(30);
call pg_temp.note();
select format('%s ms: %s %% of a core', round(ms, 1), round(ms / 100, 2)) from (select 10 * (max(ticks) - min(ticks)) / 30.0 as ms from used) m;
SQL
)
queues=$(sql -c '\timing on' -c 'select count(*) from taskq.queues' -c 'select count(*) from taskq.queues' | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -1)

sql <<SQL
select format('| %s | %s |', what, figure) from (values
  ('a worker in \`wait\` has its task, after the enqueue call',
   (select format('%s ms (median), %s ms (99th percentile) of %s', round(percentile_cont(0.5) within group (order by ms)::numeric, 1),
                  round(percentile_cont(0.99) within group (order by ms)::numeric, 1), count(*)) from wakeup.latency where kind = 'now')),
  ('the same, after a later task became due',
   (select format('%s ms (median), %s ms (99th percentile) of %s', round(percentile_cont(0.5) within group (order by ms)::numeric, 1),
                  round(percentile_cont(0.99) within group (order by ms)::numeric, 1), count(*)) from wakeup.latency where kind = 'later')),
  ('1,000 leases that end within $minute s, 100,000 tasks waiting: taken back', '$recovered'),
  ('the keeper meanwhile', '$recover of a core'),
  ('the keeper with $tasks tasks waiting in 50 queues of 5 types each, samples every 10 s', '$samples of a core'),
  ('one sample then, every 10 s', '$sample'),
  ('\`taskq.queues\` then', '$queues ms'),
  ('the keeper when nothing happens', '$idle of a core')) f(what, figure);
SQL
