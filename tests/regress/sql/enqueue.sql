-- enqueue: what is stored, what is refused.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- the defaults
select taskq.enqueue('mail') as id;
select id, queue, task_type, state, priority, attempt, max_retries, payload, headers, token, unique_key,
       run_at = taskq._now() as run_now, enqueued_at = taskq._now() as enqueued_now,
       bytes = pg_column_size('{}'::jsonb) - 4 as bytes
  from taskq.task;

-- every argument
select taskq.enqueue('report', '{"year": 2030}', queue => 'slow', priority => -7, delay => '90 s', max_retries => 0,
                     unique_key => 'y2030', on_conflict => 'error', headers => '{"trace": "a1"}') as id;
select id, queue, task_type, state, priority, max_retries, payload, headers, unique_key, run_at - taskq._now() as wait
  from taskq.tasks where id = 2;
select task_type, key, task_id from taskq.unique_key;

-- every argument NULL but the type is the same as none
select taskq.enqueue('mail', null, null, null, null, null, null, null, null, null) as id;
select queue, priority, max_retries, payload, headers from taskq.task where id = 3;

-- run_at: past, far, and what belongs to no calendar
select taskq.enqueue('mail', run_at => '2001-01-01 00:00Z') as id;
select taskq.enqueue('mail', run_at => '294276-12-31 23:59:59.999999Z') as id;
select taskq.enqueue('mail', run_at => '4713-01-01 00:00Z BC') as id;
select id, state, run_at = '2001-01-01 00:00Z' as y2001, run_at = '294276-12-31 23:59:59.999999Z' as last
  from taskq.tasks where id > 3 order by id;
\set VERBOSITY sqlstate
select taskq.enqueue('mail', run_at => 'infinity');
select taskq.enqueue('mail', run_at => '-infinity');
select taskq.enqueue('mail', run_at => now(), delay => '1 s');
select taskq.enqueue('mail', run_at => now(), delay => '0');
\set VERBOSITY default

-- delays are fixed seconds: a day has 24 hours and a month 30 days, in every time zone
begin;
set local taskq.test_clock = '2026-03-07 02:30:00-05';
set local timezone = 'America/New_York';
select taskq.enqueue('zone', delay => '1 day') as id;
set local timezone = 'UTC';
select taskq.enqueue('zone', delay => '24 hours') as id;
select count(distinct run_at) as moments, min(run_at) as run_at from taskq.task where task_type = 'zone';
select taskq.enqueue('month', delay => '1 month') as id;
select run_at - taskq._now() as wait from taskq.task where task_type = 'month';
select taskq.enqueue('century', delay => '100 years') as id;
select taskq.enqueue('tiny', delay => '0.000001 s') as id;
select run_at - taskq._now() as wait from taskq.task where task_type = 'tiny';
rollback;
select delay, test.error(format('select taskq.enqueue(''mail'', delay => %L)', delay))
  from unnest('{0, -1 us, -1 month, 100 years 1 day, 1000 mons, 2000 mons, 10000 years, 178000000 years, -178000000 years}'::interval[]) delay;

-- the clock that counts is that of the call, not of the transaction, also in a prepared statement
set taskq.test_clock = '';
prepare two as select taskq.enqueue('clock');
begin;
execute two;
select pg_sleep(0.05);
execute two;
select count(distinct t.enqueued_at) as moments, bool_and(t.enqueued_at >= now()) as after_begin,
       max(t.run_at) - min(t.run_at) >= interval '50 ms' as apart
  from taskq.task t where t.task_type = 'clock';
rollback;
select test.freeze();

-- what is refused: message and hint are made for people
select taskq.enqueue(null);
select taskq.enqueue('mail', priority => 101);
select taskq.enqueue('mail', max_retries => -1);
select taskq.enqueue('mail', run_at => 'infinity');
select taskq.enqueue('mail', run_at => now(), delay => '1 s');
select taskq.enqueue('mail', delay => '10000 years');
select taskq.enqueue('mail', on_conflict => 'replace all');
select p, test.error(format('select taskq.enqueue(''mail'', priority => %s)', p))
  from unnest('{-2147483648, -101, -100, 0, 100, 101, 2147483647}'::int[]) p;
select r, test.error(format('select taskq.enqueue(''mail'', max_retries => %s)', r))
  from unnest('{-2147483648, -1, 0, 1000000, 1000001, 2147483647}'::int[]) r;
select c, test.error(format('select taskq.enqueue(''mail'', on_conflict => %L)', c))
  from unnest('{ignore, error, Ignore, skipped, "", " ignore"}'::text[]) c;
-- no overloads, no such arguments
select test.error($$select taskq.enqueue()$$);
select test.error($$select taskq.enqueue('mail', '{}', colour => 'red')$$);
select test.error($$select taskq.enqueue('mail', '{')$$);
select test.error($$select taskq.enqueue('mail', '{"a": "\u0000"}')$$);

-- nothing of all that was stored, and a refusal leaves the transaction usable behind a savepoint
select count(*) from taskq.task where id > 6;
begin;
savepoint a;
select taskq.enqueue('');
rollback to savepoint a;
select taskq.enqueue('after') > 0 as enqueued;
commit;
select count(*) from taskq.task where task_type = 'after';

-- a rolled-back enqueue leaves nothing but a gap
begin;
select taskq.enqueue('ghost', unique_key => 'k') > 0 as enqueued;
rollback;
begin;
savepoint a;
select taskq.enqueue('ghost', unique_key => 'k') > 0 as enqueued;
rollback to savepoint a;
commit;
select count(*) from taskq.task where task_type = 'ghost';
select count(*) from taskq.unique_key where task_type = 'ghost';

-- settings of the type count when the argument is left open
select taskq.configure_type('routed', '{"queue": "vip", "priority": 9, "max_retries": 1}') is not null as configured;
select taskq.enqueue('routed') > 0 as enqueued;
select taskq.enqueue('routed', queue => 'own', priority => -1, max_retries => 5) > 0 as enqueued;
select queue, priority, max_retries from taskq.task where task_type = 'routed' order by id;

-- ids above 2^31
select setval('taskq.task_id_seq', 3000000000);
select taskq.enqueue('high') as id;
select state, task_type from taskq.status(3000000001);
select test.error('select taskq.complete(3000000001, 9007199254740993)');

-- a refused statement leaves the planner's settings as they were
select name, setting from pg_settings
 where name in ('enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'enable_sort', 'jit',
                'enable_indexscan', 'enable_nestloop', 'plan_cache_mode')
   and setting <> reset_val;
set enable_nestloop = off;
set enable_indexscan = off;
set plan_cache_mode = force_custom_plan;
select test.error($$select taskq.enqueue('mail', payload => '{"a": 1}', unique_key => '')$$);
select taskq.enqueue('mail', unique_key => 'k') > 0 as enqueued;
-- an error inside PostgreSQL, while the statement runs
begin read only;
select test.error($$select taskq.enqueue('mail')$$);
rollback;
show enable_nestloop;
show enable_seqscan;
show plan_cache_mode;
reset enable_nestloop;
reset enable_indexscan;
reset plan_cache_mode;
