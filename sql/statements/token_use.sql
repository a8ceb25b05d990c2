-- Uses locked tokens.
-- $1 queue   $2 tokens   $3 when they are free again
update taskq.rate_token t
   set free_at = $3
 where t.queue = $1 and t.token = any ($2::integer[])
