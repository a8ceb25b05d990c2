-- The second half of a claim: marks the held tasks as running. Changes no indexed column (HOT).
-- The lease is the caller's, else that of the type, the queue, the default.
-- $3 now   $4 worker   $5 lease in seconds, or NULL   $6, $7 types that have a lease, and their leases
-- $8, $9 queues that have one, and their leases
update taskq.task t
   set state = 'running',
       token = t.token + 1 + floor(random() * 1048576)::bigint,
       attempt = t.attempt + 1,
       claimed_at = $3,
       worker = $4,
       lease_expires_at = $3 + make_interval(secs => coalesce(
         $5,
         ($7::double precision[])[array_position($6::text[], t.task_type)],
         ($9::double precision[])[array_position($8::text[], t.queue)],
         extract(epoch from taskq._default_lease())::double precision))
 where t.id = any (array(select h.id from held h)) and t.state = 'waiting'
returning t.id, t.token, t.task_type, t.queue, t.payload, t.headers, t.attempt, t.max_retries,
          t.priority, t.group_key, t.enqueued_at, t.lease_expires_at, t.run_at, t.unique_key, t.bytes
