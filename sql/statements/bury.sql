-- Moves locked tasks to the dead letters.
-- $1 ids, sorted   $2 their errors   $3 now
with gone as (
  delete from taskq.task t
   where t.id = any ($1::bigint[])
  returning t.id, t.queue, t.task_type, t.priority, t.token, t.attempt, t.max_retries, t.enqueued_at, t.run_at,
            t.claimed_at, t.redriven_at, t.bytes, t.worker, t.unique_key, t.unique_until, t.group_key, t.payload, t.headers, t.progress, t.errors
)
insert into taskq.dead_letter (id, queue, task_type, priority, token, attempt, max_retries, enqueued_at, run_at,
                               claimed_at, died_at, redriven_at, bytes, worker, unique_key, unique_until, group_key, payload,
                               headers, progress, errors)
select g.id, g.queue, g.task_type, g.priority, g.token, g.attempt, g.max_retries, g.enqueued_at, g.run_at,
       g.claimed_at, $3, g.redriven_at, g.bytes, g.worker, g.unique_key, g.unique_until, g.group_key, g.payload,
       g.headers, g.progress, taskq._add_error(g.errors, g.attempt, $3, g.worker, ($2::text[])[width_bucket(g.id, $1::bigint[])])
  from gone g
