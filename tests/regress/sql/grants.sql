-- Rights: everything is closed; each grant_* opens exactly its part. (The whole list is in h01_privileges; names in the way, in h02_shadowing.)
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
\pset null ''
create role taskq_test_plain;
create role taskq_test_producer;
create role taskq_test_worker;
create role taskq_test_operator;
create role taskq_test_reader;
create role "taskq_test Odd ""one""";
delete from taskq.granted_part;

-- PUBLIC, and so a plain role, has nothing at all
create function test.may(role name) returns table (kind text, object text) language sql as $$
  select 'schema', p from unnest(array['usage', 'create']) p where has_schema_privilege(may.role, 'taskq', p)
  union all
  select case f.prokind when 'p' then 'procedure' else 'function' end, f.proname from pg_proc f
   where f.pronamespace = 'taskq'::regnamespace and has_function_privilege(may.role, f.oid, 'execute')
  union all
  select lower(p), c.relname from pg_class c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
   where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v') and has_table_privilege(may.role, c.oid, p)
  union all
  select 'column ' || lower(p), c.relname from pg_class c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) p
   where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v') and has_any_column_privilege(may.role, c.oid, p)
     and not has_table_privilege(may.role, c.oid, p)
  union all
  select 'sequence ' || lower(p), c.relname from pg_class c, unnest(array['SELECT', 'UPDATE', 'USAGE']) p
   where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'S' and has_sequence_privilege(may.role, c.oid, p)
$$;
select * from test.may('taskq_test_plain');
set role taskq_test_plain;
\set VERBOSITY sqlstate
select taskq.enqueue('x');
select taskq.claim();
select count(*) from taskq.tasks;
select count(*) from taskq.task;
select taskq.grant_worker('taskq_test_plain');
call taskq.maintain();
\set VERBOSITY default
reset role;

-- every verb, and every helper that somebody may call: a new one must be decided on here
select taskq.grant_producer('taskq_test_producer');
select taskq.grant_worker('taskq_test_worker');
select taskq.grant_operator('taskq_test_operator');
select taskq.grant_reader('taskq_test_reader');
select f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ')' as function,
       case when f.prosecdef then 'definer' else 'invoker' end as rights,
       coalesce(string_agg(replace(r.rolname, 'taskq_test_', ''), ' ' order by r.rolname) filter (where has_function_privilege(r.oid, f.oid, 'execute')), 'nobody') as who
  from pg_proc f, pg_roles r
 where f.pronamespace = 'taskq'::regnamespace and r.rolname in ('taskq_test_producer', 'taskq_test_worker', 'taskq_test_operator', 'taskq_test_reader')
 group by f.oid, f.proname, f.prosecdef
having f.proname !~ '^_' or bool_or(has_function_privilege(r.oid, f.oid, 'execute'))
 order by f.proname collate "C";
select role, m.kind, string_agg(m.object, ' ' order by m.object collate "C") as objects
  from unnest(array['producer', 'worker', 'operator', 'reader']) with ordinality r(role, n), test.may('taskq_test_' || role) m
 where m.kind not in ('function', 'procedure') group by n, role, m.kind order by n, m.kind;
-- the parts say the same as the rights; nobody has more
select p.part, p.kind, p.object from taskq._parts() p
 where p.kind = 'view' and not has_table_privilege('taskq_test_' || p.part, p.object, 'select');
-- every view for people is open to readers, and no function beginning with _ but those that a view or a verb needs
select c.relname from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v' and c.relname !~ '^_'
   and not has_table_privilege('taskq_test_reader', c.oid, 'select');
select part, role from taskq.granted_part order by part, role;
-- granting again changes nothing; roles with odd names can be granted; others are refused
select taskq.grant_worker('taskq_test_worker');
select taskq.grant_reader('"taskq_test Odd ""one"""');
select count(*) from taskq.granted_part;
select count(*) > 10 as reads from test.may('taskq_test Odd "one"');
select taskq.grant_producer(null);
select part, test.error(format('select taskq.grant_%s(null)', part)) from unnest(array['producer', 'worker', 'operator', 'reader']) part;
select test.error($$select taskq.grant_reader('taskq_test_nobody')$$);

