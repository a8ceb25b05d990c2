-- The samples: what they count, how often they are taken, how long they are kept.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
delete from taskq.sample;
update taskq.duty set counted_until = null where name = 'sample';
-- Claims from a queue by hand and ends the tasks in the order of the claim: s, f, d (not retried), x (released).
create function test.work(queue text, ends text, took interval, worker text = 'w1') returns void language plpgsql as $$
declare
  v_task record;
  v_claimed jsonb := (select jsonb_agg(jsonb_build_object('id', c.id, 'token', c.token) order by c.ordinality)
                        from taskq.claim(length(ends), array[work.queue], work.worker) with ordinality c);
begin
  perform test.pass(took);
  for v_task in
    select x.id, x.token, substr(ends, ordinality::integer, 1) as what
      from rows from (jsonb_to_recordset(v_claimed) as (id bigint, token bigint)) with ordinality x
  loop
    case v_task.what
      when 's' then perform taskq.complete(v_task.id, v_task.token);
      when 'f' then perform taskq.fail(v_task.id, v_task.token, 'oops');
      when 'd' then perform taskq.fail(v_task.id, v_task.token, 'oops', retry => false);
      when 'x' then perform taskq.release(v_task.id, v_task.token);
    end case;
  end loop;
end
$$;
create function test.enqueue(what text, n integer, delay interval = null) returns void language sql as $$
  select count(taskq.enqueue(enqueue.what, queue => split_part(enqueue.what, ' ', 1), delay => enqueue.delay)) from generate_series(1, enqueue.n)
$$;
\set ECHO all
select test.freeze();

-- what a sample counts, read from the tables
select test.enqueue('mail a', 10), test.enqueue('mail b', 3, '1 min'), test.enqueue('report', 2), test.enqueue('idle', 1) \gset ignored_
select taskq._now() as t0 \gset
select test.pass('1 s');
select test.work('mail', 'ssssf', '4 s'), test.work('mail', 'd', '1 s', 'w2') \gset ignored_
select id as dropped from taskq.tasks where queue = 'idle' \gset
select taskq.cancel(:dropped), count(*) from taskq.claim(1, array['report'], 'w1');
create view test.counts as
  select queue, task_type, enqueued, started, succeeded, failed, retried, dead, expired, cancelled, ready, scheduled, running, claimers from taskq.history;
select queue, task_type, enqueued, started, succeeded, failed, retried, dead, expired, cancelled, ready, scheduled, running, claimers
  from taskq._figures_from_tables(:'t0'::timestamptz - interval '1 s', taskq._now()) order by 1, 2;
-- times: of a: waiting 1 s (5 of 6) and 5 s, running 4 s, from enqueue to complete 5 s
select queue, task_type, round(waiting_p50::numeric, 3) as waiting_p50, round(waiting_p95::numeric, 3) as waiting_p95,
       round(run_p50::numeric, 3) as run_p50, round(run_p95::numeric, 3) as run_p95, round(total_p50::numeric, 3) as total_p50, round(total_p95::numeric, 3) as total_p95
  from taskq._figures_from_tables(:'t0'::timestamptz - interval '1 s', taskq._now()) order by 1, 2;
-- only what happened since counts; what is there is there
select queue, task_type, enqueued, started, succeeded, failed, dead, cancelled, ready, scheduled, running, claimers
  from taskq._figures_from_tables(:'t0'::timestamptz + interval '5 s', taskq._now()) order by 1, 2;
-- the end of a lease is a failure of its own kind
select test.pass('10 min') \gset ignored_
select taskq._now() as t1 \gset
select test.pass('1 s'), taskq._recover(10);
select queue, enqueued, started, failed, retried, dead, expired from taskq._figures_from_tables(:'t1', taskq._now()) where queue = 'report';
-- a dead letter that comes back is a new one
select redriven from taskq.redrive('mail');
select queue, task_type, enqueued, dead from taskq._figures_from_tables(:'t1', taskq._now()) where queue = 'mail' order by 2;

-- the duty: one sample of everything
delete from taskq.task;
delete from taskq.done;
delete from taskq.dead_letter;
select test.pass('1 hour') \gset ignored_
select taskq._duty_sample();
delete from taskq.sample;
select test.pass('1 s');
select test.enqueue('s.mail a', 10), test.enqueue('s.mail b', 3, '1 min'), test.enqueue('taskq.own', 1) \gset ignored_
select test.pass('4 s');
select test.work('s.mail', 'sssfd', '4 s') \gset ignored_
select count(*) from taskq.claim(1, array['s.mail'], 'w2');
select test.pass('1 s');
select taskq._duty_sample();
select * from test.counts where queue ~ '^s\.' order by queue, task_type;
select distinct at = taskq._now() as now, seconds, blocked, oldest_ready_age, waiting_p50 is not null as waiting, run_p50 is not null as run, total_p50 is not null as total
  from taskq.history where queue = 's.mail' and task_type = 's.mail a';
