-- H08, S10, S19: no tenants inside one database, and no row security: a role sees what its parts show, whatever it
-- prepared before as another one; policies that somebody makes in spite of that stop neither verbs nor duties.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
create role taskq_test_a;
create role taskq_test_b;
create role taskq_test_watcher;
grant usage on schema test to public;
select taskq.grant_producer('taskq_test_a'), taskq.grant_worker('taskq_test_a'), taskq.grant_producer('taskq_test_b'), taskq.grant_reader('taskq_test_watcher');
set role taskq_test_b;
select taskq.enqueue('b.secret', '{"of": "b"}', 'b', unique_key => 'k') as of_b \gset
reset role;

-- a plan that was made for one role is not another one's way in
set role taskq_test_watcher;
prepare all_tasks as select task_type, payload from taskq.tasks order by id;
prepare dead as select id, last_error from taskq.dead_letters;
prepare found as select state from taskq.status(:of_b);
execute all_tasks;
execute found;
set role taskq_test_a;
select test.error('execute all_tasks');
select test.error('execute dead');
execute found;
reset role;
set role taskq_test_a;
prepare work as select task_type from taskq.claim(1, array['none']);
execute work;
set role taskq_test_b;
select test.error('execute work');
reset role;
-- A producer may ask for any task by its id, and a worker claim any queue: so the README says. The views, with payloads, keys and
-- errors of all, are the reader's.
set role taskq_test_a;
select s.state, s.task_type from taskq.status(:of_b) s;
select id, token from taskq.claim(1, array['b']) \gset
select v, test.error('select * from taskq.' || v) from unnest(array['tasks', 'running', 'finished', 'dead_letters', 'queues', 'workers', 'history', 'alerts']) v;
-- S19: of a task that is another's, that is over, or that never was, a token that is not its own opens nothing, and all have one code
select what, left(test.error(format('select taskq.complete(%s, 1)', i)), 5) as complete, left(test.error(format('select taskq.fail(%s, 1)', i)), 5) as fail,
       left(test.error(format('select taskq.extend(%s, 1)', i)), 5) as extend, left(test.error(format('select taskq.release(%s, 1)', i)), 5) as release
  from (values ('another one''s', :of_b), ('none', 999999), ('negative', -1)) v(what, i);
select taskq.complete(:id, :token);
reset role;

-- policies of somebody who owns the tables: the verbs and duties are the owner's, whom only FORCE would bind; a superuser never is
select taskq.enqueue('t') as id \gset
begin;
alter table taskq.task enable row level security;
alter table taskq.task force row level security;
alter table taskq.done enable row level security;
alter table taskq.done force row level security;
create policy nothing on taskq.task using (false);
set local role taskq_test_a;
select task_type from taskq.claim(1, lease => '1 ms');
select taskq.enqueue('t') > 0 as enqueued;
reset role;
select pg_sleep(0.01);
select taskq._recover(10) as recovered;
set local row_security = off;
select count(*) from taskq.tasks;
rollback;

drop owned by taskq_test_a, taskq_test_b, taskq_test_watcher;
drop role taskq_test_a, taskq_test_b, taskq_test_watcher;
delete from taskq.granted_part;
