-- Locks running tasks whose lease is about to end, and reads what decides their fate. Ids are
-- locked in rising order. ("skip locked" follows where expired leases are taken back.)
-- $1 ids, sorted   $2 their tokens, or NULL for any   $3 only leases over by then, or NULL for all
select t.id, t.queue, t.task_type, t.run_at, t.enqueued_at, t.unique_key, t.attempt, t.max_retries,
       t.cancel_requested_at is not null, t.group_key
  from taskq.task t
 where t.id = any ($1::bigint[])
   and t.state = 'running'
   and ($2::bigint[] is null or t.token = ($2::bigint[])[width_bucket(t.id, $1::bigint[])])
   and ($3::timestamptz is null or t.lease_expires_at <= $3)
   for no key update
