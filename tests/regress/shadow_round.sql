-- Sourced by h02_shadowing: a new session, in which nothing is prepared yet, with temporary objects of one :kind in the way.
\c -
set client_min_messages = warning;
\set SHOW_CONTEXT never
select set_config('test.kind', :'kind', false), set_config('test.body', :'body', false) \gset ignored_
set role taskq_test_plain;
do $do$
declare
  v text;
begin
  for v in select c.relname from pg_class c
            where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
               or c.relnamespace = 'pg_catalog'::regnamespace and c.relkind in ('r', 'v') loop
    execute format('create temp %s %I %s', current_setting('test.kind'), v, current_setting('test.body'));
  end loop;
  for v in select t.typname from pg_catalog.pg_type t
            where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r') and t.typelem = 0 and t.typname !~ '^(_|pg_)' loop
    execute format('create domain pg_temp.%I as pg_catalog.int2 check (false)', v);
  end loop;
end
$do$;
set search_path = pg_temp, taskq_test_trap, pg_catalog;
-- the trap works
\set ECHO all
select test.code('select 1 = 1'), test.code('select now()'), test.code('select ''a''::text'), test.code('table pg_class') as class;
select w.what, test.code(w.what)
  from (values ('select unnest(array[1])'), ('select * from generate_series(1, 2)'), ('select jsonb_each(''{}'')'), ('select pg_get_keywords()'),
               ('select format(''%s'', ''a'')'), ('select format(''%s'', 1)'), ('select jsonb_build_object(''a'', ''b'')'), ('select num_nulls(1, 2)'), ('select array_append(array[1], 2)'),
               ('select _now()'), ('call maintain()'), ('select status(1)'),
               ('select count(*)'), ('select count(2)'), ('select sum(2)'), ('select max(''a'')'), ('select array_agg(2)'), ('select string_agg(''a'', ''b'')'), ('select jsonb_agg(2)'),
               ('select jsonb_object_agg(''a''::pg_catalog.text, 2)'), ('select bool_and(true)'), ('select percentile_cont(0.5) within group (order by 2)'), ('select lag(2) over ()'),
               ('select row_number() over ()'),
               ('select @ 1.5'), ('select array[1] = array[1]'), ('select array[1] || 2'), ('select 1::name'), ('select ''a'' like ''b'''), ('select ''[1,2]''::int4multirange')) w(what);
\set ECHO none
\o :shadowed
\i :calls
\o
set search_path = pg_catalog;
reset role;
set search_path = "$user", public;
call test.tidy();
\setenv PLAIN :plain
\setenv SHADOWED :shadowed
\set ECHO all
-- the same came out, and nothing was written to what was in the way
\! diff "$PLAIN" "$SHADOWED" && test "$(wc -l < "$PLAIN")" -gt 150 && echo same
\set ECHO none
create function test.written() returns bigint language plpgsql as $$
declare
  v       pg_catalog.text;
  v_rows  pg_catalog.int8;
  v_total pg_catalog.int8 := 0;
begin
  for v in select c.oid::pg_catalog.regclass from pg_catalog.pg_class c where c.relnamespace = pg_my_temp_schema() and c.relkind = 'r' loop
    execute format('select count(*) from %s', v) into v_rows;
    v_total := v_total + v_rows;
  end loop;
  return v_total;
end
$$;
\set ECHO all
select test.written();
\set ECHO none
drop function test.written();
