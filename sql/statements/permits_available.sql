-- How many slots and tokens of a queue are free, counted up to a claim's worth.
-- $1 queue   $2 now   $3 max_running or NULL
-- $4 how many tokens the queue has, $5 after how many seconds a used one is free again, or NULL
select (select count(*)
          from (select from taskq.slot s
                 where s.queue = $1 and s.task_id is null and s.slot <= $3
                offset (select count(*) from taskq.slot a
                         where a.queue = $1 and a.slot > $3 and a.task_id is not null)
                 limit 1000) f),
       (select count(*)
          from (select from taskq.rate_token t
                 where t.queue = $1 and t.token <= $4
                   and (t.free_at <= $2
                        or (t.free_at > $2 + make_interval(secs => $5)
                            and t.free_at > taskq._now() + make_interval(secs => $5)))
                 limit 1000) f)
