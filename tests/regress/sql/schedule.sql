-- Schedules: which occurrences there are, that each is enqueued once, what becomes of missed ones.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
-- Sets the clock that stands still.
create function test.at(moment timestamptz) returns void language plpgsql as $$
begin
  perform set_config('taskq.test_clock', moment::text, false);
end
$$;
-- A round of the duty, and the tasks that came of it, as times of day in UTC; they are removed.
create function test.round() returns text language plpgsql as $$
declare
  v_tasks text;
begin
  perform taskq._duty_schedule();
  select coalesce(string_agg(format('%s %s', t.task_type, to_char(t.run_at at time zone 'UTC', 'DD HH24:MI:SS')), ', ' order by t.run_at, t.id), 'nothing')
    into v_tasks from taskq.task t;
  delete from taskq.task;
  return v_tasks;
end
$$;
-- The occurrences from one moment to another (UTC), each as clocks in the zone show it.
create function test.occurrences(cron text, zone text, after timestamptz, until timestamptz) returns text language plpgsql as $$
declare
  v_at  timestamptz := occurrences.after;
  v_all text[] := '{}';
begin
  loop
    v_at := taskq._cron_next(occurrences.cron, occurrences.zone, v_at);
    exit when v_at > occurrences.until;
    v_all := v_all || to_char(v_at at time zone occurrences.zone, 'HH24:MI') || to_char(v_at at time zone 'UTC', '=HH24:MI"Z"');
  end loop;
  return array_to_string(v_all, ' ');
end
$$;
set timezone = 'Asia/Kolkata';
set datestyle = 'ISO';
\set ECHO all

-- what a schedule enqueues
select test.at('2026-03-02 08:59:58Z');
select taskq.schedule('report', '0 10 * * mon-fri', 'report.daily', '{"n": 1.10, "deep": [null]}', 'europe/berlin',
                      '{"queue": "reports", "priority": 7, "max_retries": 1, "missed": null}');
select name, cron, time_zone, task_type, queue, paused, last_run_at, next_run_at, next_run_utc, next_run_local, last_task_id, missed, last_error,
       settings, payload from taskq.schedules \gx
select taskq._duty_schedule();
select test.at('2026-03-02 09:00:00.25Z');
select taskq._duty_schedule();
select id, queue, task_type, state, priority, max_retries, run_at, enqueued_at, payload, headers from taskq.tasks \gx
select last_run_at, last_run_utc, last_run_local, next_run_at, next_run_utc, next_run_local, last_task_id = t.id as last_task, missed
  from taskq.schedules, taskq.tasks t \gx
-- once
select taskq._duty_schedule();
select taskq._run_duty('schedule');
select count(*) from taskq.tasks;
-- an idle round writes nothing
begin;
select taskq._run_duty('schedule');
select pg_current_xact_id_if_assigned() is null as no_xid;
commit;
-- a round that is rolled back has enqueued nothing, and the next one does
delete from taskq.task;
select test.at('2026-03-03 09:00:01Z');
begin;
select taskq._duty_schedule();
rollback;
select count(*) from taskq.tasks;
select test.round();
-- a clock that goes back and forth brings nothing twice
select test.at('2026-03-03 08:00Z'), test.round();
select test.at('2026-03-03 09:00:02Z'), test.round();
-- the type's settings count where the schedule has none
select taskq.configure_type('sweep', '{"queue": "night", "priority": -5, "max_retries": 9}') is not null as configured;
select taskq.schedule('sweep', '@hourly', 'sweep', null);
select queue, settings, payload from taskq.schedules where name = 'sweep';
select test.at('2026-03-03 10:00:01Z'), taskq._duty_schedule();
select queue, priority, max_retries, payload, headers from taskq.tasks;
delete from taskq.task;
select taskq.unschedule('sweep'), taskq.unschedule('sweep');
-- weekends are none of mon-fri
select test.at('2026-03-06 09:00:00Z'), test.round();
select next_run_local, to_char(next_run_local, 'Dy') from taskq.schedules;
select taskq.unschedule('report');
select count(*) from taskq.schedules;

