-- Who has a unique key, whether the task is held to it only until it starts, and whether the key
-- is up: its task has let go of it, and the time for which it was kept is over.
-- $1 task_type   $2 key   $3 now
select k.task_id, k.until_started, k.let_go and k.kept_until <= $3
  from taskq.unique_key k
 where k.task_type = $1 and k.key = $2
