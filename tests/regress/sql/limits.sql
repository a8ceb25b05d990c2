-- max_running and rate of a queue: slots and tokens, whatever becomes of tasks and settings.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
delete from taskq.slot;
delete from taskq.rate_token;
-- The slots of a queue: "1=t7 2=free". (Task 7 runs.)
create function test.slots(queue text) returns text language sql as $$
  select coalesce(string_agg(format('%s=%s', s.slot, coalesce('t' || s.task_id, 'free')), ' ' order by s.slot), 'none')
    from taskq.slot s where s.queue = slots.queue
$$;
-- How many run, how many slots are used and free; whether each running task has one, and only those.
create function test.used(queue text) returns text language sql as $$
  select format('%s running, %s used, %s free%s', r.n, u.n, f.n,
                case when exists (select t.id from taskq.task t where t.queue = used.queue and t.state = 'running'
                                  except all select s.task_id from taskq.slot s where s.queue = used.queue)
                       or exists (select s.task_id from taskq.slot s where s.queue = used.queue and s.task_id is not null
                                  except all select t.id from taskq.task t where t.queue = used.queue and t.state = 'running')
                     then ', not the same' else '' end)
    from (select count(*) n from taskq.task t where t.queue = used.queue and t.state = 'running') r,
         (select count(*) n from taskq.slot s where s.queue = used.queue and s.task_id is not null) u,
         (select count(*) n from taskq.slot s where s.queue = used.queue and s.task_id is null) f
$$;
create function test.limit(queue text, max_running integer) returns text language sql as $$
  select taskq.configure_queue("limit".queue, jsonb_build_object('max_running', "limit".max_running)) ->> 'max_running'
$$;
-- The running task that was enqueued first.
create function test.first(queue text, out id bigint, out token bigint) language sql as $$
  select t.id, t.token from taskq.task t where t.queue = first.queue and t.state = 'running' order by t.id limit 1
$$;
-- Completes it.
create function test.finish(queue text) returns void language sql as $$
  select taskq.complete(t.id, t.token) from test.first(finish.queue) t
$$;
\set ECHO all
select test.freeze();

-- no more than max_running at once
select test.limit('q', 3);
select count(taskq.enqueue('t' || n, queue => 'q')) from generate_series(1, 30) n;
select test.claim(10);
select test.used('q'), test.claim(), test.claim(1, '{q}'), test.claim(5, '{q,other}');

-- every end of a task gives its slot back
select test.finish('q'), test.used('q');
select test.finish('q');
select test.used('q'), test.claim(10);
with r as (select array_agg(t.id) as ids, array_agg(t.token) as tokens from taskq.task t where t.state = 'running')
select count(d) from r, taskq.complete_many(r.ids, r.tokens) d;
select test.used('q'), test.claim(10);
select f.state from test.first('q') t, taskq.fail(t.id, t.token, 'again', '1 day') f;
select f.state from test.first('q') t, taskq.fail(t.id, t.token, 'dead', retry => false) f;
select test.used('q'), test.claim(10);
with r as (select array_agg(t.id) as ids, array_agg(t.token) as tokens from taskq.task t where t.state = 'running')
select count(*) from r, taskq.fail_many(r.ids, r.tokens);
select test.used('q'), test.claim(10);
select test.used('q');
do $$
declare v record;
begin
  for v in select t.id, t.token from taskq.task t where t.state = 'running' order by t.id limit 1 loop
    perform taskq.release(v.id, v.token);
  end loop;
  for v in select t.id from taskq.task t where t.state = 'running' order by t.id limit 1 loop
    perform taskq.cancel(v.id, force => true);
  end loop;
  -- one that was asked to stop ends cancelled when it fails, or is released
  for v in select t.id, t.token from taskq.task t where t.state = 'running' order by t.id limit 1 loop
    perform taskq.cancel(v.id);
    perform taskq.fail(v.id, v.token);
  end loop;
end $$;
select test.used('q'), test.claim(10);
do $$
declare v record;
begin
  for v in select t.id, t.token from taskq.task t where t.state = 'running' order by t.id limit 1 loop
    perform taskq.cancel(v.id);
    perform taskq.release(v.id, v.token);
  end loop;
