-- Forecasts: tasks ahead, expected start and finish, in status and estimate.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
delete from taskq.sample;
-- Samples of so many moments, the newest one now: each started, succeeded, and left so many.
create function test.samples(moments integer, queue text, task_type text, started integer, succeeded integer, ready integer,
                             run double precision = 4, back interval = '0') returns void language sql as $$
  insert into taskq.sample
  select taskq._now() - samples.back - (n - 1) * interval '10 s', samples.queue, samples.task_type, 10, 0, samples.started, samples.succeeded, 0, 0, 0, 0, 0,
         samples.ready, 0, 0, 0, null, 1, 1, case when samples.succeeded > 0 then samples.run end, 9, 9, 9, 1
    from generate_series(1, samples.moments) n
$$;
create function test.forecast(id bigint) returns text language sql as $$
  select format('%s ahead, start %s, finish %s', coalesce(s.tasks_ahead::text, '?'), coalesce((s.expected_start_at - taskq._now())::text, '?'),
                coalesce((s.expected_finish_at - taskq._now())::text, '?'))
    from taskq.status(forecast.id) s
$$;
create function test.estimate(task_type text, queue text = null) returns text language sql as $$
  select format('%s: %s ahead, start %s, finish %s', s.queue, s.tasks_ahead, coalesce((s.expected_start_at - taskq._now())::text, '?'),
                coalesce((s.expected_finish_at - taskq._now())::text, '?'))
    from taskq.estimate(estimate.task_type, estimate.queue) s
$$;
\set ECHO all
select test.freeze();

-- tasks ahead: those of the queue that are claimed before it, by priority, run_at and id
select count(taskq.enqueue('t', queue => 'other', priority => 50)) from generate_series(1, 5);
select taskq.enqueue('t', queue => 'q') as first, taskq.enqueue('t', queue => 'q', priority => -3) as low, taskq.enqueue('t', queue => 'q') as second,
       taskq.enqueue('t', queue => 'q', priority => 7) as high, taskq.enqueue('t', queue => 'q', priority => 7, delay => '1 min') as high_later,
       taskq.enqueue('t', queue => 'q', delay => '1 min') as later, taskq.enqueue('t', queue => 'q', priority => 100) as top \gset
select n, test.forecast(id) from (values (1, :top), (2, :high), (3, :first), (4, :second), (5, :low), (6, :high_later), (7, :later)) v(n, id) order by n;
-- that is the order of the claims
create temp table before as select s.tasks_ahead, t.id from taskq.tasks t, taskq.status(t.id) s where t.queue = 'q' and t.state = 'ready';
select c.id = b.id as same from taskq.claim(1, array['q']) c, before b where b.tasks_ahead = 0;
select c.id = b.id as same from taskq.claim(1, array['q']) c, before b where b.tasks_ahead = 1;
-- running ones are not ahead of anything, and nothing is ahead of them
select n, test.forecast(id) from (values (1, :top), (2, :high), (3, :first), (4, :second), (5, :low)) v(n, id) order by n;
-- time goes on: what has become due comes in
select test.pass('1 min');
select n, test.forecast(id) from (values (3, :first), (4, :second), (5, :low), (6, :high_later), (7, :later)) v(n, id) order by n;
-- each task, against a count of all
create function test.ahead(id bigint) returns bigint language sql as $$
  select count(*) from taskq.tasks o, taskq.task t
   where t.id = ahead.id and o.queue = t.queue and o.state <> 'running' and o.run_at <= greatest(t.run_at, taskq._now())
     and (-o.priority, o.run_at, o.id) < (-t.priority, t.run_at, t.id)
$$;
select count(taskq.enqueue('t', queue => 'many', priority => (n * 7919) % 5, delay => greatest((n * 104729) % 50 - 25, 0) * interval '1 s')) from generate_series(1, 500) n;
select test.pass('10 s'), count(*) from taskq.claim(50, array['many']);
select count(*), count(*) filter (where s.tasks_ahead = test.ahead(t.id)) as right, max(s.tasks_ahead)
  from taskq.task t, taskq.status(t.id) s where t.queue = 'many' and t.state = 'waiting';
-- finished and dead tasks: none of it
select taskq.complete(:top, test.token(:top)), f.state from taskq.fail(:high, test.token(:high), 'x', retry => false) f;
select test.forecast(:top), test.forecast(:high);
-- no samples, no expectation
select test.estimate('t', 'q'), test.estimate('t', 'never was');

