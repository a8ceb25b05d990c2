-- The archive duty: days of finished tasks come, go to the archive, and are forgotten in the end.
--
--   done                                                    archive
--   ----                                                    -------
--   done_20250401  today .. 14 days ahead, made ahead       archive_day
--   done_20250331                                             archive_20250228
--   ...            within the retention                       ...             whole days: detached
--   done_20250301  -- older than every retention: --------->  archive_20250301 there, attached here
--                  -- rows of queues with a shorter one: -> archive_early
--   done_default   what finds no day; made a partition of its own, and empty again
--
-- One round (_duty_archive) does the steps below, each in a subtransaction: what fails is noted in
-- archive_trouble, tried again at the next round, and stops nothing else. Rows are moved in batches,
-- without a lock on a table. The steps that change partitions come last and are short: they wait
-- 50 ms at most for their first lock, take the others only if they are free, and go on for
-- 50 ms, or for one command if the machine is slow: so complete is held up for 100 ms at most. Locks
-- are taken in the order done, done_default, archive_day, archive_default, days by age: done before
-- the archive, as readers do.
--
-- Days are those of UTC. Each day keeps a CHECK of its bounds from its first moment: that is why
-- nothing is scanned when it is attached, neither to done nor to the archive.

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
                 regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \((.+)\) TO \((.+)\)$') as bound
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
create function taskq._archive_retention() returns interval
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select nullif(trim(s.setting), '')::interval
    from pg_settings s
   where s.name = 'taskq.archive_retention' and s.context in ('superuser', 'sighup', 'postmaster')
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
-- rows: expired keys, tasks of queues with a shorter retention
-- ---------------------------------------------------------------------------

-- Removes once-keys that have expired and unique keys that are up (let go of, and unique_for is over),
-- 1,000 at a time, for a quarter of a second at most. Returns how many.
-- Locks: rows of once_key and unique_key, passing by those that others have locked. Writes: both.
create function taskq._forget_keys(at timestamptz) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_until timestamptz := clock_timestamp() + interval '0.25 seconds';
  v_count bigint := 0;
  v_batch bigint;
  v_more  bigint;
begin
  loop
    with expired as materialized (
      select k.scope, k.key from taskq.once_key k
       where k.expires_at <= _forget_keys.at
       order by k.expires_at
       limit 1000
         for update skip locked
    )
    delete from taskq.once_key k using expired e where k.scope = e.scope and k.key = e.key;
    get diagnostics v_batch = row_count;
    with up as materialized (
      select k.task_type, k.key from taskq.unique_key k
       where k.let_go and k.kept_until <= _forget_keys.at
       order by k.kept_until
       limit 1000
         for update skip locked
    )
    delete from taskq.unique_key k using up u where k.task_type = u.task_type and k.key = u.key;
    get diagnostics v_more = row_count;
    v_count := v_count + v_batch + v_more;
    exit when greatest(v_batch, v_more) < 1000 or clock_timestamp() > v_until;
  end loop;
  return v_count;
end
$$;
comment on function taskq._forget_keys(timestamptz) is
  'Removes once-keys that have expired and unique keys that are up.';

-- The queues that have tasks in a partition of done whose retention is over, and since when. Those
-- with the longest retention leave by whole days; they count here only in a partition of many days.
create function taskq._queues_due(part regclass, at timestamptz)
  returns table (queue text, before timestamptz)
  language plpgsql stable rows 10 set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
  return query execute format($sql$
    with recursive present(name) as (
      (select d.queue from %1$s d order by d.queue limit 1)
      union all
      select (select d.queue from %1$s d where d.queue > p.name order by d.queue limit 1)
        from present p where p.name is not null
    ), due as (
      select p.name, case when r.retention < $2 then $1 - r.retention
                          else date_trunc('day', $1 - r.retention, 'UTC') end as before
        from present p
        left join taskq.queue q on q.name = p.name
       cross join lateral (select coalesce(q.retention, taskq._default_retention()) as retention) r
       where p.name is not null
    )
    select d.name::text, d.before from due d
     where exists (select from %1$s f where f.queue = d.name and f.finished_at < d.before)
     order by random()
    $sql$, _queues_due.part)
  using _queues_due.at, taskq._longest_retention();
end
$$;
comment on function taskq._queues_due(regclass, timestamptz) is
  'Queues with tasks in this partition of done that are to go to the archive early.';

