-- Parks due tasks of groups whose turn is taken. The lock on the turn keeps it from being given back
-- before they are parked: whoever gives it back sees them then.
-- $1 ids of the tasks   $2 their queues   $3 their group_keys   $4 now
with taken as materialized (
  select wanted.queue, wanted.group_key
    from (select distinct w.queue, w.group_key from unnest($2::text[], $3::text[]) w(queue, group_key)) wanted
   cross join lateral (
     select g.task_id
       from taskq.group_turn g
      where g.queue = wanted.queue collate "C" and g.group_key = wanted.group_key collate "C" and g.task_id is not null
        for share skip locked) locked
), due as materialized (
  select locked.id, locked.queue, locked.task_type, locked.group_key, locked.priority, locked.run_at, locked.enqueued_at
    from unnest($1::bigint[], $2::text[], $3::text[]) candidate(id, queue, group_key)
    join taken on taken.queue = candidate.queue and taken.group_key = candidate.group_key
   cross join lateral (
     select t.id, t.queue, t.task_type, t.group_key, t.priority, t.run_at, t.enqueued_at
       from taskq.task t
      where t.id = candidate.id and t.state = 'waiting' and t.run_at <= $4
        for no key update skip locked) locked
), kept as (
  insert into taskq.parked (id, queue, group_key, priority, run_at)
  select d.id, d.queue, d.group_key, d.priority, d.run_at from due d
)
update taskq.task t
   set run_at = 'infinity'
  from due d
 where t.id = d.id
returning d.queue, d.task_type, d.run_at, d.enqueued_at
