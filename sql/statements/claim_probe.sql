-- Whether a claim could take a task of a lane now: as claim_first, but it claims nothing. Locks the task, as
-- what others have locked must not count; the caller's transaction ends at once.
-- $1 queue   $2 priority   $3 now   $4, $5 begin at this run_at and id
select t.id
  from taskq.task t
 where t.queue = $1 and t.priority = $2 and t.run_at <= $3 and (t.run_at, t.id) >= ($4, $5)
   and (t.state = 'waiting' or t.lease_expires_at <= $3)
 order by t.queue, t.priority desc, t.run_at, t.id
 limit 1
   for no key update skip locked
