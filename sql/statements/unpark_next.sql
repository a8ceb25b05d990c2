-- The first parked task of each group whose turn is free returns to its place. Passes by tasks that others
-- have locked.
-- $1 queues   $2 group_keys
with next as materialized (
  select first.id, first.run_at
    from unnest($1::text[], $2::text[]) freed(queue, group_key)
   cross join lateral (
     select t.id, p.run_at
       from taskq.parked p
       join taskq.task t on t.id = p.id
      where p.queue = freed.queue collate "C" and p.group_key = freed.group_key collate "C" and t.run_at = 'infinity'
      order by p.queue, p.group_key, p.priority desc, p.run_at, p.id
      limit 1
        for update skip locked) first
   where not exists (select from taskq.group_turn g
                      where g.queue = freed.queue collate "C" and g.group_key = freed.group_key collate "C"
                        and g.task_id is not null)
), gone as (
  delete from taskq.parked p using next n where p.id = n.id
)
update taskq.task t
   set run_at = n.run_at
  from next n
 where t.id = n.id
returning t.queue, t.task_type, t.run_at, t.enqueued_at
