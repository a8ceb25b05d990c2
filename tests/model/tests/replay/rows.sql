-- Everything that is stored, a line each: what it is, its id if it has one, and the rest. Moments are seconds since
-- the history began.
-- $1 when it began, in seconds since 1970
select 'task', t.id, t.queue, t.task_type, p.id is not null,
       format('%s in %s, priority %s at %s, %s, attempt %s of %s, token %s, lease until %s, claimed at %s by %s, '
              'cancel asked at %s, reason %s, enqueued at %s, redriven at %s, key %s until %s, group %s, payload %s, '
              'headers %s, progress %s, errors %s',
              t.task_type, t.queue, t.priority, extract(epoch from coalesce(p.run_at, t.run_at))::bigint - $1,
              t.state, t.attempt, t.max_retries, t.token, extract(epoch from t.lease_expires_at)::bigint - $1,
              extract(epoch from t.claimed_at)::bigint - $1, t.worker,
              extract(epoch from t.cancel_requested_at)::bigint - $1, t.cancel_reason,
              extract(epoch from t.enqueued_at)::bigint - $1, extract(epoch from t.redriven_at)::bigint - $1,
              t.unique_key, t.unique_until, t.group_key, t.payload, test.headers(t.headers, $1), t.progress,
              test.errors(t.errors, $1))
  from taskq.task t
  left join taskq.parked p on p.id = t.id and t.run_at = 'infinity' and p.queue = t.queue
                          and p.group_key = t.group_key and p.priority = t.priority
union all
select 'parked', p.id, null, null, null, '' from taskq.parked p
union all
select 'dead', d.id, null, null, null,
       format('%s in %s, priority %s at %s, attempt %s of %s, token %s, claimed at %s by %s, died at %s, '
              'enqueued at %s, redriven at %s, key %s until %s, group %s, payload %s, headers %s, progress %s, errors %s',
              d.task_type, d.queue, d.priority, extract(epoch from d.run_at)::bigint - $1,
              d.attempt, d.max_retries, d.token, extract(epoch from d.claimed_at)::bigint - $1, d.worker,
              extract(epoch from d.died_at)::bigint - $1, extract(epoch from d.enqueued_at)::bigint - $1,
              extract(epoch from d.redriven_at)::bigint - $1, d.unique_key, d.unique_until, d.group_key, d.payload,
              test.headers(d.headers, $1), d.progress, test.errors(d.errors, $1))
  from taskq.dead_letter d
union all
select 'finished', f.id, null, null, null,
       format('%s in %s, priority %s at %s, %s at %s, attempt %s of %s, claimed at %s by %s, reason %s, '
              'enqueued at %s, key %s, group %s, payload %s, headers %s, progress %s, result %s, errors %s',
              f.task_type, f.queue, f.priority, extract(epoch from f.run_at)::bigint - $1,
              f.state, extract(epoch from f.finished_at)::bigint - $1, f.attempt, f.max_retries,
              extract(epoch from f.claimed_at)::bigint - $1, f.worker, f.cancel_reason,
              extract(epoch from f.enqueued_at)::bigint - $1, f.unique_key, f.group_key, f.payload,
              test.headers(f.headers, $1), f.progress, f.result, test.errors(f.errors, $1))
  from taskq.done f
union all
-- (A key whose time is up is free, whether or not its row is still there.)
select 'key', k.task_id, null, null, null,
       format('%s of %s, until %s, kept until %s%s', k.key, k.task_type,
              case when k.until_started then 'started' else 'finished' end,
              case when k.kept_until > taskq._now() then extract(epoch from k.kept_until)::bigint - $1 end,
              case when k.let_go then ', let go' end)
  from taskq.unique_key k
 where not k.let_go or k.kept_until > taskq._now()
union all
select 'slot', s.task_id, null, null, null, format('of %s', s.queue) from taskq.slot s where s.task_id is not null
union all
select 'turn', g.task_id, null, null, null, format('of %s in %s', g.group_key, g.queue) from taskq.group_turn g where g.task_id is not null
union all
select 'used token', null, null, null, null,
       format('of %s until %s', r.queue, extract(epoch from r.free_at)::bigint - $1)
         || repeat(' ', (row_number() over (partition by r.queue order by r.free_at))::int - 1)
  from taskq.rate_token r where r.free_at > taskq._now()
union all
select 'queue', null, null, null, null,
       format('%s, paused %s, max_running %s, rate %s, lease %s, retention %s', q.name, q.paused_at is not null,
              q.max_running, q.rate, q.lease, q.retention)
  from taskq.queue q
 where (q.paused_at, q.max_running, q.rate, q.lease, q.retention) is distinct from (null::timestamptz, null::integer, null::text, null::interval, null::interval)
union all
select 'type', null, null, null, null,
       format('%s, queue %s, priority %s, max_retries %s, lease %s, backoff_base %s', s.name, s.queue, s.priority,
              s.max_retries, s.lease, s.backoff_base)
  from taskq.task_type s
union all
select 'schedule', s.last_task_id, null, null, null,
       format('%s, next at %s, last at %s, missed %s, %s', s.name, extract(epoch from s.next_run_at)::bigint - $1,
              extract(epoch from s.last_run_at)::bigint - $1, s.missed, coalesce(s.error, 'well'))
  from taskq.schedule s
union all
select 'seen', null, null, null, null, format('%s until %s', o.key, extract(epoch from o.expires_at)::bigint - $1)
  from taskq.once_key o where o.expires_at > taskq._now()
union all
select 'figures', null, null, null, null,
       format('%s in %s, waiting %s, blocked %s, running %s', f.task_type, f.queue, f.ready + f.scheduled, f.blocked, f.running)
  from taskq._figures() f where f.ready + f.scheduled + f.blocked + f.running > 0
