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
begin;
select test.claim(4);
rollback;
-- (one by one, too: rows of one claim are put in order at its end)
begin;
select test.claim() as one, test.claim() as two, test.claim() as three, test.claim() as four;
rollback;
select test.claim(1, '{default}') as one, test.claim(1, '{default}') as two, test.claim(1, '{default}') as three, test.claim(1, '{default}') as four;
delete from taskq.task;
-- queues do not matter, whichever of them are named
select taskq.enqueue('one', queue => 'z'), taskq.enqueue('two', queue => 'a'), taskq.enqueue('three', queue => 'm'), taskq.enqueue('four', queue => 'z'),
       taskq.enqueue('first', queue => 'm', run_at => taskq._now() - interval '1 s'), taskq.enqueue('high', queue => 'a', priority => 1) \gset ignored_
begin;
select test.claim(6);
rollback;
begin;
select test.claim() as one, test.claim() as two, test.claim() as three, test.claim() as four, test.claim() as five, test.claim() as six;
rollback;
select test.claim(1, '{m,z,a}') as one, test.claim(1, '{m,z,a}') as two, test.claim(1, '{a,m,z}') as three, test.claim(1, '{z,m,a}') as four,
       test.claim(1, '{m,z,a}') as five, test.claim(1, '{m,z,a}') as six;
