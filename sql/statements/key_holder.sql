-- Who holds a unique key.
-- $1 task_type   $2 key
select k.task_id from taskq.unique_key k where k.task_type = $1 and k.key = $2
