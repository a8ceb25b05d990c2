-- Unique keys: of tasks with one type and key, one is unfinished at any time.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- ignore, the default, gives the holder; its task stays as it is
select taskq.enqueue('u', '{"n": 1}', unique_key => 'k') as id \gset
select taskq.enqueue('u', '{"n": 2}', unique_key => 'k', priority => 9) = :id as same,
       taskq.enqueue('u', '{"n": 3}', unique_key => 'k', on_conflict => 'ignore') = :id as same;
select payload, priority, unique_key from taskq.task;
-- error says who holds it
select taskq.enqueue('u', unique_key => 'k', on_conflict => 'error');
\set VERBOSITY sqlstate
select taskq.enqueue('u', unique_key => 'k', on_conflict => 'error');
\set VERBOSITY default
-- another type, another key, another case: no duplicate; the queue does not matter
select taskq.enqueue('v', unique_key => 'k') = :id as same, taskq.enqueue('u', unique_key => 'K') = :id as same,
       taskq.enqueue('u', unique_key => 'k ') = :id as same, taskq.enqueue('u', unique_key => 'k', queue => 'other') = :id as same;
select taskq.enqueue('u') = :id as same, taskq.enqueue('u') = :id as same;

-- a duplicate does not poison the caller's transaction
create temp table business (n int);
begin;
insert into business values (1);
select taskq.enqueue('u', unique_key => 'k') = :id as same;
insert into business values (2);
savepoint a;
select test.error($$select taskq.enqueue('u', unique_key => 'k', on_conflict => 'error')$$);
select taskq.enqueue('u', unique_key => 'k', on_conflict => 'error');
rollback to savepoint a;
insert into business values (3);
commit;
select count(*) from business;
-- nor does one of the same transaction
begin;
select taskq.enqueue('tx', unique_key => 'k') as first \gset
select taskq.enqueue('tx', unique_key => 'k') = :first as same;
select test.error($$select taskq.enqueue('tx', unique_key => 'k', on_conflict => 'error')$$) ~ 'TQ002' as refused;
commit;
begin;
savepoint a;
select taskq.enqueue('sub', unique_key => 'k') as ghost \gset
rollback to savepoint a;
select taskq.enqueue('sub', unique_key => 'k') > :ghost as own_task;
commit;
select count(*) from taskq.task where task_type in ('tx', 'sub');
delete from taskq.task;
delete from taskq.unique_key;

-- which states hold the key: every unfinished one, and none after that
create function test.holds() returns text language sql as $$
  select test.error($q$select taskq.enqueue('h', unique_key => 'k', on_conflict => 'error')$q$)
$$;
select taskq.enqueue('h', unique_key => 'k', delay => '1 min', max_retries => 1) as id \gset
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
select test.pass('1 min');
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
select test.claim();
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
-- waiting for a retry, released, taken back
select f.state from taskq.fail(:id, test.token(:id), retry_in => '1 min') f;
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
select test.pass('1 min');
select test.claim();
select taskq.release(:id, test.token(:id));
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
select test.claim();
-- dead
select f.state from taskq.fail(:id, test.token(:id)) f;
select state, test.holds() from taskq.status(:id);
-- redriven
select redriven from taskq.redrive('*');
select state, test.holds() ~ 'TQ002' as held from taskq.status(:id);
-- succeeded
select test.claim();
select taskq.complete(:id, test.token(:id));
select state, test.holds() from taskq.status(:id);
select unique_key from taskq.finished where id = :id;
-- dead by its lease's end
select taskq.enqueue('h', unique_key => 'k', max_retries => 0) as id \gset
select test.claim();
select test.pass('10 min');
select taskq._recover(10);
select state, test.holds() from taskq.status(:id);
-- cancelled: while waiting, by request, by force
select taskq.enqueue('h', unique_key => 'k') as id \gset
select taskq.cancel(:id), test.holds();
select taskq.enqueue('h', unique_key => 'k') as id \gset
select test.claim();
select taskq.cancel(:id), test.holds() ~ 'TQ002' as held;
select f.state from taskq.fail(:id, test.token(:id)) f;
select state, test.holds() from taskq.status(:id);
select taskq.enqueue('h', unique_key => 'k') as id \gset
select test.claim();
select taskq.cancel(:id, force => true), test.holds();
select taskq.enqueue('h', unique_key => 'k') as id \gset
select test.claim();
select taskq.cancel(:id) \gset ignored_
select taskq.release(:id, test.token(:id));
select state, test.holds() from taskq.status(:id);
-- in bulk
select taskq.enqueue('h', unique_key => 'k') as id \gset
select test.claim();
select taskq.complete_many(array[:id], array[test.token(:id)]) = :id as completed, test.holds();
select taskq.enqueue('h', unique_key => 'k', max_retries => 0) as id \gset
select test.claim();
select f.state from taskq.fail_many(array[:id], array[test.token(:id)]) f;
select test.holds();
-- purged
select taskq.enqueue('h', unique_key => 'k') as id \gset
select taskq.purge('ready', task_type => 'h'), test.holds();
-- no key outlives its task
select count(*) from taskq.unique_key;
-- a queue that keeps nothing frees it, too
select taskq.configure_queue('gone', '{"retention": "0"}') is not null as configured;
select taskq.enqueue('h', queue => 'gone', unique_key => 'k') as id \gset
select test.claim();
select taskq.complete(:id, test.token(:id));
select test.holds(), (select count(*) from taskq.finished where queue = 'gone') as kept;
-- a new holder's key is not freed by the end of the old one
select taskq.enqueue('h', unique_key => 'k', max_retries => 0) as old \gset
select test.claim();
select f.state from taskq.fail(:old, test.token(:old)) f;
select taskq.enqueue('h', unique_key => 'k') as new \gset
select taskq.purge('dead', task_type => 'h') as purged, test.holds() ~ format('task %s ', :new) as held;
delete from taskq.task;
delete from taskq.unique_key;

-- bounds
select k, test.error(format('select taskq.enqueue(''u'', unique_key => %L)', key))
  from (values ('512 bytes', repeat('x', 512)), ('513 bytes', repeat('x', 513)), ('256 x 2 bytes', repeat('é', 256)),
               ('257 x 2 bytes', repeat('é', 257)), ('empty', ''), ('newline', E'a\nb'), ('quotes', '''"$$%s\'), ('a million', repeat('x', 1000000))) v(k, key);
select taskq.enqueue('u', unique_key => '');
select taskq.enqueue('u', unique_key => repeat('x', 513));
-- the longest key can hold and be held
select taskq.enqueue(repeat('t', 63), unique_key => repeat('k', 512)) = taskq.enqueue(repeat('t', 63), unique_key => repeat('k', 512)) as same;
-- many duplicates store nothing
select count(distinct taskq.enqueue('many', unique_key => 'k')) from generate_series(1, 1000);
select count(*) from taskq.task where task_type = 'many';