-- what a role lacks of its parts shows, as after a dump of an older version was restored; and what gives it
revoke execute on function taskq.why, taskq.status from taskq_test_operator;
revoke select on taskq.overview from taskq_test_reader, "taskq_test Odd ""one""";
select ok, value, advice from taskq.health() where "check" = 'rights';
select split_part(advice, ': ', 2) as calls from taskq.health() where "check" = 'rights' \gset
:calls;
select ok, value, advice from taskq.health() where "check" = 'rights';

-- each part can do its work, with nothing but its grant
grant usage on schema test to public;
set role taskq_test_producer;
select taskq.enqueue('p', unique_key => 'k') as id \gset
select count(*) from taskq.enqueue_many('[{"task_type": "m"}, {"task_type": "m"}]');
select state from taskq.status(:id);
select taskq.cancel(:id);
select taskq.enqueue('p') > 0 as enqueued;
set role taskq_test_worker;
select id, token from taskq.claim(1) \gset
select count(*) from taskq.extend(:id, :token);
select taskq.once('s', 'k');
select taskq.release(:id, :token);
select id, token from taskq.claim(1) \gset
select taskq.complete(:id, :token);
select c.id, c.token from taskq.claim(1) c \gset
select state from taskq.fail(:id, :token, 'x', retry => false);
select count(*) from taskq.claim(1) c, taskq.complete_many(array[c.id], array[c.token]);
select count(*) from taskq.fail_many('{1}', '{1}');
select state from taskq.status(:id);
set role taskq_test_operator;
select taskq.configure_queue('default', '{}') is not null as configured, taskq.configure_type('p', '{}') is not null as configured;
select taskq.pause('q'), taskq.resume('q');
select redriven from taskq.redrive('*');
select taskq.purge('ready');
select taskq.cancel(:id);
call taskq.maintain();
select taskq.schedule('g', '@daily', 'p', time_zone => 'Asia/Tokyo'), taskq.unschedule('g');
select test.error('select taskq.acknowledge(0)');
reset role;
create function test.readable() returns table (name text, rows_ text) language plpgsql as $$
begin
  for name in select c.relname from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v' and c.relname !~ '^_' order by c.relname collate "C" loop
    rows_ := test.error(format('select * from taskq.%I', name));
    return next;
  end loop;
end
$$;
set role taskq_test_reader;
select * from test.readable();
select count(*) > 5 as checks from taskq.health();
create temp view my_view as select id, state from taskq.tasks;
create temp table my_table as select * from taskq.tasks limit 0;
drop view my_view;
drop table my_table;
select state from taskq.status(:id);
set role taskq_test_operator;
select name, rows_ from test.readable() where rows_ <> 'no error';
-- and not the work of the others, nor anything behind it
reset role;
select r, c, test.error(format('set role taskq_test_%s; %s', r, c)) as answer
  from (values ('producer', 'select taskq.claim()'), ('producer', 'select * from taskq.tasks'), ('producer', 'select taskq.pause(''q'')'), ('producer', 'select taskq.once(''a'', ''b'')'),
               ('worker', 'select taskq.enqueue(''x'')'), ('worker', 'select * from taskq.tasks'), ('worker', 'select taskq.purge(''dead'')'), ('worker', 'call taskq.maintain()'),
               ('operator', 'select taskq.enqueue(''x'')'), ('operator', 'select taskq.claim()'), ('operator', 'select taskq.grant_reader(''taskq_test_plain'')'),
               ('operator', 'select taskq._duty_alert()'), ('operator', 'delete from taskq.task'), ('operator', 'delete from taskq.tasks'),
               ('reader', 'select taskq.cancel(1)'), ('reader', 'select * from taskq.task'), ('reader', 'update taskq.tasks set priority = 1'),
               ('reader', 'select nextval(''taskq.task_id_seq'')'), ('reader', 'create table taskq.x ()'),
               ('worker', 'create temp table mine (task taskq.task)'), ('reader', 'create temp table mine (tasks taskq.tasks[])'),
               ('operator', 'create function pg_temp.f(taskq._finding) returns int return 1')) v(r, c);
reset role;

drop owned by taskq_test_plain, taskq_test_producer, taskq_test_worker, taskq_test_operator, taskq_test_reader, "taskq_test Odd ""one""";
drop role taskq_test_plain, taskq_test_producer, taskq_test_worker, taskq_test_operator, taskq_test_reader, "taskq_test Odd ""one""";
delete from taskq.granted_part;
