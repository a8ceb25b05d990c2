-- The same, but claimed from any queue.
insert into plain.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
values (nextval('plain.task_id_seq'), 'default', 0, now(), 3, now(), :bytes, 'bench', :payload::jsonb)
returning id as new_id \gset

with due as (
  select id from plain.task
   where state = 'waiting' and run_at <= now()
   order by priority desc, run_at, id
   limit 1
     for update skip locked
)
update plain.task t
   set state = 'running', token = t.token + 1, attempt = t.attempt + 1, claimed_at = now(), worker = 'bench',
       lease_expires_at = now() + interval '5 minutes'
  from due
 where t.id = due.id
returning t.id, t.token, t.task_type, t.queue, t.payload, t.headers, t.attempt, t.max_retries, t.priority,
          t.enqueued_at, t.lease_expires_at \gset

with gone as (
  delete from plain.task where id = :id and token = :token and state = 'running'
  returning *
)
insert into plain.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
                        finished_at, worker, unique_key, payload, headers, progress, errors)
select id, queue, task_type, 'succeeded', priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
       now(), worker, unique_key, payload, headers, progress, errors
  from gone;
