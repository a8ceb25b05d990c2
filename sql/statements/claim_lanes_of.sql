-- As claim_lanes, of the given queues only.
-- $1 queues, each once   $2 now
with recursive lane as (
  select first_lane.queue, first_lane.priority, first_lane.run_at, first_lane.id, first_lane.group_key
    from unnest($1::text[]) wanted(queue)
   cross join lateral (
     select t.queue, t.priority, t.run_at, t.id, t.group_key
       from taskq.task t
      where t.queue = wanted.queue collate "C"
      order by t.queue, t.priority desc, t.run_at, t.id
      limit 1) first_lane
  union all
  select next_lane.queue, next_lane.priority, next_lane.run_at, next_lane.id, next_lane.group_key
    from lane l
   cross join lateral (
     select t.queue, t.priority, t.run_at, t.id, t.group_key
       from taskq.task t
      where t.queue = l.queue and t.priority < l.priority
      order by t.queue, t.priority desc, t.run_at, t.id
      limit 1) next_lane
)
select l.queue, l.priority, l.run_at, l.id, l.group_key is not null
  from lane l
 where l.run_at <= $2
