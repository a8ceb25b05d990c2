-- Marks a locked task as running. Only where taskq.task has a trigger; else it is done without a statement.
-- $1 id   $2 token   $3 attempt   $4 now   $5 worker   $6 end of the lease
update taskq.task t
   set state = 'running', token = $2, attempt = $3, claimed_at = $4, worker = $5, lease_expires_at = $6
 where t.id = $1
returning t.*
