-- Operators: settings of queues and task types, changed without a deploy.

-- The settings there are: scope, name, type, bounds (seconds for intervals), default, meaning.
create function taskq._settings()
  returns table (scope text, name text, type text, low double precision, high double precision, fallback jsonb, meaning text)
  language sql immutable rows 14 set search_path = pg_catalog, pg_temp
  set intervalstyle = 'postgres' as $$
  values
    ('queue', 'lease',              'interval', 0.001, 31622400,   to_jsonb(taskq._default_lease()::text),
     'how long a claim holds a task'),
    ('queue', 'retention',          'interval', 0,     3155760000, to_jsonb(taskq._default_retention()::text),
     'how long finished tasks stay in done; 0 keeps nothing'),
    ('queue', 'dead_letters_limit', 'integer',  0,     2147483647, to_jsonb(taskq._default_dead_letters_limit()),
     'an alert is raised above so many dead letters'),
    ('queue', 'max_running',        'integer',  0,     10000,      'null'::jsonb,
     'no more tasks run at once; unset: no limit'),
    ('queue', 'rate',               'rate',     null,  null,       'null'::jsonb,
     'no more tasks begin in a time, such as "100/minute"; unset: no limit'),
    ('queue', 'burst',              'integer',  1,     10000,      'null'::jsonb,
     'how many of the rate may begin at once; unset: the number in the rate'),
    ('queue', 'oldest_ready_limit', 'interval', 1,     3155760000, to_jsonb(taskq._default_oldest_ready_limit()::text),
     'an alert is raised when a task has been ready for longer'),
    ('queue', 'expired_leases_limit', 'integer', 0,    2147483647, to_jsonb(taskq._default_expired_leases_limit()),
     'an alert is raised above so many leases that end within 10 minutes'),
    ('queue', 'unclaimed_limit',    'interval', 1,     3155760000, to_jsonb(taskq._default_unclaimed_limit()::text),
     'an alert is raised when a task has been ready for longer and nobody claims'),
    ('type',  'queue',              'name',     null,  null,       to_jsonb('default'::text),
     'the queue of new tasks'),
    ('type',  'priority',           'integer',  -100,  100,        to_jsonb(0),
     'the priority of new tasks; higher is claimed first'),
    ('type',  'max_retries',        'integer',  0,     1000000,    to_jsonb(3),
     'retries of new tasks after the first run'),
    ('type',  'lease',              'interval', 0.001, 31622400,   'null'::jsonb,
     'how long a claim holds a task; unset: the lease of the queue'),
    ('type',  'backoff_base',       'interval', 0,     3155760000, to_jsonb('00:00:30'::text),
     'wait after the first failure'),
    ('type',  'backoff_factor',     'number',   1,     1000,       to_jsonb(2),
     'what each further wait is multiplied with'),
    ('type',  'backoff_cap',        'interval', 0,     3155760000, to_jsonb('06:00:00'::text),
     'no wait is longer, before jitter'),
    ('type',  'jitter',             'number',   0,     1,          to_jsonb(0.1),
     'the largest share of a wait that is added at random'),
    ('schedule', 'queue',           'name',     null,  null,       'null'::jsonb,
     'the queue of its tasks; unset: that of the type'),
    ('schedule', 'priority',        'integer',  -100,  100,        'null'::jsonb,
     'the priority of its tasks; unset: that of the type'),
    ('schedule', 'max_retries',     'integer',  0,     1000000,    'null'::jsonb,
     'retries of its tasks; unset: those of the type'),
    ('schedule', 'missed',          'missed',   null,  null,       to_jsonb('run_once'::text),
     'what becomes of missed occurrences: "run_once", "skip" or "run_all"'),
    ('schedule', 'max_missed',      'integer',  1,     10000,      to_jsonb(100),
     'how many missed occurrences run_all runs, the last ones'),
    ('schedule', 'paused',          'boolean',  null,  null,       to_jsonb(false),
     'whether it enqueues nothing')
$$;
comment on function taskq._settings() is
  'Every setting of queues, types and schedules with its type, bounds and default.';

