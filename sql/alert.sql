-- Alerts: a NOTIFY on taskq_alert, a row in alert, a line in the server log; once when a figure
-- goes over its limit, once when it is back, and again after a pause while nobody does anything.
--
-- Three functions measure: dead letters, what else is about a queue, what is about the database.
-- Each returns a figure, the limit above which an alert is raised, and the lower one at which it
-- clears, so that a figure which hovers around its limit raises one alert and not one a minute.
-- _duty_alert compares the figures with the open alerts. (They are in PL/pgSQL, because that keeps
-- the plans for the next round.)

-- A server setting that is a time, in seconds. The library must be loaded.
create function taskq._seconds_setting(name text) returns bigint
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select extract(epoch from current_setting(_seconds_setting.name)::interval)::bigint
$$;
comment on function taskq._seconds_setting(text) is
  'The value of a server setting that is a time, in seconds.';

-- Dead letters count until they are redriven, purged or acknowledged.
create function taskq._watch_dead_letters()
  returns table (kind text, queue text, value bigint, alert_limit bigint, clear_limit bigint, detail text)
  language plpgsql stable rows 10 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select 'dead_letters', d.queue, d.dead, l.alert_limit, l.alert_limit, null
    from (select x.queue, count(*) filter (where x.acknowledged_at is null) as dead
            from taskq.dead_letter x group by x.queue) d
    left join taskq.queue q on q.name = d.queue
   cross join lateral (select coalesce(q.dead_letters_limit, taskq._default_dead_letters_limit())::bigint as alert_limit) l;
end
$$;
comment on function taskq._watch_dead_letters() is
  'Of each queue that has dead letters: how many nobody has acknowledged.';

-- The oldest ready task of each queue, found by stepping from lane to lane along task_ready_idx: one
-- probe for the lane's first row and one for its first waiting one. Running tasks stand at the head
-- of their lane; only these are passed by, so the number of waiting ones does not matter.
-- The planner's switches: statistics of a moment when the table was empty must not lead to a sort.
create function taskq._oldest_ready(at timestamptz)
  returns table (queue text, run_at timestamptz, claimable_at timestamptz, first_runs boolean)
  language sql stable rows 10 set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  with recursive lane as (
    (select t.queue, t.priority, t.lease_expires_at
       from taskq.task t
      order by t.queue, t.priority desc, t.run_at, t.id
      limit 1)
    union all
    select next_lane.queue, next_lane.priority, next_lane.lease_expires_at
      from lane l
     cross join lateral (
       (select t.queue, t.priority, t.lease_expires_at
          from taskq.task t
         where t.queue = l.queue and t.priority < l.priority
         order by t.queue, t.priority desc, t.run_at, t.id
         limit 1)
       union all
       (select t.queue, t.priority, t.lease_expires_at
          from taskq.task t
         where t.queue > l.queue
         order by t.queue, t.priority desc, t.run_at, t.id
         limit 1)
       limit 1) next_lane
  )
  select l.queue, min(w.run_at), min(greatest(w.run_at, w.enqueued_at)),
         coalesce(bool_or(l.lease_expires_at > _oldest_ready.at), false)
    from lane l
    left join lateral (
      select t.run_at, t.enqueued_at
        from taskq.task t
       where t.queue = l.queue and t.priority = l.priority and t.run_at <= _oldest_ready.at and t.state = 'waiting'
       order by t.queue, t.priority desc, t.run_at, t.id
       limit 1) w on true
   group by l.queue
  having min(w.run_at) is not null
$$;
comment on function taskq._oldest_ready(timestamptz) is
  'Of each queue with ready tasks: since when the oldest has been due and could be claimed (not before it was enqueued), and whether a lane begins with a running task.';

-- Whether anybody has worked on the queue since then: claimed from it, or held a task of it. The
-- samples say so; for the time since the last one, tasks that ended meanwhile do.
create function taskq._worked_on(queue text, since timestamptz) returns boolean
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from taskq.sample s
                  where s.at > _worked_on.since and s.queue = _worked_on.queue and (s.started > 0 or s.running > 0))
      or exists (select from taskq.done f
                  where f.queue = _worked_on.queue and f.finished_at > _worked_on.since and f.claimed_at is not null)
      or exists (select from taskq.dead_letter d
                  where d.queue = _worked_on.queue and d.died_at > _worked_on.since)
