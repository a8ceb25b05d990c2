-- The keeper's duties, each a function that a DBA can call, too. The background worker only
-- times them; without it, CALL taskq.maintain() from any scheduler does the same.

insert into taskq.duty (name, every) values
  ('recover', '30 seconds'),  -- and whenever a lease may be over
  ('wake',    '10 seconds'),  -- and whenever something becomes claimable
  ('alert',   '1 second'),
  ('limits',  '30 seconds'),
  ('drill',   '10 seconds'),  -- and all the time while there is one
  ('schedule', '1 second'),
  ('archive', '1 minute');
-- (its first sample counts from here on)
insert into taskq.duty (name, every, counted_until) values ('sample', '10 seconds', taskq._now());

create function taskq._recover(at_most integer) returns bigint
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_recover';
comment on function taskq._recover(integer) is
  'Takes back tasks whose lease is over, so many at most, and returns how many. Passes by rows that others have locked.';

create function taskq._duty_recover() returns bigint
  language sql volatile security definer set search_path = pg_catalog, pg_temp
  return taskq._recover(1000);
comment on function taskq._duty_recover() is
  'One round of the recover duty: tasks whose lease is over wait again, keeping their place, or are dead.';

-- One round of the wake duty, in Rust (src/keeper/wake.rs).
create function taskq._wake() returns bigint
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_wake';
comment on function taskq._wake() is
  'Sends NOTIFY taskq_ready for each queue in which something became claimable, and wakes those who are in taskq.wait; returns how many queues.';

create function taskq._duty_wake() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- After a failure: a queue of notifications that was full stays full, though nobody holds it up any more, until
  -- somebody moves its tail; this does.
  if exists (select from taskq.duty d where d.name = 'wake' and d.error is not null) then
    perform pg_notification_queue_usage();
  end if;
  perform taskq._wake();
  return 0;  -- it changes no rows, and leaves nothing to do for another round
end
$$;
comment on function taskq._duty_wake() is
  'One round of the wake duty: listeners and waiting workers are told what became claimable.';

-- Notes that a round of a duty failed. Logs it once a minute at most, without the error's text, which
-- may contain data.
create function taskq._duty_failed(duty text, code text, message text = null) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now  timestamptz := clock_timestamp();
  v_duty taskq.duty;
begin
  update taskq.duty d
     set started_at = v_now, error = concat_ws(': ', _duty_failed.code, _duty_failed.message), error_at = v_now
   where d.name = _duty_failed.duty
  returning * into v_duty;
  if v_duty.logged_at is null or v_duty.logged_at < v_now - interval '1 minute' then
    update taskq.duty d set logged_at = v_now where d.name = v_duty.name;
    perform taskq._log(format('taskq duty %s failed with SQLSTATE %s; see taskq.duties', v_duty.name, _duty_failed.code));
  end if;
end
$$;
comment on function taskq._duty_failed(text, text, text) is
  'Notes and logs that a round of a duty failed.';

-- Rows with numbers that no sequence has given yet come from a dump that is just being restored, table by table: sequences
-- come last. Until then turns stand without their tasks, and tasks without their keys.
create function taskq._half_restored() returns boolean
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if (select s.is_called from taskq.task_id_seq s) then
    return false;
  end if;
  begin
    return exists (select from taskq.task) or exists (select from taskq.dead_letter)
           or exists (select from taskq.done) or exists (select from taskq.archive)
           or exists (select from taskq.group_turn) or exists (select from taskq.parked)
           or exists (select from taskq.schedule s where s.last_task_id is not null)
           or not (select s.is_called from taskq.alert_id_seq s) and exists (select from taskq.alert);
  exception when others then
    return false;  -- what is broken here shows in the duty that needs it
  end;
end
$$;
comment on function taskq._half_restored() is
  'Whether a dump is just being restored: rows are there, and its sequences are not.';

-- Does one round of a duty and notes how it went. An error is kept in duty, logged once a minute
-- at most, and stops nothing else; neither does a lock, which is waited for half a second at most. Of two callers at once,
-- one does the duty and the other nothing; nor is anything done while a dump is being restored.
-- Writes: duty (a round without result every 10 seconds only), and what the duty writes.
create function taskq._run_duty(duty text) returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_duty  taskq.duty;
  v_start timestamptz := clock_timestamp();
  v_rows  bigint;
  v_code  text;
  v_error text;
