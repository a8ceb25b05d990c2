-- What the benchmark needs: the extension, the tables of the hand-written side, and a place for
-- the results. The tables are copied from taskq's own, so both sides always have the same layout:
-- columns, constraints, indexes, fillfactor, and the days that the keeper has made.

\set QUIET on
set client_min_messages = warning;
create extension if not exists taskq;
call taskq.maintain();

-- Vacuum comes between the runs, the same for both sides, and a checkpoint before each series.
alter system set autovacuum = off;
alter system set max_wal_size = '16GB';
alter system set checkpoint_timeout = '1h';
select pg_reload_conf() \g /dev/null

drop schema if exists plain cascade;
create schema plain;
create sequence plain.task_id_seq;
create table plain.task (like taskq.task including all);
create table plain.done (like taskq.done including all) partition by range (finished_at);

select format('alter table plain.task set (%s)', array_to_string(c.reloptions, ', '))
  from pg_class c where c.oid = 'taskq.task'::regclass and c.reloptions is not null
\gexec
select format('create table plain.%I (like taskq.%I including all)', c.relname, c.relname)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'taskq.done'::regclass
union all
select format('alter table plain.done attach partition plain.%I %s', c.relname, pg_get_expr(c.relpartbound, c.oid))
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'taskq.done'::regclass
\gexec

drop schema if exists bench cascade;
create schema bench;
create table bench.run (
  at       timestamptz default clock_timestamp(),
  title    text,
  sync     text,
  clients  int,
  pair     int,
  side     text,
  rate     float8,   -- tasks that went from enqueue to done, a second
  wal      float8    -- bytes of WAL for each of them
);

-- The two runs of a pair side by side.
create view bench.pair as
select p.title, p.sync, p.clients, p.pair, p.at, p.rate as plain, t.rate as taskq, t.rate / p.rate as ratio,
       p.wal as plain_wal, t.wal as taskq_wal
  from bench.run p
  join bench.run t using (title, sync, clients, pair)
 where p.side = 'plain' and t.side = 'taskq';