-- Moves up to 1,000 tasks of a partition that meet a condition to archive_early.
-- Locks: their rows, passing by those that others have locked. Writes: done -> archive.
create function taskq._move_early(part regclass, condition text) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_count bigint;
begin
  execute format($sql$
    with gone as (
      delete from %1$s d where d.ctid = any (array(
        select f.ctid from %1$s f
         where %2$s
         limit 1000
           for update skip locked))
      returning d.*
    )
    insert into taskq.archive (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at,
                               claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers,
                               progress, result, errors, early)
    select g.id, g.queue, g.task_type, g.state, g.priority, g.attempt, g.max_retries, g.enqueued_at, g.run_at,
           g.claimed_at, g.finished_at, g.worker, g.unique_key, g.group_key, g.cancel_reason, g.payload, g.headers,
           g.progress, g.result, g.errors, true
      from gone g
    $sql$, _move_early.part, _move_early.condition);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function taskq._move_early(regclass, text) is
  'Moves a batch of finished tasks to the archive, row by row.';

-- Moves tasks whose retention is over, where their partition cannot leave as a whole: queues with
-- a shorter retention than others, partitions of many days, done_default. And what somebody put
-- into archive_default, which would be in the way of its day. A quarter of a second at most, one
-- batch of each queue in turn. Returns how many.
create function taskq._archive_early(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_until    timestamptz := clock_timestamp() + interval '0.25 seconds';
  v_shortest interval := (select least(taskq._default_retention(), min(q.retention)) from taskq.queue q);
  v_part     regclass;
  v_queue    record;
  v_batch    bigint;
  v_full     boolean;
  v_count    bigint := taskq._move_early('taskq.archive_default', 'true');
begin
  loop
    v_full := false;
    for v_part in
      select d.part from taskq._days('taskq.done') d
       where d.starts_at < _archive_early.at - v_shortest
         and d.part not in (select w.part from taskq._days_due(_archive_early.at) w where w.whole)
      union all select 'taskq.done_default'
    loop
      for v_queue in select q.queue, q.before from taskq._queues_due(v_part, _archive_early.at) q loop
        v_batch := taskq._move_early(v_part, format('f.queue = %L and f.finished_at < %L order by f.finished_at',
                                                    v_queue.queue, v_queue.before));
        v_count := v_count + v_batch;
        v_full := v_full or v_batch = 1000;
        if clock_timestamp() > v_until then
          return v_count;
        end if;
      end loop;
    end loop;
    exit when not v_full;
  end loop;
  return v_count;
end
$$;
comment on function taskq._archive_early(timestamptz) is
  'Moves tasks of queues with a shorter retention than others to the archive.';

-- Removes tasks from archive_early that are older than taskq.archive_retention. A quarter of a
-- second at most. Returns how many. Writes: archive_early.
create function taskq._forget_early(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_until  timestamptz := clock_timestamp() + interval '0.25 seconds';
  v_before timestamptz := _forget_early.at - taskq._archive_retention();
  v_count  bigint := 0;
  v_batch  bigint;
begin
  loop
    exit when v_before is null;
    delete from taskq.archive_early a where a.ctid = any (array(
      select f.ctid from taskq.archive_early f
       where f.finished_at < v_before
       order by f.finished_at
       limit 1000
         for update skip locked));
    get diagnostics v_batch = row_count;
    v_count := v_count + v_batch;
    exit when v_batch < 1000 or clock_timestamp() > v_until;
  end loop;
  return v_count;
end
$$;
comment on function taskq._forget_early(timestamptz) is
  'Removes tasks that went to the archive early and are older than taskq.archive_retention.';

-- ---------------------------------------------------------------------------
-- partitions
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
-- without looking at the rows, the next one validates it, which reads the table once and holds up
-- nobody. The CHECK reaches to the end of the days ahead. New tasks that finish later than that
-- would be refused, so it is taken off a week before, and while done_default is empty.
-- Tasks of other days (the clock was wrong once) go to the archive early.
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
      v_moved := taskq._move_early('taskq.done_default', format('f.finished_at < %L or f.finished_at >= %L',
                                                                v_check.starts_at, v_check.ends_at));
      if v_moved < 1000 then
        alter table taskq.done_default validate constraint done_default_days;
      end if;
      return v_moved + 1;
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
-- there, no row copied. As many as can be done in 50 ms, or in 20 if _open_days has locked done
-- already; the next round goes on. Days whose table is in use (vacuum works on it, for instance)
-- wait for their turn. Returns how many.
-- Locks: done, done_default, archive_day, archive_default, the days. Writes: done -> archive.
create function taskq._close_days(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_day   record;
  v_days  regclass[] := '{}';
  v_moves text[] := '{}';
  v_held  boolean := exists (select from pg_locks l
                              where l.pid = pg_backend_pid() and l.relation = 'taskq.done'::regclass
                                and l.mode = 'AccessExclusiveLock');
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
  v_until := clock_timestamp() + case when v_held then interval '20 ms' else interval '50 ms' end;
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
    exit when clock_timestamp() > v_until;
    execute format('lock table only %s in access exclusive mode nowait', v_days[i]);
    execute format('drop table %s', v_days[i]);
    v_count := v_count + 1;
  end loop;
  return v_count;
end
$$;
comment on function taskq._drop_days(timestamptz) is
  'Drops archived days that are older than taskq.archive_retention.';

-- ---------------------------------------------------------------------------
-- a round
-- ---------------------------------------------------------------------------

-- Who holds locks on done and the archive: transactions older than 50 ms, the oldest first.
create function taskq._archive_holders() returns text
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  select string_agg(h.who, '; ' order by h.since)
    from (select coalesce(format('pid %s (%s, %s, %s)', a.pid, a.usename, nullif(a.application_name, ''), a.state),
                          format('prepared transaction %s', quote_literal(p.gid)), 'a process of the server')
                   || coalesce(format(', in a transaction since %s', coalesce(a.xact_start, p.prepared)::timestamptz(0)), '') as who,
                 coalesce(a.xact_start, p.prepared) as since
            from (select distinct l.pid, l.virtualtransaction
                    from pg_locks l
                   where l.database = (select d.oid from pg_database d where d.datname = current_database())
                     and l.relation in (select t.relid from pg_partition_tree('taskq.done') t
                                        union all select t.relid from pg_partition_tree('taskq.archive') t)
                     and l.granted and l.pid is distinct from pg_backend_pid()) l
            left join pg_stat_activity a on a.pid = l.pid
            left join pg_prepared_xacts p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction
           where coalesce(a.xact_start, p.prepared) < clock_timestamp() - interval '50 ms'
           order by since
           limit 5) h
$$;
comment on function taskq._archive_holders() is
  'The transactions that hold locks on done and the archive, for people.';

-- One step of a round, in a subtransaction. What fails is noted and tried again at the next round.
-- Returns what the step returned; 0 if it failed.
-- Writes: archive_trouble, and what the step writes.
create function taskq._archive_step(step text, at timestamptz) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_count bigint;
  v_error text;
  v_code  text;
begin
  begin
    v_count := case _archive_step.step
      when 'keys' then taskq._forget_keys(_archive_step.at)
      when 'early' then taskq._archive_early(_archive_step.at)
      when 'early expiry' then taskq._forget_early(_archive_step.at)
      when 'default' then taskq._bound_default(_archive_step.at)
      when 'open days' then taskq._open_days(_archive_step.at)
      when 'close days' then taskq._close_days(_archive_step.at)
      when 'drop days' then taskq._drop_days(_archive_step.at)
    end;
  exception when others then
    get stacked diagnostics v_code = returned_sqlstate, v_error = message_text;
    insert into taskq.archive_trouble as t (step, failed_since, failed_at, error, held_by)
    values (_archive_step.step, _archive_step.at, _archive_step.at, format('%s: %s', v_code, v_error),
            case when v_code in ('55P03', '40P01', '55006') then taskq._archive_holders() end)
        on conflict on constraint archive_trouble_pkey do update
       set failed_at = excluded.failed_at, error = excluded.error, held_by = excluded.held_by;
    return 0;
  end;
  delete from taskq.archive_trouble t where t.step = _archive_step.step;
  return v_count;
end
$$;
comment on function taskq._archive_step(text, timestamptz) is
  'Does one step of the archive duty, and notes if it fails.';

-- One round of the archive duty. Of two callers at once, one does it and the other nothing.
-- Returns how many rows and partitions it changed: more may be left if that is not 0.
create function taskq._duty_archive() returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  v_now   timestamptz := taskq._now();
  v_step  text;
  v_count bigint := 0;
begin
  -- "task" and "arch" in ASCII
  if not pg_try_advisory_xact_lock(1952539499, 1634886504) then
    return 0;
  end if;
  foreach v_step in array array['keys', 'early', 'early expiry', 'default', 'open days', 'close days', 'drop days'] loop
    v_count := v_count + taskq._archive_step(v_step, v_now);
    -- while that CHECK waits for its validation, complete must not wait for other steps, too
    exit when v_step = 'default' and exists (select from taskq._default_check() c where not c.valid);
  end loop;
  return v_count;
end
$$;
comment on function taskq._duty_archive() is
  'One round of the archive duty: days ahead, days and tasks past their retention, expired keys.';

-- What the archive duty could not do at its last try, and who stood in the way; for health.
create function taskq._archive_blockers()
  returns table (step text, failed_since timestamptz, error text, held_by text)
  language sql stable rows 3 set search_path = pg_catalog, pg_temp as $$
  select t.step, t.failed_since, t.error, t.held_by from taskq.archive_trouble t order by t.failed_since, t.step
$$;
comment on function taskq._archive_blockers() is
  'Steps of the archive duty that failed at their last try, since when, why, and who held the locks.';
