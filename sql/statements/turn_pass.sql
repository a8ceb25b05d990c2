-- Gives back the turns of tasks that have ended. Waits for claims that are just parking tasks of the group.
-- $1 queues   $2 group_keys   $3 ids of the tasks
update taskq.group_turn g
   set task_id = null
  from unnest($1::text[], $2::text[], $3::bigint[]) ended(queue, group_key, task_id)
 where g.queue = ended.queue collate "C" and g.group_key = ended.group_key collate "C" and g.task_id = ended.task_id
