-- Gives locked slots to tasks.
-- $1 queue   $2 slots   $3 ids of the tasks
update taskq.slot s
   set task_id = given.task_id
  from unnest($2::integer[], $3::bigint[]) given(slot, task_id)
 where s.queue = $1 and s.slot = given.slot
