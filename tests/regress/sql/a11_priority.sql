-- A11: tasks are claimed by priority, run_at and id, however they came.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- 3 in one statement and 3 in three, all of one priority and one moment
select test.freeze();
select count(*) from taskq.enqueue_many('[{"task_type": "a"}, {"task_type": "b"}, {"task_type": "c"}]');
select taskq.enqueue('d') \gset ignored_
select taskq.enqueue('e') \gset ignored_
select taskq.enqueue('f') \gset ignored_
begin;
select test.claim() as one, test.claim() as two, test.claim() as three, test.claim() as four, test.claim() as five, test.claim() as six;
rollback;
-- the rows lie in another order
update taskq.task set bytes = bytes where id % 2 = 1;
vacuum full taskq.task;
begin;
select test.claim() as one, test.claim() as two, test.claim() as three, test.claim() as four, test.claim() as five, test.claim() as six;
rollback;
cluster taskq.task using task_pkey;
analyze taskq.task;
select test.claim() as one, test.claim() as two, test.claim() as three, test.claim() as four, test.claim() as five, test.claim() as six;
delete from taskq.task;
-- before the id comes the moment, before that the priority
select taskq.enqueue('later', delay => '1 s'), taskq.enqueue('first', run_at => taskq._now() - interval '1 s'),
       taskq.enqueue('low', priority => -1, run_at => '2001-01-01Z'), taskq.enqueue('high', priority => 1, delay => '1 s') \gset ignored_
select test.pass('1 s');
select test.claim(4);
