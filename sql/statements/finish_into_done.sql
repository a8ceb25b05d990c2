-- The second half of finish. Where some queues keep nothing, it stands in a CTE of its own, with
-- "where g.queue <> all ($8)" behind it.
insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at,
                        claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers,
                        progress, result, errors)
select g.id, g.queue, g.task_type, $5, g.priority, g.attempt, g.max_retries, g.enqueued_at, g.run_at,
       g.claimed_at, $4, g.worker, g.unique_key, g.group_key, coalesce($6, g.cancel_reason), g.payload, g.headers,
       g.progress, ($3::jsonb[])[width_bucket(g.id, $1::bigint[])],
       case when $7::text[] is null then g.errors
            else taskq._add_error(g.errors, g.attempt, $4, g.worker, ($7::text[])[width_bucket(g.id, $1::bigint[])]) end
  from gone g
