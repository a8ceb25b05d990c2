-- Locks free slots of a queue, passing by those that others have locked. If tasks have slots above the
-- limit, which was lowered, as many of the first free ones stay so in their stead: every claim leaves
-- the same ones. (A free one above the limit may be left by a claim that was rolled back.)
-- $1 queue   $2 the limit   $3 at most
select s.slot
  from taskq.slot s
 where s.queue = $1 and s.task_id is null and s.slot <= $2
 order by s.queue, s.task_id, s.slot
offset (select count(*) from taskq.slot a where a.queue = $1 and a.slot > $2 and a.task_id is not null)
 limit $3
   for no key update skip locked
