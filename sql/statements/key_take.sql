-- Takes a unique key for a task. No row comes back when another unfinished task holds it. Waits
-- for a transaction that is just taking or freeing the same key.
-- $1 task_type   $2 key   $3 id
insert into taskq.unique_key as k (task_type, key, task_id) values ($1, $2, $3)
on conflict (task_type, key) do nothing
returning k.task_id