select enqueued_per_second, started_per_second, succeeded_per_second from taskq.history where queue = 's.mail' and task_type = 's.mail a';
-- the extension's own queues are left out
select count(*) from taskq.history where queue ~ '^taskq';
-- once more at the same time, or a little later: nothing
select taskq._duty_sample(), count(distinct at) from taskq.sample;
select test.pass('8 s');
select taskq._duty_sample(), count(distinct at) from taskq.sample;
-- the next one: what was counted does not count again; seconds say how long it was
select test.pass('3 s');
select taskq._duty_sample();
select task_type, enqueued, started, succeeded, failed, retried, dead, expired, cancelled, ready, scheduled, running, claimers
  from taskq.history where queue = 's.mail' and at = taskq._now() order by task_type;
select distinct at - lag as later, seconds from (select at, seconds, lag(at) over (order by at) as lag from taskq.history where task_type = 's.mail a') x where lag is not null;
-- a queue in which nothing is and nothing happened has no row
select test.pass('1 s');
select taskq.purge('ready', 's.mail'), taskq.purge('scheduled', 's.mail') \gset ignored_
select count(*) from (select taskq.complete(r.id, test.token(r.id)) from taskq.running r where r.queue = 's.mail') x;
select test.pass('10 s'), taskq._duty_sample();
select succeeded, ready, running, oldest_ready_age from taskq.history where queue = 's.mail' and at = taskq._now();
select test.pass('10 s'), taskq._duty_sample();
select count(*) from taskq.history where queue = 's.mail' and at = taskq._now();
-- and the first one after a time without any says how long it covers, not how long there was none
select test.pass('1 s');
select test.enqueue('s.mail a', 1) \gset ignored_
select test.pass('9 s'), taskq._duty_sample();
select enqueued, seconds from taskq.history where queue = 's.mail' and at = taskq._now();

-- the oldest ready task is that of the queue: of all priorities and types, not running, not due later
select test.enqueue('s.old', 2) \gset ignored_
select count(*) from taskq.claim(1, array['s.old'], 'w1');
select test.pass('2 s');
select taskq.enqueue('s.old high', queue => 's.old', priority => 5), taskq.enqueue('s.old later', queue => 's.old', priority => 9, delay => '1 hour') \gset ignored_
select test.pass('8 s'), taskq._duty_sample();
select task_type, oldest_ready_age from taskq.history where queue = 's.old' and at = taskq._now() order by 1;
select queue, oldest_ready_at = taskq._now() - interval '10 s' as same from taskq.queues where queue = 's.old';

-- the interval is a setting, which the duty takes over
select every from taskq.duties where duty = 'sample';
set taskq.sample_interval = '30 s';
select test.pass('20 s'), taskq._duty_sample();
select max(at) = taskq._now() as taken from taskq.sample;
select test.pass('10 s'), taskq._duty_sample();
select max(at) = taskq._now() as taken from taskq.sample;
select every from taskq.duties where duty = 'sample';
reset taskq.sample_interval;
-- a clock that was set back begins anew
select test.pass('-1 hour'), taskq._duty_sample();
select count(*) > 0 as taken, min(seconds), max(seconds) from taskq.sample where at = taskq._now();
select every, counted_until = taskq._now() as now from taskq.duty where name = 'sample';
-- an undone round takes nothing away
select test.pass('1 s');
select test.enqueue('s.undone', 3) \gset ignored_
select test.pass('10 s');
begin;
select taskq._duty_sample();
rollback;
select taskq._duty_sample();
select enqueued, ready from taskq.history where queue = 's.undone';

-- with shared memory everything comes from there, and the workers that were seen within 30 s and may claim from the queue count
begin;
create or replace function taskq._figures_kept() returns table (counted_at timestamptz, exact boolean) language sql rows 1 as 'select now(), true';
create or replace function taskq._take_figures()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint, enqueued bigint, started bigint, succeeded bigint, failed bigint,
                 retried bigint, dead bigint, expired bigint, cancelled bigint, waiting_p50 double precision, waiting_p95 double precision,
                 run_p50 double precision, run_p95 double precision, total_p50 double precision, total_p95 double precision) language sql as
