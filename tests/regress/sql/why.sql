-- why: each reason by itself, and those that hold together, the most binding first.
\set ECHO none
-- A database of its own: no workers are remembered there.
drop database if exists taskq_why;
create database taskq_why;
\c taskq_why
create extension taskq;
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
-- Moments as they lie from now; what a row has not is left out.
create function test.why(id bigint) returns setof text language sql as $$
  select concat_ws(' | ', w.rank || ' ' || w.reason,
                   regexp_replace(w.explanation, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*', '<time>', 'g'),
                   'since ' || (w.since - taskq._now()), 'until ' || (w.until - taskq._now()), 'who ' || w.who, 'tasks ' || w.tasks::text,
                   'ahead ' || w.ahead, 'rate ' || w.per_second, 'usual ' || w.usual_run, 'error ' || w.error)
    from taskq.why(why.id) w order by w.rank
$$;
create function test.reasons(id bigint) returns text language sql as $$
  select string_agg(w.reason, ' ' order by w.rank) from taskq.why(reasons.id) w
$$;
create function test.samples(queue text, task_type text, started integer, ready integer) returns void language sql as $$
  insert into taskq.sample
  select taskq._now() - (n - 1) * interval '10 s', samples.queue, samples.task_type, 10, 0, samples.started, samples.started, 0, 0, 0, 0, 0,
         samples.ready, 0, 0, 0, null, 1, 1, 4, 9, 9, 9, 1
    from generate_series(1, 3) n
$$;
\set ECHO all
select test.freeze();

-- no such task: no row
select * from taskq.why(1);
select * from taskq.why(null);

-- nobody claims
select taskq.enqueue('t', queue => 'a') as id \gset
select test.why(:id);
-- somebody did, and has not come for a while
select count(*) from taskq.claim(1, '{a,b}', 'w1') where queue = 'b';
select test.why(:id);
select test.pass('29 s');
select test.reasons(:id);
select taskq.enqueue('t', queue => 'a') as waits \gset
select test.why(:waits);
select taskq.release(:id, test.token(:id));
select test.why(:id);
select test.pass('1 s');
select test.reasons(:id), test.reasons(:waits);
select test.why(:waits);
-- a worker that is only busy is there
select count(*) from taskq.claim(1, '{a}', 'w1');
select test.pass('4 min');
select test.reasons(:waits);
-- its lease is over: it is not
select test.pass('2 min');
select test.why(:waits);

-- running; the usual run is not known, known
select taskq.enqueue('t', queue => 'r') as id \gset
select count(*) from taskq.claim(1, '{r}', 'w2');
select test.why(:id);
select test.samples('r', 't', 20, 0), test.pass('3 s');
select test.why(:id);
select taskq.cancel(:id), test.pass('1 s');
select test.why(:id);
select test.pass('5 min');
select test.why(:id);
-- its retry, dead, redriven, finished, cancelled, purged
select taskq.enqueue('t', queue => 'f', max_retries => 1) as id \gset
select count(*) from taskq.claim(1, '{f}', 'w3');
select count(*) from taskq.fail(:id, test.token(:id), 'order 17 is gone', retry_in => '1 min');
select test.pass('1 s');
select test.why(:id);
-- it is due: its error is not what it waits for
select test.pass('1 min');
select test.reasons(:id);
select count(*) from taskq.claim(1, '{f}', 'w3');
select test.why(:id);
select state from taskq.fail(:id, test.token(:id), 'order 17 is still gone');
select test.pass('1 s');
select test.why(:id);
select redriven from taskq.redrive(ids => array[:id]);
select test.reasons(:id);
select count(*) from taskq.claim(1, '{f}', 'w3');
select taskq.complete(:id, test.token(:id)), test.pass('1 s');
select test.why(:id);
select taskq.enqueue('t', queue => 'f') as id \gset
select taskq.cancel(:id, 'not needed');
select test.why(:id);
select taskq.purge('cancelled');
select test.why(:id);
-- in the archive
select taskq.enqueue('t', queue => 'f') as id \gset
select taskq.cancel(:id);
with gone as (delete from taskq.done d where d.id = :id returning d.*)
insert into taskq.archive_early (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, finished_at, payload, early)
select g.id, g.queue, g.task_type, g.state, g.priority, g.attempt, g.max_retries, g.enqueued_at, g.run_at, g.finished_at, g.payload, true from gone g;
select test.why(:id);
-- released with a delay, and enqueued with one
select taskq.enqueue('t', queue => 'f', delay => '1 h') as id \gset
select test.why(:id);
select taskq.enqueue('t', queue => 'f') as id \gset
select taskq.release(id, token, '10 min') from taskq.claim(1, '{f}', 'w3');
select test.why(:id);

-- paused
select taskq.enqueue('t', queue => 'p') as now, taskq.enqueue('t', queue => 'p', delay => '5 min') as later \gset
select count(*) from taskq.claim(0, '{p}');
select count(*) from taskq.claim(1, '{other}', 'w4');
select taskq.pause('p'), test.pass('7 s');
select test.why(:now);
select test.why(:later);
select taskq.resume('p');
select test.reasons(:now), test.reasons(:later);

-- a group: its turn is taken, and the task not yet put aside; then it is; then others are before it
select taskq.enqueue('t', queue => 'g', group_key => 'k') as first, taskq.enqueue('t', queue => 'g', group_key => 'k') as second,
       taskq.enqueue('t', queue => 'g', group_key => 'k') as third, taskq.enqueue('t', queue => 'g', group_key => 'other') as other \gset
select id = :first as got from taskq.claim(1, '{g}', 'w5');
select test.why(:second);
select id = :other as got from taskq.claim(1, '{g}', 'w6');
select state from taskq.status(:third);
select test.why(:second);
select test.why(:third);
select test.pass('5 s');
select test.why(:third);
select taskq.pause('g');
select test.reasons(:third);
select taskq.resume('g'), taskq.complete(:first, test.token(:first));
select test.reasons(:second);
select test.why(:third);

-- a limit: taken, taken by many, 0
select taskq.configure_queue('l', '{"max_running": 2}') is not null as set;
select taskq.enqueue('t', queue => 'l') as first, taskq.enqueue('t', queue => 'l') as second, taskq.enqueue('t', queue => 'l') as third,
       taskq.enqueue('t', queue => 'l', delay => '1 min') as later \gset
select count(*) from taskq.claim(1, '{l}', 'w7');
select test.reasons(:third);
select count(*) from taskq.claim(1, '{l}', 'w8');
select test.why(:third);
select test.why(:later);
select taskq.configure_queue('l', '{"max_running": 0}') is not null as set;
select test.why(:third);
select taskq.configure_queue('l', '{"max_running": 20}') is not null as set, count(taskq.enqueue('t', queue => 'l', priority => 1)) from generate_series(1, 18);
select count(*) from taskq.claim(18, '{l}', 'w8');
select test.why(:third);

-- a rate: no token, a token
select taskq.configure_queue('t', '{"rate": "2/minute", "burst": 1}') is not null as set;
select taskq.enqueue('t', queue => 't') as first, taskq.enqueue('t', queue => 't') as second, taskq.enqueue('t', queue => 't', delay => '1 min') as later \gset
select count(*) from taskq.claim(1, '{t}', 'w9');
select test.pass('10 s');
select test.why(:second);
-- it is free before the other one is due
select test.reasons(:later);
select test.pass('19 s');
select test.reasons(:second);
select test.pass('1 s');
select test.reasons(:second);

-- others are ahead: the rate is not known, known; it is the next
select taskq.enqueue('t', queue => 'n') as first, taskq.enqueue('t', queue => 'n') as second, taskq.enqueue('t', queue => 'n', priority => -1) as last \gset
select count(*) from taskq.claim(1, '{n,none}', 'w10');
select test.why(:second);
select test.why(:last);
select test.pass('1 s'), test.samples('n', 't', 5, 100);
select test.why(:last);
select taskq.pause('n');
select test.why(:last);
select taskq.resume('n');

-- a successor has its key
select taskq.enqueue('t', queue => 's', unique_key => 'k', unique_until => 'started') as id \gset
select id = :id as got, taskq.fail(id, token, 'x', retry_in => '1 min') is not null as failed from taskq.claim(1, '{s}', 'w11');
select taskq.enqueue('t', queue => 's', unique_key => 'k', unique_until => 'started') as successor \gset
select replace(line, :'successor', '<successor>') from test.why(:id) line;
select test.reasons(:successor);

-- several at once, the most binding first: paused, a retry, nobody there, a group, a limit, a rate, others ahead
select taskq.configure_queue('m', '{"max_running": 1, "rate": "1/hour", "burst": 1}') is not null as set;
select taskq.enqueue('t', queue => 'm', group_key => 'k') as first, taskq.enqueue('t', queue => 'm', priority => 1) as ahead, taskq.enqueue('t', queue => 'm', group_key => 'k') as id \gset
select taskq.cancel(:ahead);
select id = :first as got from taskq.claim(1, '{m}', 'w12');
select taskq.enqueue('t', queue => 'm', priority => 1) as ahead \gset
select taskq.pause('m');
select test.reasons(:id);
select taskq.resume('m');
select test.reasons(:id);
select test.pass('10 min');
select test.reasons(:id);
select test.why(:id);
select taskq.configure_queue('m', '{"rate": null}') is not null as set;
select test.reasons(:id);
select taskq.configure_queue('m', '{"max_running": null}') is not null as set;
select test.reasons(:id);

-- every reason, with and without a pause, a delay, a full limit and a spent rate
create function test.combination(n integer) returns text language plpgsql as $$
declare
  v_queue text := 'c' || combination.n;
  v_first bigint; v_id bigint;
begin
  if combination.n & 4 > 0 then perform taskq.configure_queue(v_queue, '{"max_running": 1}'); end if;
  if combination.n & 8 > 0 then perform taskq.configure_queue(v_queue, '{"rate": "1/hour", "burst": 1}'); end if;
  set constraints all immediate;
  v_first := taskq.enqueue('t', queue => v_queue, group_key => case when combination.n & 16 > 0 then 'k' end);
  perform from taskq.claim(1, array[v_queue], 'w13');
  v_id := taskq.enqueue('t', queue => v_queue, group_key => case when combination.n & 16 > 0 then 'k' end,
                        delay => case when combination.n & 2 > 0 then interval '2 hours' end);
  if combination.n & 32 > 0 then perform taskq.enqueue('t', queue => v_queue, priority => 1); end if;
  if combination.n & 1 > 0 then perform taskq.pause(v_queue); end if;
  return test.reasons(v_id);
end
$$;
select n, n & 1 > 0 as paused, n & 2 > 0 as later, n & 4 > 0 as "limit", n & 8 > 0 as rate, n & 16 > 0 as "group", n & 32 > 0 as ahead,
       test.combination(n) as reasons
  from generate_series(0, 63) n;
-- it has changed nothing
begin read only;
select count(*) from taskq.task t, taskq.why(t.id);
commit;
