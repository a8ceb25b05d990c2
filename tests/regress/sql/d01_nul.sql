-- D01: JSON with a NUL character is refused by PostgreSQL before anything is stored.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
\set VERBOSITY sqlstate
select taskq.enqueue('t', '{"a":"\u0000"}');
select taskq.enqueue('t', '{"\u0000": 1}');
select taskq.enqueue('t', '["a", "\u0000"]');
select taskq.enqueue('t', headers => '{"a":"\u0000"}');
select taskq.configure_type('t', '{"queue": "\u0000"}');
-- among 99 good ones: all or nothing
select count(*) from taskq.enqueue_many((select format('[%s, {"task_type": "t", "payload": {"a": "\u0000"}}]', string_agg('{"task_type": "t"}', ', ')) from generate_series(1, 99))::jsonb);
\set VERBOSITY default
select count(*) from taskq.task;
-- the transaction goes on behind a savepoint
begin;
select taskq.enqueue('before') > 0 as enqueued;
savepoint a;
select taskq.enqueue('t', '{"a":"\u0000"}');
rollback to savepoint a;
select taskq.enqueue('after') > 0 as enqueued;
commit;
select task_type from taskq.task order by id;
-- what a worker gives back
select id, token from taskq.claim() \gset
select test.error(format($q$select taskq.complete(%s, %s, '{"a":"\u0000"}')$q$, :id, :token)) as complete,
       test.error(format($q$select taskq.extend(%s, %s, progress => '"\u0000"')$q$, :id, :token)) as extend,
       test.error(format($q$select taskq.complete_many(array[%s], array[%s], array['"\u0000"']::jsonb[])$q$, :id, :token)) as complete_many;
select state, progress from taskq.tasks where id = :id;
select taskq.complete(:id, :token);
-- the same six characters behind a backslash are text
select taskq.enqueue('t', '{"a": "\\u0000"}') > 0 as enqueued;
select payload ->> 'a' from taskq.task where task_type = 't';
