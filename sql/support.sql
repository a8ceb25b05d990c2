-- Small functions that the others are built from. Names that begin with _ are not for users.

-- These run no SQL, so they need no search_path of their own.
create function taskq._now() returns timestamptz
  language c volatile parallel safe
  as 'MODULE_PATHNAME', 'taskq_now';
comment on function taskq._now() is
  'What time it is for taskq: clock_timestamp(), or what the setting taskq.test_clock says.';

create function taskq._check_name(what text, name text) returns text
  language c immutable parallel safe
  as 'MODULE_PATHNAME', 'taskq_check_name';
comment on function taskq._check_name(text, text) is
  'Returns the name, or raises 22023 if it is not 1 to 63 bytes without control characters.';

create function taskq._check_size(what text, payload jsonb, headers jsonb) returns integer
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_check_size';
comment on function taskq._check_size(text, jsonb, jsonb) is
  'Returns the bytes of payload and headers, or raises 54000 if they exceed taskq.max_payload_bytes.';

create function taskq._library_version() returns text
  language c immutable parallel safe
  as 'MODULE_PATHNAME', 'taskq_library_version';
comment on function taskq._library_version() is
  'The version of the loaded library; health compares it with the version of the SQL objects.';

create function taskq._log(message text) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_log';
comment on function taskq._log(text) is
  'Writes one line to the server log; RAISE LOG would add lines about the functions it comes from.';

-- In views the time is "stable": a volatile column would keep the planner from pushing
-- conditions into the view.
create function taskq._view_time() returns timestamptz
  language c stable parallel safe
  as 'MODULE_PATHNAME', 'taskq_now';
comment on function taskq._view_time() is
  'The same as _now, for views: one query may see one time.';

-- The functions below have a body that is parsed when they are made, so a caller's search_path
-- cannot change what their names mean. They go without "set search_path", which would keep the
-- planner from inlining them.

create function taskq._displayed_state(state text, run_at timestamptz, at timestamptz) returns text
  language sql immutable parallel safe
  return case when _displayed_state.state operator(pg_catalog.<>) 'waiting' then _displayed_state.state
              when _displayed_state.run_at operator(pg_catalog.=) 'infinity' then 'blocked'
              when _displayed_state.run_at operator(pg_catalog.>) _displayed_state.at then 'scheduled'
              else 'ready' end;
comment on function taskq._displayed_state(text, timestamptz, timestamptz) is
  'The state that people see: a waiting task is ready, scheduled or blocked.';

create function taskq._add_error(errors jsonb, attempt integer, at timestamptz, worker text, error text) returns jsonb
  language sql stable parallel safe
  return case when pg_catalog.jsonb_array_length(_add_error.errors) operator(pg_catalog.>=) 20
              then _add_error.errors operator(pg_catalog.-) 0
              else coalesce(_add_error.errors, '[]'::pg_catalog.jsonb) end
         operator(pg_catalog.||)
         pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
           'attempt', _add_error.attempt, 'at', _add_error.at, 'worker', _add_error.worker, 'error', _add_error.error));
comment on function taskq._add_error(jsonb, integer, timestamptz, text, text) is
  'A task''s history with one more failure. Keeps the last 20.';

create function taskq._last_error(errors jsonb) returns text
  language sql immutable parallel safe
  return _last_error.errors operator(pg_catalog.->) (-1) operator(pg_catalog.->>) 'error';
comment on function taskq._last_error(jsonb) is
  'The newest error text of a task''s history.';

