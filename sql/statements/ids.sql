-- Reserves ids for new tasks, rising.
-- $1 how many
select nextval('taskq.task_id_seq') from generate_series(1, $1)
