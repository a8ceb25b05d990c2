-- What CREATE EXTENSION makes, and that it keeps to the rules.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select superuser, trusted, relocatable, schema, requires, comment is not null as comment
  from pg_available_extension_versions where name = 'taskq' and installed;
select e.extversion = taskq._library_version() as library_fits, e.extnamespace::regnamespace as schema from pg_extension e where e.extname = 'taskq';

-- a schema taskq that belongs to somebody else is a trap
create role taskq_test_trapper;
begin;
drop extension taskq;
alter schema taskq owner to taskq_test_trapper;
create extension taskq;
rollback;
begin;
drop extension taskq;
drop schema taskq;
create schema taskq authorization taskq_test_trapper;
\set VERBOSITY sqlstate
create extension taskq;
\set VERBOSITY default
rollback;
-- so is one in which others may create objects, from wherever they have that
begin;
drop extension taskq;
grant create on schema taskq to taskq_test_trapper;
\set VERBOSITY sqlstate
create extension taskq;
rollback;
begin;
drop extension taskq;
drop schema taskq;
alter default privileges grant create on schemas to public;
create extension taskq;
\set VERBOSITY default
rollback;
-- default privileges open nothing to anybody, days that are made later included
begin;
drop extension taskq;
alter default privileges grant all on tables to public, taskq_test_trapper;
alter default privileges grant all on sequences to public, taskq_test_trapper;
alter default privileges grant all on functions to taskq_test_trapper;
alter default privileges grant all on types to taskq_test_trapper;
alter default privileges grant usage on schemas to taskq_test_trapper;
create extension taskq;
select taskq._run_duty('archive') > 0 as made_days;
select count(*) > 14 as days from pg_class where relnamespace = 'taskq'::regnamespace and relname ~ '^done_2';
select o.object, a.grantee::regrole, a.privilege_type
  from (select oid::regclass::text as object, relacl as acl, relowner as owner from pg_class where relnamespace = 'taskq'::regnamespace
        union all select oid::regprocedure::text, proacl, proowner from pg_proc where pronamespace = 'taskq'::regnamespace
        union all select oid::regtype::text, typacl, typowner from pg_type where typnamespace = 'taskq'::regnamespace
        union all select 'schema', nspacl, nspowner from pg_namespace where oid = 'taskq'::regnamespace) o
 cross join lateral aclexplode(o.acl) a
 where a.grantee <> o.owner;
rollback;
drop role taskq_test_trapper;
-- one's own is used; objects in the way are never taken over
begin;
drop extension taskq;
create extension taskq;
select count(*) from taskq.queues;
rollback;
create function test.in_the_way(object text) returns text language plpgsql as $$
begin
  drop extension taskq;
  execute 'create ' || in_the_way.object;
  return test.error('create extension taskq');
end
$$;
begin;
savepoint a;
select test.in_the_way('table taskq.task (id bigint)');
rollback to a;
select test.in_the_way('view taskq.tasks as select 1');
rollback to a;
select test.in_the_way('sequence taskq.task_id_seq');
rollback to a;
select test.in_the_way('function taskq.enqueue_many(jsonb) returns int language sql as ''select 1''');
rollback to a;
-- a call that leaves out an argument would rather take this one
select test.in_the_way('function taskq._wait_lock(text) returns void language sql as ''select 1''');
rollback to a;
select test.in_the_way('type taskq.mood as enum (''good'')');
rollback to a;
select test.in_the_way('operator taskq.= (function = pg_catalog.int4eq, leftarg = int, rightarg = int)');
rollback;
-- it lives in its schema only
begin;
drop extension taskq;
create extension taskq schema public;
rollback;
alter extension taskq set schema public;

-- everything of the extension is in its schema, and everything in its schema is of the extension
create temp view member as
  select d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) as object
    from pg_depend d join pg_extension e on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
   where e.extname = 'taskq' and d.deptype = 'e';
