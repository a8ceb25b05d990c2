-- B16: a task that dies by the end of its lease, or by fail_many, leaves what one leaves that dies by fail: alert, columns,
-- figures.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
\set shown '| sed -E ''s/ received from server process with PID [0-9]+//; s/"at": "[^"]*"/"at": "..."/'''
select taskq.configure_queue('failed', '{"dead_letters_limit": 0}') is not null as configured, taskq.configure_queue('expired', '{"dead_letters_limit": 0}') is not null as configured;
create temp table before as select * from taskq._figures();
listen taskq_alert;
select test.running('failed', 0) as failed, test.running('expired', 0) as expired \gset
select state from taskq.fail(:failed, test.token(:failed), 'lease expired');
\o :shown
select taskq._duty_alert();
\o
select test.pass('5 min');
select taskq._recover(10);
\o :shown
select taskq._duty_alert();
\o
-- a claim that takes it back is a third way
select taskq.configure_queue('claimed', '{"dead_letters_limit": 0}') is not null as configured;
select test.running('claimed', 0) as claimed \gset
select test.pass('5 min');
select test.claim(1, array['claimed']);
\o :shown
select taskq._duty_alert();
\o
-- and fail_many a fourth
select taskq.configure_queue('many', '{"dead_letters_limit": 0}') is not null as configured;
select test.running('many', 0) as many \gset
select state from taskq.fail_many(array[:many], array[test.token(:many)], array['lease expired']);
\o :shown
select taskq._duty_alert();
\o
unlisten *;
-- the columns that differ from those of the one that failed, of alerts, dead letters and their history
select a.queue, d.key from taskq.alert a join taskq.alert f on f.queue = 'failed', jsonb_object_keys(to_jsonb(a)) d(key)
 where to_jsonb(a) -> d.key is distinct from to_jsonb(f) -> d.key order by 1, 2;
select a.queue, d.key from taskq.dead_letter a join taskq.dead_letter f on f.queue = 'failed', jsonb_object_keys(to_jsonb(a)) d(key)
 where to_jsonb(a) -> d.key is distinct from to_jsonb(f) -> d.key order by 1, 2;
select a.queue, d.key from taskq.dead_letters a join taskq.dead_letters f on f.queue = 'failed', jsonb_object_keys(a.errors -> 0) d(key)
 where a.errors -> 0 -> d.key is distinct from f.errors -> 0 -> d.key order by 1, 2;
select queue, dead from taskq.queues order by queue;
-- the counters, but for that of leases that were over
select f.queue, sum(f.dead - coalesce(b.dead, 0)) as dead, sum(f.failed - coalesce(b.failed, 0)) as failed,
       sum(f.running - coalesce(b.running, 0)) as running, sum(f.expired - coalesce(b.expired, 0)) as expired
  from taskq._figures() f left join before b using (queue, task_type) where f.queue in ('failed', 'expired', 'claimed', 'many') group by f.queue order by f.queue;
-- and all are redriven alike
select redriven from taskq.redrive('*');
select queue, state, attempt, last_error from taskq.tasks order by queue;