$$;
comment on function taskq._worked_on(text, timestamptz) is
  'Whether a worker claimed from the queue, or held a task of it, after that moment.';

-- Of a paused queue nobody wants to hear that its tasks wait.
create function taskq._watch_queues(at timestamptz)
  returns table (kind text, queue text, value bigint, alert_limit bigint, clear_limit bigint, detail text)
  language plpgsql stable rows 10 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  with ready as materialized (
    select r.queue, q.paused_at is not null as paused, r.first_runs,
           floor(extract(epoch from _watch_queues.at - r.run_at))::bigint as age,
           -- after a pause or a restart the workers get their time, too
           floor(extract(epoch from _watch_queues.at
                                    - greatest(r.claimable_at, q.updated_at, pg_postmaster_start_time())))::bigint as unclaimed_age,
           floor(extract(epoch from coalesce(q.oldest_ready_limit, taskq._default_oldest_ready_limit())))::bigint as oldest_limit,
           floor(extract(epoch from coalesce(q.unclaimed_limit, taskq._default_unclaimed_limit())))::bigint as unclaimed_limit
      from taskq._oldest_ready(_watch_queues.at) r
      left join taskq.queue q on q.name = r.queue
  )
  select 'oldest_ready', r.queue, case when r.paused then 0 else r.age end, r.oldest_limit, r.oldest_limit * 3 / 4, null
    from ready r
  union all
  select 'unclaimed', r.queue,
         case when r.paused or r.first_runs then 0
              when r.unclaimed_age <= r.unclaimed_limit then r.unclaimed_age
              when taskq._worked_on(r.queue, _watch_queues.at - make_interval(secs => r.unclaimed_limit)) then 0
              else r.unclaimed_age end,
         r.unclaimed_limit, r.unclaimed_limit, null
    from ready r
  union all
  select 'expired_leases', s.queue, s.expired, l.alert_limit, l.alert_limit * 3 / 4, null
    from (select x.queue, sum(x.expired)::bigint as expired
            from taskq.sample x
           where x.at > _watch_queues.at - interval '10 minutes' and x.at <= _watch_queues.at
           group by x.queue) s
    left join taskq.queue q on q.name = s.queue
   cross join lateral (select coalesce(q.expired_leases_limit, taskq._default_expired_leases_limit())::bigint as alert_limit) l;
end
$$;
comment on function taskq._watch_queues(timestamptz) is
  'Of each queue: the age of its oldest ready task, of one that nobody claims, and the leases that ended in the last 10 minutes.';

-- What keeps vacuum from removing what has been finished: the oldest first.
-- Transactions of other databases count once they have written: every new snapshot looks back to
-- them. VACUUM itself holds nothing back. A slot or a standby says which transaction id it holds,
-- not since when: horizon knows that. It also knows better than the transaction's start for one
-- that takes a new snapshot with each statement. (While nothing is written, nothing is held back.)
create function taskq._vacuum_holders()
  returns table (kind text, who text, since timestamptz, transactions bigint, advice text)
  language sql stable rows 10 set search_path = pg_catalog, pg_temp as $$
  with held(kind, who, began_at, age, has_id, advice) as (
    select 'session', format('session %s (%s)', a.pid, concat_ws(', ', a.usename, a.datname, nullif(a.application_name, ''))),
           a.xact_start, greatest(age(a.backend_xid), case when a.datname = current_database() then age(a.backend_xmin) end),
           a.backend_xid is not null, format('End its transaction, or the session: select pg_terminate_backend(%s).', a.pid)
      from pg_stat_activity a
     where (a.backend_xid is not null or a.backend_xmin is not null and a.datname = current_database())
       and a.leader_pid is null
       and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
    union all
    select 'standby', format('standby %s', coalesce(quote_ident(nullif(a.application_name, '')), a.pid::text)), null, age(a.backend_xmin),
           false, 'End the long query there, or set hot_standby_feedback = off there.'
      from pg_stat_activity a
     where a.backend_type = 'walsender' and a.datid is null and a.backend_xmin is not null
    union all
    select 'replication slot', format('replication slot %s', quote_ident(s.slot_name)), null, greatest(age(s.xmin), age(s.catalog_xmin)), false,
           format('Let what reads from it catch up; if it is gone for good: select pg_drop_replication_slot(%L).', s.slot_name)
      from pg_replication_slots s
     where s.xmin is not null or s.catalog_xmin is not null
    union all
    select 'prepared transaction', format('prepared transaction %L (%s, %s)', p.gid, p.owner, p.database), p.prepared, age(p.transaction), true,
           format('In database %s: COMMIT PREPARED %L or ROLLBACK PREPARED %2$L.', quote_ident(p.database), p.gid)
      from pg_prepared_xacts p
  )
  select h.kind, h.who, greatest(h.began_at, coalesce(n.at, case when h.began_at is null then first.at end)), h.age::bigint, h.advice
    from held h
   cross join (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xid) next
   cross join (select min(x.at) as at from taskq.horizon x) first
    left join lateral (select x.at from taskq.horizon x where x.next_xid <= next.xid - h.age order by x.at desc limit 1) n on true
   order by h.age desc, h.has_id desc, 3
