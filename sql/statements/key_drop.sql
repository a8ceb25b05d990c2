-- Removes a key that is up.
-- $1 task_type   $2 key   $3 id   $4 now
delete from taskq.unique_key k
 where k.task_type = $1 and k.key = $2 and k.task_id = $3 and k.let_go and k.kept_until <= $4
