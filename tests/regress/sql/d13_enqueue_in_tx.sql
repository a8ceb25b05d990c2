-- D13: a duplicate does not harm the transaction of the business.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
create table test.business (n int);
select taskq.enqueue('t', '{"n": 1}', unique_key => 'k') as holder \gset
begin;
insert into test.business values (1);
select taskq.enqueue('t', '{"n": 2}', unique_key => 'k') = :holder as the_holder;
insert into test.business values (2);
commit;
begin;
insert into test.business values (3);
select taskq.enqueue('t', unique_key => 'k', on_conflict => 'skip');
select created, id = :holder as the_holder from taskq.enqueue_many('[{"task_type": "t", "unique_key": "k"}, {"task_type": "new", "unique_key": "k"}]');
select taskq.enqueue('t', '{"n": 3}', unique_key => 'k', on_conflict => 'replace') = :holder as the_holder;
insert into test.business values (4);
commit;
select array_agg(n order by n) from test.business;
select id = :holder as the_holder, task_type, payload from taskq.task order by id;
-- whoever asks for an error gets one that a savepoint survives
begin;
insert into test.business values (5);
savepoint a;
select taskq.enqueue('t', unique_key => 'k', on_conflict => 'error');
rollback to savepoint a;
select taskq.enqueue('other') > 0 as enqueued;
insert into test.business values (6);
commit;
select max(n) as business, (select count(*) from taskq.task where task_type = 'other') as tasks from test.business;
-- an enqueue of the same transaction is a holder like any other, and one that was rolled back is none
begin;
select taskq.enqueue('tx', unique_key => 'k') as first \gset
select taskq.enqueue('tx', unique_key => 'k') = :first as the_holder;
savepoint a;
select taskq.enqueue('sub', unique_key => 'k') as ghost \gset
rollback to savepoint a;
select taskq.enqueue('sub', unique_key => 'k') > :ghost as own_task;
commit;
-- in one block of PL/pgSQL, where an exception would undo what was done
do $$
begin
  insert into test.business values (7);
  perform taskq.enqueue('t', unique_key => 'k') from generate_series(1, 3);
  insert into test.business values (8);
end
$$;
select max(n) from test.business;
