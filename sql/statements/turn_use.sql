-- Gives locked turns to tasks.
-- $1 queues   $2 group_keys   $3 ids of the tasks
update taskq.group_turn g
   set task_id = given.task_id
  from unnest($1::text[], $2::text[], $3::bigint[]) given(queue, group_key, task_id)
 where g.queue = given.queue collate "C" and g.group_key = given.group_key collate "C"
