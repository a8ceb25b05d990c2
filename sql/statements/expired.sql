-- Running tasks whose lease is over, those over for longest first, and when the next lease ends.
-- Nothing indexes leases, so this reads the whole table; the keeper knows when it is worth it.
-- $1 now
select array_agg(t.id order by t.lease_expires_at, t.id) filter (where t.lease_expires_at <= $1),
       min(t.lease_expires_at) filter (where t.lease_expires_at > $1)
  from taskq.task t
 where t.state = 'running'
