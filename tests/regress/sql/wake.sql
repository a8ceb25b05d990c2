-- The wake duty: of which queues it tells, and how often. (Who hears it: tests/server/tests/wake.rs.)
\set ECHO none
\getenv here PG_ABS_SRCDIR
set client_min_messages = warning;
select current_database() as home \gset
drop database if exists taskq_wake;
create database taskq_wake template template0;
alter database taskq_wake set taskq.keeper = off;
\c taskq_wake
create extension taskq;
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- how many queues it tells of, when all have been quiet for long enough
create function test.wake() returns bigint language sql as $$
  select taskq._wake() from pg_sleep(0.12)
$$;
select test.freeze();
-- nothing: nobody is told
select test.wake();
select test.wake();
-- enqueued now: told once
select taskq.enqueue('t', queue => 'a') > 0;
select test.wake();
select test.wake();
-- two queues, many tasks: one message each
select count(taskq.enqueue('t', queue => 'a')), count(taskq.enqueue('t', queue => 'b')) from generate_series(1, 100);
select test.wake();
select test.wake();
-- a message each tenth of a second at most; what comes in between is not lost
create function test.wake_at_once() returns bigint language sql as 'select taskq._wake()';
select taskq.enqueue('t', queue => 'a') > 0;
select test.wake();
begin; select taskq.enqueue('t', queue => 'a') > 0; commit; select test.wake_at_once();
select test.wake();
-- what is rolled back is not told, nor what has been claimed meanwhile
begin;
select taskq.enqueue('t', queue => 'c') > 0;
rollback;
select test.wake();
select taskq.enqueue('t', queue => 'c') as id \gset
select count(*) from taskq.claim(1, array['c']);
select test.wake();
-- a release, with and without delay
select taskq.release(:id, test.token(:id));
select test.wake();
select count(*) from taskq.claim(1, array['c']);
select taskq.release(:id, test.token(:id), '5 s');
select test.wake();
select test.pass('6 s');
select test.wake();
select test.wake();
-- a failure with a short backoff
select count(*) from taskq.claim(1, array['c']);
select f.state from taskq.fail(:id, test.token(:id), retry_in => '2 s') f;
select test.wake();
select test.pass('3 s');
select test.wake();
-- a lease that ends
select count(*) from taskq.claim(1, array['c']);
select test.pass('1 hour');
select test.wake();
select taskq._recover(10);
select test.wake();
-- the end of a task is nothing to tell of
select count(*) from taskq.claim(1, array['c']);
select taskq.complete(:id, test.token(:id));
select test.wake();
-- a dead letter that is redriven
select test.running('d', 0) as id \gset
select f.state from taskq.fail(:id, test.token(:id)) f;
select test.wake();
select redriven from taskq.redrive('d');
select test.wake();
-- a scheduled task, and one that is moved forward
select taskq.enqueue('k', queue => 'k', delay => '1 hour', unique_key => '1') > 0;
select test.wake();
select taskq.enqueue('k', queue => 'k', unique_key => '1', on_conflict => 'replace') > 0;
select test.wake();
-- a paused queue is not told of, whatever happens; when it is resumed it is, if it has something
select taskq.pause('p');
select taskq.enqueue('t', queue => 'p'), taskq.enqueue('t', queue => 'p', delay => '1 s') \gset ignored_
select test.wake();
select test.pass('2 s');
select test.wake();
select taskq.resume('p');
select test.wake();
select taskq.pause('empty');
select taskq.resume('empty');
select test.wake();
-- a round that is rolled back has told nobody: the next one looks at every lane
select taskq.enqueue('t', queue => 'z') > 0;
begin;
select test.wake();
rollback;
select test.wake() > 0 as told;
select test.wake();
-- the duty is the same, and leaves nothing to do
select taskq.enqueue('t', queue => 'a') > 0;
select taskq._duty_wake() from pg_sleep(0.12);
select test.wake();
\c :home
drop database taskq_wake;
