-- When the next token of a queue is free.
-- $1 queue   $2 now   $3 how many tokens the queue has
select t.free_at
  from taskq.rate_token t
 where t.queue = $1 and t.free_at > $2 and t.token <= $3
 order by t.queue, t.free_at
 limit 1
