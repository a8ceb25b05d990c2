-- Gives a waiting task what a new one would have had. No row comes back if it does not wait.
-- $1 id   $2 priority   $3 run_at   $4 bytes   $5 payload   $6 headers
update taskq.task t
   set priority = $2, run_at = $3, bytes = $4, payload = $5, headers = $6
 where t.id = $1 and t.state = 'waiting'
returning t.id
