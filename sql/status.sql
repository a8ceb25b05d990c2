-- What producers and operators ask about one task, and when it may be done.

-- ---------------------------------------------------------------------------
-- forecasts
-- ---------------------------------------------------------------------------

-- How many waiting tasks of a queue will be claimed before one with this place, counted along the
-- index up to 100,000: more are "at least so many". For a place that is due later, also those that
-- are due until then.
create function taskq._tasks_ahead(queue text, priority integer, run_at timestamptz, id bigint, now timestamptz)
  returns bigint
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  -- the plan is kept, and must not be that for a small table when it has become a large one
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
  return (
    with recursive higher(priority) as (
      (select t.priority from taskq.task t
        where t.queue = _tasks_ahead.queue and t.priority > _tasks_ahead.priority
        order by t.queue, t.priority desc, t.run_at, t.id limit 1)
      union all
      select (select t.priority from taskq.task t
               where t.queue = _tasks_ahead.queue and t.priority < h.priority and t.priority > _tasks_ahead.priority
               order by t.queue, t.priority desc, t.run_at, t.id limit 1)
        from higher h where h.priority is not null
    )
    select count(*) from (
      select from taskq.task t
       where t.queue = _tasks_ahead.queue and t.priority = _tasks_ahead.priority
         and (t.run_at, t.id) < (_tasks_ahead.run_at, _tasks_ahead.id) and t.state = 'waiting'
      union all
      select from higher h
       cross join lateral (
         select from taskq.task t
          where t.queue = _tasks_ahead.queue and t.priority = h.priority
            and t.run_at <= greatest(_tasks_ahead.run_at, _tasks_ahead.now) and t.state = 'waiting'
         offset 0) x  -- lane by lane, not joined to a look at all lanes
       where h.priority is not null
      limit 100000) ahead);
end
$$;
comment on function taskq._tasks_ahead(text, integer, timestamptz, bigint, timestamptz) is
  'How many waiting tasks of the queue come before this place in the order of claims; 100,000 means at least so many.';

-- How many tasks a second the workers take from a queue while it has a backlog: from the samples of the
-- last 15 minutes at whose beginning at least as many tasks were ready as were started until their end,
-- so that the workers never lacked one. If there are none, from all that had work: then the workers
-- may have been idle in between, and could do more. NULL if nothing was started.
create function taskq._start_rate(queue text, now timestamptz) returns double precision
  language sql stable set search_path = pg_catalog, pg_temp as $$
  -- a sample has a row for each task type; its time must count once
  with moment as (
    select s.at, max(s.seconds) as seconds, sum(s.started) as started, sum(s.ready) as ready
      from taskq.sample s
     where s.at > _start_rate.now - interval '15 minutes' and s.at <= _start_rate.now and s.queue = _start_rate.queue
     group by s.at
  ), worked as (
    select m.started, m.seconds,
           lag(m.ready) over (order by m.at) >= greatest(m.started, 1)
           -- and none is missing in between: then nothing was there
           and lag(m.at) over (order by m.at) > m.at - make_interval(secs => m.seconds * 1.5) as backlog
      from moment m
     where m.ready > 0 or m.started > 0
  )
  select nullif(coalesce(sum(w.started) filter (where w.backlog) / sum(w.seconds) filter (where w.backlog),
                         sum(w.started) / sum(w.seconds)), 0)
    from worked w
$$;
comment on function taskq._start_rate(text, timestamptz) is
  'How many tasks a second the workers take from a queue while it has a backlog, by the samples of the last 15 minutes.';

-- How long a run of such a task usually takes: the median of the medians in the samples of the last 15
-- minutes, each with the weight of the tasks that succeeded. NULL if those were fewer than 20.
create function taskq._usual_run(queue text, task_type text, now timestamptz) returns interval
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select make_interval(secs => min(x.run_p50))
    from (select s.run_p50,
                 sum(s.succeeded) over (order by s.run_p50, s.at) as up_to,
                 sum(s.succeeded) over () as total
            from taskq.sample s
           where s.at > _usual_run.now - interval '15 minutes' and s.at <= _usual_run.now
             and s.queue = _usual_run.queue and s.task_type = _usual_run.task_type and s.run_p50 is not null) x
   where x.total >= 20 and x.up_to * 2 >= x.total
