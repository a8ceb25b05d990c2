-- Lengthens a lease, and notes the progress if one is given. Changes no indexed column (HOT).
-- $1 id   $2 token   $3 now   $4 progress, or NULL   $5 lease in seconds, or NULL
-- $6, $7 types that have a lease, and their leases   $8, $9 queues that have one, and their leases
update taskq.task t
   set lease_expires_at = $3 + make_interval(secs => coalesce(
         $5,
         ($7::double precision[])[array_position($6::text[], t.task_type)],
         ($9::double precision[])[array_position($8::text[], t.queue)],
         extract(epoch from taskq._default_lease())::double precision)),
       progress = coalesce($4, t.progress)
 where t.id = $1 and t.token = $2 and t.state = 'running'
returning t.lease_expires_at, t.cancel_requested_at is not null
