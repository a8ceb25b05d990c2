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
-- One round (_duty_archive) does the steps of archive_days.sql and archive_rows.sql, each in a
-- subtransaction: what fails is noted in archive_trouble, tried again at the next round, and stops
-- nothing else. A round either does one step that changes partitions, or moves rows in batches, which
-- passes by rows that others have locked and waits for nobody: a purge that waits for a moved row holds
-- done, so who moves rows must not wait for done. The steps that change partitions are short: they wait
-- 50 ms at most for their first lock, take the others only if they are free, and go on for 50 ms, or
-- for one command if the machine is slow: so complete is held up for 100 ms at most. Locks are taken
-- in the order done, done_default, archive_day, archive_default, days by age: done before the archive,
-- as readers do.
--
-- Days are those of UTC. Each day keeps a CHECK of its bounds from its first moment: that is why
-- nothing is scanned when it is attached, neither to done nor to the archive.

-- Who holds locks on done and the archive: transactions older than 50 ms, the oldest first.
create function taskq._archive_holders() returns text
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  select string_agg(format('%s, in a transaction since %s', h.who, h.since::timestamptz(0)), '; ' order by h.since)
    from (select distinct l.who, l.since
            from taskq._lock_holders() l
           where l.relation in (select t.relid from pg_partition_tree('taskq.done') t
                                union all select t.relid from pg_partition_tree('taskq.archive') t)
             and l.pid is distinct from pg_backend_pid()
             and l.since < clock_timestamp() - interval '50 ms'
           order by l.since
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
      when 'types' then taskq._close_types(members_only => false)
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
  if not taskq._try_lock('archive') then
    return 0;
  end if;
  -- Partitions: the first step that changes any ends the round, and its locks with it. One that fails has lost its locks.
  foreach v_step in array array['default', 'open days', 'close days', 'drop days'] loop
    v_count := taskq._archive_step(v_step, v_now);
    if v_count > 0 then
      return v_count;
    end if;
    -- while that CHECK waits for its validation, complete must not wait for other steps, too
    exit when v_step = 'default' and exists (select from taskq._default_check() c where not c.valid);
  end loop;
  -- Rows.
  foreach v_step in array array['types', 'keys', 'early', 'early expiry'] loop
    v_count := v_count + taskq._archive_step(v_step, v_now);
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
