-- Producers: new tasks, in the caller's own transaction.

-- enqueue: stores a task and returns its id. If the transaction rolls back, there is no task.
--   queue, priority, max_retries   if NULL: the type's setting, else 'default', 0, 3
--   run_at or delay                not before then; both NULL: now
--   unique_key                     while a task of this type has the key, no second is stored.
--                                  Waits for a transaction that is just taking or freeing it
--   unique_until                   the task lets go of the key when it has 'finished' (succeeded,
--                                  cancelled, dead), or at its first claim, 'started'
--   unique_for                     but not before so long after the enqueue
--   on_conflict                    if the key is held: 'ignore' returns the holder's id, 'skip'
--                                  NULL, 'error' raises TQ002; 'replace' gives a waiting holder
--                                  the new payload, headers, priority and run_at, raises TQ002
--                                  for a running one, and is as 'ignore' for a finished one
--   group_key                      at most one task of this group runs at a time in its queue
-- Errors: 22023 for a bad argument, 54000 if payload and headers exceed taskq.max_payload_bytes,
--   TQ002 as said.
-- Writes: unique_key if a key is given, task.
create function taskq.enqueue(
  task_type    text,
  payload      jsonb = '{}',
  queue        text = null,
  priority     integer = null,
  run_at       timestamptz = null,
  delay        interval = null,
  max_retries  integer = null,
  unique_key   text = null,
  unique_until text = 'finished',
  unique_for   interval = null,
  on_conflict  text = 'ignore',
  group_key    text = null,
  headers      jsonb = null)
  returns bigint
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_enqueue';
comment on function taskq.enqueue is
  'Stores a task in the caller''s transaction and returns its id. NULL queue, priority, max_retries: the settings of the type. With unique_key: stores nothing while another task holds it; on_conflict says what happens then.';

-- enqueue_many: the same for a JSON array of objects, whose fields are named like the arguments
-- of enqueue. All or nothing: one malformed element refuses the call, and the error names its
-- position, counted from 1. Keys are taken in sorted order.
-- Returns for each element its position, the id, and whether it was created or a duplicate.
-- Errors: as enqueue; 22007 for a run_at, delay or unique_for that is none.
create function taskq.enqueue_many(tasks jsonb)
  returns table (ord integer, id bigint, created boolean)
  language c volatile security definer rows 100 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_enqueue_many';
comment on function taskq.enqueue_many is
  'Stores the tasks of a JSON array, whose objects have fields named like the arguments of enqueue. All or nothing; an error names the element. created is false for a duplicate of a unique key.';
