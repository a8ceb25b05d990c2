-- Alerts about dead letters, and what is common to all: raised once, cleared once, repeated after a
-- pause, silenced.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
-- notifications are shown without process ids and times
\set shown '| sed -E ''s/ received from server process with PID [0-9]+//; s/"at": "[^"]*"/"at": "..."/'''
create function test.die(queue text, n integer) returns bigint[] language plpgsql as $$
declare v_ids bigint[];
begin
  for i in 1 .. n loop
    v_ids := v_ids || taskq.enqueue('secret', '{"secret": "s3cr3t"}', queue => die.queue, max_retries => 0);
    perform f.* from taskq.claim(1, array[die.queue]) c, taskq.fail(c.id, c.token, 's3cr3t') f;
  end loop;
  return v_ids;
end
$$;
listen taskq_alert;
listen taskq_ready;

-- up to the limit (3 by default) nothing happens
select cardinality(test.die('q', 3));
select taskq._duty_alert();
select count(*) from taskq.alerts;
-- one more: raised, once
select cardinality(test.die('q', 1));
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
select cardinality(test.die('q', 5));
select taskq._duty_alert();
\o
select id, kind, queue, state, value, alert_limit, raised_at = taskq._now() as now, cleared_at, acknowledged_at, acknowledged_by from taskq.alerts;
-- other queues have alerts of their own, and limits of their own
select taskq.configure_queue('strict', '{"dead_letters_limit": 0}'), taskq.configure_queue('loose', '{"dead_letters_limit": 100}') \gset ignored_
select test.die('strict', 1), test.die('loose', 50) \gset ignored_
\o :shown
select taskq._duty_alert();
\o
-- below the limit again: cleared, once
select test.pass('1 min');
select redriven from taskq.redrive('q', max_tasks => 6);
\o :shown
select taskq._duty_alert();
select taskq._duty_alert();
\o
select id, queue, state, value, alert_limit, cleared_at = taskq._now() as cleared_now from taskq.alerts order by id;
-- over it again: a new alert
select test.die('q', 2) \gset ignored_
\o :shown
select taskq._duty_alert();
\o
select id, queue, state, value from taskq.alerts order by id;
-- a change of the limit raises and clears, too
select taskq.configure_queue('q', '{"dead_letters_limit": 50}'), taskq.configure_queue('loose', '{"dead_letters_limit": 49}') \gset ignored_
\o :shown
select taskq._duty_alert();
\o
unlisten *;
-- purge clears
select taskq.purge('dead', 'loose');
select taskq._duty_alert();
select queue, state from taskq.alerts where cleared_at is null;

-- acknowledge: what it counted does not count any more; the alert clears; others raise a new one
select id from taskq.alerts where state = 'open' \gset
select taskq.acknowledge(:id);
select state, acknowledged_at = taskq._now() as now, acknowledged_by = session_user as me from taskq.alerts where id = :id;
select count(*) filter (where acknowledged_at is not null) as acknowledged, count(*) from taskq.dead_letters where queue = 'strict';
select taskq._duty_alert();
select state from taskq.alerts where id = :id;
select taskq._duty_alert();
-- once more says nothing and changes nothing
select test.pass('1 min');
select test.die('strict', 1) \gset ignored_
select taskq.acknowledge(:id);
select taskq._now() - acknowledged_at as ago from taskq.alerts where id = :id;
select count(*) from taskq.dead_letters where queue = 'strict' and acknowledged_at is null;
select taskq._duty_alert();
select id > :id as new, state, value from taskq.alerts where queue = 'strict' and cleared_at is null;
-- an alert that has cleared can be acknowledged; it silences nothing
select min(id) as cleared from taskq.alerts where state = 'cleared' and acknowledged_at is null \gset
select count(*) from taskq.dead_letters where acknowledged_at is null \gset before_
select taskq.acknowledge(:cleared);
select acknowledged_at is not null as acknowledged, state from taskq.alerts where id = :cleared;
select count(*) = :before_count as unchanged from taskq.dead_letters where acknowledged_at is null;
-- a redriven task that dies again counts again
delete from taskq.dead_letter;
delete from taskq.alert;
select test.die('strict', 1) \gset ignored_
select taskq._duty_alert();
select taskq.acknowledge(id) from taskq.alerts;
select taskq._duty_alert();
select redriven from taskq.redrive('strict');
select f.state from taskq.claim(1, array['strict']) c, taskq.fail(c.id, c.token, 'again') f;
select count(*) from taskq.dead_letters where acknowledged_at is null;
select taskq._duty_alert();
-- unknown
select taskq.acknowledge(0);
select i, test.error(format('select taskq.acknowledge(%s)', coalesce(i::text, 'null'))) from unnest('{NULL, -1, 3000000000, 9223372036854775807}'::bigint[]) i;
\set VERBOSITY sqlstate
select taskq.acknowledge(0);
\set VERBOSITY default

