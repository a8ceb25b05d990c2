-- Tasks of some lanes of one priority that can be claimed, in the order of claims. Read without
-- locks. A running task whose lease is over is one too: the claim takes it back first. The last column is the
-- version of the turn of the task's group.
-- $1 queues   $2 priority   $3 now   $4 at most   $5, $6 begin after this run_at and id
select c.id, c.run_at, c.bytes, c.state = 'running', wanted.queue, c.group_key,
       case when c.group_key is not null then
         (select g.xmin::text::bigint from taskq.group_turn g
           where g.queue = wanted.queue collate "C" and g.group_key = c.group_key collate "C") end
  from unnest($1::text[]) wanted(queue)
 cross join lateral (
   select t.id, t.run_at, t.bytes, t.state, t.group_key
     from taskq.task t
    where t.queue = wanted.queue collate "C"
      and t.priority = $2
      and t.run_at <= $3
      and (t.run_at, t.id) > ($5, $6)
      and (t.state = 'waiting' or t.lease_expires_at <= $3)
    order by t.queue, t.priority desc, t.run_at, t.id
    limit $4) c
 order by c.run_at, c.id
 limit $4
