-- One locked task is not parked any more.
-- $1 id
with gone as (
  delete from taskq.parked p where p.id = $1 returning p.run_at
)
update taskq.task t
   set run_at = g.run_at
  from gone g
 where t.id = $1
returning t.queue, t.task_type, t.run_at, t.enqueued_at
