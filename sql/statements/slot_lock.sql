-- Locks free slots of a queue, passing by those that others have locked.
-- $1 queue   $2 at most
select s.slot
  from taskq.slot s
 where s.queue = $1 and s.task_id is null
 limit $2
   for no key update skip locked
