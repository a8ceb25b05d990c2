-- configure_queue, configure_type, pause, resume.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- what there is, with its default; nothing configured shows it, too
select scope, name, type, low, high, fallback from taskq._settings() order by scope, name;
select jsonb_pretty(taskq.configure_queue('q', '{}'));
select jsonb_pretty(taskq.configure_type('t', '{}'));
-- every column of the tables is a setting or book-keeping, and the other way round
select attname from pg_attribute where attrelid in ('taskq.queue'::regclass, 'taskq.task_type'::regclass) and attnum > 0 and not attisdropped
except select name from taskq._settings() order by 1;
select name from taskq._settings() where scope <> 'schedule'
except select attname from pg_attribute where attrelid in ('taskq.queue'::regclass, 'taskq.task_type'::regclass) and attnum > 0;
-- the functions that hand out defaults say the same
select taskq._default_lease(), taskq._default_retention();
select lease, retention, dead_letters_limit from taskq.queues where queue = 'q';
select queue, priority, max_retries, lease, backoff_base, backoff_factor, backoff_cap, jitter from taskq.task_types where task_type = 't';

-- merge: what is given changes, the rest stays, null resets
select taskq.configure_queue('q', '{"lease": "2 minutes", "dead_letters_limit": 0}');
select taskq.configure_queue('q', '{"retention": "1 day"}');
select taskq.configure_queue('q', '{}');
select taskq.configure_queue('q', '{"lease": null, "retention": null}');
select lease, retention, dead_letters_limit from taskq.queue where name = 'q';
select taskq.configure_type('t', '{"queue": "slow", "priority": -5, "max_retries": 0, "lease": "1 hour", "backoff_base": "1 s",
  "backoff_factor": 1.5, "backoff_cap": "1 day", "jitter": 0}');
select taskq.configure_type('t', '{"jitter": 1, "queue": null}');
select queue, priority, max_retries, lease, backoff_base, backoff_factor, backoff_cap, jitter from taskq.task_types where task_type = 't';
select taskq.configure_type('t', '{"priority": null, "max_retries": null, "lease": null, "backoff_base": null, "backoff_factor": null,
  "backoff_cap": null, "jitter": null}') = taskq.configure_type('t2', '{}') as as_new;
-- intervals are answered in one style
set intervalstyle = 'iso_8601';
select taskq.configure_queue('q', '{"lease": "PT90S"}');
select taskq.configure_queue('q', '{"lease": null}');
reset intervalstyle;
-- an aborted change changes nothing
begin;
select taskq.configure_queue('q', '{"dead_letters_limit": 99}') ->> 'dead_letters_limit' as set;
rollback;
select taskq.configure_queue('q', '{}') ->> 'dead_letters_limit' as set;

-- refused: unknown settings are answered with the valid ones
select taskq.configure_queue('q', '{"leese": "1 min"}');
select taskq.configure_type('t', '{"max_running": 1}');
select taskq.configure_queue('q', '{"lease": "-1 min"}');
select taskq.configure_type('t', '{"priority": 101}');
select taskq.configure_type('t', '{"queue": ""}');
select taskq.configure_type('t', '{"jitter": "much"}');
select taskq.configure_queue('q', null);
select s, test.error(format('select taskq.configure_queue(''q'', %L)', s))
  from unnest('{NULL, null, 1, "\"x\"", [], "[{}]"}'::text[]) s;
-- one bad one refuses all
select test.error($$select taskq.configure_queue('q', '{"dead_letters_limit": 50, "lease": "bad"}')$$);
select dead_letters_limit from taskq.queue where name = 'q';
-- wrong type, out of range, at the bounds
create temp table given (n serial, scope text, setting text, value jsonb);
insert into given (scope, setting, value)
select s.scope, s.name, v
  from taskq._settings() s, unnest(array['"0"', '"-1 s"', '"1 us"', '"1 ms"', '"366 days"', '"366 days 1 s"', '"100 years"', '"101 years"',
       '"178000000 years"', '"a while"', '""', '"infinity"', '1', '0', '-1', '-100', '-101', '100', '101', '1000', '1001', '1000000', '1000001', '1.5', '7.0', '1e30', '1e400',
       '2147483647', '2147483648', 'true', '[]', '{}']::jsonb[]) v;
create function test.configure(scope text, setting text, value jsonb) returns text language sql as $$
  select case when e = 'no error' then 'accepted' when e = format('22023: setting %s is not valid', configure.setting) then 'refused' else e end
    from test.error(format(case configure.scope when 'schedule' then 'select taskq.%s(''x'', ''@daily'', ''x'', settings => %L)'
                                                else 'select taskq.configure_%s(''x'', %L)' end,
                           configure.scope, jsonb_build_object(configure.setting, configure.value))) e
$$;
select scope, setting, test.configure(scope, setting, value), string_agg(value::text, ' ' order by n) from (select * from given where value <> '1e400') g
 group by 1, 2, 3 order by 1, 2, 3;
select distinct test.configure(scope, setting, value) from given where value = '1e400';
-- keys are settings, not columns
select k, test.error(format('select taskq.configure_queue(''q'', %L)', jsonb_build_object(k, null)))
  from unnest('{name, paused_at, updated_at, "", Lease, lease}'::text[]) k;

-- new tasks go where the type is routed now; those that wait stay where they are
select taskq.configure_type('r', '{"queue": "one", "priority": 1}') \gset ignored_
select taskq.enqueue('r') \gset ignored_
select taskq.configure_type('r', '{"queue": "two", "priority": 2}') \gset ignored_
select taskq.enqueue('r') \gset ignored_
select queue, priority from taskq.tasks where task_type = 'r' order by id;

-- pause: who and when; a second pause changes neither; running tasks go on
select test.running('p') as id \gset
select taskq.enqueue('p', queue => 'p') \gset ignored_
select taskq.pause('p');
select paused_at = taskq._now() as now, paused_by = session_user as me from taskq.queues where queue = 'p';
select test.pass('1 min');
select taskq.pause('p');
select taskq._now() - paused_at as paused_for from taskq.queues where queue = 'p';
select test.claim(5), test.claim(5, array['p']);
select count(*) from taskq.extend(:id, test.token(:id));
select taskq.complete(:id, test.token(:id));
-- settings can be changed meanwhile
select taskq.configure_queue('p', '{"dead_letters_limit": 1}') ->> 'dead_letters_limit' as set;
select test.claim(5, array['p']);
select taskq.resume('p');
select taskq.resume('p'), taskq.resume('never seen');
select paused_at, paused_by, dead_letters_limit from taskq.queues where queue = 'p';
select test.claim(5, array['p']);
-- a queue nobody has used can be paused before its first task
select taskq.pause('early');
select taskq.enqueue('e', queue => 'early') \gset ignored_
select test.claim(5);
select count(*) from taskq.queue where name = 'never seen';
-- an aborted pause holds nothing
select taskq.resume('early');
begin;
select taskq.pause('early');
rollback;
select test.claim(5);
-- a lease that ends while its queue is paused: taken back, not claimed
select taskq.pause('early');
select test.pass('1 hour');
select test.claim(5, array['early']);
select taskq._recover(10);
select state, attempt from taskq.tasks where queue = 'early';