$$;
comment on function taskq._vacuum_holders() is
  'What holds back vacuum, the oldest first: who, since when (NULL: not known), how many transactions ago, and what to do.';

-- Of several holders the oldest counts: the others change nothing before it has ended.
-- The alert duty itself is just running, so it is not late.
create function taskq._watch_database()
  returns table (kind text, queue text, value bigint, alert_limit bigint, clear_limit bigint, detail text)
  language plpgsql stable rows 2 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select 'keeper_late', null, coalesce(max(d.late), 0), l.alert_limit, l.alert_limit * 3 / 4,
         string_agg(d.name, ', ' order by d.name) filter (where d.late > l.alert_limit * 3 / 4)
    from (select taskq._seconds_setting('taskq.keeper_late_limit') as alert_limit) l
    left join (select x.name,
                      greatest(0, floor(extract(epoch from clock_timestamp() - greatest(x.finished_at, k.since) - x.every)))::bigint as late
                 from taskq.duty x
                cross join (select min(a.backend_start) as since from pg_stat_activity a
                             where a.backend_type = 'taskq keeper' and a.datname = current_database()) k
                where x.name <> 'alert') d on true
   group by l.alert_limit
  union all
  select 'vacuum_held', null, coalesce(floor(extract(epoch from clock_timestamp() - h.since))::bigint, 0), l.alert_limit,
         l.alert_limit * 3 / 4, h.who
    from (select taskq._seconds_setting('taskq.vacuum_held_limit') as alert_limit) l
    left join (select x.who, x.since from taskq._vacuum_holders() x where x.since is not null limit 1) h on true;
end
$$;
comment on function taskq._watch_database() is
  'How many seconds the duty is late that is latest, and for how many seconds vacuum has been held back.';

-- One round of the alert duty. Returns how many alerts were raised, repeated or cleared.
-- The keeper comes every second for the dead letters; at the rest it looks every 10 seconds. All
-- others get everything at once.
-- Writes: alert, horizon. Notifies: taskq_alert.
create function taskq._duty_alert() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := taskq._now();
  v_clock  timestamptz := clock_timestamp();
  v_repeat interval := make_interval(secs => taskq._seconds_setting('taskq.alert_repeat'));
  v_count  bigint := 0;
  v_all    boolean;
  v_found  record;
  v_alert  taskq.alert;
  v_state  text;
