-- Moves tasks to done. With tokens: only running ones whose token is right.
-- $1 ids, sorted   $2 their tokens, or NULL for tasks that are locked already   $3 results, or NULL
-- $4 now   $5 succeeded or cancelled   $6 reason of the cancel   $7 errors to add to the history, or NULL
-- $8 queues with a retention of 0, which keep nothing, or NULL
with gone as (
  delete from taskq.task t
   where t.id = any ($1::bigint[])
     and ($2::bigint[] is null
          or (t.state = 'running' and t.token = ($2::bigint[])[width_bucket(t.id, $1::bigint[])]))
  returning t.id, t.queue, t.task_type, t.priority, t.attempt, t.max_retries, t.enqueued_at, t.run_at,
            t.claimed_at, t.worker, t.unique_key, t.cancel_reason, t.payload, t.headers, t.progress, t.errors
), kept as (
  insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at,
                          claimed_at, finished_at, worker, unique_key, cancel_reason, payload, headers,
                          progress, result, errors)
  select g.id, g.queue, g.task_type, $5, g.priority, g.attempt, g.max_retries, g.enqueued_at, g.run_at,
         g.claimed_at, $4, g.worker, g.unique_key, coalesce($6, g.cancel_reason), g.payload, g.headers,
         g.progress, ($3::jsonb[])[width_bucket(g.id, $1::bigint[])],
         case when $7::text[] is null then g.errors
              else taskq._add_error(g.errors, g.attempt, $4, g.worker, ($7::text[])[width_bucket(g.id, $1::bigint[])]) end
    from gone g
   where $8::text[] is null or g.queue <> all ($8::text[])
)
select g.id, g.task_type, g.unique_key from gone g
