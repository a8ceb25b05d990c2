-- A02: a claim of zero or fewer tasks takes none; it is never one of all tasks.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select count(taskq.enqueue('t')) from generate_series(1, 3);
create temp table before as select t.ctid as place, t.xmin::text as written, t.* from taskq.task t;
select count(*) from taskq.claim(0);
select n, test.error(format('select from taskq.claim(%s)', coalesce(n::text, 'null'))) from unnest('{-1, -2147483648, NULL}'::int[]) n;
-- as a parameter of a prepared statement, and where PostgreSQL itself has no such number
prepare claim(int) as select count(*) from taskq.claim($1);
execute claim(0);
\set VERBOSITY sqlstate
execute claim(-1);
execute claim(-2147483648);
execute claim(null);
select taskq.claim(-2147483649);
\set VERBOSITY default
-- other numbers of rows and the like
select test.error('select taskq._recover(null)'), taskq._recover(0), taskq._recover(-1);
select n, test.error(format('select taskq.redrive(''*'', max_tasks => %s)', n)) from unnest('{0, -1, -2147483648}'::int[]) n;
-- no row has changed, not even its place
select count(*) from (select t.ctid as place, t.xmin::text as written, t.* from taskq.task t except select * from before) x;
