-- Schedules: tasks that are enqueued at the times a cron expression names, in a time zone. When that is
-- says src/cron; here is what becomes of it. Each occurrence is enqueued once: the transaction that
-- enqueues it holds the row of the schedule and moves next_run_at past it.

create function taskq._cron_next(cron text, time_zone text, after timestamptz) returns timestamptz
  language c stable parallel safe
  as 'MODULE_PATHNAME', 'taskq_cron_next';
comment on function taskq._cron_next(text, text, timestamptz) is
  'The first occurrence after a moment; NULL if there is none. 22023 says where a bad expression is wrong.';

create function taskq._cron_due(cron text, time_zone text, next_run_at timestamptz, missed_before timestamptz, until timestamptz,
                                keep integer)
  returns table (runs timestamptz[], left_out bigint, following_at timestamptz)
  language c stable parallel safe rows 1
  as 'MODULE_PATHNAME', 'taskq_cron_due';
comment on function taskq._cron_due(text, text, timestamptz, timestamptz, timestamptz, integer) is
  'What a round enqueues of the occurrences from next_run_at until now: all that are in time, and so many of the missed ones, the last; how many are left out; and the one with which the next round begins.';

-- Names of zones as the IANA gives them. PostgreSQL takes more for a zone, such as abbreviations and
-- POSIX rules, in which a misspelt name becomes UTC.
create function taskq._check_time_zone(time_zone text) returns text
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_name text := 'UTC';
begin
  if _check_time_zone.time_zone is distinct from 'UTC' then
    v_name := (select min(z.name) from pg_timezone_names z where lower(z.name) = lower(_check_time_zone.time_zone));
  end if;
  -- Some of these names are abbreviations as well, and PostgreSQL takes them for those: one offset for summer and winter.
  if exists (select from pg_timezone_abbrevs a
              where a.abbrev = upper(v_name) and a.abbrev not in ('UTC', 'UCT', 'GMT', 'ZULU')) then
    perform taskq._refuse('22023', format('%s is an abbreviation, which knows no summer time', v_name),
                          'Give a name such as ''Europe/Berlin''; pg_timezone_names has them all.');
  end if;
  if v_name is null then
    perform taskq._refuse('22023', case when _check_time_zone.time_zone is null then 'time_zone must not be null'
                                        else 'there is no time zone of that name' end,
                          'Give a name such as ''Europe/Berlin'' or ''UTC''; pg_timezone_names has them all.');
  end if;
  return v_name;
end
$$;
comment on function taskq._check_time_zone(text) is
  'The name of a time zone in its right spelling; 22023 if there is none.';

-- What the worker gets to know about the occurrence.
create function taskq._schedule_headers(schedule text, at timestamptz) returns jsonb
  language sql stable set search_path = pg_catalog, pg_temp
  return jsonb_build_object('schedule', _schedule_headers.schedule, 'scheduled_at',
                            to_char(_schedule_headers.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));
comment on function taskq._schedule_headers(text, timestamptz) is
  'The headers of a task that a schedule enqueues: schedule and scheduled_at.';

-- What has run lies ahead of us: the clock was wrong then. (A clock that is set back by less must not have what has run
-- run again.)
create function taskq._ran_ahead(last_run_at timestamptz) returns boolean
  language sql volatile set search_path = pg_catalog, pg_temp
  return _ran_ahead.last_run_at > taskq._now() + interval '1 hour';
comment on function taskq._ran_ahead(timestamptz) is
  'Whether a schedule''s last run is more than an hour ahead, so that the clock was wrong; NULL if it never ran.';

-- schedule: makes or changes a schedule, and says all of it: what is not given has its default again.
--   name        of the schedule, 1 to 63 bytes
--   cron        five fields, or six with seconds first, or a nickname such as @daily
--   task_type, payload   of the tasks
--   time_zone   an IANA name: cron means the clocks there
--   settings    queue, priority, max_retries: as for enqueue; paused; missed and max_missed: what
--               becomes of occurrences that came while no keeper was there, see _run_schedule
-- Called again with the same arguments it changes nothing, but for a schedule that ran ahead while the clock was wrong: that
-- begins anew. A change does not bring back what is past:
-- the next run is the first one from now on. (Where cron and zone stay as they are, so does the next
-- run, if it is not missed already: a change of the payload loses no occurrence.)
-- Errors: 22023 for bad arguments, with the position in cron; 54000 if the payload is too large.
-- Writes: schedule. Waits for a round of the duty that just has the row.
create function taskq.schedule(name text, cron text, task_type text, payload jsonb = '{}', time_zone text = 'UTC',
                               settings jsonb = '{}')
  returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz;
  v_new taskq.schedule;
