-- Locks free tokens of a queue, passing by those that others have locked. One that is free later than
-- it could be was used before the clock was set back: it is free.
-- $1 queue   $2 now   $3 after how many seconds a used token is free again   $4 at most
select t.token
  from taskq.rate_token t
 where t.queue = $1 and (t.free_at <= $2 or t.free_at > $2 + make_interval(secs => $3))
 limit $4
   for no key update skip locked
