-- Whether a claim could take a task of a lane now. Locks the task and, if it has a group, the group's turn (or the right
-- to make one, as turn_make.sql does): what others have locked must not count. The caller's transaction ends at once.
-- $1 queue   $2 priority   $3 now   $4, $5 begin at this run_at and id
select t.id
  from taskq.task t
 where t.queue = $1 and t.priority = $2 and t.run_at <= $3 and (t.run_at, t.id) >= ($4, $5)
   and (t.state = 'waiting'
        and (t.group_key is null
             or (select true from taskq.group_turn g
                  where g.queue = $1 and g.group_key = t.group_key and g.task_id is null
                    for no key update skip locked)
             or not exists (select from taskq.group_turn g where g.queue = $1 and g.group_key = t.group_key)
                and taskq._try_turn_lock($1, t.group_key))
        or t.lease_expires_at <= $3)
 order by t.queue, t.priority desc, t.run_at, t.id
 limit 1
   for no key update skip locked
