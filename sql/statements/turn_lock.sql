-- Locks the turns of groups that are free, passing by those that others have locked. The limit stops the
-- lateral scan, which locks one row at a time: no more are locked than are asked for. Returns their versions, too.
-- $1 queues   $2 group_keys   $3 at most
select wanted.queue, wanted.group_key, locked.version
  from unnest($1::text[], $2::text[]) wanted(queue, group_key)
 cross join lateral (
   select g.xmin::text::bigint as version
     from taskq.group_turn g
    where g.queue = wanted.queue collate "C" and g.group_key = wanted.group_key collate "C" and g.task_id is null
      for no key update skip locked) locked
 limit $3
