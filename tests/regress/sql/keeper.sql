-- What the keeper does, done by hand: maintain, the duties, health.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- not in a transaction block, and not from a function
begin;
call taskq.maintain();
rollback;
\set VERBOSITY sqlstate
begin;
call taskq.maintain();
rollback;
do $$ begin execute 'call taskq.maintain()'; end $$;
\set VERBOSITY default

-- one round of everything
set taskq.test_clock = '-1 hour';
select test.running('lost') as lost \gset
select count(test.running('dying', 0)) from generate_series(1, 4);
set taskq.test_clock = '';
-- (the running ones' leases have been over for most of an hour)
select count(*) from taskq.running where stuck;
call taskq.maintain();
select state, last_error from taskq.status(:lost);
select dead from taskq.queues where queue = 'dying';
select queue, state, value from taskq.alerts;
select duty, finished_at > now() - interval '1 minute' as lately, error from taskq.duties order by duty;
-- a second round changes nothing
create temp table before as select * from taskq.tasks;
call taskq.maintain();
select count(*) from (select * from taskq.tasks except select * from before) x;
select count(*) from taskq.alerts;

-- a duty that fails is noted, stops no other, and is forgotten when it works again
begin;
create or replace function taskq._duty_alert() returns bigint language plpgsql as $$ begin raise exception 'broken: %', repeat('x', 10) using errcode = 'XX001'; end $$;
select taskq._run_duty('alert');
select error, error_at > now() - interval '1 minute' as lately from taskq.duties where duty = 'alert';
select ok, advice from taskq.health() where "check" = 'duty alert';
select taskq._run_duty('recover');
create or replace function taskq._duty_alert() returns bigint language plpgsql as $$ begin return 7; end $$;
select taskq._run_duty('alert');
select rows, error from taskq.duties where duty = 'alert';
rollback;
-- a cancelled one is not swallowed
begin;
create or replace function taskq._duty_alert() returns bigint language plpgsql as $$ begin perform pg_sleep(5); return 1; end $$;
set local statement_timeout = '50 ms';
\set VERBOSITY sqlstate
select taskq._run_duty('alert');
\set VERBOSITY default
rollback;
select taskq._run_duty('nap');
select test.error('select taskq._run_duty(null)');
-- an idle round writes nothing
call taskq.maintain();
begin;
select taskq._run_duty('recover');
select pg_current_xact_id_if_assigned() is null as no_xid;
commit;

-- health: in a database whose keeper is switched off it says so
\c -
select "check", ok from taskq.health() order by "check" collate "C";
select ok, value, "limit", advice from taskq.health() where "check" = 'keeper running';
select ok, value, "limit" from taskq.health() where "check" = 'open alerts';
select value = "limit" as fits, ok from taskq.health() where "check" = 'library version';
select count(*) as checks, bool_and(ok or advice is not null) as advice_where_not_ok, bool_and(not ok or advice is null) as none_where_ok from taskq.health();
update taskq.duty set finished_at = now() - interval '1 hour', started_at = now() - interval '1 hour';
select "check", ok, advice from taskq.health() where "check" ~ '^duty' order by 1;
update taskq.duty set finished_at = null, started_at = null;
select "check", ok, value from taskq.health() where "check" ~ '^duty' order by 1;

-- the settings: units, bounds, and that each says what it is for
select name, setting, unit, context, vartype, min_val, max_val, length(short_desc) > 20 as described, length(extra_desc) > 20 as explained
  from pg_settings where name like 'taskq.%' and name <> 'taskq.keeper' order by name;
select name, boot_val, context from pg_settings where name = 'taskq.keeper';
-- no other taskq.* setting can be made up
set taskq.no_such_setting = 1;
