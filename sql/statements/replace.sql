-- Gives a waiting task what a new one would have had, and returns where it was, and its group. No row
-- comes back if it does not wait.
-- $1 id   $2 priority   $3 run_at   $4 bytes   $5 payload   $6 headers
with waiting as materialized (
  select t.id, t.queue, t.task_type, t.run_at, t.enqueued_at, t.group_key
    from taskq.task t
   where t.id = $1 and t.state = 'waiting'
     for no key update
)
update taskq.task t
   set priority = $2, run_at = $3, bytes = $4, payload = $5, headers = $6
  from waiting w
 where t.id = $1
returning w.queue, w.task_type, w.run_at, w.enqueued_at, w.group_key
