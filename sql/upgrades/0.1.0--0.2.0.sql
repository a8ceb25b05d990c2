-- What the upgrade from 0.1.0 to 0.2.0 needs and tools/upgrade.py does not derive. It runs first.

-- Nobody's objects come before PostgreSQL's own.
set local search_path = pg_catalog, pg_temp;

do $$
begin
  -- The library reads texts as UTF-8.
  if (select pg_catalog.pg_encoding_to_char(d.encoding) from pg_catalog.pg_database d
       where d.datname operator(pg_catalog.=) pg_catalog.current_database()) operator(pg_catalog.<>) 'UTF8'
  then
    raise exception using
      errcode = '0A000',
      message = 'taskq needs a database whose encoding is UTF8',
      hint = 'Create one with: create database ... encoding ''UTF8'' template template0.';
  end if;
end
$$;

-- The types that the functions of diagnose return.
create type taskq._finding as (
  place    integer,
  queue    text,
  severity text,
  finding  text,
  cause    text,
  evidence text,
  facts    jsonb,
  advice   text);
create type taskq._comparison as (
  queue             text,
  task_type         text,
  seconds           double precision,  -- how long "now" is, and "usually"; the latter NULL: not known yet
  usual_seconds     double precision,
  enqueued          bigint,
  started           bigint,
  succeeded         bigint,
  failed            bigint,            -- without ended leases
  retried           bigint,
  dead              bigint,
  expired           bigint,
  run_p50           double precision,
  ready             bigint,            -- in the newest sample
  usual_enqueued    bigint,
  usual_succeeded   bigint,
  usual_failed      bigint,
  usual_retried     bigint,
  usual_expired     bigint,
  usual_run_p50     double precision,
  usual_run_p95     double precision,
  high_run_p50      double precision,  -- 95 % of the samples had no higher median
  usual_waiting_p95 double precision);
create type taskq._standing as (
  queue         text,
  ready         bigint,
  running       bigint,
  blocked       bigint,
  dead          bigint,
  oldest_age    interval,          -- of its ready tasks
  behind        boolean,           -- that is more than usual
  patience      interval,          -- what would be usual
  worked_on     boolean,
  present       bigint,            -- workers that ask for its tasks
  idle          bigint,            -- of these, without a task
  paused_at     timestamptz,
  paused_by     text,
  max_running   integer,
  rate          text,
  burst         integer);

-- _workers_seen returns more columns; the view that uses it comes back with the new one.
drop view taskq.workers;

-- Three triggers with conditions come in its place.
drop trigger limits_changed on taskq.queue;