$$;
comment on function taskq._usual_run(text, text, timestamptz) is
  'How long a run of such a task usually takes, by the samples of the last 15 minutes; NULL if fewer than 20 succeeded.';

-- When a waiting task with so many tasks ahead of it will start and finish. NULL if nobody can know: too
-- few such tasks finished lately, nothing was started, too many are ahead, or the queue is paused.
create function taskq._expect(queue text, task_type text, tasks_ahead bigint, run_at timestamptz, now timestamptz)
  returns table (start_at timestamptz, finish_at timestamptz)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp as $$
  select x.start_at, x.start_at + u.usual_run
    from (select taskq._usual_run(_expect.queue, _expect.task_type, _expect.now) as usual_run) u
   cross join lateral (
     select greatest(_expect.run_at, _expect.now
                     + make_interval(secs => _expect.tasks_ahead / taskq._start_rate(_expect.queue, _expect.now))) as start_at
      where taskq._start_rate(_expect.queue, _expect.now) is not null) x
   where u.usual_run is not null
     and _expect.tasks_ahead < 100000
     and not exists (select from taskq.queue q where q.name = _expect.queue and q.paused_at is not null)
$$;
comment on function taskq._expect(text, text, bigint, timestamptz, timestamptz) is
  'When a task with so many ahead of it is expected to start and finish; no row if nobody can know.';

-- estimate: how it would go with a task that is enqueued now: one row. The queue, if NULL, and the
-- priority are those of the type's settings. The same columns as of status.
-- Errors: 22023 for a name that is not valid.
-- Reads: task, sample.
create function taskq.estimate(
  task_type text,
  inout queue text = null,
  out tasks_ahead bigint,
  out expected_start_at timestamptz,
  out expected_finish_at timestamptz)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now      timestamptz := taskq._now();
  v_type     text := taskq._check_name('task_type', estimate.task_type);
  v_settings taskq.task_type;
begin
  if estimate.queue is not null then
    perform taskq._check_name('queue', estimate.queue);
  end if;
  select t.* into v_settings from taskq.task_type t where t.name = v_type;
  queue := coalesce(estimate.queue, v_settings.queue, 'default');
  -- behind all that are due now: any id that is there is lower
  tasks_ahead := taskq._tasks_ahead(estimate.queue, coalesce(v_settings.priority, 0), v_now, 9223372036854775807, v_now);
  select e.start_at, e.finish_at into expected_start_at, expected_finish_at
    from taskq._expect(estimate.queue, v_type, estimate.tasks_ahead, v_now, v_now) e;
end
$$;
comment on function taskq.estimate is
  'What status would forecast for a task of this type that is enqueued now: the queue, the tasks ahead, the expected start and finish. NULL where fewer than 20 such tasks finished in the last 15 minutes.';

-- ---------------------------------------------------------------------------
-- one task
-- ---------------------------------------------------------------------------

-- A task that has finished, from done or the archive. Who asks for others, too, asks for it last: each of these has many
-- partitions, and who reads them locks them all. (The archive is read by EXECUTE, lest sessions keep plans for all of its days.)
create function taskq._finished_task(of_id bigint) returns setof taskq.done
  language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp as $$
begin
  return query select f.* from taskq.done f where f.id = _finished_task.of_id;
  if not found then
    return query execute 'select a.* from taskq.archive a where a.id = $1' using _finished_task.of_id;
  end if;
end
$$;
comment on function taskq._finished_task(bigint) is
  'A task that has finished, from done or the archive.';

