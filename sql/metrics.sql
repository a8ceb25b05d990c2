-- Figures for monitoring. Five functions return them, a column a metric; metrics() writes them as
-- Prometheus text, and docker/exporter/queries.yaml has the PostgreSQL exporter read the same rows: the names are
-- the same in both ways, so alert rules and boards do not care which one is used.
--
-- Labels are bounded, because each pair of queue and task type costs Prometheus some 60 series: the first
-- 100 queues and 200 pairs since the server started have series of their own; all others are added up under the
-- name "other". First come, first served, so that no new name ever changes what an old series means.

create function taskq._metrics_tasks()
  returns table (
    queue text, task_type text,
    ready_tasks bigint, scheduled_tasks bigint, running_tasks bigint, blocked_tasks bigint, dead_letters bigint,
    enqueued_total bigint, started_total bigint, succeeded_total bigint, failed_total bigint,
    died_total bigint, expired_total bigint, cancelled_total bigint,
    waiting_seconds double precision[], waiting_seconds_bucket bigint[], waiting_seconds_sum double precision, waiting_seconds_count bigint,
    run_seconds double precision[], run_seconds_bucket bigint[], run_seconds_sum double precision, run_seconds_count bigint,
    turnaround_seconds double precision[], turnaround_seconds_bucket bigint[], turnaround_seconds_sum double precision, turnaround_seconds_count bigint)
  language sql volatile security definer rows 200
  set search_path = pg_catalog, pg_temp set jit = off as $$
  with kept as materialized (
    select exists (select from taskq._figures_kept()) as figures
  ), figure as materialized (
    select f.* from taskq._figures_for_metrics() f
  ), standing as materialized (
    select f.queue, f.task_type, f.ready, f.scheduled, f.running, f.blocked from figure f where (select k.figures from kept k)
    union all
    -- nobody keeps them: they are counted, which takes its time with very many tasks
    select t.queue, t.task_type,
           count(*) filter (where t.state = 'waiting' and t.run_at <= c.now),
           count(*) filter (where t.state = 'waiting' and t.run_at > c.now and t.run_at < 'infinity'),
           count(*) filter (where t.state = 'running'),
           count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity')
      from taskq.task t cross join (select taskq._view_time() as now offset 0) c
     where not (select k.figures from kept k)
     group by t.queue, t.task_type
  ), dead as materialized (
    select d.queue, d.task_type, count(*) as letters from taskq.dead_letter d group by d.queue, d.task_type
  ), pair as (
    select p.queue, p.task_type, f.made_at, min(f.made_at) over (partition by p.queue) as queue_made_at
      from (select s.queue, s.task_type from standing s
            union select f.queue, f.task_type from figure f
            union select d.queue, d.task_type from dead d) p
      left join figure f on f.queue = p.queue and f.task_type = p.task_type
     where not starts_with(p.queue, 'taskq.')  -- the extension's own, as in history
  ), in_order as (
    select p.queue, p.task_type, p.made_at,
           dense_rank() over (order by p.queue_made_at nulls last, p.queue) <= 100 as queue_is_shown
      from pair p
  ), placed as (
    select o.queue, o.task_type, o.queue_is_shown,
           row_number() over (order by not o.queue_is_shown, o.made_at nulls last, o.queue, o.task_type) <= 200 as is_shown
      from in_order o
  ), labelled as materialized (
    select case when p.queue_is_shown then p.queue else 'other' end as queue_label,
           case when p.queue_is_shown and p.is_shown then p.task_type else 'other' end as type_label,
           s.ready, s.scheduled, s.running, s.blocked, d.letters,
           f.enqueued, f.started, f.succeeded, f.failed, f.dead, f.expired, f.cancelled, f.bounds,
           f.waiting_buckets, f.waiting_sum, f.waiting_count, f.run_buckets, f.run_sum, f.run_count,
           f.total_buckets, f.total_sum, f.total_count
      from placed p
      left join standing s on s.queue = p.queue and s.task_type = p.task_type
      left join dead d on d.queue = p.queue and d.task_type = p.task_type
      left join figure f on f.queue = p.queue and f.task_type = p.task_type
  ), bucket as (
    select l.queue_label, l.type_label, u.nth,
           sum(u.waiting)::bigint as waiting, sum(u.run)::bigint as run, sum(u.total)::bigint as total
      from labelled l
     cross join lateral unnest(l.waiting_buckets, l.run_buckets, l.total_buckets) with ordinality u(waiting, run, total, nth)
     group by l.queue_label, l.type_label, u.nth
  ), buckets as (
    select b.queue_label, b.type_label, array_agg(b.waiting order by b.nth) as waiting,
           array_agg(b.run order by b.nth) as run, array_agg(b.total order by b.nth) as total
      from bucket b group by b.queue_label, b.type_label
  ), summed as (
    select l.queue_label, l.type_label,
           coalesce(sum(l.ready), 0)::bigint as ready, coalesce(sum(l.scheduled), 0)::bigint as scheduled,
           coalesce(sum(l.running), 0)::bigint as running, coalesce(sum(l.blocked), 0)::bigint as blocked,
           coalesce(sum(l.letters), 0)::bigint as letters,
           sum(l.enqueued)::bigint as enqueued, sum(l.started)::bigint as started, sum(l.succeeded)::bigint as succeeded,
           sum(l.failed)::bigint as failed, sum(l.dead)::bigint as dead, sum(l.expired)::bigint as expired,
           sum(l.cancelled)::bigint as cancelled, min(l.bounds) as bounds,
           sum(l.waiting_sum) as waiting_sum, sum(l.waiting_count)::bigint as waiting_count,
           sum(l.run_sum) as run_sum, sum(l.run_count)::bigint as run_count,
           sum(l.total_sum) as total_sum, sum(l.total_count)::bigint as total_count
      from labelled l group by l.queue_label, l.type_label
  )
  select s.queue_label, s.type_label, s.ready, s.scheduled, s.running, s.blocked, s.letters,
         s.enqueued, s.started, s.succeeded, s.failed, s.dead, s.expired, s.cancelled,
         s.bounds, b.waiting, s.waiting_sum, s.waiting_count,
         s.bounds, b.run, s.run_sum, s.run_count,
         s.bounds, b.total, s.total_sum, s.total_count
    from summed s
    left join buckets b on b.queue_label = s.queue_label and b.type_label = s.type_label
   order by s.queue_label collate "C", s.type_label collate "C"
