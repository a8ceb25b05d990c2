-- Ends the lease of locked tasks that will run again.
-- $1 ids, sorted   $2 their new run_ats   $3 their errors, or NULL for a release   $4 now
-- $5 added to attempt: 0, or -1 for a release
update taskq.task t
   set state = 'waiting',
       run_at = ($2::timestamptz[])[width_bucket(t.id, $1::bigint[])],
       attempt = t.attempt + $5,
       lease_expires_at = null,
       claimed_at = null,
       worker = null,
       errors = case when $3::text[] is null then t.errors
                     else taskq._add_error(t.errors, t.attempt, $4, t.worker,
                                           ($3::text[])[width_bucket(t.id, $1::bigint[])]) end
 where t.id = any ($1::bigint[])
