-- Claims the first task of a lane that nobody else holds: the usual claim, in one statement. If that
-- one is running and its lease is over, or has a group, it is locked but not claimed: no row comes back,
-- and the caller takes it back first, or finds out whether the group has its turn. claim_update.sql follows.
-- $1 queue   $2 priority   $10, $11 begin at this run_at and id
with first as materialized (
  select t.id, t.group_key
    from taskq.task t
   where t.queue = $1 and t.priority = $2 and t.run_at <= $3 and (t.run_at, t.id) >= ($10, $11)
     and (t.state = 'waiting' or t.lease_expires_at <= $3)
   order by t.queue, t.priority desc, t.run_at, t.id
   limit 1
     for no key update skip locked
), held as (
  select f.id from first f where f.group_key is null
)
