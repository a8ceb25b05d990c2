-- H02, S1: objects of a plain role's own, with the names of taskq's and PostgreSQL's, change nothing and are not used: tables, views and
-- domains in pg_temp; functions, operators and domains in a schema that comes first in the search_path.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\getenv out PG_ABS_BUILDDIR
\set begin :here '/begin.sql'
\set calls :here '/calls.sql'
\set plain :out '/results/h02_plain.tmp'
\set shadowed :out '/results/h02_shadowed.tmp'
\i :begin
-- What the calls leave: settings, keys, figures.
create procedure test.tidy() language sql as $$
  delete from taskq.queue; delete from taskq.task_type; delete from taskq.once_key; delete from taskq.unique_key; delete from taskq.group_turn;
  delete from taskq.slot; delete from taskq.rate_token; delete from taskq.sample;
$$;
-- What a statement answers, with the caller's search_path.
create function test.code(sql text) returns text language plpgsql as $$
begin
  execute code.sql;
  return 'no error';
exception when others then
  return sqlstate;
end
$$;
grant usage on schema test to public;
create role taskq_test_plain;
select format('grant create, temporary on database %I to taskq_test_plain', current_database()) \gexec
select taskq.grant_producer('taskq_test_plain'), taskq.grant_worker('taskq_test_plain'), taskq.grant_operator('taskq_test_plain') \gset ignored_
\set ECHO all
-- without anything in the way
set role taskq_test_plain;
\set ECHO none
\o :plain
\i :calls
\o
reset role;
call test.tidy();

-- everything that PostgreSQL and taskq have, made again by the plain role, to fail when it is used
set role taskq_test_plain;
create schema taskq_test_trap;
create table taskq_test_trap.sprung (what text);
do $do$
declare
  v      record;
  v_body text := 'begin raise exception using errcode = ''TRAP0'', message = ''trapped''; end';
  v_made bigint := 0;
begin
  for v in select p.proname, pg_get_function_identity_arguments(p.oid) as args, pg_get_function_result(p.oid) as result
             from pg_proc p
            where p.prokind = 'f' and not p.proretset and p.provariadic = 0
              and p.pronamespace = any (array['pg_catalog', 'taskq']::regnamespace[])
              and not exists (select from pg_type t where t.oid = any (p.proargtypes::oid[] || p.prorettype) and t.typtype = 'p') loop
    begin
      execute format('create function taskq_test_trap.%I(%s) returns %s language plpgsql as %L', v.proname, regexp_replace(v.args, '\m(OUT|INOUT) ', '', 'g'), v.result, v_body);
      v_made := v_made + 1;
    exception when others then null;  -- what cannot be made cannot be a trap
    end;
  end loop;
  raise warning 'functions: %', v_made > 2000;
  v_made := 0;
  for v in select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result, row_number() over () as n
             from pg_operator o join pg_type a on a.oid = o.oprleft join pg_type b on b.oid = o.oprright
            where o.oprnamespace = 'pg_catalog'::regnamespace and a.typtype <> 'p' and b.typtype <> 'p' loop
    execute format('create function taskq_test_trap.operator_%s(%s, %s) returns %s language plpgsql as %L', v.n, v.l, v.r, v.result, v_body);
    execute format('create operator taskq_test_trap.%s (leftarg = %s, rightarg = %s, function = taskq_test_trap.operator_%s)', v.oprname, v.l, v.r, v.n);
    v_made := v_made + 1;
  end loop;
  raise warning 'operators: %', v_made > 600;
  v_made := 0;
  for v in select t.typname from pg_type t
            where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r') and t.typelem = 0 and t.typname !~ '^(_|pg_)' loop
    execute format('create domain taskq_test_trap.%I as pg_catalog.int2 check (false)', v.typname);
    v_made := v_made + 1;
  end loop;
  raise warning 'domains: %', v_made > 50;
end
$do$;
reset role;

\set ECHO all
-- first with temporary tables, then with views that fail when they are read
\set ECHO none
\set kind table
\set body '(name text, id bigint, queue text, every interval, state text)'
\set round :here '/shadow_round.sql'
\i :round
\set kind view
\set body 'as select taskq_test_trap.operator_1(null, null) as id'
\i :round
\set ECHO all
drop schema taskq_test_trap cascade;
drop owned by taskq_test_plain;
drop role taskq_test_plain;
delete from taskq.granted_part;
