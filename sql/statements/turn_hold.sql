-- Locks the turns of tasks that are to be taken back. Passes by those of groups of which a claim is just parking
-- tasks: giving these back would wait for it, and it may be taking back another one that we have parked tasks
-- for. Returns the ids of the others.
-- $1 queues   $2 group_keys   $3 ids of the tasks
with held as materialized (
  select turn.task_id
    from unnest($1::text[], $2::text[], $3::bigint[]) ended(queue, group_key, task_id)
   cross join lateral (
     select g.task_id
       from taskq.group_turn g
      where g.queue = ended.queue collate "C" and g.group_key = ended.group_key collate "C" and g.task_id = ended.task_id
        for no key update skip locked) turn
)
select h.task_id from held h
union all
select ended.task_id
  from unnest($1::text[], $2::text[], $3::bigint[]) ended(queue, group_key, task_id)
 where not exists (
   select from taskq.group_turn g
    where g.queue = ended.queue collate "C" and g.group_key = ended.group_key collate "C" and g.task_id = ended.task_id)
