-- When the leases of running tasks end, those that end first. Nothing indexes leases, so this reads the
-- whole table; the keeper knows when it is worth it.
-- $1 at most
select t.lease_expires_at, t.id
  from taskq.task t
 where t.state = 'running'
 order by t.lease_expires_at, t.id
 limit $1
