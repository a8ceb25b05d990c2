-- CALL taskq.wait: what it refuses, and when it returns at once. (How it sleeps: tests/server/tests/wait.rs.)
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- not in a transaction block, and not from a function
begin;
call taskq.wait();
rollback;
begin;
\set VERBOSITY sqlstate
call taskq.wait(timeout => '0 s');
rollback;
do $$ begin execute 'call taskq.wait()'; end $$;
create function test.wait() returns void language plpgsql as $$ begin call taskq.wait(); end $$;
select test.wait();
\set VERBOSITY default
-- (a DO block is no transaction for a CALL in it)
do $$ begin call taskq.wait(timeout => '0 s'); end $$;
-- timeouts
call taskq.wait(timeout => '-1 s');
call taskq.wait(timeout => null);
call taskq.wait(timeout => '2 days');
call taskq.wait(timeout => '1 day 1 s');
call taskq.wait(timeout => '1 month');
-- queues
call taskq.wait(array['a', '']);
call taskq.wait(array['a', null]);
call taskq.wait(array[repeat('x', 64)]);
-- it returns at once if something can be claimed (else these would take minutes)
set statement_timeout = '10 s';
select taskq.enqueue('t', queue => 'a') > 0;
call taskq.wait(timeout => '5 minutes');
call taskq.wait(array['a'], '1 day');
call taskq.wait(array['b', 'a'], '5 minutes');
call taskq.wait(queues => array['a'], timeout => '5 minutes');
-- also a task whose lease is over, which a claim would take back
select count(*) from taskq.claim(1, array['a'], lease => '0.1 s');
select pg_sleep(0.2);
call taskq.wait(array['a'], '5 minutes');
-- and after the timeout: other queues, no queues, scheduled, running and paused ones
call taskq.wait(array['b'], '0.05 s');
call taskq.wait('{}', '0.05 s');
select count(*) from taskq.claim(1, array['a']);
select taskq.enqueue('t', queue => 'a', delay => '1 hour') > 0;
select taskq.pause('p'), taskq.enqueue('t', queue => 'p') > 0;
call taskq.wait(timeout => '0.05 s');
call taskq.wait(timeout => '0 s');
-- what it looks at
select taskq._claimable(null), taskq._claimable(array['a', 'p']);
select taskq.resume('p');
select taskq._claimable(null), taskq._claimable(array['a']), taskq._claimable(array['p']);
-- the transaction goes on neither before nor after it: SET stays, and the session works
show statement_timeout;
select taskq.enqueue('t', queue => 'a') > 0;
create role taskq_test_waiter;
select taskq.grant_worker('taskq_test_waiter');
set role taskq_test_waiter;
call taskq.wait(array['a'], '5 minutes');
reset role;
create role taskq_test_nobody;
set role taskq_test_nobody;
call taskq.wait(array['a'], '5 minutes');
reset role;
select taskq.grant_producer('taskq_test_nobody');
set role taskq_test_nobody;
call taskq.wait(array['a'], '5 minutes');
reset role;
drop owned by taskq_test_waiter, taskq_test_nobody;
delete from taskq.granted_part where role in ('taskq_test_waiter', 'taskq_test_nobody');
drop role taskq_test_waiter, taskq_test_nobody;