begin
  v_new.name := taskq._check_name('name', schedule.name);
  v_new.task_type := taskq._check_name('task_type', schedule.task_type);
  v_new.payload := coalesce(schedule.payload, '{}');
  v_new.settings := jsonb_strip_nulls(taskq._check_settings('schedule', schedule.settings));
  v_new.cron := schedule.cron;
  v_new.time_zone := taskq._check_time_zone(schedule.time_zone);
  -- The clock is read after the wait for a round that has the row: what that enqueued is past.
  perform from taskq.schedule s where s.name = v_new.name for no key update;
  v_now := taskq._now();
  v_new.next_run_at := taskq._cron_next(v_new.cron, v_new.time_zone, v_now);
  if v_new.next_run_at is null then
    perform taskq._refuse('22023', 'the cron expression never comes true',
                          'No year has such a day. Write it like ''0 0 28 2 *'', or ''0 0 L 2 *'' for the last day of February.');
  end if;
  perform taskq._check_size('the payload with its headers', v_new.payload,
                            taskq._schedule_headers(v_new.name, v_new.next_run_at));
  if coalesce((v_new.settings -> 'paused')::boolean, false) then
    v_new.next_run_at := null;
  end if;
  insert into taskq.schedule as s (name, cron, time_zone, task_type, payload, settings, next_run_at, updated_at)
  values (v_new.name, v_new.cron, v_new.time_zone, v_new.task_type, v_new.payload, v_new.settings, v_new.next_run_at, v_now)
      on conflict on constraint schedule_pkey do update
     set cron = excluded.cron, time_zone = excluded.time_zone, task_type = excluded.task_type, payload = excluded.payload,
         settings = excluded.settings, updated_at = excluded.updated_at, error = null, error_at = null,
         next_run_at = case when s.cron = excluded.cron and s.time_zone = excluded.time_zone and excluded.next_run_at is not null
                             and s.next_run_at >= v_now - interval '60 seconds' and not coalesce(taskq._ran_ahead(s.last_run_at), false)
                            then s.next_run_at else excluded.next_run_at end,
         last_run_at = case when not taskq._ran_ahead(s.last_run_at) then s.last_run_at end
   -- (as text, because 1 and 1.0 are equal as jsonb)
   where (s.cron, s.time_zone, s.task_type, s.payload::text, s.settings::text)
      is distinct from (excluded.cron, excluded.time_zone, excluded.task_type, excluded.payload::text, excluded.settings::text)
      or taskq._ran_ahead(s.last_run_at);
end
$$;
comment on function taskq.schedule is
  'Has a task enqueued whenever a cron expression comes true in a time zone. Settings: queue, priority, max_retries, paused, missed, max_missed. The same name again replaces the schedule; the same arguments again change nothing.';

-- unschedule: ends a schedule. Tasks that it has enqueued stay. Returns whether it was there.
-- Errors: 22023. Writes: schedule.
create function taskq.unschedule(name text) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskq._check_name('name', unschedule.name);
  delete from taskq.schedule s where s.name = unschedule.name;
  return found;
end
$$;
comment on function taskq.unschedule is
  'Ends a schedule; what it has enqueued stays. Returns whether there was one of that name.';

-- Enqueues what is due of one schedule, whose row the caller holds; at most 1000 occurrences, the next
-- round goes on. One that is older than 60 seconds was missed: no keeper was there. Of the missed ones
-- run_once enqueues the last, run_all the last max_missed, skip none.
-- Writes: task, schedule.
create function taskq._run_schedule(schedule taskq.schedule, now timestamptz) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_settings jsonb := (_run_schedule.schedule).settings;
  v_due      record;
  v_at       timestamptz;
  v_id       bigint;
begin
  select * into v_due
    from taskq._cron_due((_run_schedule.schedule).cron, (_run_schedule.schedule).time_zone,
                         (_run_schedule.schedule).next_run_at, _run_schedule.now - interval '60 seconds', _run_schedule.now,
                         case v_settings ->> 'missed' when 'skip' then 0
                           when 'run_all' then coalesce((v_settings -> 'max_missed')::integer, 100)
                           else 1 end);
  foreach v_at in array v_due.runs loop
    v_id := taskq.enqueue((_run_schedule.schedule).task_type, (_run_schedule.schedule).payload,
                          queue => v_settings ->> 'queue', priority => (v_settings -> 'priority')::integer,
                          run_at => v_at, max_retries => (v_settings -> 'max_retries')::integer,
                          headers => taskq._schedule_headers((_run_schedule.schedule).name, v_at));
  end loop;
  update taskq.schedule s
     set next_run_at = v_due.following_at, last_run_at = coalesce(v_at, s.last_run_at),
         last_task_id = coalesce(v_id, s.last_task_id), missed = s.missed + v_due.left_out, error = null, error_at = null
   where s.name = (_run_schedule.schedule).name;
