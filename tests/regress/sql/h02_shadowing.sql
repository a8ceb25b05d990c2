-- H02, S1: objects of a plain role's own, with the names of taskq's and PostgreSQL's, change nothing and are not used: tables, views and
-- domains in pg_temp; functions, aggregates, operators and domains in a schema that comes first in the search_path.
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
  delete from taskq.slot; delete from taskq.rate_token; delete from taskq.sample; delete from taskq.alert;
  update taskq.duty set started_at = null, finished_at = null, rows = null, error = null, error_at = null, logged_at = null;
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
\setenv CALLS :calls
\set text `cat "$CALLS"`
\set ECHO all
-- the calls leave out nothing that a plain role may use
select o.object
  from (select p.proname as object, '\(' as follows from pg_proc p
         where p.pronamespace = 'taskq'::regnamespace and has_function_privilege('taskq_test_plain', p.oid, 'execute')
        union all
        select c.relname, '\M' from pg_class c
         where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') and has_any_column_privilege('taskq_test_plain', c.oid, 'select')) o
 where :'text' !~ ('\mtaskq\.' || o.object || o.follows)
 order by o.object;
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
-- What cannot be made cannot be a trap: functions on internal types, casts.
create function taskq_test_trap.made(sql text) returns integer language plpgsql as $$
begin
  execute made.sql;
  return 1;
exception when others then
  return 0;
end
$$;
-- A plain role cannot make a function on "any": these stand in its place, and are preferred where they fit.
create function taskq_test_trap.variants(args text) returns setof text language sql as $$
  select replace(regexp_replace(replace(variants.args, 'VARIADIC "any"', 'VARIADIC ' || case v.rest when 'anyelement' then 'anyarray' else v.rest || '[]' end),
                                '"any"', v.first), '"any"', v.rest)
    from (values ('anyelement', 'anyelement'), ('text', 'anyelement'), ('text', 'text'), ('name', 'name'), ('int', 'int'), ('int8', 'int8'),
                 ('float8', 'float8'), ('timestamptz', 'timestamptz'), ('json', 'json'), ('jsonb', 'jsonb')) v(first, rest)
   where variants.args like '%"any"%'
  union all
  select variants.args where variants.args not like '%"any"%'
$$;
do $do$
declare
  v      record;
  v_body text := 'language plpgsql as $$begin raise exception using errcode = ''TRAP0'', message = ''trapped''; end$$';
  v_made bigint := 0;
begin
  -- functions, also of sets, and procedures
  for v in select case p.prokind when 'p' then 'procedure' else 'function' end as kind, p.proname, a.args,
                  case p.prokind when 'f' then 'returns ' || pg_get_function_result(p.oid) end as result
             from pg_proc p cross join taskq_test_trap.variants(pg_get_function_arguments(p.oid)) a(args)
            where p.prokind in ('f', 'p') and p.pronamespace = any (array['pg_catalog', 'taskq']::regnamespace[]) loop
    v_made := v_made + taskq_test_trap.made(format('create %s taskq_test_trap.%I(%s) %s %s', v.kind, v.proname, v.args, v.result, v_body));
  end loop;
  raise warning 'functions: %', v_made > 2500;
  -- aggregates, in place of window functions too; they fail at the end if not before. For count there is a first step on "any".
  v_made := 0;
  create function taskq_test_trap.finish(bigint) returns bigint language plpgsql as 'begin raise exception using errcode = ''TRAP0''; end';
  for v in select p.proname, a.args, row_number() over () as n
             from pg_proc p cross join taskq_test_trap.variants(pg_get_function_identity_arguments(p.oid)) a(args)
            where p.prokind in ('a', 'w') and p.pronamespace = 'pg_catalog'::regnamespace and p.proname <> 'count' loop
    perform taskq_test_trap.made(format('create function taskq_test_trap.%I(%s) returns bigint %s', 'step_' || v.n,
                                        concat_ws(', ', 'bigint', nullif(regexp_replace(v.args, '.*ORDER BY ', ''), '')), v_body));
    v_made := v_made + taskq_test_trap.made(format('create aggregate taskq_test_trap.%I(%s) (sfunc = taskq_test_trap.%I, stype = bigint, initcond = 0%s)', v.proname, coalesce(nullif(v.args, ''), '*'), 'step_' || v.n,
                                                   case when v.args not like '%ORDER BY%' then ', finalfunc = taskq_test_trap.finish' end));
  end loop;
  create aggregate taskq_test_trap.count(*) (sfunc = int8inc, stype = bigint, initcond = 0, finalfunc = taskq_test_trap.finish);
  create aggregate taskq_test_trap.count("any") (sfunc = int8inc_any, stype = bigint, initcond = 0, finalfunc = taskq_test_trap.finish);
  raise warning 'aggregates: %', v_made > 150;
  -- operators, prefix ones and those on any array too
  v_made := 0;
  for v in select o.oprname, nullif(o.oprleft, 0)::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result, row_number() over () as n
             from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprright <> 0 loop
    v_made := v_made + taskq_test_trap.made(format('create function taskq_test_trap.operator_%s(%s) returns %s %s; create operator taskq_test_trap.%s (%s rightarg = %s, function = taskq_test_trap.operator_%1$s)',
      v.n, concat_ws(', ', v.l, v.r), v.result, v_body, v.oprname, 'leftarg = ' || v.l || ',', v.r));
  end loop;
  raise warning 'operators: %', v_made > 750;
  v_made := 0;
  for v in select t.typname from pg_type t
            where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm') and t.typcategory <> 'A' and t.typname !~ '^pg_' loop
    execute format('create domain taskq_test_trap.%I as pg_catalog.int2 check (false)', v.typname);
    v_made := v_made + 1;
  end loop;
  raise warning 'domains: %', v_made > 60;
end
$do$;
-- for the views of the second round
create function taskq_test_trap.spring() returns bigint language plpgsql as 'begin raise exception using errcode = ''TRAP0''; end';
reset role;

\set ECHO all
-- first with temporary tables, then with views that fail when they are read
\set ECHO none
\set kind table
\set body '(name text, id bigint, queue text, every interval, state text)'
\set round :here '/shadow_round.sql'
\i :round
\set kind view
\set body 'as select taskq_test_trap.spring() as id'
\i :round
\set ECHO all
drop schema taskq_test_trap cascade;
drop owned by taskq_test_plain;
drop role taskq_test_plain;
delete from taskq.granted_part;
