-- The drill: what it refuses, and its steps, done by hand as the keeper does them.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
delete from taskq.drill_run;
delete from taskq.drill_step;
set timezone = 'UTC';
\set ECHO all
select test.freeze();

-- arguments
select q, test.error(format('select taskq.drill(%L)', q)) from unnest(array[null, '', repeat('q', 64), E'a\nb']) q;
select t, test.error(format('select taskq.drill(timeout => %L)', t)) from unnest('{NULL, "0.9 s", "10 min 1 ms", -1 s, 1 month}'::interval[]) t;
-- only a queue that nothing uses
select taskq.enqueue('t', queue => 'has_task') is not null, taskq.enqueue('t', queue => 'has_dead', max_retries => 0) is not null;
select state from taskq.claim(1, array['has_dead']) c, taskq.fail(c.id, c.token);
select taskq.pause('has_settings'), taskq.configure_type('t', '{"queue": "has_type"}') \gset ignored_
select q, test.error(format('select taskq.drill(%L)', q)) from unnest('{default, has_task, has_dead, has_settings, has_type}'::text[]) q;
-- the keeper's steps could not be seen
begin isolation level repeatable read;
select taskq.drill();
rollback;
begin isolation level serializable;
\set VERBOSITY sqlstate
select taskq.drill();
\set VERBOSITY default
rollback;
-- the keeper is switched off here
select taskq.drill();
select taskq.drill('free', '10 min');
begin read only;
\set VERBOSITY sqlstate
select taskq.drill();
\set VERBOSITY default
rollback;
select count(*) from taskq.drill_run;
delete from taskq.task;
delete from taskq.dead_letter;
delete from taskq.queue;
delete from taskq.task_type;

-- nothing was asked for: the duty does nothing
select taskq._duty_drill();

-- what the keeper does, step by step
create function test.go(id bigint) returns text language plpgsql as $$
begin
  perform taskq._duty_drill();
  return (select format('%s: %s %s', s.step, s.ok, s.detail) from taskq.drill_step s join taskq.drill_run r on r.id = s.drill_id
           where r.id = go.id and s.number = r.step - 1);
end
$$;
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (7, 'fire', '1 min', 'me', clock_timestamp(), clock_timestamp());
\set hide '| sed -E ''s/until .*/until .../'''
select taskq.drill();
select test.go(7);
select paused_at is not null as paused, paused_by, dead_letters_limit from taskq.queue where name = 'fire';
select test.go(7);
-- nobody else gets its task, at any step
select test.claim(10);
select test.claim(10, '{fire}');
select test.go(7);
select worker, attempt from taskq.running;
\o :hide
select test.go(7);
\o
-- its own backoff is waited for
select state, run_at - taskq._now() as wait from taskq.tasks;
select taskq._duty_drill(), (select step from taskq.drill_run) as step;
select test.pass('0.5 s');
select test.claim(10);
select test.go(7);
select test.go(7);
-- the alert is the real one
select taskq._duty_drill(), (select step from taskq.drill_run) as step;
select taskq._duty_alert();
select test.go(7);
select taskq._duty_drill(), (select step from taskq.drill_run) as step;
select taskq.acknowledge(1);
select test.go(7);
select test.go(7);
select test.claim(10, '{fire}');
select test.go(7);
select test.go(7);
-- cleared by the duty
select taskq._duty_drill(), (select step from taskq.drill_run) as step;
select taskq._duty_alert();
select test.go(7);
select test.go(7);
select number, step, ok, took >= '0 s' as took from taskq.drill_step order by number;
select finished_at is not null as finished from taskq.drill_run;
select count(*) from (select id from taskq.task union all select id from taskq.dead_letter union all select id from taskq.done) x;
select count(*) from (select name from taskq.queue union all select name from taskq.task_type) x;
-- it is over, also for those who asked
select taskq._drill_state(7), taskq._duty_drill(), taskq._drill_state(7);

-- a step that is waited for in vain does not hold, and says what to look at; then only cleaning up is left
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (8, 'fire', '1 min', 'me', clock_timestamp(), clock_timestamp());
select count(taskq._duty_drill()) from generate_series(1, 4);
update taskq.drill_run set step_started_at = clock_timestamp() - interval '31 s' where id = 8;
\o | sed -E 's/before .*: see/before ...: see/'
select test.go(8);
\o
select string_agg(test.go(8), E'\n') from generate_series(1, 8);
select count(*) from (select name from taskq.queue union all select id::text from taskq.task) x;
-- one that was left alone for long is not gone on with
select taskq._duty_drill();
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (9, 'fire', '1 min', 'me', clock_timestamp(), clock_timestamp());
select count(taskq._duty_drill()) from generate_series(1, 3);
update taskq.drill_run set started_at = started_at - interval '6 min 1 s' where id = 9;
select string_agg(test.go(9), E'\n') from generate_series(1, 10);
select count(*) from (select name from taskq.queue union all select id::text from taskq.task) x;
select taskq._duty_drill();
-- what an earlier one has left in the queue that is named for drills is taken away
select taskq.enqueue('taskq.drill', queue => 'taskq.drill') is not null, taskq.configure_queue('taskq.drill', '{"lease": "1 h"}') is not null;
select taskq._drill_obstacle('taskq.drill');
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (10, 'taskq.drill', '1 min', 'me', clock_timestamp(), clock_timestamp());
select test.go(10);
select count(*) from taskq.tasks;
select lease, dead_letters_limit from taskq.queue;
-- but never the task of somebody else
select taskq.enqueue('t', queue => 'taskq.drill', priority => 100) as other \gset
select test.go(10);
select test.go(10) ~ 'could not be claimed';
select id = :other as other, attempt, state from taskq.task where task_type <> 'taskq.drill';
select right(string_agg(test.go(10), E'\n'), 90) from generate_series(1, 10);
select test.claim(10, '{taskq.drill}');
select test.error('select taskq.drill()');
select taskq._duty_drill();
-- one at a time, as far as the table knows
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (11, 'fire', '1 min', 'me', clock_timestamp(), clock_timestamp());
\set VERBOSITY sqlstate
insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
values (12, 'fire', '1 min', 'me', clock_timestamp(), clock_timestamp());
\set VERBOSITY default
delete from taskq.drill_run where id = 11;
