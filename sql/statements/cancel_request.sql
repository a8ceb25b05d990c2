-- Asks a running task to stop.
-- $1 id   $2 now   $3 reason
update taskq.task t
   set cancel_requested_at = coalesce(t.cancel_requested_at, $2), cancel_reason = coalesce($3, t.cancel_reason)
 where t.id = $1
