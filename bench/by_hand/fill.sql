-- Before a run: empties the tables of both sides and fills those of one.
-- :side   :due tasks   :running tasks, earlier than those   :lanes with ten tasks for tomorrow
truncate taskq.task, taskq.done, plain.task, plain.done;

insert into :side.task (id, queue, priority, run_at, state, token, attempt, max_retries, lease_expires_at,
                        claimed_at, worker, enqueued_at, bytes, task_type, payload)
select nextval(:'side' || '.task_id_seq'), 'default', 0, now() - interval '2 hours' + n * interval '1 ms',
       'running', 1, 1, 3, now() + interval '1 hour', now(), 'bench', now(), pg_column_size(:'payload'::jsonb),
       'bench', :'payload'
  from generate_series(1, :running) n;

insert into :side.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select nextval(:'side' || '.task_id_seq'), 'default', 0, now() - interval '1 hour' + n * interval '1 ms', 3,
       now(), pg_column_size(:'payload'::jsonb), 'bench', :'payload'
  from generate_series(1, :due) n;

insert into :side.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select nextval(:'side' || '.task_id_seq'), format('lane-%s', lane), 0, now() + interval '1 day' + n * interval '1 ms',
       3, now(), pg_column_size(:'payload'::jsonb), 'bench', :'payload'
  from generate_series(1, 10) n, generate_series(1, :lanes) lane;

vacuum (analyze) taskq.task, plain.task;