begin
  v_all := not exists (select from taskq.horizon h where h.at > v_clock - interval '10 seconds' and h.at <= v_clock)
           or not exists (select from pg_stat_get_activity(pg_backend_pid()) a where a.backend_type = 'taskq keeper');
  -- an old transaction may have an old snapshot, which says what came next then, not now
  if v_all and now() > v_clock - interval '1 second' then
    delete from taskq.horizon h where h.at < v_clock - interval '24 hours' or h.at > v_clock;
    insert into taskq.horizon (at, next_xid) values (v_clock, pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
        on conflict do nothing;
  end if;
  for v_found in
    select a.id, coalesce(a.kind, f.kind) as kind, coalesce(a.queue, f.queue) as queue, coalesce(f.value, 0) as value,
           f.alert_limit, coalesce(f.value <= f.clear_limit, true) as back, f.detail, a.detail as old_detail,
           a.acknowledged_at is null and v_repeat > interval '0' and coalesce(a.repeated_at, a.raised_at) <= v_now - v_repeat as again
      from (select d.* from taskq._watch_dead_letters() d
            union all select q.* from taskq._watch_queues(v_now) q where v_all
            union all select b.* from taskq._watch_database() b where v_all) f
      full join (select x.* from taskq.alert x
                  where x.cleared_at is null and (v_all or x.kind = 'dead_letters')) a
        on a.kind = f.kind and coalesce(a.queue, '') = coalesce(f.queue, '')
     where a.id is not null or f.value > f.alert_limit
     order by 2, 3
  loop
    v_state := null;
    if v_found.id is not null then
      -- (A lock costs a transaction id: not where nothing is new.)
      continue when not (v_found.back or v_found.again or v_found.detail is distinct from v_found.old_detail);
      -- Whoever is just acknowledging it is not waited for: the next round comes soon.
      perform from taskq.alert a where a.id = v_found.id for no key update skip locked;
      continue when not found;
    end if;
    -- each looks again at what another round may have done meanwhile
    if v_found.id is null then
      insert into taskq.alert (kind, queue, value, alert_limit, detail, raised_at)
      values (v_found.kind, v_found.queue, v_found.value, v_found.alert_limit, v_found.detail, v_now)
          on conflict do nothing
      returning * into v_alert;
      v_state := case when found then 'raised' end;
    elsif v_found.back then
      update taskq.alert a set cleared_at = v_now
       where a.id = v_found.id and a.cleared_at is null
      returning * into v_alert;
      v_state := case when found then 'cleared' end;
    elsif v_found.again then
      update taskq.alert a
         set repeated_at = v_now, value = v_found.value, alert_limit = v_found.alert_limit, detail = v_found.detail
       where a.id = v_found.id and a.cleared_at is null and a.acknowledged_at is null
         and coalesce(a.repeated_at, a.raised_at) <= v_now - v_repeat
      returning * into v_alert;
      v_state := case when found then 'repeated' end;
    elsif v_found.detail is distinct from v_found.old_detail then
      update taskq.alert a set detail = v_found.detail where a.id = v_found.id and a.cleared_at is null;
    end if;
    if v_state is not null then
      perform taskq._announce(v_alert, v_state, v_found.value, v_now);
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end
$$;
comment on function taskq._duty_alert() is
  'One round of the alert duty: raises, repeats and clears alerts.';

-- Tells the world about an alert. The payload has names, ids and counts only, and stays below
-- 1,000 bytes, because a queue's name has 63 at most.
create function taskq._announce(alert taskq.alert, state text, value bigint, at timestamptz) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_notify('taskq_alert', jsonb_build_object(
    'alert_id', (_announce.alert).id, 'kind', (_announce.alert).kind, 'queue', (_announce.alert).queue,
    'state', _announce.state, 'value', _announce.value, 'limit', (_announce.alert).alert_limit,
    'at', _announce.at)::text);
  perform taskq._log(format('taskq alert %s %s: %s%s is %s (limit %s)', (_announce.alert).id, _announce.state,
    (_announce.alert).kind, ' in queue "' || (_announce.alert).queue || '"', _announce.value, (_announce.alert).alert_limit));
end
$$;
comment on function taskq._announce(taskq.alert, text, bigint, timestamptz) is
  'Sends an alert by NOTIFY taskq_alert and to the server log.';

-- acknowledge: a person has seen an alert. It is not repeated any more. If it is about dead letters,
-- these do not count any more, so it clears, and a new one is raised only when others exceed the
-- limit again. Any other stays open, silent, until its figure is back.
-- Errors: 22023 if there is no such alert.
-- Locks: the row of alert, then the rows of dead_letter by rising id.
-- Writes: alert, dead_letter.
create function taskq.acknowledge(alert_id bigint) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := taskq._now();
  v_alert taskq.alert;
begin
  select a.* into v_alert from taskq.alert a where a.id = acknowledge.alert_id for update;
  if not found then
    perform taskq._refuse('22023', 'there is no such alert', 'See taskq.alerts for the ids.');
  end if;
  if v_alert.acknowledged_at is not null then
    return;
  end if;
  update taskq.alert a set acknowledged_at = v_now, acknowledged_by = session_user where a.id = v_alert.id;
  if v_alert.cleared_at is null and v_alert.kind = 'dead_letters' then
    with seen as materialized (
      select d.id from taskq.dead_letter d
       where d.queue = v_alert.queue and d.acknowledged_at is null
       order by d.id
         for no key update
    )
    update taskq.dead_letter d set acknowledged_at = v_now from seen s where d.id = s.id;
  end if;
end
$$;
comment on function taskq.acknowledge is
  'Notes that a person has seen an alert: it is not repeated any more, and the dead letters it counted do not count any more.';
