-- What the board reads: the curve, the rates of all queues at once, running tasks within bounds. The page itself is
-- tested in a browser (tests/observe).
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
create function test.sample(ago interval, ready int, queue text = 'q', started int = 0, seconds float8 = 10) returns void language sql as $$
  insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired, cancelled,
                            ready, scheduled, running, blocked, claimers)
  values (timestamptz '2030-01-01 12:00' - sample.ago, sample.queue, 't', sample.seconds, 0, sample.started, 0, 0, 0, 0, 0, 0, sample.ready, 0, 0, 0, 1)
$$;
-- the curve of ten minutes before noon, a value a minute: by queues, or in all
create function test.curve() returns text language sql as $$
  with found as (
    select by_queue, string_agg(case when known then coalesce(ready, 0)::text else '?' end, ' ' order by at) as curve
      from (select b.by_queue, c.at, bool_and(c.is_known) as known, sum(c.ready) as ready
              from (values (true), (false)) b(by_queue)
             cross join taskq._board_curve('2030-01-01 11:50', '2030-01-01 12:00', 10, b.by_queue) c group by b.by_queue, c.at) x
     group by by_queue)
  select case when max(curve) = min(curve) then min(curve) else 'they differ' end from found
$$;
update taskq.duty set counted_until = null where name = 'sample';

-- nobody has looked yet
select test.curve();
-- the last sample of each minute counts, all queues together
select test.sample('8 minutes 30 seconds', 99), test.sample('8 minutes', 3), test.sample('8 minutes', 4, 'r'), test.sample('7 minutes', 5);
update taskq.duty set counted_until = '2030-01-01 11:53' where name = 'sample';
select test.curve();
-- then the queues were empty, as far as somebody looked
update taskq.duty set counted_until = '2030-01-01 11:58:30' where name = 'sample';
select test.curve();
-- a sample that begins after a pause says since when it counts: somebody had looked all the time
select test.sample('30 seconds', 6);
update taskq.duty set counted_until = '2030-01-01 11:59:30' where name = 'sample';
select test.curve();
-- or nobody had
update taskq.sample set seconds = 390 where at = '2030-01-01 11:59:30';
select test.curve();
-- by queue
select at::time, queue, ready from taskq._board_curve('2030-01-01 11:50', '2030-01-01 12:00', 10, true) where queue is not null order by 1, 2;

-- the rates of all queues are those that forecasts use for one
delete from taskq.sample;
select count(*) from (select test.sample(n * interval '10 s', ready => case when n % 7 = 0 then 0 else 50 + n end, queue => q, started => n % 5 * (length(q)), seconds => 10)
  from generate_series(0, 100) n, unnest(array['a', 'bb', 'ccc']) q) x;
select r.queue, r.rate = taskq._start_rate(r.queue, '2030-01-01 12:00') as same, r.rate > 0 as some
  from taskq._board_start_rates('2030-01-01 12:00') r order by 1;

-- running tasks are found wherever they stand in their lanes
select count(taskq.enqueue('t', queue => 'q' || n % 3, priority => n % 2)) from generate_series(1, 300) n;
select count(*) from taskq.claim(100, worker => 'w');
select count(taskq.release(r.id, t.token)) from taskq.running r join taskq.task t using (id) where r.id % 7 = 0;
select count(*) = (select count(*) from taskq.running) as all_found, bool_and(worker = 'w') as right_worker, count(distinct queue) as queues
  from taskq._board_running(taskq._now());
-- due earlier than those that run, but not so many that they hide them
select count(taskq.enqueue('t', queue => 'q0', run_at => taskq._now() - interval '1 hour')) from generate_series(1, 400);
select count(*) = (select count(*) from taskq.running) as all_found from taskq._board_running(taskq._now());

-- nothing to see for others; no row changes
create role taskq_test_reader;
select taskq.grant_reader('taskq_test_reader');
set role taskq_test_reader;
select starts_with(taskq.dashboard(), '<!DOCTYPE html>') as page, taskq.metrics() like '# HELP taskq%' as metrics;
\set VERBOSITY sqlstate
select taskq._board();
\set VERBOSITY default
reset role;
drop owned by taskq_test_reader;
delete from taskq.granted_part where role = 'taskq_test_reader';
drop role taskq_test_reader;
begin transaction read only;
select length(taskq.dashboard()) > 1000 as page, length(taskq.metrics()) > 1000 as metrics;
commit;
