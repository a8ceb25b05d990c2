-- The steps of the archive duty that move and remove rows: expired keys, tasks of queues with a shorter retention.

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

-- Moves up to 1,000 tasks of a partition to archive_early: those for which all holds that is given: they are of a queue, ended
-- before a moment, or ended outside a time.
-- Locks: their rows, passing by those that others have locked. Writes: done -> archive.
create function taskq._move_early(part regclass, queue text = null, before timestamptz = null, outside tstzrange = null) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_count bigint;
begin
  execute format($sql$
    with gone as (
      delete from %1$s d where d.ctid = any (array(
        select f.ctid from %1$s f
         where ($1 is null or f.queue = $1) and ($2 is null or f.finished_at < $2) and ($3 is null or not f.finished_at <@ $3)
         order by f.finished_at
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
    $sql$, _move_early.part)
  using _move_early.queue, _move_early.before, _move_early.outside;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function taskq._move_early(regclass, text, timestamptz, tstzrange) is
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
  v_count    bigint := taskq._move_early('taskq.archive_default');
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
        v_batch := taskq._move_early(v_part, v_queue.queue, v_queue.before);
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
