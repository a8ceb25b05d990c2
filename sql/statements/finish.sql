-- Moves tasks to done. With tokens: only running ones whose token is right. finish_into_done.sql
-- follows, and gives back what was moved.
-- $1 ids, sorted   $2 their tokens, or NULL for tasks that are locked already   $3 results, or NULL
-- $4 now   $5 succeeded or cancelled   $6 reason of the cancel   $7 errors to add to the history, or NULL
with gone as (
  delete from taskq.task t
   where t.id = any ($1::bigint[])
     and ($2::bigint[] is null
          or (t.state = 'running' and t.token = ($2::bigint[])[width_bucket(t.id, $1::bigint[])]))
  returning t.id, t.queue, t.task_type, t.priority, t.attempt, t.max_retries, t.enqueued_at, t.run_at,
            t.claimed_at, t.worker, t.unique_key, t.group_key, t.cancel_reason, t.payload, t.headers, t.progress, t.errors
)