-- a rolled-back duty raises nothing
delete from taskq.alert;
begin;
select taskq._duty_alert() as raised;
rollback;
select count(*) from taskq.alerts;
-- death by a lease's end alerts like any other
listen taskq_alert;
delete from taskq.task;
delete from taskq.dead_letter;
select test.running('strict', 0) \gset ignored_
select test.pass('1 hour');
select taskq._recover(10);
\o :shown
select taskq._duty_alert();
\o
-- the longest name still makes a short message, and nothing of the task is in it
delete from taskq.dead_letter;
delete from taskq.alert;
select test.die(repeat('"', 63), 4) \gset ignored_
\o | sed -nE 's/.*with payload "(.*)" received.*/\1/p' | awk '{ print (length($0) < 1000 ? "short" : "long"), (/s3cr3t/ ? "leaks" : "clean") }'
select taskq._duty_alert();
\o
-- still open after a day, and nobody has acknowledged it: sent again, once for each such time
delete from taskq.dead_letter;
delete from taskq.alert;
select test.die('q', 51) \gset ignored_
unlisten *;
select taskq._duty_alert();
listen taskq_alert;
select test.pass('23 h 59 min');
select taskq._duty_alert();
select test.die('q', 1) \gset ignored_
select test.pass('1 min');
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
unlisten *;
select state, value, raised_at = taskq._now() - interval '24 hours' as raised_before, repeated_at = taskq._now() as now from taskq.alerts;
select test.pass('23 h 59 min');
select taskq._duty_alert();
select test.pass('1 min');
select taskq._duty_alert();
-- the pause is a setting; 0 is never
set taskq.alert_repeat = '10 s';
select test.pass('10 s');
select taskq._duty_alert();
select taskq._duty_alert();
set taskq.alert_repeat = 0;
select test.pass('1 year');
select taskq._duty_alert();
reset taskq.alert_repeat;
-- one that somebody has acknowledged is never sent again until it clears
update taskq.alert set acknowledged_at = taskq._now(), acknowledged_by = 'me';
select test.pass('3 days');
select taskq._duty_alert();
select state, repeated_at < taskq._now() as before from taskq.alerts;
select redriven from taskq.redrive('q');
listen taskq_alert;
\o :shown
select taskq._duty_alert();
\o
unlisten *;
-- one open alert of a kind for each queue or for the database; only those about queues have one
begin;
insert into taskq.alert (kind, value, alert_limit, raised_at) values ('keeper_late', 1, 1, now()), ('vacuum_held', 1, 1, now());
select test.error('insert into taskq.alert (kind, value, alert_limit, raised_at) values (''keeper_late'', 1, 1, now())');
select test.error('insert into taskq.alert (kind, queue, value, alert_limit, raised_at) values (''keeper_late'', ''q'', 1, 1, now())');
select test.error('insert into taskq.alert (kind, value, alert_limit, raised_at) values (''unclaimed'', 1, 1, now())');
select test.error('insert into taskq.alert (kind, queue, value, alert_limit, raised_at) values (''weather'', ''q'', 1, 1, now())');
rollback;

-- none of the verbs notifies: only the keeper's duties do
listen taskq_ready;
select test.die('quiet', 5) \gset ignored_
select redriven from taskq.redrive('quiet');
select taskq.enqueue('x', queue => 'quiet') > 0 as enqueued;
select taskq.pause('quiet'), taskq.resume('quiet');
select taskq.purge('ready', 'quiet');
