-- Claims the first $2 of the given tasks that nobody else holds, and locks no other: the limit
-- stops the lateral scan, which locks one row at a time, and the materialized part runs once.
-- claim_update.sql follows.
-- $1 ids, in the order of claims   $2 at most
with held as materialized (
  select locked.id
    from unnest($1::bigint[]) candidate(id)
   cross join lateral (
     select t.id
       from taskq.task t
      where t.id = candidate.id and t.state = 'waiting' and t.run_at <= $3
        for no key update skip locked) locked
   limit $2
)
