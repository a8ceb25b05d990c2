-- The lanes (queue, priority) whose first task is due, with the place of that task (what is before it
-- need not be read again), and whether it has a group.
-- Steps from lane to lane along task_ready_idx: one index probe a lane, however many tasks.
-- $1 now
with recursive lane as (
  (select t.queue, t.priority, t.run_at, t.id, t.group_key
     from taskq.task t
    order by t.queue, t.priority desc, t.run_at, t.id
    limit 1)
  union all
  select next_lane.queue, next_lane.priority, next_lane.run_at, next_lane.id, next_lane.group_key
    from lane l
   cross join lateral (
     (select t.queue, t.priority, t.run_at, t.id, t.group_key
        from taskq.task t
       where t.queue = l.queue and t.priority < l.priority
       order by t.queue, t.priority desc, t.run_at, t.id
       limit 1)
     union all
     (select t.queue, t.priority, t.run_at, t.id, t.group_key
        from taskq.task t
       where t.queue > l.queue
       order by t.queue, t.priority desc, t.run_at, t.id
       limit 1)
     limit 1) next_lane
)
select l.queue, l.priority, l.run_at, l.id, l.group_key is not null
  from lane l
 where l.run_at <= $1
