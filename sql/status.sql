-- What producers and operators ask about one task.

-- status: at most one row; none if there is no such task (never enqueued, rolled back, purged,
-- or finished in a queue with a retention of 0).
-- Reads: task, dead_letter, done, archive.
create function taskq.status(id bigint)
  returns table (
    state            text,
    queue            text,
    task_type        text,
    priority         integer,
    attempt          integer,
    max_retries      integer,
    enqueued_at      timestamptz,
    run_at           timestamptz,
    claimed_at       timestamptz,
    lease_expires_at timestamptz,
    worker           text,
    cancel_requested boolean,
    finished_at      timestamptz,
    progress         jsonb,
    result           jsonb,
    last_error       text)
  language sql stable security definer rows 1 set search_path = pg_catalog, pg_temp as $$
  select taskq._displayed_state(t.state, t.run_at, taskq._view_time()), t.queue, t.task_type, t.priority, t.attempt,
         t.max_retries, t.enqueued_at, t.run_at, t.claimed_at, t.lease_expires_at, t.worker,
         t.cancel_requested_at is not null, null::timestamptz, t.progress, null::jsonb, taskq._last_error(t.errors)
    from taskq.task t where t.id = status.id
  union all
  select 'dead', d.queue, d.task_type, d.priority, d.attempt, d.max_retries, d.enqueued_at, d.run_at, d.claimed_at,
         null, d.worker, false, d.died_at, d.progress, null, taskq._last_error(d.errors)
    from taskq.dead_letter d where d.id = status.id
  union all
  select f.state, f.queue, f.task_type, f.priority, f.attempt, f.max_retries, f.enqueued_at, f.run_at, f.claimed_at,
         null, f.worker, f.state = 'cancelled', f.finished_at, f.progress, f.result, taskq._last_error(f.errors)
    from taskq.done f where f.id = status.id
  union all
  select a.state, a.queue, a.task_type, a.priority, a.attempt, a.max_retries, a.enqueued_at, a.run_at, a.claimed_at,
         null, a.worker, a.state = 'cancelled', a.finished_at, a.progress, a.result, taskq._last_error(a.errors)
    from taskq.archive a where a.id = status.id
  limit 1
$$;
comment on function taskq.status is
  'Where a task is: scheduled, ready, running, succeeded, cancelled or dead, with its times, progress, result and last error. No row if there is no such task.';

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
