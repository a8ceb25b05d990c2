-- The sample duty: what each queue and task type does, every 10 seconds, for the view history and
-- for forecasts (file status).

-- What _take_figures would say, read from the tables: for databases without a keeper.
-- The counts of what is there are exact, and cost a look at all unfinished tasks. What happened since
-- is the best that the tables still know: of a task that ran twice in that time one run counts, tasks
-- that are not there any more do not count (those of a queue with a retention of 0, purged ones), and
-- of the finished tasks the last 100,000 of each queue.
create function taskq._figures_from_tables(since timestamptz, until timestamptz)
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint,
                 enqueued bigint, started bigint, succeeded bigint, failed bigint, retried bigint, dead bigint,
                 expired bigint, cancelled bigint,
                 waiting_p50 double precision, waiting_p95 double precision,
                 run_p50 double precision, run_p95 double precision,
                 total_p50 double precision, total_p95 double precision,
                 claimers bigint)
  language sql stable rows 50
  set search_path = pg_catalog, pg_temp
  -- (the duty has switched them off, but this reads all of a table)
  set enable_seqscan = on set enable_bitmapscan = on set jit = off as $$
  with recursive
  -- The queues with finished tasks: from name to name along the index of each day. The bound is the
  -- start of a day, because then it takes days away, and leaves nothing to be passed by in the others.
  finished_queue(name) as (
    (select d.queue from taskq.done d
      where d.finished_at >= date_trunc('day', _figures_from_tables.since, 'UTC') order by d.queue limit 1)
    union all
    select (select d.queue from taskq.done d
             where d.finished_at >= date_trunc('day', _figures_from_tables.since, 'UTC') and d.queue > q.name
             order by d.queue limit 1)
      from finished_queue q where q.name is not null
  ),
  standing as (
    select t.queue, t.task_type,
           count(*) filter (where t.state = 'waiting' and t.run_at <= _figures_from_tables.until) as ready,
           count(*) filter (where t.state = 'waiting' and t.run_at > _figures_from_tables.until
                                  and t.run_at < 'infinity') as scheduled,
           count(*) filter (where t.state = 'running') as running,
           count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity') as blocked
      from taskq.task t
     group by t.queue, t.task_type
  ),
  life as (
    select t.queue, t.task_type, t.state, t.run_at, t.enqueued_at, t.redriven_at, t.claimed_at,
           null::timestamptz as ended_at, t.worker, t.errors
      from taskq.task t
    union all
    select d.queue, d.task_type, 'dead', d.run_at, d.enqueued_at, d.redriven_at, d.claimed_at, d.died_at, d.worker, d.errors
      from taskq.dead_letter d
     where d.died_at > _figures_from_tables.since and d.died_at <= _figures_from_tables.until
    union all
    select f.queue, f.task_type, f.state, f.run_at, f.enqueued_at, null, f.claimed_at, f.finished_at, f.worker, f.errors
      from finished_queue q
     cross join lateral (
       select d.* from taskq.done d
        where d.queue = q.name
          and d.finished_at > _figures_from_tables.since and d.finished_at <= _figures_from_tables.until
        order by d.finished_at desc
        limit 100000) f
  ),
  -- what happened to each task in that time
  moved as (
    select l.queue, l.task_type, l.state, l.ended_at, l.run_at, l.enqueued_at, l.worker, l.errors,
           greatest(l.enqueued_at, l.redriven_at) > _figures_from_tables.since as is_new,
           case when l.claimed_at > _figures_from_tables.since then l.claimed_at end as started_at,
           l.claimed_at, e.has_failed
      from life l
     cross join lateral (
       select coalesce((l.errors -> -1 ->> 'at')::timestamptz > _figures_from_tables.since, false) as has_failed
       offset 0) e
     where greatest(l.enqueued_at, l.redriven_at, l.claimed_at, l.ended_at) > _figures_from_tables.since
        or e.has_failed
  ),
  happened as (
    select m.queue, m.task_type,
           count(*) filter (where m.is_new) as enqueued,
           count(*) filter (where m.started_at is not null) as started,
           count(*) filter (where m.state = 'succeeded') as succeeded,
           count(*) filter (where m.has_failed) as failed,
           count(*) filter (where m.has_failed and m.state not in ('dead', 'cancelled')) as retried,
           count(*) filter (where m.state = 'dead') as dead,
           count(*) filter (where m.has_failed and taskq._last_error(m.errors) = 'lease expired') as expired,
           count(*) filter (where m.state = 'cancelled') as cancelled,
           percentile_cont(array[0.5, 0.95]) within group (
             order by extract(epoch from greatest(m.started_at - m.run_at, interval '0'))::double precision)
             filter (where m.started_at is not null) as waiting,
           percentile_cont(array[0.5, 0.95]) within group (
             order by extract(epoch from m.ended_at - m.claimed_at)::double precision)
             filter (where m.state = 'succeeded') as run,
           percentile_cont(array[0.5, 0.95]) within group (
             order by extract(epoch from m.ended_at - m.enqueued_at)::double precision)
             filter (where m.state = 'succeeded') as total
      from moved m
     group by m.queue, m.task_type
  ),
  claimer as (
    select m.queue, count(distinct m.worker) as workers from moved m
     where m.started_at is not null
     group by m.queue
  )
  select w.queue, w.task_type, coalesce(s.ready, 0), coalesce(s.scheduled, 0), coalesce(s.running, 0),
         coalesce(s.blocked, 0), coalesce(h.enqueued, 0), coalesce(h.started, 0), coalesce(h.succeeded, 0), coalesce(h.failed, 0),
         coalesce(h.retried, 0), coalesce(h.dead, 0), coalesce(h.expired, 0), coalesce(h.cancelled, 0),
         h.waiting[1], h.waiting[2], h.run[1], h.run[2], h.total[1], h.total[2], coalesce(c.workers, 0)
    from (select x.queue, x.task_type from standing x union select y.queue, y.task_type from happened y) w
    left join standing s on s.queue = w.queue and s.task_type = w.task_type
    left join happened h on h.queue = w.queue and h.task_type = w.task_type
    left join claimer c on c.queue = w.queue