-- the same arguments again change nothing; others do
select test.at('2026-03-10 12:00:30Z');
select taskq.schedule('s', '*/10 * * * *', 's', '{"a": 1}', settings => '{"priority": 1, "queue": "q"}');
create temp table before as select s.*, s.xmin as version from taskq.schedule s;
select test.at('2026-03-10 12:05Z');
select taskq.schedule('s', '*/10 * * * *', 's', '{"a": 1}', 'utc', '{"queue": "q", "priority": 1, "paused": null}');
select count(*) from (select s.*, s.xmin from taskq.schedule s except select * from before) x;
-- also when an occurrence is just due: it is not lost
select test.at('2026-03-10 12:10:05Z');
select taskq.schedule('s', '*/10 * * * *', 's', '{"a": 1}', settings => '{"priority": 1, "queue": "q"}');
select test.round();
select test.at('2026-03-10 12:20:05Z');
select taskq.schedule('s', '*/10 * * * *', 's', '{"a": 1.0}', settings => '{"priority": 2}');
select next_run_utc, queue, settings, payload, updated_at = taskq._now() as changed from taskq.schedules;
select taskq._duty_schedule();
select payload, priority, run_at = '2026-03-10 12:20Z' as due_then from taskq.tasks;
delete from taskq.task;
-- a change does not replay what is past
select test.at('2026-03-10 13:00:01Z');
select taskq.schedule('s', '*/10 * * * * *', 's');
select next_run_utc from taskq.schedules;
select test.round();
select test.at('2026-03-10 13:30Z');
select taskq.schedule('s', '*/10 * * * * *', 's', '{"b": 1}');
select next_run_utc, missed from taskq.schedules;
select taskq.schedule('s', '0 12 * * *', 's', time_zone => 'America/New_York');
select next_run_utc, next_run_local from taskq.schedules;
select test.round();
-- paused: nothing comes, and when it goes on it begins from then
select test.at('2026-03-10 15:00Z');
select taskq.schedule('s', '* * * * *', 's', settings => '{"paused": true}');
select paused, next_run_at, next_run_local, settings from taskq.schedules;
select test.at('2026-03-10 16:00:10Z'), test.round();
select taskq.schedule('s', '* * * * *', 's', settings => '{"paused": false}');
select paused, next_run_utc, missed from taskq.schedules;
select test.round();
select test.at('2026-03-10 16:01:10Z'), test.round();
select taskq.unschedule('s');

-- missed ones: older than 60 seconds when the round comes
select test.at('2026-04-01 00:00:30Z');
select taskq.schedule('once', '* * * * *', 'once');
select taskq.schedule('skip', '* * * * *', 'skip', settings => '{"missed": "skip"}');
select taskq.schedule('all', '* * * * *', 'all', settings => '{"missed": "run_all", "max_missed": 3}');
select test.at('2026-04-01 00:02:00Z'), test.round();
select name, missed, last_run_utc, next_run_utc from taskq.schedules order by name;
select test.at('2026-04-01 00:20:00Z'), test.round();
select name, missed, last_run_utc, next_run_utc from taskq.schedules order by name;
-- none was in time
select taskq.unschedule('once'), taskq.unschedule('skip'), taskq.unschedule('all');
select test.at('2026-04-02 00:00:00Z');
select taskq.schedule('once', '0 3 * * *', 'once');
select taskq.schedule('skip', '0 3 * * *', 'skip', settings => '{"missed": "skip"}');
select taskq.schedule('all', '0 3 * * *', 'all', settings => '{"missed": "run_all"}');
select test.at('2026-04-04 12:00:00Z'), test.round();
select name, missed, last_run_utc, next_run_utc from taskq.schedules order by name;
select taskq.unschedule('once'), taskq.unschedule('skip'), taskq.unschedule('all');
-- a hundred by default; a long pause with a fast schedule is walked in bounded rounds
select test.at('2026-05-01 00:00:00Z');
select taskq.schedule('all', '* * * * *', 'all', settings => '{"missed": "run_all"}');
select taskq.schedule('many', '* * * * *', 'many', settings => '{"missed": "run_all", "max_missed": 1500}');
select taskq.schedule('second', '* * * * * *', 'second');
select test.at('2026-05-03 00:00:00Z');
select taskq._duty_schedule();
select task_type, count(*), min(run_at at time zone 'UTC'), max(run_at at time zone 'UTC') from taskq.tasks group by task_type order by 1;
select taskq._duty_schedule(), taskq._duty_schedule();
select task_type, count(*), count(distinct run_at), min(run_at at time zone 'UTC'), max(run_at at time zone 'UTC') from taskq.tasks group by task_type order by 1;
select name, missed, missed + (select count(*) from taskq.tasks t where t.task_type = s.name) as occurrences, next_run_utc
  from taskq.schedules s order by name;
delete from taskq.task;
select taskq.unschedule('all'), taskq.unschedule('many'), taskq.unschedule('second');

