-- One new task. Only where taskq.task has a trigger; else it is done without a statement.
-- $1 to $13 its columns, as they stand here
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type,
                        unique_key, unique_until, group_key, payload, headers)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
