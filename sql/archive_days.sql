-- Days as partitions: which there are, and the steps of the archive duty that make, detach, attach and drop them.

-- ---------------------------------------------------------------------------
-- what there is
-- ---------------------------------------------------------------------------

-- The partitions of a table with their bounds; all but the default one.
create function taskq._days(parent regclass)
  returns table (part regclass, starts_at timestamptz, ends_at timestamptz)
  language sql stable rows 60
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
  select b.part,
         case b.bound[1] when 'MINVALUE' then '-infinity' else trim('''' from b.bound[1]) end::timestamptz,
         case b.bound[2] when 'MAXVALUE' then 'infinity' else trim('''' from b.bound[2]) end::timestamptz
    from (select c.oid::regclass as part,
                 regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM [(](.+)[)] TO [(](.+)[)]$') as bound
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
           where i.inhparent = _days.parent) b
   where b.bound is not null
$$;
comment on function taskq._days(regclass) is
  'The partitions of done or archive_day and the time that each covers.';

-- The longest retention that any queue has; queues without a setting have the default.
create function taskq._longest_retention() returns interval
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select greatest(taskq._default_retention(), max(q.retention)) from taskq.queue q
$$;
comment on function taskq._longest_retention() is
  'A day of done leaves for the archive when it is older than this.';

-- How long the archive keeps what it has: the setting taskq.archive_retention, an interval; empty
-- means for ever. A setting that the library does not define could be anybody's: it does not count.
-- (It may stand in postgresql.conf, where a wrong one must not stop the server: so it is refused here.)
create function taskq._archive_retention() returns interval
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_setting   text := (select nullif(trim(s.setting), '') from pg_settings s
                        where s.name = 'taskq.archive_retention' and s.context in ('superuser', 'sighup', 'postmaster'));
  v_retention interval;
begin
  if v_setting is null then
    return null;
  end if;
  begin
    v_retention := v_setting::interval;
  exception when data_exception then
    null;
  end;
  if (v_retention >= '0') is not true then
    perform taskq._refuse('22023', format('setting taskq.archive_retention is not valid: %L', left(v_setting, 50)),
                          'It must be an interval that is not negative, such as ''2 years'', or empty, which means for ever.');
  end if;
  return v_retention;
end
$$;
comment on function taskq._archive_retention() is
  'How long archived tasks are kept; NULL means for ever.';

-- The partitions of done that leave whole: older than every retention, and the archive has no such
-- day yet. (It has one if the clock was wrong once. Then the rows go early, and the day is dropped.)
create function taskq._days_due(at timestamptz)
  returns table (part regclass, starts_at timestamptz, ends_at timestamptz, whole boolean)
  language sql stable rows 10 set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  with archived as materialized (select a.starts_at, a.ends_at from taskq._days('taskq.archive_day') a)
  select d.part, d.starts_at, d.ends_at,
         not exists (select from archived a where a.starts_at < d.ends_at and a.ends_at > d.starts_at)
    from taskq._days('taskq.done') d
   where d.ends_at <= (select _days_due.at - taskq._longest_retention())
   order by d.ends_at
$$;
comment on function taskq._days_due(timestamptz) is
  'The partitions of done that are older than the longest retention.';

-- ---------------------------------------------------------------------------
-- steps
-- ---------------------------------------------------------------------------

-- A name for a table of ours that no other has: with a number behind it if need be.
create function taskq._free_name(name text) returns text
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_name text := _free_name.name;
begin
  for i in 2 .. 1000 loop
    exit when to_regclass(format('taskq.%I', v_name)) is null;
    v_name := _free_name.name || '_' || i;
  end loop;
  return v_name;
end
$$;
comment on function taskq._free_name(text) is
  'The name, or the name with a number if there is such a table already.';

-- The name of a partition: done_20250401, done_20250401_20250430, done_until_20250430.
create function taskq._day_name(prefix text, starts_at timestamptz, ends_at timestamptz) returns text
  language sql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  select taskq._free_name(_day_name.prefix || '_' || case
    when _day_name.starts_at = '-infinity' then 'until_' || d.last_day
    when to_char(_day_name.starts_at, 'YYYYMMDD') = d.last_day then d.last_day
    else to_char(_day_name.starts_at, 'YYYYMMDD') || '_' || d.last_day end)
    from (select to_char(_day_name.ends_at - interval '1 day', 'YYYYMMDD') as last_day) d
$$;
comment on function taskq._day_name(text, timestamptz, timestamptz) is
  'How a partition that covers these days is called.';

-- A table that can become a partition of done: its columns and constraints, and the primary key
-- and index that stand on each partition.
create function taskq._create_finished(name text, meaning text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  execute format('create table taskq.%I (like taskq.done including all excluding comments)', _create_finished.name);
  execute format('alter table taskq.%I add primary key (id, finished_at)', _create_finished.name);
  execute format('create index on taskq.%I (queue, finished_at)', _create_finished.name);
  execute format('comment on table taskq.%I is %L', _create_finished.name, _create_finished.meaning);
  execute format('revoke all on taskq.%I from %s', _create_finished.name, taskq._others());
  execute format('revoke all on type taskq.%I from %s', _create_finished.name, taskq._others());
end
$$;
comment on function taskq._create_finished(text, text) is
  'Makes a table for finished tasks.';

-- The bounds of a partition as ATTACH PARTITION wants them.
create function taskq._bounds(starts_at timestamptz, ends_at timestamptz) returns text
  language sql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  select format('from (%s) to (%L)', case when _bounds.starts_at = '-infinity' then 'minvalue' else quote_literal(_bounds.starts_at) end,
                _bounds.ends_at)
$$;
comment on function taskq._bounds(timestamptz, timestamptz) is
  'Bounds of a partition, as SQL.';

-- The CHECK of a partition's bounds. not_valid: rows that are there already are not looked at.
create function taskq._check_days(part regclass, name text, starts_at timestamptz, ends_at timestamptz, not_valid boolean = false)
  returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
  execute format('alter table %s add constraint %I check (finished_at >= %L and finished_at < %L)%s',
                 _check_days.part, _check_days.name, _check_days.starts_at, _check_days.ends_at,
                 case when _check_days.not_valid then ' not valid' end);
end
$$;
comment on function taskq._check_days(regclass, text, timestamptz, timestamptz, boolean) is
  'Adds the CHECK that lets a partition be attached without a scan.';

-- The days from today to 14 days ahead that no partition covers.
create function taskq._days_missing(at timestamptz) returns setof timestamptz
  language sql stable rows 10 set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  select t.day
    from generate_series(date_trunc('day', _days_missing.at), date_trunc('day', _days_missing.at) + interval '14 days',
                         interval '1 day') t(day)
   where not exists (select from taskq._days('taskq.done') d
                      where d.starts_at < t.day + interval '1 day' and d.ends_at > t.day)
   order by t.day
$$;
comment on function taskq._days_missing(timestamptz) is
  'The days, as their first moments, that are to be made.';

-- Whether done_default is too large to be scanned under a lock; 16 MB take some 10 ms. Not if new
-- tasks do not go there anyway.
create function taskq._default_is_large(at timestamptz) returns boolean
  language sql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  select pg_relation_size('taskq.done_default') > 16 * 1024 * 1024
         and not exists (select from taskq._days('taskq.done') d
                          where d.starts_at < _default_is_large.at + interval '7 days' and d.ends_at > _default_is_large.at)
$$;
comment on function taskq._default_is_large(timestamptz) is
  'Whether done_default needs the CHECK of _bound_default before it can be replaced.';

-- The CHECK that _bound_default has put on done_default, if it is there now.
create function taskq._default_check()
  returns table (starts_at timestamptz, ends_at timestamptz, valid boolean)
  language sql stable rows 1
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
  select b.bound[1]::timestamptz, b.bound[2]::timestamptz, b.convalidated
    from (select c.convalidated, regexp_match(pg_get_constraintdef(c.oid), '>= ''([^'']+)''.*< ''([^'']+)''') as bound
            from pg_constraint c
           where c.conrelid = 'taskq.done_default'::regclass and c.conname = 'done_default_days') b
$$;
comment on function taskq._default_check() is
  'The bounds of the CHECK on done_default, and whether it is validated.';

-- The days that done_default has caught, if it can become their partition now: one stretch without
-- partitions in it; of several, the one with the most tasks. What a wrong clock has put beyond the
-- days ahead is a stretch of its own. No row if done_default is empty, or if _bound_default is still
-- preparing it.
create function taskq._days_missed(at timestamptz)
  returns table (starts_at timestamptz, ends_at timestamptz)
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
  if not exists (select from taskq.done_default) then
    return;
  end if;
  if exists (select from taskq._default_check()) then
    return query select c.starts_at, c.ends_at from taskq._default_check() c where c.valid;
  elsif not taskq._default_is_large(_days_missed.at) then
    return query
      with day as (
        select date_trunc('day', d.finished_at) as starts_at, count(*) as tasks from taskq.done_default d group by 1
      ), numbered as (
        select d.starts_at, d.tasks,
               (select count(*) from taskq._days('taskq.done') p where p.ends_at <= d.starts_at) as stretch,
               d.starts_at > _days_missed.at + interval '14 days' as beyond
          from day d
      )
      select min(n.starts_at), max(n.starts_at) + interval '1 day'
        from numbered n group by n.stretch, n.beyond
       order by sum(n.tasks) desc limit 1;
  end if;
end
$$;
comment on function taskq._days_missed(timestamptz) is
  'The days that done_default has caught, if it can become their partition now.';

-- Prepares a large done_default, which nobody could scan under a lock: one round adds a CHECK
-- without looking at the rows, a later one validates it, which reads the table once and holds up
-- nobody. The CHECK reaches to the end of the days ahead. New tasks that finish later than that
-- would be refused, so it is taken off a week before, and while done_default is empty.
-- Tasks of other days (the clock was wrong once) go to the archive early, before that.
-- Locks: done_default. Writes: done -> archive.
create function taskq._bound_default(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_check record;
  v_moved bigint;
begin
  select c.* into v_check from taskq._default_check() c;
  if found then
    if v_check.ends_at < _bound_default.at + interval '7 days' or not exists (select from taskq.done_default) then
      lock table only taskq.done_default in access exclusive mode;
      alter table taskq.done_default drop constraint done_default_days;
      return 1;
    elsif not v_check.valid then
      v_moved := taskq._move_early('taskq.done_default', outside => tstzrange(v_check.starts_at, v_check.ends_at));
      if v_moved > 0 then
        return v_moved;
      end if;
      alter table taskq.done_default validate constraint done_default_days;
      return 1;
    end if;
  elsif taskq._default_is_large(_bound_default.at) and exists (select from taskq.done_default) then
    lock table only taskq.done_default in access exclusive mode;
    perform taskq._check_days(
      'taskq.done_default', 'done_default_days',
      (select coalesce(max(d.ends_at), '-infinity') from taskq._days('taskq.done') d
        where d.ends_at <= _bound_default.at),
      (select least(min(d.starts_at), date_trunc('day', _bound_default.at) + interval '15 days')
         from taskq._days('taskq.done') d where d.starts_at > _bound_default.at),
      not_valid => true);
    return 1;
  end if;
  return 0;
end
$$;
comment on function taskq._bound_default(timestamptz) is
  'Prepares a large done_default to become the partition of the days that it has caught.';

-- Makes done_default the partition of the days that it has caught, with an empty one (spare) in
-- its place. No row is copied, except those of other days: they go to the new one, and have their
-- turn at the next round. The new table takes the old one's place in the extension, too, so that
-- pg_dump goes on to dump its rows only, because CREATE EXTENSION makes the table. ALTER EXTENSION
-- has no command for that part, hence the update of pg_extension.
-- The caller holds done and done_default.
create function taskq._replace_default(spare text, starts_at timestamptz, ends_at timestamptz) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_old     regclass := 'taskq.done_default';
  v_new     regclass := format('taskq.%I', _replace_default.spare);
  v_name    text := taskq._day_name('done', _replace_default.starts_at, _replace_default.ends_at);
  v_checked boolean := exists (select from taskq._default_check());
  v_index   record;
begin
  alter table taskq.done detach partition taskq.done_default;
  execute format('alter table %s rename to %I', v_old, v_name);
  execute format('alter table %s rename to done_default', v_new);
  -- the old table's indexes hand their names over
  for v_index in
    select o.indexrelid as old, n.indexrelid as new, c.relname as name
      from pg_index o join pg_index n on n.indisprimary = o.indisprimary join pg_class c on c.oid = o.indexrelid
     where o.indrelid = v_old and n.indrelid = v_new
  loop
    execute format('alter index %s rename to %I', v_index.old::regclass,
                   taskq._free_name(v_name || case when v_index.name like '%pkey' then '_pkey' else '_queue_idx' end));
    execute format('alter index %s rename to %I', v_index.new::regclass, v_index.name);
  end loop;
  alter table taskq.done attach partition taskq.done_default default;

  if v_checked then
    execute format('alter table %s rename constraint done_default_days to %I', v_old, v_name || '_days');
  else
    execute format($sql$
      with others as (delete from %s d where d.finished_at < %L or d.finished_at >= %L returning d.*)
      insert into taskq.done_default select o.* from others o
      $sql$, v_old, _replace_default.starts_at, _replace_default.ends_at);
    perform taskq._check_days(v_old, v_name || '_days', _replace_default.starts_at, _replace_default.ends_at);
  end if;
  execute format('alter table taskq.done attach partition %s for values %s', v_old,
                 taskq._bounds(_replace_default.starts_at, _replace_default.ends_at));
  execute format('comment on table %s is %L', v_old, 'Finished tasks of these days, which had no partition of their own.');

  update pg_extension e set extconfig = array_replace(e.extconfig, v_old::oid, v_new::oid) where e.extname = 'taskq';
  execute format('alter extension taskq drop table %s', v_old);
  execute format('alter extension taskq add table %s', v_new);
end
$$;
comment on function taskq._replace_default(text, timestamptz, timestamptz) is
  'Makes done_default the partition of the days that it has caught, and puts an empty one in its place.';

-- Makes what days are missing, today to 14 days ahead, and a partition out of done_default if it
-- has caught anything. All or nothing; tables are made before the first lock. Returns how many
-- partitions came.
-- Locks: done_default, against readers and writers; done, against other changes to it only, unless
-- done_default has rows. Writes: done.
create function taskq._open_days(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_missed record;
  v_caught boolean := exists (select from taskq.done_default);
  v_spare  text;
  v_days   timestamptz[];
  v_name   text;
  v_moves  text := '';
begin
  select m.* into v_missed from taskq._days_missed(_open_days.at) m;
  if v_caught and v_missed.ends_at is null then
    return 0;
  end if;
  v_days := array(select d from taskq._days_missing(_open_days.at) d
                   where v_missed.ends_at is null or d < v_missed.starts_at or d >= v_missed.ends_at);
  if cardinality(v_days) = 0 and not v_caught then
    return 0;
  end if;

  begin
    for i in 1 .. cardinality(v_days) loop
      v_name := taskq._day_name('done', v_days[i], v_days[i] + interval '1 day');
      perform taskq._create_finished(v_name, 'Finished tasks of this day (UTC).');
      perform taskq._check_days(format('taskq.%I', v_name), v_name || '_days', v_days[i], v_days[i] + interval '1 day');
      v_moves := v_moves || format('alter table taskq.done attach partition taskq.%I for values %s;',
                                   v_name, taskq._bounds(v_days[i], v_days[i] + interval '1 day'));
    end loop;
    if v_caught then
      v_spare := taskq._free_name('done_default_next');
      perform taskq._create_finished(v_spare, 'Catches finished tasks whose day has no partition yet. Emptied by the archive duty.');
      lock table only taskq.done in access exclusive mode;
      lock table only taskq.done_default in access exclusive mode nowait;
      perform taskq._replace_default(v_spare, v_missed.starts_at, v_missed.ends_at);
    else
      lock table only taskq.done in share update exclusive mode;
      lock table only taskq.done_default in access exclusive mode;
    end if;
    execute v_moves;
  exception when check_violation then
    if v_caught then
      raise;
    end if;
    -- A task has come to done_default since we looked: its day is one that was missed.
    return taskq._open_days(_open_days.at);
  end;
  return cardinality(v_days) + v_caught::integer;
end
$$;
comment on function taskq._open_days(timestamptz) is
  'Makes the partitions of the days ahead, and one of the days that were missed.';

-- A partition that cannot leave as a whole is dropped when its last task has left.
create function taskq._is_empty(part regclass) returns boolean
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_empty boolean;
begin
  execute format('select not exists (select from %s)', _is_empty.part) into v_empty;
  return v_empty;
end
$$;
comment on function taskq._is_empty(regclass) is
  'Whether a table has no rows.';

-- Hands days that are older than every retention over to the archive: detached here, attached
-- there, no row copied. As many as can be done in 50 ms; the next round goes on. Days whose table is
-- in use (vacuum works on it, for instance) wait for their turn. Returns how many.
-- Locks: done, done_default, archive_day, archive_default, the days. Writes: done -> archive.
create function taskq._close_days(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_day   record;
  v_days  regclass[] := '{}';
  v_moves text[] := '{}';
  v_until timestamptz;
  v_count bigint := 0;
begin
  -- the commands are written before the first lock
  for v_day in select d.* from taskq._days_due(_close_days.at) d where d.whole or taskq._is_empty(d.part) limit 100 loop
    v_days := v_days || v_day.part;
    v_moves := v_moves || case when not v_day.whole then format('drop table %s', v_day.part)
      else format('alter table taskq.archive_day attach partition %1$s for values %2$s; alter table %1$s rename to %3$I',
                  v_day.part, taskq._bounds(v_day.starts_at, v_day.ends_at),
                  taskq._day_name('archive', v_day.starts_at, v_day.ends_at)) end;
  end loop;
  if cardinality(v_days) = 0 then
    return 0;
  end if;
  lock table only taskq.done in access exclusive mode;
  v_until := clock_timestamp() + interval '50 ms';
  lock table only taskq.done_default in access exclusive mode nowait;
  lock table only taskq.archive_day in share update exclusive mode nowait;
  lock table only taskq.archive_default in access exclusive mode nowait;
  for i in 1 .. cardinality(v_days) loop
    begin
      execute format('lock table only %s in access exclusive mode nowait', v_days[i]);
    exception when lock_not_available then
      continue;
    end;
    execute format('alter table taskq.done detach partition %s', v_days[i]);
    execute v_moves[i];
    v_count := v_count + 1;
    exit when clock_timestamp() > v_until;
  end loop;
  if v_count = 0 then
    raise lock_not_available using message = 'the tables of all days that are due are in use';
  end if;
  return v_count;
end
$$;
comment on function taskq._close_days(timestamptz) is
  'Hands the days that are older than every retention over to the archive.';

-- Drops days of the archive that are older than taskq.archive_retention, for 50 ms at most.
-- Returns how many. Locks: archive_day, archive_default and the days, only if they are free.
create function taskq._drop_days(at timestamptz) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_before timestamptz := _drop_days.at - taskq._archive_retention();
  v_days   regclass[] := array(select d.part from taskq._days('taskq.archive_day') d
                                where d.ends_at <= v_before order by d.ends_at);
  v_until  timestamptz := clock_timestamp() + interval '50 ms';
  v_count  bigint := 0;
begin
  if cardinality(v_days) = 0 then
    return 0;
  end if;
  lock table only taskq.archive_day, taskq.archive_default in access exclusive mode nowait;
  for i in 1 .. cardinality(v_days) loop
    execute format('lock table only %s in access exclusive mode nowait', v_days[i]);
    execute format('drop table %s', v_days[i]);
    v_count := v_count + 1;
    exit when clock_timestamp() > v_until;
  end loop;
  return v_count;
end
$$;
comment on function taskq._drop_days(timestamptz) is
  'Drops archived days that are older than taskq.archive_retention.';
