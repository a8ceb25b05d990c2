-- Frees the unique key of a task that has finished.
-- $1 task_type   $2 key   $3 id
delete from taskq.unique_key k where k.task_type = $1 and k.key = $2 and k.task_id = $3
