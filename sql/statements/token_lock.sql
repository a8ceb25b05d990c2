-- Locks free tokens of a queue, passing by those that others have locked. One that is free later than
-- it could be was used before the clock was set back: it is free. It is compared with the time as it is
-- now, too: a claim that began after this one may have used it meanwhile.
-- $1 queue   $2 when the claim began   $3 after how many seconds a used token is free again
-- $4 how many tokens the queue has   $5 at most
select t.token
  from taskq.rate_token t
 where t.queue = $1 and t.token <= $4
   and (t.free_at <= $2
        or (t.free_at > $2 + make_interval(secs => $3) and t.free_at > taskq._now() + make_interval(secs => $3)))
 limit $5
   for no key update skip locked
