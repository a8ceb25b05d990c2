-- A claim and an enqueue go to taskq.task and its two indexes without PostgreSQL's executor: what statements
-- would take care of must hold all the same.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- the library counts on these columns, in this order (enum Column in src/store/columns.rs)
select string_agg(a.attname, ' ' order by a.attnum) as columns
  from pg_attribute a where a.attrelid = 'taskq.task'::regclass and a.attnum > 0;
-- what is written without a statement holds the table's constraints
select taskq.enqueue('t', '{"n": 1}', queue => 'q', headers => '{"h": 1}') is not null as stored;
select taskq.enqueue('big', jsonb_build_object('text', string_agg(md5(n::text), '')), queue => 'q') is not null as stored
  from generate_series(1, 3000) n;
select count(*) as claimed from taskq.claim(1, array['q']);
create function test.holds() returns table (holds boolean, tasks bigint) language plpgsql as $$
declare
  v_constraint text := (select pg_get_expr(c.conbin, c.conrelid) from pg_constraint c where c.conname = 'task_life_cycle');
begin
  return query execute format('select %s, count(*) from taskq.task group by 1', v_constraint);
end
$$;
select * from test.holds();
-- large payloads are kept out of line, and come back whole
select c.task_type, length(c.payload ->> 'text') as length, md5(c.payload ->> 'text') as md5 from taskq.claim(5, array['q']) c;
select md5(string_agg(md5(n::text), '')) from generate_series(1, 3000) n;
-- triggers of others fire
create table public.seen (what text);
create function test.see() returns trigger language plpgsql as $$
begin
  insert into public.seen values (tg_op || ' ' || new.state);
  return new;
end
$$;
create trigger see before insert or update on taskq.task for each row execute function test.see();
select taskq.enqueue('t', '{"n": 2}', queue => 'triggered', priority => 5, max_retries => 7) is not null as stored;
select c.task_type, c.payload, c.priority, c.attempt, c.max_retries, c.token > 0 as token from taskq.claim(1, array['triggered']) c;
select * from public.seen;
drop trigger see on taskq.task;
drop table public.seen;
-- so do indexes and constraints of others that the executor alone takes care of: on expressions, of some rows, that exclude, that are
-- checked late
create index others_customer on taskq.task ((payload ->> 'customer'));
select taskq.enqueue('t', '{"customer": "c1"}', queue => 'indexed') is not null as stored;
select c.task_type from taskq.claim(1, array['indexed']) c;
create index others_running on taskq.task (task_type) where state = 'running';
select count(taskq.enqueue('t2', queue => 'indexed')) from generate_series(1, 3);
select count(*) from taskq.claim(1, array['indexed']);
set enable_seqscan = off;
set enable_bitmapscan = off;
select count(*) as customers from taskq.task t where t.payload ->> 'customer' = 'c1';
select count(*) as running from taskq.task t where t.task_type = 't2' and t.state = 'running';
reset enable_seqscan;
reset enable_bitmapscan;
drop index taskq.others_customer, taskq.others_running;
alter table taskq.task add constraint others_only exclude using btree (queue with =) where (queue = 'single');
select taskq.enqueue('t', queue => 'single') is not null as stored;
select test.error($$select taskq.enqueue('t', queue => 'single')$$);
alter table taskq.task drop constraint others_only;
alter table taskq.task add constraint others_late unique (id) deferrable initially deferred;
select taskq.enqueue('t', queue => 'late') is not null as stored;
select count(*) from taskq.claim(1, array['late']);
alter table taskq.task drop constraint others_late;
alter table taskq.task add constraint others_check check (task_type <> 'forbidden');
select test.error($$select taskq.enqueue('forbidden')$$);
select test.error($$select taskq.enqueue_many('[{"task_type": "forbidden"}]')$$);
select taskq.enqueue('t', queue => 'allowed') is not null as stored;
select count(*) from taskq.claim(1, array['allowed']);
alter table taskq.task drop constraint others_check;
-- one on the same columns as ours, but of some rows or in another order, is not taken for it
create index others_ready on taskq.task (queue, priority desc, run_at, id) where priority > 0;
create index others_order on taskq.task (queue, priority, run_at, id);
create index others_id on taskq.task (id) where priority > 0;
reindex index concurrently taskq.task_ready_idx;
reindex index concurrently taskq.task_pkey;
select count(*) from taskq.enqueue_many('[{"task_type": "low", "queue": "two", "priority": -1}, {"task_type": "high", "queue": "two"}]');
\c -
set search_path = test, public;
select c.task_type from taskq.claim(1, array['two']) c;
select c.task_type from taskq.claim(1, array['two']) c;
drop index taskq.others_ready, taskq.others_order, taskq.others_id;
-- an index that was made anew is found, in the same session
select count(taskq.enqueue('t', queue => 'reindexed')) from generate_series(1, 4);
select count(*) from taskq.claim(1, array['reindexed']);
reindex index concurrently taskq.task_ready_idx;
reindex index concurrently taskq.task_pkey;
select count(*) from taskq.claim(1, array['reindexed']);
reindex table taskq.task;
select count(*) from taskq.claim(1, array['reindexed']);
vacuum full taskq.task;
select count(*) from taskq.claim(1, array['reindexed']);
select count(*) from taskq.claim(1, array['reindexed']);
-- updates that do not fit on their page write index entries, which later claims find
delete from taskq.task;
alter table taskq.task set (fillfactor = 100);
vacuum full taskq.task;
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't', 'queue', 'full', 'run_at', '2020-01-01 00:00+00')) from generate_series(1, 500)));
vacuum full taskq.task;
select count(*) as claimed from taskq.claim(400, array['full'], worker => repeat('w', 200));
select count(*) as released from (select taskq.release(t.id, t.token) from taskq.task t where t.state = 'running') r;
select count(*) as claimed, count(distinct c.id) as ids from taskq.claim(1000, array['full']) c;
set enable_seqscan = off;
select count(*) as by_index from taskq.task t where t.queue = 'full' and t.priority = 0 and t.run_at <= now();
reset enable_seqscan;
alter table taskq.task set (fillfactor = 40);
-- what this transaction stored, it can claim; what a savepoint took back, it cannot
begin;
savepoint a;
select taskq.enqueue('lost', queue => 'own') is not null as stored;
rollback to a;
select taskq.enqueue('kept', queue => 'own') is not null as stored;
select c.task_type, c.attempt from taskq.claim(10, array['own']) c;
savepoint b;
select taskq.enqueue('later', queue => 'own') is not null as stored;
select c.task_type, c.attempt from taskq.claim(10, array['own']) c;
rollback to b;
commit;
select t.task_type, t.state, t.attempt from taskq.task t where t.queue = 'own';
-- many tasks due at the same moment are read on from where the last page ended
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't', 'queue', 'same', 'run_at', '2020-01-01 00:00+00')) from generate_series(1, 1500)));
select count(*) as claimed, count(distinct c.id) as ids from taskq.claim(1000, array['same']) c;
select count(*) as claimed from taskq.claim(1000, array['same', 'none']) c;
-- a dropped and new extension is another table
drop extension taskq cascade;
set client_min_messages = warning;
create extension taskq;
reset client_min_messages;
select taskq.enqueue('new', queue => 'q');
select c.id, c.task_type from taskq.claim(1) c;
