-- The view overview: each queue, how it stands and what it did in the last minute.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
-- A sample that covers 10 seconds, so long ago.
create function test.sample(back interval, queue text, task_type text, enqueued integer, started integer, succeeded integer, failed integer,
                            waiting double precision, run double precision) returns void language sql as $$
  insert into taskq.sample
  select taskq._now() - sample.back, sample.queue, sample.task_type, 10, sample.enqueued, sample.started, sample.succeeded, sample.failed, sample.failed, 0, 0, 0,
         0, 0, 0, 0, null, 0, sample.waiting, sample.run, 0, 0, 0, 3
$$;
\set ECHO all
select test.freeze();
select * from taskq.overview;
select count(taskq.enqueue('t', queue => 'mail')) from generate_series(1, 130);
select count(taskq.enqueue('t', queue => 'mail', delay => '1 h')) from generate_series(1, 2);
select taskq.enqueue('t', queue => 'idle', delay => '1 h') is not null as enqueued;
select test.pass('90 s');
select count(*) from taskq.claim(10, '{mail}', 'w1');
select * from taskq.overview;
-- 60 arrived, 120 were started, in two types at six moments; what is older than a minute does not count
select test.sample(n * interval '10 s', 'mail', t, 5, 10, 9, 1, n, 0.25 * n) from generate_series(0, 5) n, unnest(array['t', 'u']) t;
select test.sample('60 s', 'mail', 't', 999, 999, 999, 999, 99, 99);
select * from taskq.overview;
-- what is paused or at its limit, and has alerts
select taskq.pause('idle'), taskq.configure_queue('mail', '{"max_running": 10, "oldest_ready_limit": "1 s"}') is not null as set;
select taskq._duty_alert() > 0 as raised;
select queue, note from taskq.overview;
select taskq.acknowledge(a.id) from taskq.alerts a;
select queue, note from taskq.overview;