-- Checks settings and returns them clean. Errors: 22023, naming the setting and the valid ones.
create function taskq._check_settings(scope text, settings jsonb) returns jsonb
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_given   record;
  v_setting record;
  v_valid   text := (select string_agg(format('%s (%s)', s.name, s.meaning), ', ')
                       from taskq._settings() s where s.scope = _check_settings.scope);
  v_value   double precision;
  v_form    text;
begin
  if jsonb_typeof(_check_settings.settings) is distinct from 'object' then
    perform taskq._refuse('22023', 'settings must be a JSON object', format('Valid settings are: %s.', v_valid));
  end if;
  for v_given in select e.key, e.value, e.value #>> '{}' as text, jsonb_typeof(e.value) as type
                   from jsonb_each(_check_settings.settings) e loop
    select * into v_setting from taskq._settings() s where s.scope = _check_settings.scope and s.name = v_given.key;
    if not found then
      perform taskq._refuse('22023', format('there is no %s setting of that name', _check_settings.scope),
                            format('Valid settings are: %s.', v_valid));
    end if;
    continue when v_given.type = 'null' or v_setting.type = 'boolean' and v_given.type = 'boolean'
               or v_setting.type = 'missed' and v_given.value in ('"run_once"', '"skip"', '"run_all"');
    v_form := case v_setting.type
      when 'interval' then format('an interval as a string, %s to %s seconds', v_setting.low, v_setting.high)
      when 'integer' then format('a whole number from %s to %s', v_setting.low, v_setting.high)
      when 'number' then format('a number from %s to %s', v_setting.low, v_setting.high)
      when 'rate' then 'a string such as "100/minute": a whole number from 1 to 9999999 and second, minute, hour or day'
      when 'missed' then '"run_once", "skip" or "run_all"'
      when 'boolean' then 'true or false'
      else 'a string of 1 to 63 bytes' end;
    begin
      v_value := case
        when v_setting.type = 'interval' and v_given.type = 'string' then extract(epoch from v_given.text::interval)
        when v_setting.type = 'number' and v_given.type = 'number' then v_given.text::double precision
        when v_setting.type = 'integer' and v_given.type = 'number' and v_given.text ~ '^-?[0-9]+$'
          then v_given.text::double precision
      end;
      if v_setting.type = 'name' and v_given.type = 'string' then
        perform taskq._check_name(v_setting.name, v_given.text);
        continue;
      end if;
      continue when v_setting.type = 'rate' and v_given.type = 'string'
                and (select p.number from taskq._rate_parts(v_given.text) p) is not null;
    exception when data_exception or numeric_value_out_of_range then
      v_value := null;
    end;
    if v_value is null or not coalesce(v_value between v_setting.low and v_setting.high, false) then
      perform taskq._refuse('22023', format('setting %s is not valid', v_setting.name),
                            format('It must be %s, or null for the default.', v_form));
    end if;
  end loop;
  return _check_settings.settings;
end
$$;
comment on function taskq._check_settings(text, jsonb) is
  'Checks the settings of a queue, type or schedule; 22023 lists the valid ones.';

-- The effective settings: the row's, else the defaults.
create function taskq._effective(scope text, configured jsonb) returns jsonb
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_object_agg(s.name, coalesce(nullif(_effective.configured -> s.name, 'null'), s.fallback))
    from taskq._settings() s where s.scope = _effective.scope
$$;
comment on function taskq._effective(text, jsonb) is
  'Settings as they work: what is configured, and the defaults for the rest.';

-- Sessions keep the settings in memory (src/config.rs); these triggers tell them of any change.
create function taskq._settings_changed() returns trigger
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_settings_changed';
comment on function taskq._settings_changed() is
  'Tells all sessions that settings have changed, when the change is committed.';
create trigger settings_changed after insert or update or delete or truncate on taskq.queue
  for each statement execute function taskq._settings_changed();
create trigger settings_changed after insert or update or delete or truncate on taskq.task_type
  for each statement execute function taskq._settings_changed();

-- configure_queue: merges settings into those of a queue; JSON null resets one to its default.
-- '{}' changes nothing. Returns the effective settings. The queue need not exist before.
-- Errors: 22023, listing the valid settings.
-- Locks and writes: the row of queue.
create function taskq.configure_queue(queue text, settings jsonb) returns jsonb
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
  set intervalstyle = 'postgres' as $$