-- the rate is that of the samples with a backlog, here 20 in 10 s; the usual run takes 4 s
delete from taskq.task;
select min(e) as first, max(e) as last from (select taskq.enqueue('t', queue => 'f') as e from generate_series(1, 100)) x \gset
select test.samples(3, 'f', 't', 20, 10, 100);
select test.forecast(:first), test.forecast(:last);
-- a moment's time counts once, however many types there are; all of them take their share of the rate
select test.samples(3, 'f', 'u', 10, 5, 0);
select test.forecast(:last);
-- a type needs 20 of its own that succeeded, in that queue
select test.estimate('t', 'f'), test.estimate('u', 'f'), test.estimate('u');
select test.samples(1, 'f', 'u', 0, 4, 0, back => '1 s');
select test.estimate('u', 'f');
select test.samples(1, 'f', 'u', 0, 1, 0, back => '2 s');
select test.estimate('u', 'f');
delete from taskq.sample;
select test.samples(4, 'g', 't', 20, 10, 100);
select test.estimate('t', 'f'), test.estimate('t', 'g');
-- samples from more than 15 minutes ago do not count
select test.samples(4, 'f', 't', 20, 10, 100, back => '15 min'), test.estimate('t', 'f');
select test.samples(4, 'f', 't', 20, 10, 100, back => '14 min 29 s'), test.estimate('t', 'f');
-- the median of the medians: a few slow ones change nothing
select test.samples(3, 'f', 't', 0, 1, 0, 1000, '5 min'), test.samples(3, 'f', 't', 0, 1, 0, 0.5, '6 min'), test.estimate('t', 'f');
-- times in which the workers lacked tasks do not count as long as there are others
delete from taskq.sample;
select test.samples(30, 'f', 't', 1, 1, 0, back => '5 min'), test.samples(10, 'f', 't', 5, 5, 4, back => '2 min'), test.samples(3, 'f', 't', 50, 40, 500), test.estimate('t', 'f');
-- a backlog that nobody took anything from counts, too
select test.samples(2, 'f', 't', 0, 0, 400, back => '30 s'), test.estimate('t', 'f');
-- with nothing else all times with work do
delete from taskq.sample;
select test.samples(30, 'f', 't', 1, 1, 0), test.estimate('t', 'f');
-- a task due later does not start before that
select taskq.enqueue('t', queue => 'f', delay => '1 hour') as later, taskq.enqueue('t', queue => 'f', delay => '1 s') as soon \gset
delete from taskq.sample;
select test.samples(3, 'f', 't', 20, 10, 100);
select test.forecast(:later), test.forecast(:soon);
-- nothing was started: nobody knows
delete from taskq.sample;
select test.samples(3, 'f', 't', 0, 10, 100), test.estimate('t', 'f');
delete from taskq.sample;
select test.samples(3, 'f', 't', 20, 10, 100);
-- a paused queue: nobody knows when it is resumed
select taskq.pause('f');
select test.forecast(:last), test.estimate('t', 'f');
-- running: the claim and the usual run, not before now; also in a paused queue
select taskq.resume('f');
select id as running from taskq.claim(1, array['f']) \gset
select taskq.pause('f');
select test.forecast(:running);
select test.pass('1 s'), test.forecast(:running);
select test.pass('1 min'), test.forecast(:running);
select taskq.resume('f');
delete from taskq.sample;
select test.forecast(:running);

-- estimate: as the task's status will say, by the type's queue and priority
select taskq.configure_type('t', '{"queue": "f", "priority": 3}') \gset ignored_
select count(taskq.enqueue('x', queue => 'f', priority => 3 + n % 2)) from generate_series(1, 30) n;
select test.samples(3, 'f', 't', 20, 10, 100);
select test.estimate('t'), test.estimate('t', 'g');
select taskq.enqueue('t') as id \gset
select test.forecast(:id);
select (select count(*) from taskq.tasks where queue = 'f') as unchanged;
select test.estimate('unknown');
-- 22023
select test.error(format('select * from taskq.estimate(%L, %L)', t, q)) from (values (null, 'q'), ('', 'q'), ('t', ''), (repeat('x', 64), null), ('t', repeat('x', 64)), (E'a\nb', null)) v(t, q);

-- counted up to 100,000, by the index alone; more are at least so many, and nobody knows when
delete from taskq.task;
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select n, 'f', 3, taskq._now() - interval '1 hour' + n * interval '1 ms', 3, taskq._now(), 10, 't', '{}' from generate_series(1, 100002) n;
select test.forecast(100000), test.forecast(100001), test.forecast(100002);
select test.estimate('t');
-- however many there are behind it, or due later before it
update taskq.task set run_at = taskq._now() + interval '1 day' where id <= 90000;
update taskq.task set priority = 9 where id <= 90000;
create function test.reads(query text) returns bigint language plpgsql as $$
declare v_plan json;
begin
  execute 'explain (analyze, buffers, format json) ' || query into v_plan;
  return (v_plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (v_plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
end
$$;
vacuum taskq.task;
select test.forecast(90011);
select test.reads('select taskq._tasks_ahead(''f'', 3, run_at, id, taskq._now()) from taskq.task where id = 90011') < 300 as few;
delete from taskq.task;
delete from taskq.sample;
