-- What the board shows. Each function reads one part of it, bounded in rows and in work: the board must come at
-- once with a million tasks waiting, fifty queues and a week of samples. dashboard() draws it, in Rust (src/dashboard/).

-- The value of each queue's backlog, or of all together, at so many moments, evenly spread: of each step the last
-- sample in it, found by an index probe, so that a day costs no more than an hour. A moment without a sample counts as
-- 0, because queues without tasks have none; but it is NULL where nobody looked: before the first sample, and while no
-- keeper or no server was there.
create function taskq._board_curve(since timestamptz, until timestamptz, steps integer, by_queue boolean)
  returns table (at timestamptz, queue text, ready bigint, is_known boolean)
  language sql stable security definer rows 1000
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  with step as materialized (
    select _board_curve.since + (_board_curve.until - _board_curve.since) * (n - 1) / _board_curve.steps as begins_at,
           _board_curve.since + (_board_curve.until - _board_curve.since) * n / _board_curve.steps as ends_at
      from generate_series(1, _board_curve.steps) n
  ), moment as materialized (
    select s.begins_at, s.ends_at, last.at
      from step s
      left join lateral (
        select x.at from taskq.sample x where x.at > s.begins_at and x.at <= s.ends_at order by x.at desc limit 1) last on true
  )
  select m.ends_at, x.queue, x.ready, true
    from moment m
   cross join lateral (
     select y.queue, sum(y.ready)::bigint as ready from taskq.sample y where y.at = m.at group by y.queue) x
   where m.at is not null and _board_curve.by_queue
  union all
  select m.ends_at, null, (select sum(y.ready)::bigint from taskq.sample y where y.at = m.at), true
    from moment m
   where m.at is not null and not _board_curve.by_queue
  union all
  select m.ends_at, null, 0,
         exists (select from taskq.sample x where x.at <= m.begins_at)
         and coalesce(
           (select n.at - make_interval(secs => n.seconds) > m.begins_at  -- a sample says how far back it counts
                   and not (m.ends_at <= pg_postmaster_start_time() and n.at > pg_postmaster_start_time())
              from (select x.at, x.seconds from taskq.sample x where x.at > m.ends_at order by x.at limit 1) n),
           (select d.counted_until > m.begins_at from taskq.duty d where d.name = 'sample'))
    from moment m
   where m.at is null
$$;
comment on function taskq._board_curve(timestamptz, timestamptz, integer, boolean) is
  'How many tasks of each queue, or in all, were ready at so many moments in that time. A moment without tasks has one row without a queue, which says whether that is known.';

-- What each queue and type did since that moment: sums, and the samples' medians and 95th percentiles, averaged with the
-- weight of the tasks that they are about. (There are none exactly where there are no such tasks.)
create function taskq._board_pairs(since timestamptz)
  returns table (queue text, task_type text, enqueued double precision, started double precision, succeeded double precision,
                 failed double precision, ended double precision,
                 waiting_p50 double precision, waiting_p95 double precision, run_p50 double precision, run_p95 double precision)
  language sql stable security definer rows 100
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  select s.queue, s.task_type, sum(s.enqueued), sum(s.started), sum(s.succeeded), sum(s.failed),
         sum(s.succeeded + s.dead + s.cancelled),
         sum(s.waiting_p50 * s.started) / nullif(sum(s.started), 0),
         sum(s.waiting_p95 * s.started) / nullif(sum(s.started), 0),
         sum(s.run_p50 * s.succeeded) / nullif(sum(s.succeeded), 0),
         sum(s.run_p95 * s.succeeded) / nullif(sum(s.succeeded), 0)
    from taskq.sample s
   where s.at > _board_pairs.since
   group by s.queue, s.task_type
$$;
comment on function taskq._board_pairs(timestamptz) is
  'What each queue and task type did since that moment, by the samples.';

-- As _start_rate, of all queues in one go: it would look at the samples of all of them for each.
create function taskq._board_start_rates(now timestamptz)
  returns table (queue text, rate double precision)
  language sql stable security definer rows 50
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashagg = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  -- (in the order of the primary key, so that nothing is sorted that is large)
  with moment as materialized (
    select s.queue, s.at, max(s.seconds) as seconds,
           sum(s.started)::double precision as started, sum(s.ready)::double precision as ready
      from taskq.sample s
     where s.at > _board_start_rates.now - interval '15 minutes' and s.at <= _board_start_rates.now
     group by s.at, s.queue
  ), worked as (
    select m.queue, m.started, m.seconds,
           lag(m.ready) over w >= greatest(m.started, 1)
           and lag(m.at) over w > m.at - make_interval(secs => m.seconds * 1.5) as backlog
      from moment m
     where m.ready > 0 or m.started > 0
    window w as (partition by m.queue order by m.at)
  )
  select w.queue, nullif(coalesce(sum(w.started) filter (where w.backlog) / sum(w.seconds) filter (where w.backlog),
                                  sum(w.started) / sum(w.seconds)), 0)
    from worked w
   group by w.queue
