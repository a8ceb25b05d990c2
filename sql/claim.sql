-- Workers: take tasks, keep them, give them back.

-- claim: takes up to n due tasks, in the order priority (higher first), run_at, id, and locks no
-- others. May return fewer than n: at most 1,000 rows and 16 MB of payloads a call.
--   n       how many; 0 gives none
--   queues  from these only; NULL: every queue. Paused queues give nothing
--   worker  a name for people, up to 255 bytes; NULL: the application_name, else the process id
--   lease   how long it is held; NULL: the setting of the type, else of the queue, else 5 minutes
-- A task whose lease is over is taken back first, as by the keeper.
-- Errors: 22023 for a negative or NULL n, a bad queue name or lease; 40001 above READ COMMITTED.
-- Locks: the rows it returns and those it takes back. Skips rows that others have locked.
-- Writes: task (heap-only); slot and rate_token if the queue has a limit or a rate; for tasks with a
--   group_key group_turn and parked, and those that are parked; for tasks taken back also dead_letter, done, unique_key.
create function taskq.claim(
  n      integer = 1,
  queues text[] = null,
  worker text = null,
  lease  interval = null)
  returns table (
    id               bigint,
    token            bigint,
    task_type        text,
    queue            text,
    payload          jsonb,
    headers          jsonb,
    attempt          integer,
    max_retries      integer,
    priority         integer,
    group_key        text,
    enqueued_at      timestamptz,
    lease_expires_at timestamptz)
  language c volatile security definer rows 10 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_claim';
comment on function taskq.claim is
  'Takes up to n due tasks for the length of a lease. The token of each proves the right to complete, fail, extend or release it.';

-- extend: the heartbeat. Sets the lease's end anew, counted from now, and notes the progress.
--   lease     NULL: the setting of the type, else of the queue, else 5 minutes
--   progress  NULL: as it was
-- Returns the new end, and whether somebody asked to cancel the task.
-- Errors: TQ001 if the lease is not the caller's any more; 22023; 54000 for a large progress.
-- Writes: task (heap-only).
create function taskq.extend(
  id       bigint,
  token    bigint,
  lease    interval = null,
  progress jsonb = null)
  returns table (lease_expires_at timestamptz, cancel_requested boolean)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_extend';
comment on function taskq.extend is
  'Heartbeat: holds a task longer and notes its progress. Says whether a cancel was requested. Call it at a third of the lease.';

-- release: gives a task back unfinished; the attempt does not count.
--   delay  not before then; NULL: it keeps its place
-- If a cancel was requested, the task ends cancelled instead.
-- Errors: TQ001, 22023.
-- Writes: task; or task -> done, unique_key.
create function taskq.release(id bigint, token bigint, delay interval = null)
  returns void
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_release';
comment on function taskq.release is
  'Gives a claimed task back without spending the attempt, at once or after a delay.';

-- wait: sleeps until something may be claimable, so that an idle worker need not poll. Returns at once
-- if there is something now; else when a task is enqueued, due, retried, released or taken back, or its
-- queue resumed. As many waiters return as tasks became claimable. A claim after it may still find
-- nothing: claim, and wait again.
--   queues   wait for these only; NULL: every queue
--   timeout  returns then in any case, 0 to 1 day
-- Call it in autocommit mode, on a connection of its own: it occupies that until it returns (behind a
-- pooler, a connection of the server). It holds no snapshot meanwhile, so vacuum is not held back. It ends
-- with the usual errors on cancel, terminate and statement_timeout.
-- Without preloading, or without a keeper, it looks once a second.
-- Errors: 2D000 inside a transaction block or a function; 22023.
-- (No "security definer" and no "set": a procedure with either cannot commit.)
create procedure taskq.wait(queues text[] = null, timeout interval = '20 seconds')
  language c
  as 'MODULE_PATHNAME', 'taskq_wait';
comment on procedure taskq.wait is
  'Sleeps until something may be claimable, or the timeout is over. Not inside a transaction block.';

create function taskq._claimable(queues text[]) returns boolean
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_claimable';
comment on function taskq._claimable(text[]) is
  'Whether a claim would find something now: what wait looks at.';
