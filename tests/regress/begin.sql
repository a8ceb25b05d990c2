-- Sourced by every test: no tasks, no settings, ids from 1, no keeper, and a few helpers.

set client_min_messages = warning;
\pset format unaligned
\pset footer off
\pset null NULL
\set SHOW_CONTEXT never

-- The keeper would do some of the things that the tests watch. It has tests of its own.
select format('alter database %I set taskq.keeper = off', current_database()) \gexec
-- (A warning says that one has just left by itself.)
set client_min_messages = error;
select count(pg_terminate_backend(a.pid, 10000)) as keepers
  from pg_stat_activity a
 where a.datname = current_database() and a.backend_type = 'taskq keeper' \gset
set client_min_messages = warning;

delete from taskq.task;
delete from taskq.dead_letter;
delete from taskq.done;
delete from taskq.archive;
delete from taskq.unique_key;
delete from taskq.once_key;
delete from taskq.group_turn;
delete from taskq.parked;
delete from taskq.queue;
delete from taskq.task_type;
delete from taskq.alert;
delete from taskq.schedule;
delete from taskq.sample;
delete from taskq.load;
delete from taskq.horizon;
update taskq.duty set started_at = null, finished_at = null, rows = null, error = null, error_at = null, logged_at = null;
select setval('taskq.task_id_seq', 1, false), setval('taskq.alert_id_seq', 1, false) \gset ignored_

drop schema if exists test cascade;
create schema test;

-- What a statement answers: its SQLSTATE and message, or "no error". Its effects are undone.
-- (From 18 on PostgreSQL names the unit of a setting's bounds; here nobody does.)
create function test.error(sql text) returns text language plpgsql as $$
begin
  execute sql;
  raise exception using errcode = 'UNDO0';
exception
  when sqlstate 'UNDO0' then return 'no error';
  when others then
    return format('%s: %s', sqlstate, regexp_replace(sqlerrm, '\((\S+) \S+ \.\. (\S+) \S+\)$', '(\1 .. \2)'));
end
$$;

-- The clock stands still from here on, an hour ahead, so that nothing depends on how fast a test runs.
create function test.freeze() returns void language plpgsql as $$
begin
  perform set_config('taskq.test_clock',
    to_char((clock_timestamp() + interval '1 hour') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), false);
end
$$;

-- Moves the frozen clock.
create function test.pass("time" interval) returns void language plpgsql as $$
begin
  perform set_config('taskq.test_clock',
    to_char((taskq._now() + pass."time") at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), false);
end
$$;

-- Rounds of the archive duty until nothing is left to do; the first may only make the days ahead.
create function test.archive() returns bigint language plpgsql as $$
declare
  v_count bigint := 0;
  v_round bigint;
begin
  loop
    v_round := taskq._duty_archive();
    exit when v_round = 0;
    v_count := v_count + v_round;
  end loop;
  return v_count;
end
$$;

-- Claims and says what was got, in the order of the rows.
create function test.claim(n integer = 1, queues text[] = null) returns text language sql as $$
  select coalesce(string_agg(format('%s attempt %s', c.task_type, c.attempt), ', ' order by c.ordinality), 'nothing')
    from taskq.claim(claim.n, claim.queues) with ordinality c
$$;

-- A task that runs, in a queue of its own.
create function test.running(what text, max_retries integer = null) returns bigint language plpgsql as $$
declare
  v_id bigint := taskq.enqueue(running.what, '{"p": 1}', queue => running.what, max_retries => running.max_retries,
                               headers => '{"h": 1}');
begin
  perform from taskq.claim(1, array[running.what], 'w1');
  return v_id;
end
$$;

-- The token of a running task.
create function test.token(id bigint) returns bigint language sql as $$
  select t.token from taskq.task t where t.id = token.id
$$;

-- Everything that is stored about a task, for comparing before and after.
create function test.everything(id bigint) returns text language sql as $$
  select format('%s/%s/%s', (select to_jsonb(t) from taskq.task t where t.id = everything.id),
                (select to_jsonb(d) from taskq.dead_letter d where d.id = everything.id),
                (select to_jsonb(f) from taskq.done f where f.id = everything.id))
$$;
