-- A08: the moment of an enqueue is that of its call, also in a statement that was prepared earlier.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
prepare one as select taskq.enqueue('t', '{}') is not null as enqueued;
prepare many as select count(*) from taskq.enqueue_many('[{"task_type": "t"}]');
execute one;
execute many;
select pg_sleep(0.5);
execute one;
execute many;
-- (id 1 and 2 before the pause, 3 and 4 behind it)
select b.id, b.enqueued_at - a.enqueued_at >= interval '0.5 s' as enqueued, b.run_at - a.run_at >= interval '0.5 s' as due
  from taskq.task a join taskq.task b on b.id = a.id + 2 order by 1;
-- a transaction that is old already
begin;
select now() is not null as begun;
select pg_sleep(0.5);
execute one;
execute many;
select min(enqueued_at - now()) >= interval '0.5 s' as enqueued, min(run_at - now()) >= interval '0.5 s' as due from taskq.task where id > 4;
select lease_expires_at - interval '5 min' - now() >= interval '0.5 s' as claimed from taskq.claim();
commit;
-- a claim in a prepared statement, too
prepare claim as select lease_expires_at > clock_timestamp() + interval '0.9 s' as lease from taskq.claim(1, lease => '1 s');
execute claim;
select pg_sleep(0.5);
execute claim;
