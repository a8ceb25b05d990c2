-- Which of these tasks are running although their lease is over.
-- $1 ids   $2 now
select t.id
  from taskq.task t
 where t.id = any ($1::bigint[]) and t.state = 'running' and t.lease_expires_at <= $2
