-- The claim is a heap-only update: it writes to no index.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- What statements did to taskq.task, by the figures that a DBA sees.
create function test.reset() returns void language sql as $$
  select pg_stat_force_next_flush();
  select pg_stat_reset_single_table_counters('taskq.task'::regclass);
$$;
create procedure test.claims(n integer, times integer) language plpgsql as $$
begin
  for i in 1 .. claims.times loop
    perform from taskq.claim(claims.n, worker => 'worker-1');
    commit;
  end loop;
end
$$;
create procedure test.heartbeats(times integer) language plpgsql as $$
begin
  for i in 1 .. heartbeats.times loop
    perform from taskq.task t, taskq.extend(t.id, t.token, progress => to_jsonb(i)) where t.id = (select max(m.id) from taskq.task m);
    commit;
  end loop;
end
$$;
create view test.updates as select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'taskq.task'::regclass;
create function test.fill() returns bigint language sql as $$
  delete from taskq.unique_key;
  delete from taskq.task;
  select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't', 'queue', 'q')) from generate_series(1, 1000) n));
$$;
-- small tasks, for they grow most: one by one, by tens, by hundreds, all at once
select test.fill();
vacuum full taskq.task;
select test.reset();
call test.claims(1, 1000);
select pg_stat_force_next_flush();
select * from test.updates;
select test.fill();
vacuum full taskq.task;
select test.reset();
call test.claims(10, 100);
select pg_stat_force_next_flush();
select * from test.updates;
select test.fill();
vacuum full taskq.task;
select test.reset();
call test.claims(100, 10);
select pg_stat_force_next_flush();
select * from test.updates;
select test.fill();
vacuum full taskq.task;
select test.reset();
call test.claims(1000, 1);
select pg_stat_force_next_flush();
select * from test.updates;
-- so is a heartbeat
select test.reset();
call test.heartbeats(100);
select pg_stat_force_next_flush();
select * from test.updates;
-- no column that a claim changes is in an index
select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
 where i.indrelid = 'taskq.task'::regclass and a.attname in ('state', 'token', 'attempt', 'claimed_at', 'worker', 'lease_expires_at');
select count(*) from pg_index i where i.indrelid = 'taskq.task'::regclass and (i.indpred is not null or i.indexprs is not null);
