-- Gives a waiting task what a new one would have had. No row comes back if it does not wait.
-- $1 id   $2 task_type   $3 priority   $4 run_at   $5 bytes   $6 payload   $7 headers
update taskq.task t
   set priority = coalesce($3, (select s.priority from taskq.task_type s where s.name = $2), 0),
       run_at = $4, bytes = $5, payload = $6, headers = $7
 where t.id = $1 and t.state = 'waiting'
returning t.id
