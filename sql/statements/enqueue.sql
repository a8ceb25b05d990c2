-- One new task, with all settings resolved.
-- $1 id, or NULL for the next   $2 task_type   $3 queue   $4 priority   $5 run_at   $6 max_retries
-- $7 now   $8 bytes   $9 unique_key   $10 unique_until   $11 payload   $12 headers   $13 group_key
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type,
                        unique_key, unique_until, group_key, payload, headers)
values (coalesce($1, nextval('taskq.task_id_seq')), $3, $4, $5, $6, $7, $8, $2, $9, $10, $13, $11, $12)
returning id
