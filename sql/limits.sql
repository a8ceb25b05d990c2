-- Limits of queues: max_running and rate. The claim takes slots and tokens (src/permits.rs); here they
-- are made, and kept right.

-- '100/minute' and so on, taken apart: how many, in how many seconds. NULL if it is none.
create function taskq._rate_parts(rate text, out number integer, out seconds integer)
  language sql immutable parallel safe set search_path = pg_catalog, pg_temp
  return case when _rate_parts.rate ~ '^[1-9][0-9]{0,6}/(second|minute|hour|day)$'
              then row(split_part(_rate_parts.rate, '/', 1)::integer,
                       case split_part(_rate_parts.rate, '/', 2) when 'second' then 1 when 'minute' then 60
                            when 'hour' then 3600 else 86400 end) end;
comment on function taskq._rate_parts(text) is
  'A rate such as 100/minute as a number and the seconds of its unit; NULL if it is not written so.';

-- With as many tokens as the burst, each free again so much later, the rate is kept.
create function taskq._token_period(rate text, burst integer) returns double precision
  language sql immutable parallel safe set search_path = pg_catalog, pg_temp
  return (select coalesce(_token_period.burst, p.number) * p.seconds / p.number::double precision
            from taskq._rate_parts(_token_period.rate) p);
comment on function taskq._token_period(text, integer) is
  'After how many seconds a token that was used is free again; NULL without a rate.';

-- Makes the slots of a queue as they should be: one for each running task, and free ones up to
-- max_running. Tasks that were claimed before the limit was set or lowered may have slots above it: these
-- go when the tasks end, and for each of them a free slot stays unused until then (see slot_lock.sql).
-- Returns how many tasks got or lost a slot.
-- Writes: slot. Passes by slots that others have locked. Callers hold the row of the queue, so that only
-- one does this.
create function taskq._set_slots(queue text, max_running integer) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_mended bigint;
  v_task   bigint;
begin
  if _set_slots.max_running is null then
    delete from taskq.slot s
     where s.queue = _set_slots.queue
       and s.slot in (select f.slot from taskq.slot f where f.queue = _set_slots.queue for update skip locked);
    return 0;
  end if;
  -- A task and its slot change in one transaction, so one snapshot sees both or none.
  update taskq.slot s set task_id = null
   where s.queue = _set_slots.queue
     and s.slot in (select u.slot from taskq.slot u
                     where u.queue = _set_slots.queue and u.task_id is not null
                       and not exists (select from taskq.task t where t.id = u.task_id and t.state = 'running')
                       for update skip locked);
  get diagnostics v_mended = row_count;
  -- (ON CONFLICT alone would wait for open transactions that have changed a slot.)
  insert into taskq.slot (queue, slot)
  select _set_slots.queue, n from generate_series(1, _set_slots.max_running) n
   where not exists (select from taskq.slot s where s.queue = _set_slots.queue and s.slot = n)
      on conflict do nothing;
  for v_task in
    select t.id from taskq.task t
     where t.queue = _set_slots.queue and t.state = 'running'
       and not exists (select from taskq.slot s where s.queue = _set_slots.queue and s.task_id = t.id)
     order by t.id
  loop
    v_mended := v_mended + 1;
    update taskq.slot s set task_id = v_task
     where s.queue = _set_slots.queue
       and s.slot = (select f.slot from taskq.slot f
                      where f.queue = _set_slots.queue and f.task_id is null
                      order by f.slot limit 1 for update skip locked);
    if not found then
      insert into taskq.slot (queue, slot, task_id)
      select _set_slots.queue, coalesce(max(s.slot), 0) + 1, v_task from taskq.slot s where s.queue = _set_slots.queue;
    end if;
  end loop;
  delete from taskq.slot s
   where s.queue = _set_slots.queue
     and s.slot in (select f.slot from taskq.slot f
                     where f.queue = _set_slots.queue and f.slot > _set_slots.max_running and f.task_id is null
                       for update skip locked);
  return v_mended;
