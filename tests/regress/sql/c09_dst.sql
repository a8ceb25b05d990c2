-- C09: a delay is so many seconds, whatever the session's time zone thinks of the day.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
create temp table told (zone text, at timestamptz, delay interval, what text, due timestamptz);
create function test.delays(zone text, at timestamptz, delay interval) returns void language plpgsql as $$
declare v_id bigint;
begin
  delete from taskq.task;
  perform set_config('timezone', delays.zone, true), set_config('taskq.test_clock', delays.at::text, true);
  v_id := taskq.enqueue('t', delay => delays.delay);
  insert into told select delays.zone, delays.at, delays.delay, 'enqueue', t.run_at from taskq.task t where t.id = v_id;
  v_id := m.id from taskq.enqueue_many(jsonb_build_array(jsonb_build_object('task_type', 't', 'delay', delays.delay::text))) m;
  insert into told select delays.zone, delays.at, delays.delay, 'enqueue_many', t.run_at from taskq.task t where t.id = v_id;
  v_id := test.running('f');
  insert into told select delays.zone, delays.at, delays.delay, 'fail', f.run_at from taskq.fail(v_id, test.token(v_id), retry_in => delays.delay) f;
  v_id := test.running('r');
  perform taskq.release(v_id, test.token(v_id), delays.delay);
  insert into told select delays.zone, delays.at, delays.delay, 'release', t.run_at from taskq.task t where t.id = v_id;
  v_id := taskq.enqueue('l', queue => 'l');
  insert into told select delays.zone, delays.at, delays.delay, 'claim', c.lease_expires_at from taskq.claim(1, array['l'], lease => delays.delay) c;
  insert into told select delays.zone, delays.at, delays.delay, 'extend', e.lease_expires_at from taskq.extend(v_id, test.token(v_id), delays.delay) e;
  perform taskq.configure_type('b', jsonb_build_object('jitter', 0, 'backoff_base', delays.delay::text, 'backoff_cap', '100 years', 'lease', delays.delay::text));
  v_id := taskq.enqueue('b', queue => 'b');
  insert into told select delays.zone, delays.at, delays.delay, 'lease of the type', c.lease_expires_at from taskq.claim(1, array['b']) c;
  insert into told select delays.zone, delays.at, delays.delay, 'backoff', f.run_at from taskq.fail(v_id, test.token(v_id), 'x') f;
  perform taskq.once('s', delays.zone || delays.at || delays.delay, delays.delay);
  insert into told select delays.zone, delays.at, delays.delay, 'once', o.expires_at from taskq.once_key o where o.key = delays.zone || delays.at || delays.delay;
  perform taskq.enqueue('u', unique_key => delays.zone || delays.at || delays.delay, unique_for => delays.delay);
  insert into told select delays.zone, delays.at, delays.delay, 'unique_for', u.kept_until from taskq.unique_key u where u.key = delays.zone || delays.at || delays.delay;
end
$$;
-- the nights in which New York's clocks are put forward and back, and a month in which neither has 30 days of 24 hours
select count(test.delays(zone, at, delay))
  from unnest('{America/New_York, UTC, Europe/Berlin}'::text[]) zone,
       unnest('{2026-03-07 02:30-05, 2026-10-31 01:30-04}'::timestamptz[]) at,
       unnest('{1 day, 24 hours, 86400 s, 1 mon, 30 days}'::interval[]) delay;
set timezone = 'UTC';
select at, what, extract(epoch from delay) / 3600 as hours, count(*), min(due) as due, max(due) - min(due) as apart
  from told group by 1, 2, 3 order by 1, 3, 2;
select count(*), bool_and(due - at = make_interval(secs => extract(epoch from delay)::float8)) as fixed_seconds from told;
