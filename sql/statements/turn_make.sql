-- Makes the turns of groups that have none yet, and returns those made. Only who gets the lock makes one,
-- because an insert would wait for another open transaction that makes the same. (offset 0: only groups without a turn are locked.)
-- $1 queues   $2 group_keys   $3 at most
insert into taskq.group_turn (queue, group_key)
select new.queue, new.group_key
  from (select wanted.queue, wanted.group_key
          from unnest($1::text[], $2::text[]) wanted(queue, group_key)
         where not exists (select from taskq.group_turn g
                            where g.queue = wanted.queue collate "C" and g.group_key = wanted.group_key collate "C")
        offset 0) new
 where taskq._try_turn_lock(new.queue, new.group_key)
 limit $3
    on conflict do nothing
returning queue, group_key, null::bigint