end
$$;
comment on function taskq._set_slots(text, integer) is
  'Makes the slots of a queue fit its max_running and the tasks that run.';

-- Makes as many tokens as the burst. Tokens that are there keep the time at which they are free.
-- Writes: rate_token. Passes by those above the burst that an open claim has locked; no claim uses them
-- any more.
create function taskq._set_tokens(queue text, rate text, burst integer) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_tokens integer := (select coalesce(_set_tokens.burst, p.number) from taskq._rate_parts(_set_tokens.rate) p
                        where p.number is not null);
begin
  delete from taskq.rate_token t
   where t.queue = _set_tokens.queue
     and t.token in (select u.token from taskq.rate_token u
                      where u.queue = _set_tokens.queue and u.token > coalesce(v_tokens, 0)
                        for update skip locked);
  insert into taskq.rate_token (queue, token, free_at)
  select _set_tokens.queue, n, '-infinity' from generate_series(1, v_tokens) n
   where not exists (select from taskq.rate_token t where t.queue = _set_tokens.queue and t.token = n)
      on conflict do nothing;
end
$$;
comment on function taskq._set_tokens(text, text, integer) is
  'Makes the tokens of a queue fit its rate and burst.';

-- Waits for the claims that are under way, half a second at most, and holds back new ones until the
-- transaction ends. Then waits, shorter, for those who are just ending tasks.
create function taskq._wait_for_claims(queue text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
begin
  begin
    lock table taskq.claim_gate in share mode;
  exception when lock_not_available or deadlock_detected then
    null;
  end;
  perform set_config('lock_timeout', '100ms', true);
  begin
    perform from taskq.task t
      where t.queue = _wait_for_claims.queue and t.state = 'running'
        and not exists (select from taskq.slot s where s.queue = _wait_for_claims.queue and s.task_id = t.id)
      order by t.id
        for no key update of t;
  exception when lock_not_available or deadlock_detected then
    null;
  end;
end
$$;
comment on function taskq._wait_for_claims(text) is
  'Waits, not for long, for claims that began without knowing of a new limit, and for tasks that are just ending.';

-- When settings of a queue are committed, its slots and tokens are made. Deferred to the commit, because
-- a new limit must know every task that runs: claims that began without knowing of it are waited for,
-- and no other begins until the commit is over. One that stays open for longer is not waited for; its
-- tasks get their slots from the keeper. A task that is just being ended by a transaction that stays open
-- gets one in any case: rather one slot too few until the keeper takes it back than one too many.
-- (A transaction that is prepared would hold back claims for long: it is refused, see src/transaction.rs.)
create function taskq._limits_changed() returns trigger
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_queue taskq.queue;
begin
  select q.* into v_queue from taskq.queue q where q.name = coalesce(new.name, old.name);
  if tg_op = 'INSERT' and new.max_running is distinct from v_queue.max_running then
    return null;  -- it was changed in the same transaction: that event follows
  end if;
  if v_queue.max_running < coalesce(old.max_running, 2147483647) then
    perform taskq._wait_for_claims(v_queue.name);
  end if;
  perform taskq._set_slots(coalesce(new.name, old.name), v_queue.max_running);
  perform taskq._set_tokens(coalesce(new.name, old.name), v_queue.rate, v_queue.burst);
  perform taskq._note_opened(coalesce(new.name, old.name));
  return null;
end
$$;
comment on function taskq._limits_changed() is
  'Makes slots and tokens when the limits of a queue are committed.';

-- A pause, say, makes a row too, and must not have anybody told that the queue is open.
create constraint trigger limits_set after insert on taskq.queue
  deferrable initially deferred
  for each row when (new.max_running is not null or new.rate is not null)
  execute function taskq._limits_changed();
create constraint trigger limits_altered after update of max_running, rate, burst on taskq.queue
  deferrable initially deferred
  for each row when ((new.max_running, new.rate, new.burst) is distinct from (old.max_running, old.rate, old.burst))
  execute function taskq._limits_changed();
create constraint trigger limits_gone after delete on taskq.queue
  deferrable initially deferred
  for each row when (old.max_running is not null or old.rate is not null)
  execute function taskq._limits_changed();

-- Mends the turns of groups: gives back those whose task does not run, lets a parked task of each group
-- whose turn is free return, and forgets turns that nobody needs.
-- Writes: group_turn, parked, task. Passes by rows that others have locked.
create function taskq._mend_groups() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_free record;
begin
  -- A task and its turn change in one transaction, so one snapshot sees both or none.
  update taskq.group_turn g set task_id = null
   where (g.queue, g.group_key) in (
           select u.queue, u.group_key from taskq.group_turn u
            where u.task_id is not null
              and not exists (select from taskq.task t where t.id = u.task_id and t.state = 'running')
              for update skip locked);
  for v_free in
    select p.queue, p.group_key
      from (select distinct x.queue, x.group_key from taskq.parked x) p
      left join taskq.group_turn g on g.queue = p.queue and g.group_key = p.group_key
     where g.task_id is null
     limit 1000
  loop
    perform taskq._unpark_next(v_free.queue, v_free.group_key);
  end loop;
  delete from taskq.group_turn g
   where (g.queue, g.group_key) in (
           select f.queue, f.group_key from taskq.group_turn f
            where f.task_id is null
              and not exists (select from taskq.parked p where p.queue = f.queue and p.group_key = f.group_key)
              -- as who makes one: see sql/statements/turn_make.sql
              and taskq._try_turn_lock(f.queue, f.group_key)
            limit 1000
              for update skip locked);
end
$$;
comment on function taskq._mend_groups() is
  'Mends turns of groups that do not fit what runs, so that no turn is ever lost.';

create function taskq._unpark_next(queue text, group_key text) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_unpark_next';
comment on function taskq._unpark_next(text, text) is
  'The first parked task of a group returns to its place.';

-- One round of the limits duty: slots that do not fit what runs are mended. There should be none: this is
-- for claims that outlasted the setting of a limit, for restored dumps, and for changes by hand.
create function taskq._duty_limits() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  -- The keeper, which is here often, goes by the figures. Who calls this by hand may have changed something
  -- that they do not know of, such as a dump that was just restored.
  v_exact       boolean := coalesce((select f.exact from taskq._figures_state() f), false)
                           and exists (select from pg_stat_activity a
                                        where a.pid = pg_backend_pid() and a.backend_type = 'taskq keeper');
  v_queue       record;
  v_max_running integer;
  v_mended      bigint;
  v_total       bigint := 0;
begin
  for v_queue in
    select n.name, q.max_running,
           (select count(*) from taskq.slot s where s.queue = n.name and s.task_id is not null) as used,
           (select count(*) from taskq.slot s where s.queue = n.name) as slots,
           f.running
      from (select q.name from taskq.queue q where q.max_running is not null
            union select s.queue from taskq.slot s) n
      left join taskq.queue q on q.name = n.name
      left join (select g.queue, sum(g.running) as running from taskq._figures() g group by g.queue) f on f.queue = n.name
     order by n.name
  loop
    -- (Tasks that nobody has counted yet, as in a dump that was just restored, are looked for.)
    continue when v_exact and v_queue.slots = v_queue.max_running and v_queue.used = coalesce(v_queue.running, 0);
    -- Not while somebody changes the queue; as it is now.
    select q.max_running into v_max_running from taskq.queue q where q.name = v_queue.name for no key update skip locked;
    continue when not found and exists (select from taskq.queue q where q.name = v_queue.name);
    v_mended := taskq._set_slots(v_queue.name, v_max_running);
    if v_mended > 0 then
      perform taskq._note_opened(v_queue.name);
    end if;
    v_total := v_total + v_mended;
  end loop;
  if exists (select from taskq.group_turn) or exists (select from taskq.parked) then
    perform taskq._mend_groups();
  end if;
  return v_total;
end
$$;
comment on function taskq._duty_limits() is
  'One round of the limits duty: mends slots and turns of groups that do not fit the tasks that run. Returns how many tasks got or lost a slot.';
