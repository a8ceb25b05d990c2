-- Tasks that have become due since a moment, of each queue and type: how many. One more row, without
-- a queue, says when the next one is due.
-- Steps from lane to lane along task_ready_idx, and reads only what lies between the two moments.
-- Tasks that were due when they were enqueued are left out: they have been counted as ready then.
-- $1 since   $2 now
with recursive lane as (
  (select t.queue, t.priority
     from taskq.task t
    order by t.queue, t.priority desc
    limit 1)
  union all
  select next_lane.queue, next_lane.priority
    from lane l
   cross join lateral (
     (select t.queue, t.priority
        from taskq.task t
       where t.queue = l.queue and t.priority < l.priority
       order by t.queue, t.priority desc
       limit 1)
     union all
     (select t.queue, t.priority
        from taskq.task t
       where t.queue > l.queue
       order by t.queue, t.priority desc
       limit 1)
     limit 1) next_lane
)
select l.queue, d.task_type, count(*), null
  from lane l
 cross join lateral (
   select t.task_type
     from taskq.task t
    where t.queue = l.queue and t.priority = l.priority and t.run_at > $1 and t.run_at <= $2
      and t.state = 'waiting' and t.run_at > t.enqueued_at) d
 group by l.queue, d.task_type
union all
select null, null, null, min(n.run_at)
  from lane l
 cross join lateral (
   select t.run_at
     from taskq.task t
    where t.queue = l.queue and t.priority = l.priority and t.run_at > $2 and t.run_at < 'infinity'
    order by t.queue, t.priority desc, t.run_at
    limit 1) n
