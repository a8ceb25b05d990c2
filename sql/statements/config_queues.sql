-- The queues that have settings: see src/config.rs.
select q.name, q.paused_at is not null, q.retention = interval '0', extract(epoch from q.lease)::double precision,
       q.max_running, coalesce(q.burst, p.number), taskq._token_period(q.rate, q.burst)
  from taskq.queue q
 cross join lateral taskq._rate_parts(q.rate) p
