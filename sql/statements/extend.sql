-- Lengthens a lease, and notes the progress if one is given. Changes no indexed column (HOT).
-- $1 id   $2 token   $3 now   $4 lease in seconds, or NULL   $5 progress, or NULL
update taskq.task t
   set lease_expires_at = $3 + make_interval(secs => coalesce($4, extract(epoch from coalesce(
         (select s.lease from taskq.task_type s where s.name = t.task_type),
         (select q.lease from taskq.queue q where q.name = t.queue),
         taskq._default_lease()))::double precision)),
       progress = coalesce($5, t.progress)
 where t.id = $1 and t.token = $2 and t.state = 'running'
returning t.lease_expires_at, t.cancel_requested_at is not null
