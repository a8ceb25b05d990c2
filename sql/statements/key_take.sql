-- Takes a unique key for a task. No row comes back when the key is there already. Waits for a
-- transaction that is just taking or freeing the same key.
-- $1 task_type   $2 key   $3 id   $4 until started (not finished)   $5 kept until, or NULL
insert into taskq.unique_key as k (task_type, key, task_id, until_started, kept_until)
values ($1, $2, $3, $4, $5)
on conflict (task_type, key) do nothing
returning k.task_id