-- one that fails says so, is tried again a minute later, and stops no other
select test.at('2026-06-01 00:00:00Z');
select taskq.schedule('a', '* * * * *', 'a', to_jsonb(repeat('x', 2000)));
select taskq.schedule('b', '* * * * *', 'b', time_zone => 'Europe/Paris');
select taskq.schedule('c', '* * * * *', 'c', settings => '{"priority": 1}');
select taskq.schedule('d', '* * * * *', 'd');
update taskq.schedule set time_zone = 'Mars/Olympus' where name = 'b';
update taskq.schedule set settings = '{"priority": 1000}' where name = 'c';
set taskq.max_payload_bytes = 1024;
select test.at('2026-06-01 00:01:00Z'), test.round();
select name, last_error, error_at, missed, last_run_at, next_run_utc, next_run_local from taskq.schedules order by name;
select ok, value, advice is not null as advice from taskq.health() where "check" = 'schedules';
select error from taskq.duties where duty = 'schedule';
reset taskq.max_payload_bytes;
-- (not tried again yet)
select test.at('2026-06-01 00:01:59Z'), test.round();
select test.at('2026-06-01 00:02:01Z'), test.round();
select name, last_error from taskq.schedules order by name;
select taskq.schedule('b', '* * * * *', 'b', time_zone => 'Europe/Paris');
select taskq.schedule('c', '* * * * *', 'c', settings => '{"priority": 2}');
select name, last_error, next_run_utc from taskq.schedules order by name;
select ok from taskq.health() where "check" = 'schedules';
delete from taskq.schedule;

-- daylight saving. A local time that does not exist runs at the change; one that comes twice runs once
-- Berlin: 02:00 to 03:00 on 29 March 2026, 03:00 to 02:00 on 25 October
select cron, test.occurrences(cron, 'Europe/Berlin', '2026-03-28 22:30Z', '2026-03-29 03:30Z')
  from unnest(array['30 2 * * *', '0 2 * * *', '*/30 2 * * *', '59 1 * * *', '0 3 * * *', '0 2,3 * * *', '0 */2 * * *', '0 * * * *', '30 * * * *', '*/30 * * * *']) cron;
select cron, test.occurrences(cron, 'Europe/Berlin', '2026-10-24 22:30Z', '2026-10-25 03:30Z')
  from unnest(array['30 2 * * *', '0 2 * * *', '*/30 2 * * *', '59 1 * * *', '0 3 * * *', '0 2,3 * * *', '0 */2 * * *', '0 * * * *', '30 * * * *', '*/30 * * * *']) cron;
-- New York: 02:00 to 03:00 on 8 March, 02:00 to 01:00 on 1 November
select cron, test.occurrences(cron, 'America/New_York', '2026-03-08 04:30Z', '2026-03-08 08:30Z')
  from unnest(array['30 2 * * *', '30 1 * * *', '0 2 8 mar *', '0 * * * *', '*/30 * * * *']) cron;
select cron, test.occurrences(cron, 'America/New_York', '2026-11-01 03:30Z', '2026-11-01 08:30Z')
  from unnest(array['30 2 * * *', '30 1 * * *', '0 1 1 nov *', '0 * * * *', '*/30 * * * *']) cron;
-- Lord Howe: half an hour, 02:00 to 02:30 on 4 October, 02:00 to 01:30 on 5 April
select cron, test.occurrences(cron, 'Australia/Lord_Howe', '2026-10-03 14:00Z', '2026-10-03 17:00Z')
  from unnest(array['0 2 * * *', '15 2 * * *', '30 2 * * *', '45 1 * * *', '0 * * * *', '*/15 * * * *']) cron;
select cron, test.occurrences(cron, 'Australia/Lord_Howe', '2026-04-04 13:30Z', '2026-04-04 17:00Z')
  from unnest(array['0 2 * * *', '30 1 * * *', '45 1 * * *', '*/15 1 * * *', '0 * * * *', '45 * * * *', '*/15 * * * *']) cron;