end $$;
select test.used('q'), test.claim(10);
-- asked to stop, and extended: still running
select count(taskq.cancel(t.id)) from taskq.task t where t.state = 'running';
select e.cancel_requested from test.first('q') t, taskq.extend(t.id, t.token) e;
select test.used('q');
-- a waiting one that is cancelled gives nothing back
select taskq.cancel(min(t.id)) from taskq.task t where t.state = 'waiting';
select test.used('q');
-- leases that are over: by the duty, and by claims of one and of many
select test.pass('10 minutes');
select taskq._recover(100), test.used('q');
select test.claim(10);
select test.pass('10 minutes');
select test.claim();
select test.used('q');
select test.pass('10 minutes');
select test.claim(10);
select test.used('q');
-- a claim that finds its task superseded takes the next one
delete from taskq.task; delete from taskq.slot; delete from taskq.unique_key; delete from taskq.queue;
select test.limit('u', 1);
select taskq.enqueue('old', unique_key => 'k', unique_until => 'started', queue => 'u') > 0 as old;
select test.claim();
select taskq.enqueue('old', unique_key => 'k', unique_until => 'started', queue => 'u') > 0 as new;
select f.state from test.first('u') t, taskq.fail(t.id, t.token, 'again', '0 s') f;
select taskq.enqueue('after', queue => 'u') > 0 as after;
begin;
select test.claim();
select test.used('u');
rollback;
select test.claim(5);
select test.used('u');

-- a claim that is rolled back gives slots and tokens back at once
delete from taskq.task; delete from taskq.unique_key; delete from taskq.queue;
select taskq.configure_queue('q', '{"max_running": 2, "rate": "2/hour"}') - '{lease,retention,dead_letters_limit}'::text[];
select count(taskq.enqueue('t' || n, queue => 'q')) from generate_series(1, 5) n;
begin;
savepoint a;
select test.claim(5);
select test.used('q'), count(*) filter (where free_at > taskq._now()) as tokens_used from taskq.rate_token;
rollback to a;
select test.used('q'), count(*) filter (where free_at > taskq._now()) as tokens_used from taskq.rate_token;
select test.claim(1);
savepoint b;
select test.finish('q');
select test.used('q');
rollback to b;
select test.used('q');
rollback;
select test.used('q'), count(*) filter (where free_at > taskq._now()) as tokens_used from taskq.rate_token;
select test.claim(5);
-- limit and rate together: a slot without a token is of no use, nor the other way round
select test.finish('q');
select test.used('q'), test.claim(5);
select test.pass('1 hour');
select test.claim(5);
select test.used('q');

-- limits that change while tasks run
delete from taskq.task; delete from taskq.queue;
select count(taskq.enqueue('t', queue => 'q')) from generate_series(1, 30);
select count(*) from taskq.claim(4);
select test.slots('q');
-- set: those that run count
select test.limit('q', 5);
select test.used('q'), test.claim(10);
select test.used('q');
-- set below what runs: nothing begins until less run
select test.limit('q', 2);
select test.used('q'), test.claim(10);
select test.finish('q');
select test.finish('q');
select test.finish('q');
select test.used('q'), test.claim(10);
select test.finish('q');
select test.used('q'), test.claim(10);
select test.used('q');
-- lowered below what runs, while slots with low numbers are free: none of them may be used
select test.limit('q', 6);
select count(*) from taskq.claim(10);
select count(taskq.complete(t.id, t.token)) from taskq.task t
 where t.state = 'running' and t.id in (select s.task_id from taskq.slot s where s.slot in (1, 2, 4));
select test.used('q');
select test.limit('q', 3);
select test.used('q'), test.claim(10);
select test.limit('q', 2);
select test.used('q'), test.claim(10);
select test.finish('q'); select test.claim(10);
select test.finish('q'); select test.claim(10);
select test.used('q');
-- raised
select test.limit('q', 4);
select test.claim(10);
select test.used('q');
-- 0: nothing begins, what runs ends
select test.limit('q', 0);
select test.used('q'), test.claim(10);
select count(taskq.complete(t.id, t.token)) from taskq.task t where t.state = 'running';
select test.used('q'), test.claim(10);
-- removed
select test.limit('q', null), test.slots('q');
select count(*) from taskq.claim(10);
-- set again, removed while tasks run, and set
select test.limit('q', 3);
select test.used('q');
select test.limit('q', null);
select test.slots('q');
select test.finish('q');
select test.limit('q', 10);
select test.used('q');
-- two changes in one transaction, and one that is rolled back
begin;
select test.limit('q', null);
select test.limit('q', 12);
commit;
select test.used('q');
begin;
select test.limit('q', 1);
rollback;
select test.used('q');
-- other settings leave them alone; a queue whose row is gone has no limit
select taskq.configure_queue('q', '{"lease": "1 hour"}') ->> 'max_running' as max_running, test.used('q');
delete from taskq.queue where name = 'q';
select test.slots('q');
-- 0, where there was no limit and tasks run: they go on, and nothing begins
select test.limit('q', 0);
select test.used('q'), test.slots('q'), test.claim(1, '{q}');
select test.finish('q');
select test.slots('q');