$$;
comment on function taskq._metrics_tasks() is
  'For monitoring, of each queue and task type: what is there, and since the server started what happened and how long it took. The columns _total and _seconds are NULL where the library is not preloaded.';

create function taskq._metrics_queues()
  returns table (queue text, oldest_ready_age_seconds double precision, paused integer, workers bigint)
  language sql volatile security definer rows 50
  set search_path = pg_catalog, pg_temp set jit = off as $$
  select q.name, coalesce(extract(epoch from c.now - o.run_at), 0)::double precision,
         (s.paused_at is not null)::integer,
         case when exists (select from taskq._figures_kept()) then
           (select count(*) from taskq._workers_seen() w
             where (w.waits or w.seen_at >= c.now - interval '30 seconds') and (w.queues is null or q.name = any (w.queues))) end
    from (select taskq._view_time() as now offset 0) c
   cross join (select n.name, row_number() over (order by n.name collate "C") as nth from taskq._queue_names n
                where not starts_with(n.name, 'taskq.')) q
    left join taskq.queue s on s.name = q.name
    left join taskq._oldest_ready o on o.queue = q.name
   where q.nth <= 100
   order by q.name collate "C"
$$;
comment on function taskq._metrics_queues() is
  'For monitoring, of each queue (the first 100 by name): the age of its oldest ready task, whether it is paused, and how many workers asked for its tasks in the last 30 seconds, or wait for them (NULL without a keeper).';

create function taskq._metrics_alerts()
  returns table (kind text, queue text, open bigint, acknowledged bigint)
  language sql stable security definer rows 10
  set search_path = pg_catalog, pg_temp as $$
  select a.kind, coalesce(a.queue, ''), count(*) filter (where a.acknowledged_at is null),
         count(*) filter (where a.acknowledged_at is not null)
    from taskq.alert a where a.cleared_at is null
   group by a.kind, a.queue order by a.kind, a.queue collate "C" limit 500
$$;
comment on function taskq._metrics_alerts() is
  'For monitoring: the alerts that are not cleared, by kind and queue (empty: the database).';

create function taskq._metrics_duties()
  returns table (duty text, last_success_timestamp_seconds double precision, failing integer)
  language sql stable security definer rows 10
  set search_path = pg_catalog, pg_temp as $$
  select d.name, coalesce(extract(epoch from d.finished_at), 0)::double precision, (d.error is not null)::integer
    from taskq.duty d order by d.name
$$;
comment on function taskq._metrics_duties() is
  'For monitoring: when the last round of each duty of the keeper went well (0: never), and whether the last one failed.';

create function taskq._metrics_database()
  returns table (version text, keeper_running integer, counts_exact integer, vacuum_held_seconds double precision)
  language sql volatile security definer rows 1
  set search_path = pg_catalog, pg_temp as $$
  select e.extversion,
         exists (select from pg_stat_activity a
                  where a.backend_type = 'taskq keeper' and a.datname = current_database())::integer,
         coalesce((select k.exact from taskq._figures_kept() k), true)::integer,
         coalesce((select greatest(extract(epoch from clock_timestamp() - h.since), 0)
                     from taskq._vacuum_holders() h where h.since is not null limit 1), 0)::double precision
    from pg_extension e where e.extname = 'taskq'
$$;
comment on function taskq._metrics_database() is
  'For monitoring: the version, whether a keeper is at work, whether the counts are exact, and for how long something has held back vacuum.';

-- metrics: all of this as Prometheus text, version 0.0.4 of the format, for whoever scrapes it. Counters and
-- histograms are kept in shared memory: they begin anew with the server, as Prometheus expects of counters, and
-- are missing where the library is not preloaded.
-- Errors: none of its own.
-- Reads: task, dead_letter, queue, alert, duty; without a keeper it counts all tasks. Writes, locks: nothing.
create function taskq.metrics() returns text
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_metrics';
comment on function taskq.metrics is
  'Figures of queues, task types, alerts and the keeper in the text format of Prometheus.';