end
$$;
comment on function taskq._run_schedule(taskq.schedule, timestamptz) is
  'Enqueues what is due of one schedule and moves it on.';

-- One round of the schedule duty: up to 100 schedules. One that fails says so in its own row, is tried
-- again a minute later, and stops no other. Passes by rows that others have locked. Returns how many
-- schedules moved on.
-- Writes: task, schedule.
create function taskq._duty_schedule() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now      timestamptz := taskq._now();
  v_name     text;
  v_schedule taskq.schedule;
  v_count    bigint := 0;
  v_code     text;
  v_error    text;
begin
  for v_name in
    select s.name from taskq.schedule s
     where s.next_run_at <= v_now
       and (s.error_at is null or s.error_at not between v_now - interval '1 minute' and v_now)
     order by s.next_run_at, s.name limit 100
  loop
    -- Another one may have been faster: only the row as it is now counts.
    select s.* into v_schedule from taskq.schedule s
     where s.name = v_name and s.next_run_at <= v_now
       for no key update skip locked;
    continue when not found;
    begin
      perform taskq._run_schedule(v_schedule, v_now);
      v_count := v_count + 1;
    exception
      when query_canceled then
        raise;
      when others then
        get stacked diagnostics v_code = returned_sqlstate, v_error = message_text;
        update taskq.schedule s set error = concat_ws(': ', v_code, v_error), error_at = v_now where s.name = v_name;
    end;
  end loop;
  return v_count;
end
$$;
comment on function taskq._duty_schedule() is
  'One round of the schedule duty: enqueues the occurrences of schedules that are due, each once.';

-- A zone may be gone after an update of the system; the view shows the rest all the same.
create function taskq._local_time(at timestamptz, time_zone text) returns timestamp
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return _local_time.at at time zone _local_time.time_zone;
exception when invalid_parameter_value then
  return null;
end
$$;
comment on function taskq._local_time(timestamptz, text) is
  'What clocks in a zone show at a moment; NULL if there is no such zone.';

create view taskq.schedules as
  select s.name, s.cron, s.time_zone, s.task_type,
         coalesce(s.settings operator(pg_catalog.->>) 'queue', t.queue, 'default') as queue,
         coalesce((s.settings operator(pg_catalog.->) 'paused')::boolean, false) as paused,
         s.last_run_at,
         s.last_run_at at time zone 'UTC' as last_run_utc,
         taskq._local_time(s.last_run_at, s.time_zone) as last_run_local,
         s.next_run_at,
         s.next_run_at at time zone 'UTC' as next_run_utc,
         taskq._local_time(s.next_run_at, s.time_zone) as next_run_local,
         s.last_task_id, s.missed, s.error as last_error, s.error_at, s.settings, s.payload, s.updated_at
    from taskq.schedule s
    left join taskq.task_type t on t.name operator(pg_catalog.=) s.task_type;
comment on view taskq.schedules is 'The schedules: when each ran last and will run next, and what is wrong with it.';
comment on column taskq.schedules.queue is 'The queue of its tasks, by its own setting or that of the type.';
comment on column taskq.schedules.paused is 'Whether it enqueues nothing for now.';
comment on column taskq.schedules.last_run_utc is 'last_run_at, as clocks in UTC show it.';
comment on column taskq.schedules.last_run_local is 'last_run_at, as clocks in its time zone show it; NULL if the server does not know the zone any more.';
comment on column taskq.schedules.next_run_utc is 'next_run_at, as clocks in UTC show it.';
comment on column taskq.schedules.next_run_local is 'next_run_at, as clocks in its time zone show it; NULL if the server does not know the zone any more.';
comment on column taskq.schedules.last_error is 'Why its last round failed; NULL if it went well. It is tried again every minute.';
do $$
declare
  v_column record;
begin
  -- The other columns are those of the table.
  for v_column in
    select a.attname as name, pg_catalog.col_description(b.attrelid, b.attnum) as comment
      from pg_catalog.pg_attribute a
      join pg_catalog.pg_attribute b on b.attname operator(pg_catalog.=) a.attname
                                    and b.attrelid operator(pg_catalog.=) 'taskq.schedule'::pg_catalog.regclass
     where a.attrelid operator(pg_catalog.=) 'taskq.schedules'::pg_catalog.regclass
       and pg_catalog.col_description(a.attrelid, a.attnum) is null
  loop
    execute pg_catalog.format('comment on column taskq.schedules.%I is %L', v_column.name, v_column.comment);
  end loop;
end
$$;