-- pause and resume
delete from taskq.task;
select test.limit('q', 2);
select count(taskq.enqueue('t', queue => 'q')) from generate_series(1, 5);
select test.claim(1);
select taskq.pause('q');
select test.claim(5), test.used('q');
select test.finish('q');
select test.used('q');
select test.limit('q', 3);
select test.claim(5);
select taskq.resume('q');
select test.claim(5);
select test.used('q');

-- a queue at its limit holds up no other, and the order among the others stays
delete from taskq.task; delete from taskq.queue;
select test.limit('full', 2);
select test.limit('some', 3);
select taskq.configure_queue('rated', '{"rate": "2/day"}') ->> 'rate' as rate;
-- in the order of claims
select count(taskq.enqueue(q || n, queue => q, run_at => taskq._now() - '1 hour'::interval + n * interval '1 second'
                                                         + o * interval '1 millisecond'))
  from generate_series(1, 30) n, unnest('{full,some,rated,open}'::text[]) with ordinality x(q, o);
select count(taskq.enqueue(q || '-urgent' || n, queue => q, priority => 5, run_at => taskq._now() - interval '1 hour'))
  from generate_series(1, 1) n, unnest('{full,rated}'::text[]) q;
select test.claim(10);
select test.used('full'), test.used('some');
select test.claim(3);
select test.finish('some');
select test.claim(1);
select test.claim(3);
select test.finish('full'), test.finish('some');
select test.claim(4);
select test.claim(1, '{full,some,rated}');
select test.claim(1, '{open,full}');
-- nothing but a limited queue with many tasks in front
select count(taskq.enqueue('full', queue => 'full', run_at => taskq._now() - interval '2 hours')) from generate_series(1, 500);
select test.claim(2), test.used('full');

-- a rate: at most the burst at once, then one token after another
delete from taskq.task; delete from taskq.queue;
select taskq.configure_queue('r', '{"rate": "60/minute", "burst": 3}') -> 'burst' as burst;
select count(taskq.enqueue('t', queue => 'r')) from generate_series(1, 2000);
select count(*) from taskq.claim(10);
select count(*) from taskq.claim(10);
select test.pass('2 seconds');
select count(*) from taskq.claim(10);
-- a used token is free after burst / rate
select test.pass('1 second');
select count(*) from taskq.claim(2);
select count(*) from taskq.claim(10);
select test.pass('1 hour');
select count(*) from taskq.claim(10);
-- a task that ends gives no token back
select count(taskq.complete(t.id, t.token)) from taskq.task t where t.state = 'running' and t.lease_expires_at > taskq._now();
select count(*) from taskq.claim(10);
-- without a burst it is the number
select taskq.configure_queue('r', '{"burst": null, "rate": "5/second"}') -> 'burst' as burst;
select test.pass('1 hour');
select count(*) from taskq.claim(10);
-- a lower burst, a lower rate, a higher one, none
select taskq.configure_queue('r', '{"burst": 1}') -> 'burst' as burst;
select test.pass('1 second');
select count(*) from taskq.claim(10);
select taskq.configure_queue('r', '{"rate": "1/day"}') -> 'rate' as rate;
select test.pass('1 second');
select count(*) from taskq.claim(10);
select count(*) from taskq.claim(10);
select taskq.configure_queue('r', '{"rate": "10/second"}') -> 'rate' as rate;
select count(*) from taskq.claim(10);
select count(*) from taskq.claim(10);
select taskq.configure_queue('r', '{"rate": null, "burst": null}') -> 'rate' as rate;
select count(*) as tokens from taskq.rate_token;
select count(*) from taskq.claim(10);

-- any time T sees at most rate * T + burst starts: an hour of claims at random moments
delete from taskq.task;
select taskq.configure_queue('r', '{"rate": "30/minute", "burst": 7, "lease": "1 day"}') -> 'burst' as burst;
select count(taskq.enqueue('t', queue => 'r')) from generate_series(1, 4000);
create table test.start (at timestamptz);
do $$
declare
  v_end timestamptz := taskq._now() + interval '1 hour';
begin
  perform setseed(0.4);
  while taskq._now() < v_end loop
    -- now busy, now quiet
    perform test.pass(make_interval(secs => case when random() < 0.05 then random() * 60 else random() * 3 end));
    insert into test.start select taskq._now() from taskq.claim((random() * 9)::integer, '{r}');
  end loop;