-- status: at most one row; none if there is no such task (never enqueued, rolled back, purged,
-- or finished in a queue with a retention of 0).
--   tasks_ahead         of a waiting task: how many come before it, as claims are made now; 100,000
--                       means at least so many. A task due later counts those that are due until then
--   expected_start_at   of a waiting task: when it will be claimed, not before its run_at
--   expected_finish_at  that and the usual run time; of a running task its claim and the usual
--                       run time, but not before now
-- The expectations come from the samples of the last 15 minutes. They are NULL where fewer than 20
-- tasks of that type in that queue succeeded in these, where nothing was started, and for a waiting
-- task if its queue is paused or tasks_ahead is 100,000.
-- Reads: task, dead_letter, done, archive, sample.
create function taskq.status(id bigint)
  returns table (
    state              text,
    queue              text,
    task_type          text,
    priority           integer,
    attempt            integer,
    max_retries        integer,
    enqueued_at        timestamptz,
    run_at             timestamptz,
    tasks_ahead        bigint,
    expected_start_at  timestamptz,
    expected_finish_at timestamptz,
    claimed_at         timestamptz,
    lease_expires_at   timestamptz,
    worker             text,
    cancel_requested   boolean,
    finished_at        timestamptz,
    progress           jsonb,
    result             jsonb,
    last_error         text)
  language sql stable security definer rows 1 set search_path = pg_catalog, pg_temp as $$
  select taskq._displayed_state(t.state, t.run_at, c.now), t.queue, t.task_type, t.priority, t.attempt,
         t.max_retries, t.enqueued_at, c.run_at,
         a.tasks_ahead, e.start_at, coalesce(e.finish_at, r.finish_at),
         t.claimed_at, t.lease_expires_at, t.worker,
         t.cancel_requested_at is not null, null::timestamptz, t.progress, null::jsonb, taskq._last_error(t.errors)
    from taskq.task t
    left join taskq.parked p on p.id = t.id
   cross join lateral (select taskq._view_time() as now, coalesce(p.run_at, t.run_at) as run_at offset 0) c
   cross join lateral (
     select case t.state when 'running' then 0
                         else taskq._tasks_ahead(t.queue, t.priority, c.run_at, t.id, c.now) end as tasks_ahead offset 0) a
    left join lateral taskq._expect(t.queue, t.task_type, a.tasks_ahead, c.run_at, c.now) e on t.state = 'waiting'
    left join lateral (
      select greatest(t.claimed_at + u.usual_run, c.now) as finish_at
        from (select taskq._usual_run(t.queue, t.task_type, c.now) as usual_run offset 0) u
       where u.usual_run is not null) r on t.state = 'running'
   where t.id = status.id
  union all
  select 'dead', d.queue, d.task_type, d.priority, d.attempt, d.max_retries, d.enqueued_at, d.run_at, null, null, null,
         d.claimed_at, null, d.worker, false, d.died_at, d.progress, null, taskq._last_error(d.errors)
    from taskq.dead_letter d where d.id = status.id
  union all
  select f.state, f.queue, f.task_type, f.priority, f.attempt, f.max_retries, f.enqueued_at, f.run_at, null, null, null,
         f.claimed_at, null, f.worker, f.state = 'cancelled', f.finished_at, f.progress, f.result, taskq._last_error(f.errors)
    from taskq._finished_task(status.id) f
  limit 1
$$;
comment on function taskq.status is
  'Where a task is: scheduled, ready, blocked, running, succeeded, cancelled or dead, with its times, progress, result and last error, how many tasks are ahead of it and when it is expected to start and finish. No row if there is no such task.';

-- cancel: ends a waiting task at once; asks the worker of a running one to stop (extend tells
-- it), and lets complete still succeed. With force a running one ends at once, and every verb of
-- its worker gets TQ001.
-- Returns cancelled, requested, finished (also for a dead one) or not found.
-- Errors: 22023 for a NULL id or a reason that is empty, longer than 1,000 bytes or has control
--   characters.
-- Locks: the row of task; waits for a verb that is just ending the task.
-- Writes: task or task -> done, unique_key.
create function taskq.cancel(id bigint, reason text = null, force boolean = false)
  returns text
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_cancel';
comment on function taskq.cancel is
  'Cancels a task: cancelled (it was waiting, or force), requested (it runs; extend tells its worker), finished, or not found.';
