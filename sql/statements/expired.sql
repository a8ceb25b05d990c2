-- Running tasks whose lease is over. Nothing indexes leases, so this reads the whole table; the
-- keeper paces itself by how long it took.
-- Locks what it returns: tasks that others have locked must not fill the batch.
-- $1 now   $2 at most
select t.id
  from taskq.task t
 where t.state = 'running' and t.lease_expires_at <= $1
 limit $2
   for no key update skip locked
