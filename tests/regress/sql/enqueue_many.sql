-- enqueue_many: all or nothing, in order.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
-- what comes back: positions in order, the ids, and that they are new
select * from taskq.enqueue_many('[{"task_type": "a"}, {"task_type": "b"}, {"task_type": "c"}]');
select * from taskq.enqueue_many('[]');
-- every field
select count(*) from taskq.enqueue_many(jsonb_build_array(jsonb_build_object(
  'task_type', 'full', 'payload', '{"a": 1}'::jsonb, 'queue', 'q', 'priority', -5, 'delay', '90 s', 'max_retries', 7,
  'unique_key', 'k', 'on_conflict', 'error', 'group_key', 'g', 'headers', '{"h": 1}'::jsonb),
  jsonb_build_object('task_type', 'full', 'run_at', '2030-01-31T12:00:00Z')));
select queue, priority, run_at - enqueued_at as wait, max_retries, unique_key, group_key, payload, headers, bytes, enqueued_at = taskq._now() as now
  from taskq.task where task_type = 'full' and queue = 'q';
select run_at = '2030-01-31 12:00Z' as run_at, queue, priority, max_retries from taskq.task where task_type = 'full' and queue <> 'q';
-- it stores what enqueue stores
select taskq.enqueue('full', '{"a": 1}', 'q', -5, null, '90 s', 7, 'k2', 'finished', null, 'error', 'g', '{"h": 1}') as id \gset
select to_jsonb(a) - '{id,unique_key}'::text[] = to_jsonb(b) - '{id,unique_key}'::text[] as same
  from taskq.task a, taskq.task b where a.unique_key = 'k' and b.unique_key = 'k2';
-- the type's settings count for each
select count(taskq.configure_type(t, s)) from (values ('x', '{"queue": "xq", "priority": 1}'::jsonb), ('y', '{"max_retries": 9}')) v(t, s);
select count(*) from taskq.enqueue_many('[{"task_type": "x"}, {"task_type": "y", "priority": 2}, {"task_type": "x", "queue": "own", "priority": 0}, {"task_type": "z"}]');
select task_type, queue, priority, max_retries from taskq.task where task_type in ('x', 'y', 'z') order by id;
-- ids rise with the positions, and that is the order of claims
delete from taskq.task;
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't' || n)) from generate_series(1, 5) n));
select test.claim(9);
delete from taskq.task;
delete from taskq.unique_key;

-- not an array
select taskq.enqueue_many(null);
select taskq.enqueue_many('{"task_type": "a"}');
select j, test.error(format('select taskq.enqueue_many(%L)', j))
  from unnest('{NULL, null, 1, "\"a\"", true, "{}"}'::text[]) j;

-- one bad element refuses all and is named
select taskq.enqueue_many('[{"task_type": "a"}, {"task_type": "a", "colour": "red"}, {"task_type": "a"}]');
select taskq.enqueue_many('[{"task_type": "a", "priority": "high"}]');
select taskq.enqueue_many('[{"task_type": "a", "run_at": "tomorrow-ish"}]');
select taskq.enqueue_many('[{"task_type": "a", "delay": "a while"}]');
select e, test.error(format('select taskq.enqueue_many(%L)', format('[{"task_type": "a"}, {"task_type": "a"}, %s, {"task_type": "a"}]', e)))
  from unnest(array[
    'null', '1', '"a"', '[]', '[{"task_type": "a"}]', '{}', '{"task_type": null}', '{"task_type": ""}', '{"task_type": 1}',
    '{"task_type": {}}', '{"Task_Type": "a"}', '{"task_type": "a", "": 1}', '{"task_type": "a", "id": 7}',
    '{"task_type": "a", "queue": 1}', '{"task_type": "a", "queue": ""}',
    '{"task_type": "a", "priority": "1"}', '{"task_type": "a", "priority": 1.5}', '{"task_type": "a", "priority": 101}',
    '{"task_type": "a", "priority": 1e30}', '{"task_type": "a", "priority": 99999999999999999999}', '{"task_type": "a", "priority": true}',
    '{"task_type": "a", "max_retries": -1}', '{"task_type": "a", "max_retries": 1.0001}', '{"task_type": "a", "max_retries": []}',
    '{"task_type": "a", "run_at": 1}', '{"task_type": "a", "run_at": "infinity"}', '{"task_type": "a", "run_at": ""}',
    '{"task_type": "a", "run_at": "300000-01-01"}', '{"task_type": "a", "run_at": "2030-01-01", "delay": "1 s"}',
    '{"task_type": "a", "delay": 1}', '{"task_type": "a", "delay": "-1 s"}', '{"task_type": "a", "delay": "10000 years"}',
    '{"task_type": "a", "delay": "1 s 1 s"}', '{"task_type": "a", "delay": "999999999999 years"}',
    '{"task_type": "a", "unique_key": ""}', '{"task_type": "a", "unique_key": 1}', '{"task_type": "a", "on_conflict": "skipped"}',
    '{"task_type": "a", "on_conflict": true}']) e;