create function taskq._refuse(code text, message text, hint text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = _refuse.code, message = _refuse.message, hint = _refuse.hint;
end
$$;
comment on function taskq._refuse(text, text, text) is
  'Raises an error with a hint.';

-- Whoever gets rights on what the current role creates: PUBLIC, and whom ALTER DEFAULT PRIVILEGES names. To be put behind
-- REVOKE ... FROM.
create function taskq._others() returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return (select string_agg(distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end, ', ')
            from (select 0::oid as grantee
                  union
                  select p.grantee
                    from pg_default_acl d
                    join pg_roles r on r.oid = d.defaclrole and r.rolname = current_user
                   cross join lateral aclexplode(d.defaclacl) p
                   where p.grantee <> d.defaclrole) a);
comment on function taskq._others() is
  'PUBLIC and the roles that ALTER DEFAULT PRIVILEGES gives rights on what the current role creates, for REVOKE.';

-- Locks that only taskq can take (src/locks.rs): "duty", "archive", "purge", "turn", "grant", each with a key. The end of the transaction
-- releases them.
create function taskq._try_lock(purpose text, key integer = 0) returns boolean
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_try_lock';
comment on function taskq._try_lock(text, integer) is
  'Takes a lock that only one may have, if it is free, and says whether it was.';
create function taskq._wait_lock(purpose text, key integer = 0) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_wait_lock';
comment on function taskq._wait_lock(text, integer) is
  'Takes a lock that only one may have, and waits for it.';

-- Who makes or forgets the turn of a group takes this. One lock stands for many groups, so that a claim does not need thousands.
create function taskq._try_turn_lock(queue text, group_key text) returns boolean
  language sql volatile
  return taskq._try_lock('turn', (pg_catalog.hashtext(_try_turn_lock.queue) operator(pg_catalog.&) (-256))
                                 operator(pg_catalog.|) (pg_catalog.hashtext(_try_turn_lock.group_key) operator(pg_catalog.&) 255));
comment on function taskq._try_turn_lock(text, text) is
  'Takes the lock on making the turn of a group, if it is free, and says whether it was.';

-- Whom people can look for in pg_stat_activity.
create function taskq._session_named(pid integer) returns text
  language sql volatile set search_path = pg_catalog, pg_temp
  return (select format('session %s (%s)', a.pid, concat_ws(', ', a.usename, nullif(a.application_name, ''), nullif(a.backend_type, 'client backend'), a.state))
            from pg_stat_activity a where a.pid = _session_named.pid);
comment on function taskq._session_named(integer) is
  'A session with its role, application and state, for people; NULL if there is none.';

-- xmax of a row that somebody has locked may be a subtransaction's, and pg_locks knows those no longer when their savepoint is
-- released.
create function taskq._top_transaction(xid bigint) returns bigint
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_top_transaction';
comment on function taskq._top_transaction(bigint) is
  'The transaction to which a transaction or subtransaction in progress belongs; NULL if it is over.';

-- Locks of a prepared transaction have no process. What they have in common is the virtual transaction, and one of them
-- is that on the transaction's own number. (A gid alone does not tell two apart: it can be used again.)
create function taskq._prepared_locks()
  returns table (relation oid, mode text, transaction xid, gid text, since timestamptz)
  language sql volatile rows 100 set search_path = pg_catalog, pg_temp as $$
  with held as materialized (select l.* from pg_locks l where l.pid is null and l.granted)
  select l.relation, l.mode, p.transaction, p.gid, p.prepared
    from held l
    join held own on own.locktype = 'transactionid' and own.virtualtransaction = l.virtualtransaction
    join pg_prepared_xacts p on p.transaction = own.transactionid
   where l.locktype = 'relation' and p.database = current_database()
$$;
comment on function taskq._prepared_locks() is
  'Which locks on tables the prepared transactions of this database hold.';

create function taskq._lock_holders()
  returns table (relation oid, mode text, pid integer, who text, since timestamptz, advice text)
  language sql volatile rows 100 set search_path = pg_catalog, pg_temp as $$
  select l.relation, l.mode, l.pid, taskq._session_named(l.pid), a.xact_start,
         format('End its transaction: select pg_terminate_backend(%s)', l.pid)
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
   where l.locktype = 'relation' and l.granted
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
  union all
  select p.relation, p.mode, null, format('prepared transaction %L', p.gid), p.since,
         format('COMMIT PREPARED %L or ROLLBACK PREPARED %1$L', p.gid)
    from taskq._prepared_locks() p
$$;
comment on function taskq._lock_holders() is
  'Who holds locks on tables of this database, in which mode, since when their transaction is open, and what to do.';