$$;
comment on function taskq._board_start_rates(timestamptz) is
  'How many tasks a second the workers take from each queue while it has a backlog, by the samples of the last 15 minutes.';

-- Running tasks. They stand at the head of their lanes, unless others that were due earlier came later, so each lane
-- is walked until as many were found as run, but no further than its share of 20,000 rows.
create function taskq._board_running(now timestamptz)
  returns table (id bigint, queue text, task_type text, worker text, claimed_at timestamptz, lease_expires_at timestamptz,
                 attempt integer, cancel_requested boolean)
  language sql volatile security definer rows 100
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
  with recursive lane(queue, priority) as (
    (select t.queue, t.priority from taskq.task t order by t.queue, t.priority desc, t.run_at, t.id limit 1)
    union all
    select n.queue, n.priority
      from lane l
     cross join lateral (
       (select t.queue, t.priority from taskq.task t
         where t.queue = l.queue and t.priority < l.priority
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       union all
       (select t.queue, t.priority from taskq.task t
         where t.queue > l.queue
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       limit 1) n
  ), known as materialized (
    select f.queue, sum(f.running)::bigint as running from taskq._figures() f group by f.queue
  ), walked as materialized (
    -- without figures nobody knows where any run: everywhere they may
    select l.queue, l.priority, least(coalesce(k.running, 500), 500) as at_most, count(*) over () as lanes
      from lane l
      left join known k on k.queue = l.queue
     where k.running > 0 or not exists (select from taskq._figures_kept())
  )
  select r.id, r.queue, r.task_type, r.worker, r.claimed_at, r.lease_expires_at, r.attempt, r.cancel_requested_at is not null
    from walked w
   cross join lateral (
     select h.* from (
       select t.* from taskq.task t
        where t.queue = w.queue and t.priority = w.priority and t.run_at <= _board_running.now
        order by t.queue, t.priority desc, t.run_at, t.id
        limit greatest(20000 / w.lanes, 100)) h
      where h.state = 'running'
      limit w.at_most) r
   limit 1000
$$;
comment on function taskq._board_running(timestamptz) is
  'Running tasks, 1,000 at most, as far as a bounded search finds them.';

-- Everything that the board shows, as one object; at most 100 queues, and of the rest what matters most. (What the keys
-- mean is in src/dashboard/data.rs. The parts are json, not jsonb: they are only put together, and read once.)
create function taskq._board() returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_now      timestamptz := taskq._view_time();
  v_window   interval := '15 minutes';
  v_hour     json;
  v_day      json;
  v_pairs    json;
  v_running  json;
  v_alerts   json;
  v_errors   json;
  v_queues   record;
  v_dead     record;
  v_workers  record;
begin
  select coalesce(json_agg(p), '[]') into v_pairs from taskq._board_pairs(v_now - v_window) p;
  select coalesce(json_agg(r), '[]') into v_running
    from (select x.id, x.queue, x.task_type, x.worker, x.attempt, x.cancel_requested,
                 extract(epoch from v_now - x.claimed_at) as running_for,
                 extract(epoch from x.lease_expires_at - v_now) as lease_left
            from taskq._board_running(v_now) x) r;
  select coalesce(json_agg(json_build_array(extract(epoch from c.at), c.queue, case when c.is_known then c.ready end) order by c.at), '[]') into v_hour
    from taskq._board_curve(v_now - interval '1 hour', v_now, 60, true) c;
  select coalesce(json_agg(json_build_array(extract(epoch from c.at), case when c.is_known then c.ready end) order by c.at), '[]') into v_day
    from taskq._board_curve(v_now - interval '1 day', v_now, 96, false) c;
  select coalesce(json_agg(json_build_object(
           'id', a.id, 'kind', a.kind, 'queue', a.queue, 'value', a.value,
           'limit', a.alert_limit, 'detail', a.detail, 'acknowledged_by', a.acknowledged_by,
           'age', extract(epoch from v_now - a.raised_at)) order by a.acknowledged_at is not null, a.raised_at), '[]') into v_alerts
    from (select x.* from taskq.alert x where x.cleared_at is null
           order by x.acknowledged_at is not null, x.raised_at limit 30) a;
  select coalesce(json_agg(json_build_object(
           'queue', f.queue, 'task_type', f.task_type, 'error', f.error, 'tasks', f.count,
           'runs', f.attempts, 'dead', f.dead, 'first', extract(epoch from v_now - f.first_seen_at),
           'last', extract(epoch from v_now - f.last_seen_at), 'id', f.sample_id)), '[]') into v_errors
    from (select x.* from taskq._failures(null, 2000) x order by x.attempts desc, x.last_seen_at desc limit 12) f;

  with queue as materialized (
    select q.queue, q.ready, q.scheduled, q.running, q.blocked, q.dead, extract(epoch from q.oldest_ready_age) as oldest,
           extract(epoch from v_now - q.paused_at) as paused_for, q.paused_by,
           r.rate as start_rate,
           row_number() over (order by q.oldest_ready_age desc nulls last, q.ready desc, q.queue collate "C") as nth
      from taskq.queues q
      left join taskq._board_start_rates(v_now) r on r.queue = q.queue
  )
  select coalesce(json_agg(q order by q.nth) filter (where q.nth <= 100), '[]') as shown, count(*) as in_all,
         json_build_object('ready', coalesce(sum(q.ready), 0), 'scheduled', coalesce(sum(q.scheduled), 0),
                           'running', coalesce(sum(q.running), 0), 'blocked', coalesce(sum(q.blocked), 0),
                           'dead', coalesce(sum(q.dead), 0), 'oldest', max(q.oldest)) as totals
    into v_queues
    from queue q;

  with letters as (
    select d.queue, d.task_type, count(*) as letters, max(d.died_at) as died_at, max(d.id) as newest,
           row_number() over (order by count(*) desc, d.queue collate "C", d.task_type collate "C") as nth
      from taskq.dead_letter d group by d.queue, d.task_type
  )
  select coalesce(json_agg(json_build_object(
           'queue', l.queue, 'task_type', l.task_type, 'letters', l.letters,
           'age', extract(epoch from v_now - l.died_at),
           'error', (select left(taskq._last_error(x.errors), 500) from taskq.dead_letter x where x.id = l.newest),
           'redrive', format('select * from taskq.redrive(queue => %L, task_type => %L);', l.queue, l.task_type))
           order by l.nth) filter (where l.nth <= 20), '[]') as shown,
         count(*) as in_all
    into v_dead
    from letters l;

  with worker as (
    select w.worker, w.queues, w.claims, w.claimed, extract(epoch from v_now - w.seen_at) as seen,
           extract(epoch from v_now - w.claimed_at) as last_got,
           row_number() over (order by w.seen_at desc, w.worker collate "C") as nth
      from taskq._workers_seen() w
  )
  select coalesce(json_agg(w order by w.nth) filter (where w.nth <= 40), '[]') as shown, count(*) as in_all
    into v_workers
    from worker w;

  return json_build_object(
    'database', current_database(),
    'version', (select e.extversion from pg_extension e where e.extname = 'taskq'),
    'at_text', to_char(v_now at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
    -- the rates are those of so many seconds: less where the samples begin later
    'window', coalesce((select extract(epoch from least(v_window, v_now - (s.at - make_interval(secs => s.seconds))))
                          from (select x.at, x.seconds from taskq.sample x order by x.at limit 1) s
                         where s.at > v_now - v_window), extract(epoch from v_window)),
    'exact', coalesce((select k.exact from taskq._figures_kept() k), true),
    'hour', v_hour,
    'day', v_day,
    'pairs', v_pairs,
    'running', v_running,
    'running_in_all', (select sum(f.running)::bigint from taskq._figures() f where exists (select from taskq._figures_kept())),
    'health', (select json_agg(json_build_object('check', h."check", 'ok', h.ok, 'value', h.value, 'limit', h."limit", 'advice', h.advice))
                 from taskq.health() h),
    'alerts', v_alerts,
    'alerts_in_all', (select count(*) from taskq.alert a where a.cleared_at is null),
    'errors', v_errors,
    'duties', (select coalesce(json_agg(json_build_object('duty', d.name, 'every', extract(epoch from d.every), 'error', d.error,
                        'rows', d.rows, 'age', extract(epoch from clock_timestamp() - d.finished_at)) order by d.name), '[]')
                 from taskq.duty d),
    'queues', v_queues.shown,
    'queues_in_all', v_queues.in_all,
    'totals', v_queues.totals,
    'dead', v_dead.shown,
    'dead_in_all', v_dead.in_all,
    'workers', v_workers.shown,
    'workers_in_all', v_workers.in_all)::text;
end
$$;
comment on function taskq._board() is
  'Everything that the board shows, as one object in JSON. For dashboard.';

-- dashboard: one HTML page that needs nothing else: no script, no font, no picture from elsewhere. It shows names of
-- queues, types and workers and error texts, all escaped, and no payloads.
-- Errors: none of its own.
-- Reads: all tables but done and archive, bounded; without a keeper it counts all tasks. Writes, locks: nothing.
create function taskq.dashboard() returns text
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_dashboard';
comment on function taskq.dashboard is
  'The board: one self-contained HTML page about health, queues, types, errors, dead letters, running tasks, workers and the keeper.';