$$;
comment on function taskq._figures_from_tables(timestamptz, timestamptz) is
  'As _take_figures, but read from the tables, as far as they still know it, with the workers that claimed from the queue.';

-- Beside a sample that had work: how long claims took, and what the server's counters say.
create function taskq._sample_load(taken_at timestamptz, covers double precision) returns void
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into taskq.load (at, seconds, claims, claim_p50, claim_p95, wal_bytes, commits, blocks_read, blocks_hit,
                          task_blocks_read, task_blocks_hit)
  select _sample_load.taken_at, _sample_load.covers, coalesce(c.claims, 0), c.claim_p50, c.claim_p95, w.wal_bytes,
         pg_stat_get_db_xact_commit(d.oid),
         pg_stat_get_db_blocks_fetched(d.oid) - pg_stat_get_db_blocks_hit(d.oid), pg_stat_get_db_blocks_hit(d.oid),
         t.fetched - t.hit, t.hit
    from pg_database d
   cross join pg_stat_get_wal() w
   cross join lateral (
     select sum(pg_stat_get_blocks_fetched(r.oid))::bigint as fetched, sum(pg_stat_get_blocks_hit(r.oid))::bigint as hit
       from (select 'taskq.task'::regclass::oid as oid
             union all select i.indexrelid from pg_index i where i.indrelid = 'taskq.task'::regclass) r) t
    left join taskq._take_claims() c on true
   where d.datname = current_database()
      on conflict do nothing
$$;
comment on function taskq._sample_load(timestamptz, double precision) is
  'Notes in load how long claims took and what the server''s counters say.';