select m.object from member m, pg_identify_object(m.classid, m.objid, 0) i where i.schema is distinct from 'taskq' and i.type <> 'schema';
select c.relkind, c.relname from pg_class c
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'S', 'v', 'm', 'f', 'c')
   and not exists (select from member m where m.classid = 'pg_class'::regclass and m.objid = c.oid)
   and not exists (select from member m where m.classid = 'pg_type'::regclass and m.objid = c.reltype and c.relkind = 'c')
   and not exists (select from pg_inherits i where i.inhrelid = c.oid);
select p.oid::regprocedure from pg_proc p
 where p.pronamespace = 'taskq'::regnamespace and not exists (select from member m where m.classid = 'pg_proc'::regclass and m.objid = p.oid);
-- the fixed partitions are members; only those of days are not
select i.inhrelid::regclass from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'r' and pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'
   and not exists (select from member m where m.objid = i.inhrelid);
-- tables and sequences are registered for pg_dump, but for what is the same in every installation
select c.relname from pg_class c join member m on m.objid = c.oid and m.classid = 'pg_class'::regclass
 where c.relkind in ('r', 'p', 'S') and not c.oid = any (select unnest(e.extconfig) from pg_extension e where e.extname = 'taskq') order by 1;

-- comments on everything that people meet
select c.relkind, c.relname from pg_class c join member m on m.objid = c.oid and m.classid = 'pg_class'::regclass
 where c.relkind in ('r', 'p', 'S', 'v') and obj_description(c.oid, 'pg_class') is null;
select a.attrelid::regclass as "table", a.attname as "column" from pg_attribute a join pg_class c on c.oid = a.attrelid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and not a.attisdropped
   and col_description(c.oid, a.attnum) is null;
-- a column of a view is explained there, or carries the name of a column that is
select a.attrelid::regclass as view, a.attname as "column" from pg_attribute a join pg_class c on c.oid = a.attrelid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v' and c.relname !~ '^_' and a.attnum > 0
   and col_description(c.oid, a.attnum) is null
   and not exists (select from pg_attribute b join pg_class t on t.oid = b.attrelid
                    where t.relnamespace = 'taskq'::regnamespace and t.relkind in ('r', 'p') and b.attname = a.attname
                      and col_description(t.oid, b.attnum) is not null);
select p.oid::regprocedure from pg_proc p where p.pronamespace = 'taskq'::regnamespace and obj_description(p.oid, 'pg_proc') is null;
select obj_description('taskq'::regnamespace, 'pg_namespace') is not null as schema_comment;
-- comments are sentences
select object from member m where obj_description(m.objid, 'pg_proc') !~ '\.$' or obj_description(m.objid, 'pg_class') !~ '\.$';

-- functions: a fixed search_path, but for those in C with the caller's rights, those that are inlined, whose body was
-- parsed when they were made, and the procedures, which could not commit with one. Nobody's temporary objects come first.
select p.oid::regprocedure, p.prokind from pg_proc p join pg_language l on l.oid = p.prolang
 where p.pronamespace = 'taskq'::regnamespace and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
   and (p.prosecdef or p.prosqlbody is null and l.lanname <> 'c') order by p.proname;
select p.oid::regprocedure from pg_proc p where p.pronamespace = 'taskq'::regnamespace and p.prosecdef
   and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false);
-- strict functions answer NULL to a NULL without a word: there are none
select p.oid::regprocedure from pg_proc p where p.pronamespace = 'taskq'::regnamespace and p.proisstrict;
-- one function a verb, its arguments named
select p.proname, count(*) from pg_proc p where p.pronamespace = 'taskq'::regnamespace group by p.proname having count(*) > 1;
select p.oid::regprocedure from pg_proc p where p.pronamespace = 'taskq'::regnamespace
   and (coalesce(cardinality(p.proargnames), 0) < p.pronargs or '' = any (p.proargnames));
-- in SQL functions a bare name would mean a column: arguments are written with the function's name
select p.oid::regprocedure, a.name from pg_proc p join pg_language l on l.oid = p.prolang
 cross join lateral unnest(p.proargnames[1:p.pronargs]) a(name)
 where p.pronamespace = 'taskq'::regnamespace and l.lanname = 'sql' and p.prosrc ~ ('(?<![.\w''])' || a.name || '(?![\w''])');
