#!/usr/bin/env bash
# How good the forecasts are: a backlog is drained by workers, and status() is asked for some of its
# tasks again and again. Each expected_finish_at is compared with the time at which the task did
# finish; the error is the difference, as a share of the time that was left when it was asked.
#
# Takes about two minutes.
#   BENCH_TASKS=8000   of the backlog      BENCH_WORKERS=8
#
# A task takes 100 ms on average (worker.sql), but the workers only sleep: the machine's speed does
# not matter much. The keeper takes the samples, every 10 s. Prints the median error, and ends with an
# error if it is 20 % or more.
set -euo pipefail
cd "$(dirname "$0")"

tasks=${BENCH_TASKS:-8000} workers=${BENCH_WORKERS:-8}
[[ -z ${BENCH_QUICK:-} ]] || tasks=3000   # some samples must fall into it
log=$(mktemp)
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }

sql <<SQL
set client_min_messages = warning;
create extension if not exists taskq;
drop schema if exists forecast cascade;
create schema forecast;
create table forecast.answer (asked_at timestamptz, id bigint, tasks_ahead bigint, expected_finish_at timestamptz);
create table forecast.asked as
select e.id from taskq.enqueue_many((select jsonb_agg('{"task_type": "forecast", "queue": "forecast"}'::jsonb) from generate_series(1, $tasks))) e
 where e.ord % ($tasks / 40) = 0;
SQL

pgbench -n -c "$workers" -j 2 -t $(((tasks + workers - 1) / workers)) -f worker.sql > "$log" 2>&1 &
drain=$!
trap 'kill "$drain" 2> /dev/null || true; rm -f "$log"' EXIT
while kill -0 "$drain" 2> /dev/null; do
    sql -c "insert into forecast.answer
            select clock_timestamp(), a.id, s.tasks_ahead, s.expected_finish_at
              from forecast.asked a, taskq.status(a.id) s where s.state = 'ready'"
    sleep 3
done
wait "$drain" || { cat "$log" >&2; exit 1; }

sql <<SQL
create table forecast.error as
select f.finished_at - a.asked_at as remaining,
       abs(extract(epoch from a.expected_finish_at - f.finished_at)) / extract(epoch from f.finished_at - a.asked_at) as error
  from forecast.answer a join taskq.finished f using (id)
 where a.expected_finish_at is not null;
select format('Forecasts of a backlog of %s tasks and $workers workers, drained in %s s: %s answers (%s more before the first samples); '
              'median error %s %%, 90th percentile %s %%.',
              (select count(*) from taskq.finished where queue = 'forecast'),
              (select round(extract(epoch from max(finished_at) - min(claimed_at))) from taskq.finished where queue = 'forecast'),
              count(*), (select count(*) from forecast.answer where expected_finish_at is null),
              round(100 * percentile_cont(0.5) within group (order by error)::numeric, 1),
              round(100 * percentile_cont(0.9) within group (order by error)::numeric, 1))
  from forecast.error;
do \$\$ begin
  if (select coalesce(percentile_cont(0.5) within group (order by error), 1) from forecast.error) >= 0.2 then
    raise 'the median error is 20 %% or more';
  end if;
  if (select count(*) from taskq.finished where queue = 'forecast') <> $tasks then
    raise 'tasks are missing';
  end if;
end \$\$;
SQL
