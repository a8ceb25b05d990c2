-- Where a task is: for the detail of TQ001 and for cancel.
-- $1 id
select t.state, t.run_at from taskq.task t where t.id = $1
union all select 'dead', null from taskq.dead_letter d where d.id = $1
union all select f.state, null from taskq._finished_task($1) f
limit 1
