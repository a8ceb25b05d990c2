-- Alerts about queues other than dead letters: tasks that wait, leases that end, nobody who claims.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
\set shown '| sed -E ''s/ received from server process with PID [0-9]+//; s/"at": "[^"]*"/"at": "..."/'''
\set alerts 'select kind, queue, state, value, alert_limit, detail from taskq.alerts order by id'
create function test.sample(queue text, started bigint = 0, expired bigint = 0, running bigint = 0) returns void language sql as $$
  insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired, cancelled,
                            ready, scheduled, running, blocked, claimers)
  values (taskq._now(), sample.queue, 't', 10, 0, sample.started, 0, 0, 0, 0, sample.expired, 0, 0, 0, sample.running, 0, 0)
$$;
listen taskq_alert;

-- oldest_ready: one hour by default. (Somebody claims, so the alert is not unclaimed.)
select taskq.enqueue('t', queue => 'mail'), taskq.enqueue('t', queue => 'late', delay => '1 day') \gset ignored_
select test.pass('1 hour');
select test.sample('mail', started => 1);
\o :shown
select taskq._duty_alert();
\o
select test.pass('1 s');
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
:alerts;
-- what is newer, or of a higher priority, does not hide it; a task that runs is not ready
select taskq.enqueue('t', queue => 'mail', priority => 5), taskq.enqueue('t', queue => 'mail', priority => -5) \gset ignored_
select queue, taskq._now() - run_at as age, first_runs from taskq._oldest_ready(taskq._now());
select count(*) from taskq.claim(2, array['mail']);
select queue, taskq._now() - run_at as age, first_runs from taskq._oldest_ready(taskq._now());
\o :shown
select taskq._duty_alert();
\o
-- it hovers around the limit: one alert. It clears at three quarters.
select taskq.cancel(id) from taskq.tasks where queue = 'mail' and state = 'ready';
create function test.age(queue text, age interval) returns void language plpgsql as $$
begin
  delete from taskq.task t where t.queue = age.queue;
  perform taskq.enqueue('t', queue => age.queue, run_at => taskq._now() - age.age);
end
$$;
select test.sample('mail', started => 1);
unlisten *;
select age, (select test.age('mail', age))::text, taskq._duty_alert() as changed
  from unnest('{59 min,61 min,59 min,61 min,46 min,45 min 1 s,61 min,45 min,59 min,60 min,61 min}'::interval[]) age;
