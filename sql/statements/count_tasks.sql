-- Counts all unfinished tasks by queue and type: ready, scheduled, running and blocked ones, and when the
-- first of the scheduled ones is due. Reads the whole table: see src/keeper/count.rs.
-- $1 until when tasks count as due
select t.queue, t.task_type,
       count(*) filter (where t.state = 'waiting' and (t.run_at <= t.enqueued_at or t.run_at <= $1)),
       count(*) filter (where t.state = 'waiting' and t.run_at > t.enqueued_at and t.run_at > $1 and t.run_at < 'infinity'),
       count(*) filter (where t.state = 'running'),
       count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity'),
       min(t.run_at) filter (where t.state = 'waiting' and t.run_at > $1 and t.run_at < 'infinity')
  from taskq.task t
 group by t.queue, t.task_type