-- One round of the sample duty: a row for each queue and task type that has tasks or had any since the
-- last sample. Queues whose name begins with "taskq." are the extension's own and are left out. Comes
-- too early, as when maintain repeats the rounds: takes none. Then it deletes samples that are older
-- than taskq.sample_retention, 10,000 at most.
-- The counts come from shared memory, or from the tables if they are not kept there.
-- Returns how many old samples were deleted, and not how many were taken: those leave nothing to go on with.
-- Locks: its row of duty. Writes: sample, load, duty.
create function taskq._duty_sample() returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  -- plans are kept, and must not be those for a small table when it has become a large one
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now      timestamptz := taskq._now();  -- first: it loads the library, which knows the settings
  v_interval interval := current_setting('taskq.sample_interval')::interval;
  v_kept     interval := current_setting('taskq.sample_retention')::interval;
  v_begin    timestamptz := pg_postmaster_start_time();
  v_since    timestamptz;
  v_shared   boolean := exists (select from taskq._figures_kept());
  v_deleted  bigint;
begin
  select d.counted_until into v_since from taskq.duty d where d.name = 'sample' for update;
  if v_since > v_now then
    v_since := null;  -- the clock was set back
  end if;
  if v_since is null or v_now - v_since >= v_interval * 0.9 then
    v_since := coalesce(v_since, v_now - v_interval);
    if v_shared and v_begin > v_since and v_begin < v_now then
      v_since := v_begin;  -- shared memory knows only what happened since
    elsif not v_shared then
      v_since := greatest(v_since, v_now - interval '1 hour');
      -- what it knows already is in the tables: not once more in the next sample
      perform from taskq._take_figures();
    end if;

    with figure as materialized (
      select t.*, null::bigint as claimers from taskq._take_figures() t where v_shared
      union all
      select t.* from taskq._figures_from_tables(v_since, v_now) t where not v_shared
    ), claimer as (
      select q.queue, count(*) as workers
        from (select distinct f.queue from figure f) q
        join taskq._workers_seen() w on (w.waits or w.seen_at >= least(v_since, v_now - interval '30 seconds'))
                                         and (w.queues is null or q.queue = any (w.queues))
       group by q.queue
    )
    insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired,
                              cancelled, ready, scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95,
                              run_p50, run_p95, total_p50, total_p95, claimers)
    select v_now, f.queue, f.task_type, extract(epoch from v_now - v_since), f.enqueued, f.started, f.succeeded, f.failed,
           f.retried, f.dead, f.expired, f.cancelled, f.ready, f.scheduled, f.running, f.blocked, v_now - o.run_at, f.waiting_p50,
           f.waiting_p95, f.run_p50, f.run_p95, f.total_p50, f.total_p95, coalesce(f.claimers, c.workers, 0)
      from figure f
      left join claimer c on c.queue = f.queue
      left join taskq._oldest_ready o on o.queue = f.queue collate "C"
     where not starts_with(f.queue, 'taskq.') and f.task_type <> taskq._drill_type()
       and (f.ready > 0 or f.scheduled > 0 or f.running > 0 or f.blocked > 0 or f.enqueued > 0 or f.started > 0 or f.succeeded > 0
            or f.failed > 0 or f.cancelled > 0);
    if found then
      perform taskq._sample_load(v_now, extract(epoch from v_now - v_since));
    end if;
    -- (a changed interval counts for the keeper from here on)
    update taskq.duty d set counted_until = v_now, every = v_interval where d.name = 'sample';
  end if;

  delete from taskq.sample s
   where s.ctid = any (array(
           select o.ctid from taskq.sample o where o.at < v_now - v_kept order by o.at limit 10000));
  get diagnostics v_deleted = row_count;
  delete from taskq.load l
   where l.ctid = any (array(
           select o.ctid from taskq.load o where o.at < v_now - v_kept order by o.at limit 10000));
  return v_deleted;
end
$$;
comment on function taskq._duty_sample() is
  'One round of the sample duty: what the queues did since the last one, and old samples deleted.';
