-- Alerts about the database: the keeper is late, something holds back vacuum. They go by the real clock.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
\set shown '| sed -E ''s/ received from server process with PID [0-9]+//; s/"at": "[^"]*"/"at": "..."/; s/"value": [0-9]+,/"value": "...",/'''
listen taskq_alert;

-- keeper_late: a duty is later than a minute. One that never ran, with no keeper to run it, says nothing.
\o :shown
select taskq._duty_alert();
\o
create function test.late(duty text, late interval) returns void language sql as $$
  update taskq.duty d set finished_at = clock_timestamp() - d.every - late.late, started_at = clock_timestamp() - d.every - late.late
   where d.name = late.duty
$$;
select test.late('archive', '58 s'), test.late('recover', '0 s');
\o :shown
select taskq._duty_alert();
\o
select test.late('archive', '62 s');
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
select kind, queue, state, value between 62 and 90 as value, alert_limit, detail from taskq.alerts;
-- it names all that are late, as they are now; it clears at 45 s
select test.late('archive', '47 s'), test.late('recover', '2 hours');
\o :shown
select taskq._duty_alert();
\o
select kind, detail from taskq.alerts;
select test.late('recover', '0 s'), test.late('archive', '47 s');
\o :shown
select taskq._duty_alert();
\o
select kind, detail from taskq.alerts;
select test.late('archive', '1 s');
\o :shown
select taskq._duty_alert();
\o
select kind, queue, state from taskq.alerts;
-- the duty that looks is running, so it is not late
select test.late('alert', '1 hour');
\o :shown
select taskq._duty_alert();
\o
-- the limit is a setting; repeated and acknowledged like any other
delete from taskq.alert;
select test.late('archive', '20 min');
set taskq.keeper_late_limit = '21 min';
\o :shown
select taskq._duty_alert();
\o
set taskq.keeper_late_limit = '19 min';
\o :shown
select taskq._duty_alert();
\o
set taskq.test_clock = '+ 25 hours';
\o :shown
select taskq._duty_alert();
\o
select taskq.acknowledge(id) from taskq.alerts;
set taskq.test_clock = '+ 50 hours';
\o :shown
select taskq._duty_alert();
\o
select kind, state, repeated_at - raised_at > '24 hours' as repeated from taskq.alerts;
reset taskq.test_clock;
select count(*) from taskq.dead_letters where acknowledged_at is not null;
reset taskq.keeper_late_limit;
select test.late('archive', '0 s');
\o :shown
select taskq._duty_alert();
\o
delete from taskq.alert;

-- vacuum_held: this session's own transaction, which has an old snapshot
select ok, value, "limit", advice from taskq.health() where "check" = 'vacuum held back';
set taskq.vacuum_held_limit = '1 s';
begin isolation level repeatable read;
select 1;
do $$ begin while clock_timestamp() < now() + interval '2.1 s' loop perform pg_sleep(0.05); end loop; end $$;
select kind, who ~ format('^session %s \(%s, %s, pg_regress/', pg_backend_pid(), current_user, current_database()) as who,
       since = now() as since, transactions >= 0 as transactions, advice ~ format('pg_terminate_backend\(%s\)', pg_backend_pid()) as advice
  from taskq._vacuum_holders() limit 1;
select ok, value ~ '^by session \d+ \(.*\), since ' as value, "limit", advice ~ 'pg_terminate_backend' as advice from taskq.health() where "check" = 'vacuum held back';
\o :shown
select taskq._duty_alert();
\o
\o :shown
select taskq._duty_alert();
\o
\o :shown
commit;
\o
select kind, queue, state, value >= 2 as value, alert_limit, detail ~ format('^session %s \(', pg_backend_pid()) as detail from taskq.alerts;
reset taskq.vacuum_held_limit;
\o :shown
select taskq._duty_alert();
\o
select kind, state from taskq.alerts;
-- neither the detail nor the message has a query in it
select count(*) from taskq.alerts where detail ~* 'select|loop';
unlisten *;
-- since when: a transaction that takes a new snapshot for each statement holds only the last one. The table says
-- what came next at which moment; what it does not reach back to counts from its begin.
delete from taskq.horizon;
begin;
select pg_current_xact_id() is not null as written;
select since = now() as since from taskq._vacuum_holders() where who ~ format('^session %s ', pg_backend_pid());
insert into taskq.horizon
select now() + v.ms * interval '1 ms', pg_current_xact_id()::text::bigint + v.later from (values (-10, -1000), (20, 0), (40, 1000)) v(ms, later);
select since - now() as since from taskq._vacuum_holders() where who ~ format('^session %s ', pg_backend_pid());
rollback;
-- the table is kept for a day; a later time, from a clock that was set back, is thrown away
insert into taskq.horizon select now() + i * interval '1 hour', 1 from generate_series(-30, 30) i;
\o :shown
select taskq._duty_alert();
\o
select min(at) > now() - interval '24 hours' as day, max(at) <= clock_timestamp() as not_later, count(*) as kept from taskq.horizon;
select max(next_xid) > 1 as next_xid from taskq.horizon;
-- an old transaction adds nothing: its snapshot may be as old
begin isolation level repeatable read;
do $$ begin while clock_timestamp() < now() + interval '1.1 s' loop perform pg_sleep(0.05); end loop; end $$;
\o :shown
select taskq._duty_alert();
\o
select count(*) from taskq.horizon;
rollback;

-- the settings: bounds, and that only a superuser sets them
select test.error($$set taskq.vacuum_held_limit = 0$$);
select test.error($$set taskq.keeper_late_limit = '14 s'$$);
select test.error($$set taskq.alert_repeat = -1$$);
select test.error($$set taskq.alert_repeat = '367 d'$$);
select v, (select set_config('taskq.alert_repeat', v, true)) as shown, taskq._seconds_setting('taskq.alert_repeat') as seconds
  from unnest('{0,1,90,60 s,15 min,1 h,25 h,366 d}'::text[]) v;
