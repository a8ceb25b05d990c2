-- Locks the turns that running tasks have, passing by those that others have locked, and returns the tasks whose turn is
-- one of these: claims that are just parking tasks of the group hold it until their transaction ends.
-- $1 queues   $2 group_keys   $3 ids of the tasks
with task as materialized (
  select x.queue, x.group_key, x.id from unnest($1::text[], $2::text[], $3::bigint[]) x(queue, group_key, id)
), mine as materialized (
  select task.id
    from task
   cross join lateral (
     select from taskq.group_turn g
      where g.queue = task.queue collate "C" and g.group_key = task.group_key collate "C" and g.task_id = task.id
        for no key update skip locked) locked
)
select task.id
  from task
 where task.id not in (select mine.id from mine)
   and exists (select from taskq.group_turn g
                where g.queue = task.queue collate "C" and g.group_key = task.group_key collate "C" and g.task_id = task.id)