$$ values ('s.m', 'a', 1::bigint, 2::bigint, 3::bigint, 30::bigint, 4::bigint, 5::bigint, 6::bigint, 7::bigint, 8::bigint, 9::bigint, 10::bigint, 11::bigint,
           0.1::float8, 0.2::float8, 0.3::float8, 0.4::float8, 0.5::float8, 0.6::float8),
          ('s.idle', 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, null, null, null, null, null, null),
          ('s.cancelled', 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, null, null, null, null, null, null) $$;
create or replace function taskq._workers_seen()
  returns table (worker text, queues text[], first_seen_at timestamptz, seen_at timestamptz, claimed_at timestamptz, claims bigint, claimed bigint, session_lives boolean, calls_in_session bigint, waits boolean) language sql as
$$ values ('all', null::text[], taskq._now(), taskq._now(), null::timestamptz, 1::bigint, 0::bigint, true, 1::bigint, false),
          ('mine', '{x,s.m}', taskq._now(), taskq._now() - interval '10 s', null, 1, 0, true, 1, false),
          ('long ago', null, taskq._now(), taskq._now() - interval '31 s', null, 1, 0, true, 1, false),
          ('other', '{x}', taskq._now(), taskq._now(), null, 1, 0, true, 1, false) $$;
select test.pass('10 s'), taskq._duty_sample();
select to_jsonb(h) - '{at,seconds,enqueued_per_second,started_per_second,succeeded_per_second}'::text[] as sample from taskq.history h where h.at = taskq._now() order by queue desc;
select worker, queues, claims, claimed from taskq.workers where seen_at = taskq._now() order by worker;
rollback;
-- before it has counted it is emptied all the same: what the tables said must not come a second time
begin;
create table test.taken ();
create or replace function taskq._take_figures()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint, enqueued bigint, started bigint, succeeded bigint, failed bigint,
                 retried bigint, dead bigint, expired bigint, cancelled bigint, waiting_p50 double precision, waiting_p95 double precision,
                 run_p50 double precision, run_p95 double precision, total_p50 double precision, total_p95 double precision) language plpgsql as
$$ begin insert into test.taken default values; end $$;
create or replace function taskq._figures_kept() returns table (counted_at timestamptz, exact boolean) language sql rows 1 as 'select now(), true where false';
select test.pass('10 s'), taskq._duty_sample();
select count(*) from test.taken;
rollback;

-- kept for 7 days, then deleted, in batches
select taskq.purge('ready'), taskq.purge('scheduled') \gset ignored_
delete from taskq.task;
delete from taskq.sample;
insert into taskq.sample select taskq._now() - n * interval '10 s', 'q', 't', 10, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, null, 1, 1, 1, 1, 1, 1, 1 from generate_series(1, 25000) n;
select test.pass('7 days') \gset ignored_
select taskq._duty_sample(), count(*) from taskq.sample;
select taskq._duty_sample(), taskq._duty_sample(), taskq._duty_sample();
select count(*) from taskq.sample where queue = 'q';
insert into taskq.sample select taskq._now() - n * interval '30 min', 'q', 't', 10, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, null, 1, 1, 1, 1, 1, 1, 1 from generate_series(1, 4) n;
set taskq.sample_retention = '1 h';
select taskq._duty_sample();
select taskq._now() - at as age from taskq.sample where queue = 'q' order by at;
reset taskq.sample_retention;
select n, test.error(format('set taskq.sample_%s', n)) from unnest(array['retention = ''10 min''', 'retention = ''soon''', 'interval = 0', 'interval = ''1 h''']) n;
-- maintain does not take one sample after the other
reset taskq.test_clock;
update taskq.duty set counted_until = null where name = 'sample';
select test.enqueue('s.mail a', 1) \gset ignored_
call taskq.maintain();
call taskq.maintain();
select count(*) from taskq.history where queue = 's.mail' and ready = 1;

-- the history is read along its key, however long it is
insert into taskq.sample select now() - n * interval '10 s', 'q', 't', 10, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, null, 1, 1, 1, 1, 1, 1, 1 from generate_series(1, 20000) n;
analyze taskq.sample;
create function test.plan(query text) returns text language plpgsql as $$
declare v_line text; v_plan text := '';
begin
  for v_line in execute 'explain (costs off) ' || query loop
    v_plan := v_plan || v_line || E'\n';
  end loop;
  return v_plan;
end
$$;
select test.plan($$select at, sum(ready) from taskq.history where at > now() - interval '10 min' group by at$$) ~ 'sample_pkey' as by_key;
-- workers: nothing without shared memory, with its columns anyway
select count(*) >= 0 as answers from taskq.workers;