-- a clock that skipped a whole day, and a change at midnight
select test.occurrences('0 12 30 12 *', 'Pacific/Apia', '2011-12-01Z', '2012-01-31Z'), test.occurrences('0 12 * * *', 'Pacific/Apia', '2011-12-29Z', '2012-01-01Z');
select test.occurrences('30 0 * * *', 'Africa/Cairo', '2026-04-23 12:00Z', '2026-04-24 12:00Z'), test.occurrences('@daily', 'Africa/Cairo', '2026-04-23 12:00Z', '2026-04-24 12:00Z');
-- a year in the zones that change their clocks: every half hour is there, every day has its night
select zone, (select d.left_out from taskq._cron_due('*/30 * * * *', zone, '2026-01-01Z', '2027-01-01Z', '2026-12-31 23:59Z', 0) d) as half_hours,
       (select d.left_out from taskq._cron_due('15 2 * * *', zone, taskq._cron_next('15 2 * * *', zone, '2026-01-01Z'), '2027-01-01Z', '2026-12-31 23:59Z', 0) d) as nights
  from unnest(array['Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'UTC']) zone;
-- and through the duty
select test.at('2026-10-24 12:00Z');
select taskq.schedule('night', '30 2 * * *', 'night', time_zone => 'Europe/Berlin');
select test.at('2026-10-25 00:30:01Z'), test.round();
select test.at('2026-10-25 01:30:01Z'), test.round();
select last_run_utc, last_run_local, next_run_utc, next_run_local from taskq.schedules;
select taskq.unschedule('night');

-- a clock that was far ahead for a moment: told of, and mended by the same call again
select test.at('2026-10-26 12:00Z');
select taskq.schedule('ahead', '@hourly', 'ahead'), taskq.schedule('little', '@hourly', 'little');
select test.at('2026-10-26 12:30Z'), taskq._duty_schedule();
select test.at('2030-01-01 00:00Z');
update taskq.schedule set next_run_at = '2040-01-01Z' where name = 'little';
select test.round();
update taskq.schedule set next_run_at = '2026-10-26 14:00Z', last_run_at = '2026-10-26 13:00Z' where name = 'little';
select test.at('2026-10-26 12:59Z');
select ok, value from taskq.health() where "check" = 'schedules';
select taskq.schedule('ahead', '@hourly', 'ahead'), taskq.schedule('little', '@hourly', 'little');
select name, last_run_utc, next_run_utc from taskq.schedules order by name;
select ok from taskq.health() where "check" = 'schedules';
-- (what has run just ahead does not run again)
select test.at('2026-10-26 13:00:01Z'), test.round();
delete from taskq.schedule;

-- bad expressions, with the position
\set VERBOSITY default
select taskq.schedule('s', '0 25 * * mon', 's');
select taskq.schedule('s', '@fortnightly', 's');
select cron, test.error(format('select taskq.schedule(''s'', %L, ''t'')', cron)) from unnest(array['', 'hello', '* * * *', '* * * * * * *', '60 * * * *', '* * 0 * *',
  '* * * feb,foo *', '0 0 * * 1-8', '*/0 * * * *', '5,,6 * * * *', 'jan * * * *', E'* * *\n* *', repeat('1,', 200) || '1 * * * *', null]) cron;
select taskq.schedule('s', '0 0 30 feb *', 's');
-- bad zones
select taskq.schedule('s', '@daily', 's', time_zone => 'Europe/Berlni');
select zone, test.error(format('select taskq.schedule(''s'', ''@daily'', ''t'', time_zone => %L)', zone)) from unnest(array['', 'CEST', 'UTC+3', 'Foo5', '+02:00', null]) zone;
-- names that PostgreSQL reads as abbreviations: they would be wrong in summer
select taskq.schedule('s', '@daily', 's', time_zone => 'CET');
select zone, test.error(format('select taskq.schedule(''s'', ''@daily'', ''t'', time_zone => %L)', zone)) from unnest(array['cet', 'EET', 'MET', 'WET', 'EST', 'GMT', 'zulu', 'UCT']) zone;
delete from taskq.schedule;
-- bad settings and the rest
select taskq.schedule('s', '@daily', 's', settings => '{"overlap": true}');
select s, test.error(format('select taskq.schedule(''s'', ''@daily'', ''t'', settings => %L)', s)) from unnest(array[null, '[]', '{"missed": "never"}', '{"missed": 1}', '{"max_missed": 0}',
  '{"max_missed": 10001}', '{"paused": "yes"}', '{"priority": 101}', '{"priority": "1"}', '{"queue": ""}', '{"max_retries": 1.5}', '{"lease": "1 min"}']) s;
select test.error($$select taskq.configure_queue('q', '{"missed": "skip"}')$$);
select test.error($$select taskq.schedule(null, '@daily', 't')$$), test.error($$select taskq.schedule('', '@daily', 't')$$),
       test.error($$select taskq.schedule(repeat('é', 32), '@daily', 't')$$), test.error($$select taskq.schedule('s', '@daily', null)$$),
       test.error($$select taskq.unschedule(null)$$);
set taskq.max_payload_bytes = 1024;
select test.error($$select taskq.schedule('s', '@daily', 't', to_jsonb(repeat('x', 1000)))$$);
reset taskq.max_payload_bytes;
-- nothing came of all that
select count(*) from taskq.schedules;
-- a payload is kept as it was given: its depth and its digits
select taskq.schedule('deep', '@daily', 't', format('{"n": 1234567890123456789012345678901234567890.10, "d": %s1%s}', repeat('[', 3000), repeat(']', 3000))::jsonb);
select test.at('2026-10-27 00:00:01Z'), taskq._duty_schedule();
select t.payload::text = s.payload::text as same, t.payload -> 'n' as n from taskq.tasks t, taskq.schedules s;
delete from taskq.schedule;