end $$;
with s as (select at, row_number() over (order by at) as n from test.start)
select count(*) filter (where b.n - a.n + 1 > 0.5 * extract(epoch from b.at - a.at) + 7 + 0.000001) as too_many,
       max(b.n) > 1000 as flows
  from s a join s b on b.n >= a.n;

-- a clock that is set back or forward gives the burst once, and then the flow goes on
create function test.flow() returns text language plpgsql as $$
declare
  v_at_once bigint := (select count(*) from taskq.claim(1000, '{r}'));
  v_later   bigint := 0;
begin
  for n in 1..60 loop
    perform test.pass('1 second');
    v_later := v_later + (select count(*) from taskq.claim(1000, '{r}'));
  end loop;
  return format('%s at once, %s in the next minute', v_at_once, v_later);
end
$$;
delete from taskq.task;
select count(taskq.enqueue('t', queue => 'r', run_at => '2020-01-01')) from generate_series(1, 1000);
select test.pass('1 hour');
select test.flow();
select test.pass('-1 day');
select test.flow();
select test.pass('1 year');
select test.flow();
select test.pass('-1 year');
select test.flow();

-- what is refused, with nothing changed
select taskq.configure_queue('bad', '{"max_running": 1, "rate": "1/second", "burst": 1}') - '{lease,retention,dead_letters_limit}'::text[];
create function test.refused(settings jsonb) returns text language plpgsql as $$
declare v_hint text;
begin
  perform taskq.configure_queue('bad', refused.settings);
  return 'accepted';
exception when others then
  get stacked diagnostics v_hint = pg_exception_hint;
  return format('%s: %s. %s', sqlstate, sqlerrm, v_hint);
end
$$;
select v as rate, test.refused(jsonb_build_object('rate', v))
  from unnest('{10000000/minute,0/minute,-1/second,1.5/second,5/fortnight," 5/second","5/second ",5/Second,5,/second,"",
                05/second,1e3/second,5/second/second}'::text[]) v;
select test.refused('{"rate": 5}'), test.refused('{"rate": ["5/second"]}');
select test.refused(jsonb_build_object('rate', E'5/second\n'));
select v as max_running, test.refused(format('{"max_running": %s}', v)::jsonb)
  from unnest('{-1,1.5,10001,"\"3\"",true,1e9,99999999999999999999}'::text[]) v;
select v as burst, test.refused(format('{"burst": %s}', v)::jsonb) from unnest('{0,-1,10001,0.5,"\"3\""}'::text[]) v;
select test.refused('{"rate": "9999999/second", "burst": null}'), test.refused('{"max_running": 5, "rate": "x"}');
select max_running, rate, burst from taskq.queue where name = 'bad';
select test.slots('bad'), (select count(*) from taskq.rate_token where queue = 'bad') as tokens;
-- the largest
select taskq.configure_queue('bad', '{"max_running": 10000, "rate": "9999999/day", "burst": 10000}') -> 'rate' as rate;
select count(*) from taskq.slot where queue = 'bad';
select count(*) from taskq.rate_token where queue = 'bad';
delete from taskq.queue where name = 'bad';
select count(*) from taskq.slot where queue = 'bad';

-- the duty mends what should not be
delete from taskq.task; delete from taskq.queue;
select test.limit('q', 3);
select count(taskq.enqueue('t', queue => 'q')) from generate_series(1, 10);
select count(*) from taskq.claim(2);
select taskq._duty_limits() as mended, test.used('q');
-- a slot whose task is not there
update taskq.slot set task_id = 999999 where queue = 'q' and task_id is null;
select test.claim(5);
select taskq._duty_limits() as mended;
select test.used('q'), taskq._duty_limits() as mended;
-- a running task without a slot
update taskq.slot set task_id = null where queue = 'q' and task_id is not null;
select taskq._duty_limits() as mended;
select test.used('q'), test.claim(5);
-- slots that are not there, and more than there should be
delete from taskq.slot where queue = 'q';
select test.claim(5);
select taskq._duty_limits() as mended;
select test.used('q');
insert into taskq.slot (queue, slot) values ('q', 4), ('q', 9);
select test.claim(5), test.used('q');
select taskq._duty_limits() as mended;
select test.used('q'), test.slots('q') ~ '[49]=' as above;
-- used ones above the limit beside free ones
select test.finish('q'), test.finish('q');
update taskq.slot set slot = slot + 10 where queue = 'q' and task_id is not null;
select test.used('q'), test.claim(1), test.claim(5);
select taskq._duty_limits() as mended, test.used('q');
-- slots of a queue that has no limit
insert into taskq.slot (queue, slot) values ('gone', 1);
select taskq._duty_limits() as mended;
select test.slots('gone');
