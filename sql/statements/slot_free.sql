-- The slots of tasks that have ended are free again, or go if they are above the limit.
-- $1 queue   $2 ids of the tasks   $3 the limit
with gone as (
  delete from taskq.slot s
   where s.queue = $1 and s.task_id = any ($2::bigint[]) and s.slot > $3
)
update taskq.slot s
   set task_id = null
 where s.queue = $1 and s.task_id = any ($2::bigint[]) and s.slot <= $3