declare
  v_row taskq.queue;
begin
  perform taskq._check_name('queue', configure_queue.queue);
  perform taskq._check_settings('queue', configure_queue.settings);
  insert into taskq.queue (name, updated_at) values (configure_queue.queue, taskq._now()) on conflict do nothing;
  select q.* into strict v_row from taskq.queue q where q.name = configure_queue.queue for update;
  v_row := jsonb_populate_record(v_row, configure_queue.settings);
  if v_row.burst is null and (select p.number from taskq._rate_parts(v_row.rate) p) > 10000 then
    perform taskq._refuse('22023', 'a rate above 10000 needs a burst',
                          'Set burst, too: how many tasks may begin at once, up to 10000.');
  end if;
  update taskq.queue q
     set lease = v_row.lease, retention = v_row.retention, dead_letters_limit = v_row.dead_letters_limit,
         max_running = v_row.max_running, rate = v_row.rate, burst = v_row.burst,
         oldest_ready_limit = v_row.oldest_ready_limit, expired_leases_limit = v_row.expired_leases_limit,
         unclaimed_limit = v_row.unclaimed_limit, updated_at = taskq._now()
   where q.name = configure_queue.queue;
  return taskq._effective('queue', to_jsonb(v_row));
end
$$;
comment on function taskq.configure_queue is
  'Merges settings of a queue (lease, retention, max_running, rate, burst, dead_letters_limit, oldest_ready_limit, expired_leases_limit, unclaimed_limit); JSON null resets one. Returns the effective settings.';

-- configure_type: the same for a task type. Queue, priority and max_retries count for tasks
-- enqueued from then on; lease at the next claim; the backoff at the next failure.
create function taskq.configure_type(task_type text, settings jsonb) returns jsonb
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
  set intervalstyle = 'postgres' as $$
declare
  v_row taskq.task_type;
begin
  perform taskq._check_name('task_type', configure_type.task_type);
  perform taskq._check_settings('type', configure_type.settings);
  insert into taskq.task_type (name, updated_at) values (configure_type.task_type, taskq._now()) on conflict do nothing;
  select t.* into strict v_row from taskq.task_type t where t.name = configure_type.task_type for update;
  v_row := jsonb_populate_record(v_row, configure_type.settings);
  update taskq.task_type t
     set queue = v_row.queue, priority = v_row.priority, max_retries = v_row.max_retries, lease = v_row.lease,
         backoff_base = v_row.backoff_base, backoff_factor = v_row.backoff_factor, backoff_cap = v_row.backoff_cap,
         jitter = v_row.jitter, updated_at = taskq._now()
   where t.name = configure_type.task_type;
  return taskq._effective('type', to_jsonb(v_row));
end
$$;
comment on function taskq.configure_type is
  'Merges settings of a task type (queue, priority, max_retries, lease, backoff_base, backoff_factor, backoff_cap, jitter); JSON null resets one. Returns the effective settings.';

-- pause: no claim that begins after the commit takes from the queue; running tasks go on.
-- A queue that is paused already stays so, with its time and person.
-- Errors: 22023. Writes: queue.
create function taskq.pause(queue text) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := taskq._now();
begin
  perform taskq._check_name('queue', pause.queue);
  insert into taskq.queue as q (name, paused_at, paused_by, updated_at)
  values (pause.queue, v_now, session_user, v_now)
      on conflict (name) do update
     set paused_at = excluded.paused_at, paused_by = excluded.paused_by, updated_at = excluded.updated_at
   where q.paused_at is null;
end
$$;
comment on function taskq.pause is
  'Holds a queue: nothing is claimed from it until resume. Running tasks go on.';

-- resume: ends a pause. Nothing happens if the queue is not paused.
-- Errors: 22023. Writes: queue.
create function taskq.resume(queue text) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskq._check_name('queue', resume.queue);
  update taskq.queue q set paused_at = null, paused_by = null, updated_at = taskq._now()
   where q.name = resume.queue and q.paused_at is not null;
  if found then
    perform taskq._note_opened(resume.queue);
  end if;
end
$$;
comment on function taskq.resume is
  'Ends the pause of a queue.';
