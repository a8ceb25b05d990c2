-- H01, S1, S6, S15: the golden list. Every function, table, view and sequence with who may use it, and with whose rights and
-- settings a function runs. A new object is a new line here: decide on it.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
\pset null ''
create role taskq_test_producer;
create role taskq_test_worker;
create role taskq_test_operator;
create role taskq_test_reader;
create role taskq_test_nobody;
select taskq.grant_producer('taskq_test_producer'), taskq.grant_worker('taskq_test_worker'),
       taskq.grant_operator('taskq_test_operator'), taskq.grant_reader('taskq_test_reader');

-- who of PUBLIC and the four parts, by the rights as they are stored
create function test.who(acl aclitem[], wanted text) returns text language sql as $$
  select coalesce(string_agg(distinct case a.grantee when 0 then 'PUBLIC' else replace(r.rolname, 'taskq_test_', '') end, ' '), 'owner')
    from aclexplode(who.acl) a left join pg_roles r on r.oid = a.grantee
   where a.privilege_type = who.wanted and (a.grantee = 0 or r.rolname like 'taskq\_test\_%')
$$;
-- functions and procedures
select f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ')' as function, l.lanname as language,
       case when f.prosecdef then 'definer' else 'invoker' end as rights,
       -- a body that was parsed when it was made means what it meant then
       coalesce(array_to_string(f.proconfig, '; '), case when f.prosqlbody is not null then '(parsed)' end) as settings,
       test.who(coalesce(f.proacl, acldefault('f', f.proowner)), 'EXECUTE') as who
  from pg_proc f join pg_language l on l.oid = f.prolang
 where f.pronamespace = 'taskq'::regnamespace order by f.proname collate "C";
-- tables, views, sequences: who may do what; days come and go, and have nothing of their own
select case c.relkind when 'v' then 'view' when 'S' then 'sequence' when 'p' then 'partitioned' else 'table' end as kind, c.relname as name,
       coalesce(nullif(concat_ws(', ', 'select: ' || nullif(test.who(a.acl, 'SELECT'), 'owner'), 'usage: ' || nullif(test.who(a.acl, 'USAGE'), 'owner'),
                                 'insert: ' || nullif(test.who(a.acl, 'INSERT'), 'owner'), 'update: ' || nullif(test.who(a.acl, 'UPDATE'), 'owner'),
                                 'delete: ' || nullif(test.who(a.acl, 'DELETE'), 'owner'), 'truncate: ' || nullif(test.who(a.acl, 'TRUNCATE'), 'owner'),
                                 'references: ' || nullif(test.who(a.acl, 'REFERENCES'), 'owner'), 'trigger: ' || nullif(test.who(a.acl, 'TRIGGER'), 'owner')), ''), 'owner') as who
  from pg_class c
 cross join lateral (select coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)) as acl) a
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and c.relname !~ '_\d{8}' order by 1, 2;
select c.oid::regclass from pg_class c
 where c.relnamespace = 'taskq'::regnamespace and c.relname ~ '_\d{8}' and exists (select from aclexplode(c.relacl) a where a.grantee <> c.relowner);
-- no rights on single columns; no type but those of tables; the schema: nobody but the owner makes anything in it
select a.attrelid::regclass, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
 where c.relnamespace = 'taskq'::regnamespace and a.attacl is not null;
select t.typname from pg_type t left join pg_class c on c.oid = t.typrelid
 where t.typnamespace = 'taskq'::regnamespace and t.typelem = 0 and coalesce(c.relkind, '?') not in ('r', 'p', 'v', 'S') order by 1;
-- and none, of tables and views included, that PUBLIC may make columns of: they would stand in the way of upgrades and of DROP EXTENSION
select count(*) > 50 as types, string_agg(t.oid::regtype::text, ', ') filter (where has_type_privilege('public', t.oid, 'usage')) as open
  from pg_type t where t.typnamespace = 'taskq'::regnamespace;
select test.who(n.nspacl, 'USAGE') as "usage", test.who(n.nspacl, 'CREATE') as "create" from pg_namespace n where n.nspname = 'taskq';
-- nor are rights set for what is made later
select count(*) from pg_default_acl d where d.defaclnamespace = 'taskq'::regnamespace;

-- nobody can call anything: not without the schema, and not with it
create function test.call(function oid) returns text language plpgsql as $$
declare
  v_args text := (select string_agg('null::' || format_type(a.type, null), ', ' order by a.n)
                    from pg_proc p, unnest(p.proargtypes::oid[]) with ordinality a(type, n) where p.oid = call.function);
begin
  return (select test.error(format('%s %s(%s)', case p.prokind when 'p' then 'call' else 'select' end, p.oid::regproc, v_args))
            from pg_proc p where p.oid = call.function);
end
$$;
grant usage on schema test to public;
create temp table called (function oid, name text);
insert into called select p.oid, p.proname from pg_proc p where p.pronamespace = 'taskq'::regnamespace and p.prorettype <> 'trigger'::regtype;
grant select on called to public;
set role taskq_test_nobody;
select left(test.call(c.function), 5) as answer, count(*) > 100 as all from called c group by 1;
reset role;
grant usage on schema taskq to taskq_test_nobody;
set role taskq_test_nobody;
select left(test.call(c.function), 5) as answer, count(*) > 100 as all from called c group by 1;
select r.relname, test.error(format('select from taskq.%I', r.relname)) from pg_class r
 where r.relnamespace = 'taskq'::regnamespace and r.relkind in ('r', 'p', 'v', 'S') and test.error(format('select from taskq.%I', r.relname)) !~ '^42501';
reset role;

drop owned by taskq_test_producer, taskq_test_worker, taskq_test_operator, taskq_test_reader, taskq_test_nobody;
drop role taskq_test_producer, taskq_test_worker, taskq_test_operator, taskq_test_reader, taskq_test_nobody;
delete from taskq.granted_part;
