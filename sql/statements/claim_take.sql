-- Claims the first $2 of the given tasks that nobody else holds, and locks no other: the limit
-- stops the lateral scan, which locks one row at a time, and the materialized part runs once.
-- The update changes no indexed column (HOT).
-- $1 ids, in the order of claims   $2 at most   $3 now   $4 worker   $5 lease in seconds, or NULL
with held as materialized (
  select locked.id
    from unnest($1::bigint[]) candidate(id)
   cross join lateral (
     select t.id
       from taskq.task t
      where t.id = candidate.id and t.state = 'waiting' and t.run_at <= $3
        for no key update skip locked) locked
   limit $2
)
update taskq.task t
   set state = 'running',
       token = t.token + 1 + floor(random() * 1048576)::bigint,
       attempt = t.attempt + 1,
       claimed_at = $3,
       worker = $4,
       lease_expires_at = $3 + make_interval(secs => coalesce($5, extract(epoch from coalesce(
         (select s.lease from taskq.task_type s where s.name = t.task_type),
         (select q.lease from taskq.queue q where q.name = t.queue),
         taskq._default_lease()))::double precision))
 where t.id = any (array(select h.id from held h))
returning t.id, t.token, t.task_type, t.queue, t.payload, t.headers, t.attempt, t.max_retries,
          t.priority, t.enqueued_at, t.lease_expires_at, t.run_at, t.unique_key, t.bytes