begin
  select d.* into v_duty from taskq.duty d where d.name = _run_duty.duty;
  if not found then
    perform taskq._refuse('22023', 'there is no such duty', 'See taskq.duties.');
  end if;
  if taskq._half_restored() then
    return 0;
  end if;
  -- (a row lock would cost even an idle round a transaction id)
  if not taskq._try_lock('duty', hashtext(v_duty.name)) then
    return 0;
  end if;
  begin
    execute format('select taskq.%I()', '_duty_' || v_duty.name) into v_rows;
  exception
    when query_canceled then
      raise;
    when others then
      get stacked diagnostics v_code = returned_sqlstate, v_error = message_text;
      perform taskq._duty_failed(v_duty.name, v_code, v_error);
      return 0;
  end;
  if v_rows > 0 or v_duty.error is not null or v_duty.finished_at is null
     or v_duty.finished_at < v_start - interval '10 seconds' then
    update taskq.duty d set started_at = v_start, finished_at = clock_timestamp(), rows = v_rows, error = null
     where d.name = v_duty.name;
  end if;
  return v_rows;
end
$$;
comment on function taskq._run_duty(text) is
  'Does one round of a duty, notes how it went, and returns how many rows it changed.';

-- maintain: rounds of all duties, each in its own transaction, until nothing is left to do (100 of
-- each at most). For databases without a keeper.
-- Errors: 2D000 inside a transaction block.
create procedure taskq.maintain()
  language plpgsql as $$
declare
  -- the caller's search_path holds here, for types and operators as well
  v_duty pg_catalog.text;
  v_rows pg_catalog.int8;
begin
  commit;  -- refuses at once in a transaction block
  -- (alert last: it looks how late the others are)
  foreach v_duty in array array['recover', 'schedule', 'limits', 'drill', 'sample', 'archive', 'wake', 'alert'] loop
    -- a round is bounded: go on while it finds something, but not for ever
    for v_round in 1..100 loop
      v_rows := taskq._run_duty(v_duty);
      commit;
      exit when v_rows operator(pg_catalog.=) 0;
    end loop;
  end loop;
end
$$;
comment on procedure taskq.maintain() is
  'Does all the keeper''s duties, committing after each round. Not inside a transaction block.';

-- health: is everything there that should be? One row a check; advice where it is not ok.
create function taskq._preloaded() returns boolean
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_preloaded';
comment on function taskq._preloaded() is
  'Whether the server has loaded the library at its start.';

create function taskq._excluded() returns boolean
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_excluded';
comment on function taskq._excluded() is
  'Whether taskq.excluded_databases names this database.';

-- A keeper that has just begun is given the same time. Where there is none, who calls maintain() once a minute is in time.
create function taskq._late_after(every interval, with_keeper boolean) returns interval
  language sql immutable set search_path = pg_catalog, pg_temp
  return _late_after.every * 3 + case when _late_after.with_keeper then interval '20 seconds' else interval '100 seconds' end;
comment on function taskq._late_after(interval, boolean) is
  'How old the last round of a duty may be.';

create function taskq.health()
  returns table ("check" text, ok boolean, value text, "limit" text, advice text)
  language plpgsql stable security definer rows 10 set search_path = pg_catalog, pg_temp as $$
declare
  v_version text := (select e.extversion from pg_extension e where e.extname = 'taskq');
  v_duty    record;
  v_steps   bigint;
  v_holders text;
  v_held    record;
  v_since   timestamptz := (select min(a.backend_start) from pg_stat_activity a
                             where a.backend_type = 'taskq keeper' and a.datname = current_database());
