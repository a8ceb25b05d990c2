-- The task types that have settings: see src/config.rs.
select s.name, s.queue, s.priority, s.max_retries, extract(epoch from s.lease)::double precision,
       extract(epoch from s.backoff_base)::double precision, s.backoff_factor,
       extract(epoch from s.backoff_cap)::double precision, s.jitter
  from taskq.task_type s
