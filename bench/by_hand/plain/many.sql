-- The life of a batch of tasks in three transactions.
insert into plain.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select nextval('plain.task_id_seq'), 'default', 0, now(), 3, now(), :bytes, 'bench', payload
  from unnest(:payloads::jsonb[]) payload
returning id;

with due as (
  select id from plain.task
   where queue = 'default' and state = 'waiting' and run_at <= now()
   order by priority desc, run_at, id
   limit :n
     for update skip locked
), claimed as (
  update plain.task t
     set state = 'running', token = t.token + 1, attempt = t.attempt + 1, claimed_at = now(), worker = 'bench',
         lease_expires_at = now() + interval '5 minutes'
    from due
   where t.id = due.id
  returning t.id, t.token, t.task_type, t.queue, t.payload, t.headers, t.attempt, t.max_retries, t.priority,
            t.enqueued_at, t.lease_expires_at
)
select array_agg(id) as ids, array_agg(token) as tokens from claimed \gset

with gone as (
  delete from plain.task t
   using unnest(:ids::bigint[], :tokens::bigint[]) lease(id, token)
   where t.id = lease.id and t.token = lease.token and t.state = 'running'
  returning t.*
)
insert into plain.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
                        finished_at, worker, unique_key, payload, headers, progress, errors)
select id, queue, task_type, 'succeeded', priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
       now(), worker, unique_key, payload, headers, progress, errors
  from gone
returning id;