begin
  "check" := 'library preloaded';
  ok := taskq._preloaded();
  -- (The setting itself is not for everybody: the owner of the extension may be a superuser no more.)
  value := case when ok then 'yes' else 'no' end;
  "limit" := null;
  advice := case when not ok then 'Add taskq to shared_preload_libraries and restart the server, or run CALL taskq.maintain() from a scheduler every few seconds.' end;
  return next;

  "check" := 'keeper running';
  value := (select count(*)::text from pg_stat_activity a where a.backend_type = 'taskq keeper' and a.datname = current_database());
  ok := value = '1';
  "limit" := '1';
  advice := case when not ok and taskq._excluded()
                   then 'taskq.excluded_databases names this database: take it out, or run CALL taskq.maintain() from a scheduler.'
                 when not ok and current_setting('taskq.keeper', true) = 'off' then 'taskq.keeper is off here: switch it on, or run CALL taskq.maintain() from a scheduler.'
                 when not ok then 'See the server log for the reason; max_worker_processes may be used up. CALL taskq.maintain() does its work meanwhile.' end;
  return next;

  "check" := 'library version';
  value := taskq._library_version();
  "limit" := v_version;
  ok := value = v_version;
  advice := case when not ok then 'Run ALTER EXTENSION taskq UPDATE, or install the library of that version and restart.' end;
  return next;

  for v_duty in select d.* from taskq.duty d order by d.name loop
    "check" := format('duty %s', v_duty.name);
    value := coalesce(v_duty.error, v_duty.finished_at::text, 'never ran');
    "limit" := format('%s old', taskq._late_after(v_duty.every, v_since is not null));
    ok := v_duty.error is null
          and greatest(v_duty.finished_at, v_since) > clock_timestamp() - taskq._late_after(v_duty.every, v_since is not null);
    ok := coalesce(ok, false);
    advice := case when not ok and taskq._half_restored()
                     then 'A dump is being restored: duties begin when its sequences are there.'
                   when v_duty.error is not null then 'The last round failed: mend the cause; the duty goes on by itself.'
                   when not ok then 'The keeper is late or missing: see the checks above.' end;
    return next;
  end loop;

  "check" := 'archive';
  select count(*), string_agg(b.step, ', '), string_agg(b.held_by, ', ') into v_steps, value, v_holders
    from taskq._archive_blockers() b;
  ok := v_steps = 0;
  "limit" := null;
  advice := case when not ok then coalesce('Steps wait for a lock. End what holds it: ' || v_holders || '.',
                                           'Steps fail: see taskq._archive_blockers().') end;
  return next;

  "check" := 'vacuum held back';
  select h.* into v_held from taskq._vacuum_holders() h where h.since is not null limit 1;
  "limit" := make_interval(secs => taskq._seconds_setting('taskq.vacuum_held_limit'))::text;
  ok := v_held.since is null
        or v_held.since >= clock_timestamp() - make_interval(secs => taskq._seconds_setting('taskq.vacuum_held_limit'));
  value := case when ok then 'no' else format('by %s, since %s', v_held.who, v_held.since::timestamptz(0)) end;
  advice := case when not ok then v_held.advice end;
  return next;

  "check" := 'schedules';
  select count(*), string_agg(s.name, ', ' order by s.name) into v_steps, value
    from taskq.schedule s where s.error is not null or taskq._ran_ahead(s.last_run_at);
  ok := v_steps = 0;
  "limit" := null;
  advice := case when not ok then 'Their last round failed, or they ran ahead while the clock was wrong: see last_error and last_run_at in taskq.schedules, and call taskq.schedule again with what is right.' end;
  return next;

  "check" := 'clock';
  select format('%s s at %s', round(j.seconds::numeric, 1), j.at), j.at < taskq._now() - interval '1 hour' into value, ok
    from taskq._clock_jump() j;
  ok := coalesce(ok, true);
  "limit" := '5 s in the last hour';
  advice := case when not ok then 'The server''s clock was set, or the machine stood still. What was due in between is late or early by that; look at its time service.' end;
  return next;

  "check" := 'rights';
  select count(*), string_agg(format('%s of %s', m.part, m.role), ', '),
         'They lack what was added to these parts: ' || string_agg(format('select taskq.grant_%s(%L)', m.part, quote_ident(m.role)), '; ')
    into v_steps, value, advice
    from taskq._rights_missing() m;
  ok := v_steps = 0;
  "limit" := null;
  return next;

  "check" := 'open alerts';
  value := (select count(*)::text from taskq.alert a where a.cleared_at is null and a.acknowledged_at is null);
  "limit" := '0';
  ok := value = '0';
  advice := case when not ok then 'See taskq.alerts and taskq.dead_letters; redrive, purge or acknowledge.' end;
  return next;
end
$$;
comment on function taskq.health is
  'Checks the installation and the keeper: what is wrong, and what to do about it.';

-- The last statement of CREATE EXTENSION starts this database's keeper when it commits.
create function taskq._start_keeper() returns void
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_start_keeper';
comment on function taskq._start_keeper() is
  'Starts the keeper of this database when the transaction commits; nothing if the library is not preloaded.';