-- whole numbers are written without a fraction, even one of zero
select e, test.error(format('select taskq.enqueue_many(%L)', e)) from unnest(array['[{"task_type": "a", "priority": 1.0}]', '[{"task_type": "a", "priority": 1e1}]']) e;
-- first and last, and among many
select test.error($$select taskq.enqueue_many('[1, {"task_type": "a"}]')$$);
select test.error($$select taskq.enqueue_many('[{"task_type": "a"}, 1]')$$);
select test.error($$select taskq.enqueue_many((select jsonb_agg(case n when 777 then '{}' else '{"task_type": "a"}' end::jsonb) from generate_series(1, 1000) n))$$);
-- of two bad ones the first is named
select test.error($$select taskq.enqueue_many('[{"task_type": "a"}, {"task_type": ""}, 7]')$$);
select count(*), (select last_value from taskq.task_id_seq) > 100 as ids_used from taskq.task where task_type = 'a' and priority not in (1, 10);
delete from taskq.task;

-- duplicates: of others, and within the call
select taskq.enqueue('u', unique_key => 'held') as holder \gset
select ord, id = :holder as holder, created from taskq.enqueue_many('[{"task_type": "u", "unique_key": "new"}, {"task_type": "u", "unique_key": "held"},
  {"task_type": "other", "unique_key": "held"}, {"task_type": "u"}, {"task_type": "u", "unique_key": "new"}]');
select a.id = b.id as same_task
  from taskq.enqueue_many('[{"task_type": "u", "unique_key": "twice"}, {"task_type": "u", "unique_key": "twice"}]') a
  join taskq.enqueue_many('[{"task_type": "u", "unique_key": "twice"}]') b on a.ord = 1;
select task_type, unique_key, count(*) from taskq.task group by 1, 2 order by 1, 2;
select taskq.enqueue_many('[{"task_type": "u", "unique_key": "fresh"}, {"task_type": "u", "unique_key": "held", "on_conflict": "error"}]');
select test.error($$select taskq.enqueue_many('[{"task_type": "u", "unique_key": "held", "on_conflict": "error"}]')$$);
select test.error($$select taskq.enqueue_many('[{"task_type": "u", "unique_key": "x"}, {"task_type": "u", "unique_key": "x", "on_conflict": "error"}]')$$);
select count(*) from taskq.task where unique_key in ('fresh', 'x');
select count(*) from taskq.unique_key where key in ('fresh', 'x');
-- the first of equal keys is the one that is stored
select count(*) from taskq.enqueue_many('[{"task_type": "u", "unique_key": "first", "payload": 1}, {"task_type": "u", "unique_key": "first", "payload": 2}]');
select payload from taskq.task where unique_key = 'first';
delete from taskq.task;
delete from taskq.unique_key;

-- 100,000 elements
select count(*), count(distinct id), bool_and(created) as created, min(ord), max(ord)
  from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't', 'payload', n, 'priority', n % 3)) from generate_series(1, 100000) n));
select count(*), count(distinct payload), max(payload::int) from taskq.task;
select test.error($$select taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', case n when 100000 then '' else 't' end)) from generate_series(1, 100000) n))$$);
select count(*) from taskq.task;
select taskq.purge('ready');
