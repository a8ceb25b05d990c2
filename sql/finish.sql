-- Workers: the end of a task's run. The token is checked in the statement that changes the state.

-- complete: the work is done. Call it in the transaction that made the effect: either both
-- happen or neither does.
-- Errors: TQ001 if the lease is not the caller's any more, with the reason as detail; 22023;
--   54000 for a result larger than taskq.max_payload_bytes.
-- Writes: task -> done (nothing is kept if the queue's retention is 0), unique_key.
create function taskq.complete(id bigint, token bigint, result jsonb = null)
  returns void
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_complete';
comment on function taskq.complete is
  'Finishes a claimed task. Raises TQ001 if the lease is not the caller''s any more: roll back, and go on.';

-- complete_many: the same for many. Raises nothing for stale pairs: returns the ids it finished.
-- Errors: 22023 for NULLs or arrays of different length; 54000.
create function taskq.complete_many(ids bigint[], tokens bigint[], results jsonb[] = null)
  returns setof bigint
  language c volatile security definer rows 100 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_complete_many';
comment on function taskq.complete_many is
  'Finishes many claimed tasks and returns the ids of those it finished; stale ones are left out.';

-- fail: this run went wrong. With retries left the task runs again after
--   min(cap, base x factor^(k-1)) x (1 + jitter x random)
-- where k is the number of the failure and the rest are settings of the type; else it goes to
-- the dead letters. If a cancel was requested, it ends cancelled.
--   error     for people; more than 10,000 bytes are cut, with a note
--   retry_in  overrides the wait, adds no retries
--   retry     false: no retry, straight to the dead letters
-- Returns scheduled, ready, dead or cancelled, and when it runs again.
-- Errors: TQ001, 22023.
-- Writes: task; or task -> dead_letter or done, unique_key.
create function taskq.fail(
  id       bigint,
  token    bigint,
  error    text = null,
  retry_in interval = null,
  retry    boolean = true)
  returns table (state text, run_at timestamptz)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_fail';
comment on function taskq.fail is
  'Ends a run that went wrong: the task waits for its next try, or is dead when its retries are used up or retry is false.';

-- fail_many: the same for many, with the backoff of each type. Leaves stale pairs out.
-- Errors: 22023 for NULL ids or tokens, or arrays of different length.
create function taskq.fail_many(ids bigint[], tokens bigint[], errors text[] = null)
  returns table (id bigint, state text, run_at timestamptz)
  language c volatile security definer rows 100 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_fail_many';
comment on function taskq.fail_many is
  'Ends many runs that went wrong and says what became of each; stale ones are left out.';

-- once: true the first time that a scope and key are seen, false after that: the guard for an
-- effect in this database. Call it in the transaction that makes the effect; if that rolls
-- back, the key is not seen. Waits for another transaction that is just using the same key.
--   keep_for  how long the key is remembered; NULL: 30 days
-- Errors: 22023.
-- Writes: once_key.
create function taskq.once(scope text, key text, keep_for interval = null)
  returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz := taskq._now();
  v_seconds numeric := extract(epoch from coalesce(once.keep_for, interval '30 days'));
begin
  perform taskq._check_name('scope', once.scope);
  if once.key is null or octet_length(once.key) not between 1 and 512 then
    perform taskq._refuse('22023', 'key must have 1 to 512 bytes', 'Use what names the occasion, such as an order number.');
  end if;
  if v_seconds <= 0 or v_seconds > 3155760000 then
    perform taskq._refuse('22023', 'keep_for must be longer than 0 and at most 100 years', 'Give an interval such as ''30 days''.');
  end if;
  -- a key that has expired but was not removed yet counts as new
  insert into taskq.once_key as k (scope, key, seen_at, expires_at)
  values (once.scope, once.key, v_now, v_now + make_interval(secs => v_seconds::double precision))
      on conflict on constraint once_key_pkey do update
     set seen_at = excluded.seen_at, expires_at = excluded.expires_at
   where k.expires_at <= excluded.seen_at;
  return found;
end
$$;
comment on function taskq.once is
  'True the first time a scope and key are seen, false after that. Call it in the transaction that makes the effect.';