-- the functions are typed for jsonb, never for json
select p.oid::regprocedure from pg_proc p where p.pronamespace = 'taskq'::regnamespace
   and ('json'::regtype = any (p.proargtypes) or 'json'::regtype = any (p.proallargtypes) or p.prorettype = 'json'::regtype);

-- tables: a primary key each (of partitioned ones, their partitions); ids in 64 bits; keys in the C collation; nothing unlogged; autovacuum on
select c.relname from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'r'
   and not exists (select from pg_constraint k where k.conrelid = c.oid and k.contype = 'p');
select a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a join pg_class c on c.oid = a.attrelid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0
   and (a.attname ~ '(^|_)(id|token)$' and a.atttypid <> 'bigint'::regtype or a.atttypid in ('xid'::regtype, 'oid'::regtype, 'json'::regtype)
        or a.atttypid = 'timestamp'::regtype and a.attname !~ '_(local|utc)$');
select s.seqrelid::regclass from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = 'taskq'::regnamespace and s.seqtypid <> 'bigint'::regtype;
select distinct i.indrelid::regclass as "table", a.attname as "column" from pg_index i join pg_class c on c.oid = i.indrelid
  join pg_attribute a on a.attrelid = c.oid and a.attnum = any (i.indkey)
 where c.relnamespace = 'taskq'::regnamespace and a.attcollation <> 0 and a.attcollation <> '"C"'::regcollation and a.atttypid <> 'name'::regtype;
select i.indexrelid::regclass from pg_index i join pg_class c on c.oid = i.indrelid
 where c.relnamespace = 'taskq'::regnamespace and exists (select from unnest(i.indcollation) x where x not in (0, '"C"'::regcollation));
select c.relname from pg_class c where c.relnamespace = 'taskq'::regnamespace and (c.relpersistence <> 'p' or c.relrowsecurity or c.reloptions::text ~ 'autovacuum_enabled');
-- no triggers, no rules but those of views, no event triggers, no foreign keys
select tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'taskq'::regnamespace order by 1;
select rulename from pg_rewrite r join pg_class c on c.oid = r.ev_class where c.relnamespace = 'taskq'::regnamespace and r.rulename <> '_RETURN';
select conname from pg_constraint k where k.connamespace = 'taskq'::regnamespace and k.contype = 'f';
-- the claim's index, and the only two of task
select indexdef from pg_indexes where schemaname = 'taskq' and tablename = 'task' order by indexname;
select reloptions from pg_class where oid = 'taskq.task'::regclass;
-- done and archive have one shape
select string_agg(attname || ' ' || format_type(atttypid, atttypmod) || attnotnull, ', ' order by attnum) = (
       select string_agg(attname || ' ' || format_type(atttypid, atttypmod) || attnotnull, ', ' order by attnum) from pg_attribute
        where attrelid = 'taskq.archive'::regclass and attnum > 0) as same
  from pg_attribute where attrelid = 'taskq.done'::regclass and attnum > 0;

-- the life cycle is stated by the table: what no verb may do, nobody can store
select taskq.enqueue('c') as id \gset
select change, test.error('update taskq.task set ' || change) ~ '^23514: ' as refused from unnest(array[
  'state = ''running''', 'state = ''done''', 'worker = ''w''', 'lease_expires_at = now()', 'claimed_at = now()', 'cancel_requested_at = now()',
  'state = ''running'', worker = ''w'', claimed_at = now(), lease_expires_at = now()',
  'state = ''running'', worker = ''w'', claimed_at = now(), attempt = 1, token = 1',
  'state = ''running'', worker = ''w'', claimed_at = now(), lease_expires_at = now(), attempt = 1, token = 1']) change;
select test.error('insert into taskq.done select id, queue, task_type, ''running'', priority, attempt, max_retries, enqueued_at, run_at, null, now(), null, null, null, null, payload from taskq.task') ~ '^23514' as refused;
