-- How many slots and tokens of a queue are free, counted up to a claim's worth.
-- $1 queue   $2 now   $3 after how many seconds a used token is free again, or NULL without a rate
select (select count(*) from (select from taskq.slot s where s.queue = $1 and s.task_id is null limit 1000) f),
       (select count(*)
          from (select from taskq.rate_token t
                 where t.queue = $1 and (t.free_at <= $2 or t.free_at > $2 + make_interval(secs => $3))
                 limit 1000) f)