listen taskq_alert;
:alerts;
-- a longer limit clears, a shorter one raises
select taskq.configure_queue('mail', '{"oldest_ready_limit": "2 hours"}') ->> 'oldest_ready_limit' as oldest_ready_limit;
\o :shown
select taskq._duty_alert();
\o
select taskq.configure_queue('mail', '{"oldest_ready_limit": "30 s"}') ->> 'oldest_ready_limit' as oldest_ready_limit;
\o :shown
select taskq._duty_alert();
\o
-- a paused queue waits on purpose
select taskq.pause('mail');
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
select taskq.resume('mail');
\o :shown
select taskq._duty_alert();
\o
-- acknowledged: open, silent, not raised again
select taskq.acknowledge(max(id)) from taskq.alerts;
select test.pass('3 days');
select test.sample('mail', started => 1);
select test.age('mail', '1 h'), test.age('late', '-1 h');
\o :shown
select taskq._duty_alert();
\o
select kind, state from taskq.alerts order by id desc limit 1;
select test.age('mail', '0');
\o :shown
select taskq._duty_alert();
\o
-- it is found by the index, with any statistics: pages touched beside 30,000 tasks in six lanes, some of them running
create function test.pages() returns text language plpgsql as $$
declare v_plan json; v_pages bigint;
begin
  execute 'explain (analyze, buffers, timing off, format json) select * from taskq._oldest_ready(taskq._now())' into v_plan;
  v_pages := (v_plan #>> '{0,Plan,Shared Hit Blocks}')::bigint + (v_plan #>> '{0,Plan,Shared Read Blocks}')::bigint;
  return case when v_pages < 400 then 'few' else v_pages::text end;
end
$$;
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select i + 100000, 'many' || i % 2, i % 3, taskq._now() - i * interval '1 s', 0, taskq._now(), 2, 't', '{}' from generate_series(1, 30000) i;
select count(*) from taskq.claim(50, array['many1']);
select queue, taskq._now() - run_at as age, first_runs from taskq._oldest_ready(taskq._now()) order by queue;
select test.pages() as pages \gset warm_
select test.pages();
analyze taskq.task;
select test.pages();
delete from taskq.task where queue ~ '^many';
delete from taskq.alert;

-- unclaimed: five minutes by default, and nobody claims
select test.age('mail', '0'), taskq.configure_queue('mail', '{"oldest_ready_limit": null}') \gset ignored_
select test.pass('5 min');
\o :shown
select taskq._duty_alert();
\o
select test.pass('1 s');
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
:alerts;
-- it goes on until somebody claims; then the next one needs five minutes of nobody again
select test.pass('10 min');
\o :shown
select taskq._duty_alert();
\o
select test.sample('mail', started => 1);
\o :shown
select taskq._duty_alert();
\o
select test.pass('5 min');
\o :shown
select taskq._duty_alert();
\o
:alerts;
-- claims of other queues do not count; a long task at work does, in the samples and at the head of a lane
delete from taskq.alert;
select test.sample('other', started => 1), test.sample('mail', running => 1);
\o :shown
select taskq._duty_alert();
\o
delete from taskq.sample;
select taskq.enqueue('t', queue => 'mail', priority => 9) \gset ignored_
select count(*) from taskq.claim(1, array['mail'], lease => '1 hour');
\o :shown
select taskq._duty_alert();
\o
-- one whose lease is over does not
select test.pass('61 min');
select test.sample('other', started => 1, running => 1);
\o :shown
select taskq._duty_alert();
\o
select kind, queue from taskq.alerts where state = 'open' order by kind;
-- without samples, tasks that ended lately say that somebody works
create function test.unclaimed() returns text language sql as $$
  select string_agg(format('%s %s', w.queue, w.value > w.alert_limit), ', ' order by w.queue)
    from taskq._watch_queues(taskq._now()) w where w.kind = 'unclaimed'
$$;
delete from taskq.task;
select test.age('mail', '0'), test.age('late', '0') \gset ignored_
select test.pass('6 min');
select taskq.enqueue('t', queue => 'mail', priority => 9) \gset ignored_
select test.unclaimed();
select taskq.complete(c.id, c.token) from taskq.claim(1, array['mail']) c;
select test.unclaimed();
select test.pass('5 min');
select test.unclaimed();
select taskq.enqueue('t', queue => 'mail', priority => 9, max_retries => 0) \gset ignored_
select f.state from taskq.claim(1, array['mail']) c, taskq.fail(c.id, c.token) f;
select test.unclaimed();
select test.pass('5 min');
select test.unclaimed();
-- one that was cancelled before anybody claimed it does not
select taskq.cancel(taskq.enqueue('t', queue => 'mail'));
select test.unclaimed();
-- limits of its own; a task that was enqueued with a run_at in the past, and a queue that was just resumed, get the time
delete from taskq.task;
delete from taskq.dead_letter;
delete from taskq.alert;
select taskq.configure_queue('mail', '{"unclaimed_limit": "1 s"}') ->> 'unclaimed_limit' as unclaimed_limit;
select test.age('mail', '50 min'), test.age('slow', '50 min');
\o :shown
select taskq._duty_alert();
\o
select test.pass('2 s');
select test.sample('mail', started => 0);
\o :shown
select taskq._duty_alert();
\o
:alerts;
select taskq.pause('mail');
\o :shown
select taskq._duty_alert();
\o
select test.pass('1 min');
\o :shown
select taskq._duty_alert();
\o
select taskq.resume('mail');
\o :shown
select taskq._duty_alert();
\o
select test.pass('2 s');
\o :shown
select taskq._duty_alert();
\o
-- no such task any more
delete from taskq.task;
\o :shown
select taskq._duty_alert();
\o
delete from taskq.alert;

-- expired_leases: more than 10 in 10 minutes by default
select test.sample('crash', expired => 6);
select test.pass('1 min');
select test.sample('crash', expired => 4), test.sample('fine', expired => 1);
\o :shown
select taskq._duty_alert();
\o
select test.pass('1 min');
select test.sample('crash', expired => 1);
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
-- ten minutes later the first six do not count; at 5 it clears, at 8 it does not
select test.pass('8 min');
select test.sample('crash', expired => 3);
\o :shown
select taskq._duty_alert();
\o
select kind, queue, value from taskq._watch_queues(taskq._now()) order by queue;
select test.pass('1 min');
\o :shown
select taskq._duty_alert();
\o
:alerts;
-- limits of its own: 0 is any; and of another queue, many
select taskq.configure_queue('crash', '{"expired_leases_limit": 0}') ->> 'expired_leases_limit' as crash,
       taskq.configure_queue('storm', '{"expired_leases_limit": 1000}') ->> 'expired_leases_limit' as storm;
select test.sample('storm', expired => 1000);
\o :shown
select taskq._duty_alert();
\o
:alerts;
select test.pass('1 day');
\o :shown
select taskq._duty_alert();
\o
select kind, queue, state from taskq.alerts order by id;

-- the longest name makes a short message with each kind
select test.age(repeat('"', 63), '3 h'), test.sample(repeat('"', 63), expired => 9223372036854775807);
\o | sed -nE 's/.*with payload "(.*)" received.*/\1/p' | awk '{ print (length($0) < 1000 ? "short" : "long") }'
select taskq._duty_alert();
\o
unlisten *;

-- what is not a limit is refused
select v as settings, test.error(format('select taskq.configure_queue(''q'', %L)', v))
  from unnest(array['{"oldest_ready_limit": "0"}', '{"oldest_ready_limit": 5}', '{"oldest_ready_limit": "soon"}', '{"unclaimed_limit": "0.5 s"}',
                    '{"unclaimed_limit": "-1 h"}', '{"unclaimed_limit": "200 years"}', '{"expired_leases_limit": -1}', '{"expired_leases_limit": 1.5}',
                    '{"expired_leases_limit": "10"}', '{"expired_leases_limit": 2147483648}', '{"oldest_limit": "1 h"}']) v;
