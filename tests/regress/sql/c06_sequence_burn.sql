-- C06: 100,000 enqueues with a key that is taken store nothing. Each uses up an id, of which there are 2^63.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select taskq.enqueue('t', unique_key => 'k') as holder \gset
select count(*), count(distinct id), min(id) = :holder as of_the_holder
  from (select taskq.enqueue('t', unique_key => 'k') as id from generate_series(1, 90000)) e;
select count(*), count(distinct m.id), bool_or(m.created) as created
  from taskq.enqueue_many((select jsonb_agg('{"task_type": "t", "unique_key": "k"}'::jsonb) from generate_series(1, 10000))) m;
select count(*) from taskq.task;
select taskq.enqueue('t') <= :holder + 100001 as at_most_one_id_each;
-- every sequence counts in bigint, and does not cycle; so does every column that one feeds
select sequencename, data_type, max_value, cycle from pg_sequences where schemaname = 'taskq' order by 1;
select a.attrelid::regclass as "table", a.attname as "column", format_type(a.atttypid, a.atttypmod) as type
  from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid in (select c.oid from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p'))
   and a.attnum > 0 and (a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) ~ 'nextval') and a.atttypid <> 'bigint'::regtype;
-- no column that holds an id or a token is narrower (those of rate_token are numbered from 1 to burst)
select c.oid::regclass as "table", a.attname as "column", format_type(a.atttypid, a.atttypmod) as type
  from pg_class c join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p') and a.attname ~ '(^|_)(id|token)$' and c.relname <> 'rate_token' and a.atttypid <> 'bigint'::regtype;
-- ids beyond 2^32 work
select setval('taskq.task_id_seq', 5000000000) \gset ignored_
select taskq.enqueue('far', unique_key => 'far') as id \gset
select :id, taskq.enqueue('far', unique_key => 'far');
select id, attempt from taskq.claim(1, array['default']) where id < 5000000000;
select taskq.cancel(:id);
select state from taskq.status(:id);
