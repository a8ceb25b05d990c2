-- why: why one task is not running now, and what it waits for; or where it is, if it does not wait.

-- ---------------------------------------------------------------------------
-- what why and diagnose both ask
-- ---------------------------------------------------------------------------

-- Tasks that run, of one queue or (NULL) of all, those claimed first at first. They stand at the heads of their lanes,
-- so of each lane the first tasks are looked at: a share of at_most, 50 in any case.
create function taskq._running_tasks(of_queue text, at_most integer)
  returns table (id bigint, queue text, task_type text, worker text, claimed_at timestamptz, lease_expires_at timestamptz,
                 attempt integer, cancel_requested_at timestamptz)
  language plpgsql stable rows 20 set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_lanes bigint := (select count(*) from taskq._lanes(_running_tasks.of_queue));
begin
  return query
  select t.id, t.queue, t.task_type, t.worker, t.claimed_at, t.lease_expires_at, t.attempt, t.cancel_requested_at
    from taskq._lanes(_running_tasks.of_queue) l
   cross join lateral (
     select x.* from taskq.task x
      where x.queue = l.queue and x.priority = l.priority
      order by x.queue, x.priority desc, x.run_at, x.id
      limit greatest(50, _running_tasks.at_most / greatest(1, v_lanes))) t
   where t.state = 'running'
   order by t.claimed_at, t.id;
end
$$;
comment on function taskq._running_tasks(text, integer) is
  'Tasks that run, of one queue or (NULL) of all, the longest first: found among so many at the heads of the lanes.';

-- The workers that have asked for tasks of a queue, as far as they are remembered, and whether each is still there.
--   present  it waits in wait, or it asked not long ago, or it holds a task whose lease lasts
-- One asks "not long ago" if that is less than 30 seconds, or ten times as long as it usually takes it, up to 10 minutes.
-- That it holds a task does not help it when it is gone: it called from one session several times in a row, and
-- that has ended. (Workers may use a connection for each call: of these nobody knows.)
create function taskq._claimers(of_queue text, at timestamptz)
  returns table (worker text, first_seen_at timestamptz, seen_at timestamptz, claimed bigint, present boolean, waits boolean,
                 gone boolean, holds bigint[])
  language sql stable rows 10 set search_path = pg_catalog, pg_temp as $$
  select w.worker, w.first_seen_at, w.seen_at, w.claimed,
         w.waits or (not g.gone and (w.seen_at > _claimers.at - p.patience or h.holds is not null)),
         w.waits, g.gone, h.holds
    from taskq._workers_seen() w
    left join (select r.worker, array_agg(r.id order by r.claimed_at, r.id) as holds
                 from taskq._running_tasks(_claimers.of_queue, 2000) r
                where r.lease_expires_at > _claimers.at
                group by r.worker) h on h.worker = w.worker
   cross join lateral (
     select greatest(interval '30 seconds',
                     least(interval '10 minutes', (w.seen_at - w.first_seen_at) * 10 / greatest(1, w.claims))) as patience) p
   cross join lateral (
     select not w.session_lives and w.calls_in_session >= 3 and w.seen_at <= _claimers.at
            - greatest(interval '3 seconds', least(interval '1 minute', (w.seen_at - w.first_seen_at) * 2 / greatest(1, w.claims))) as gone) g
   where w.queues is null or _claimers.of_queue = any (w.queues)
$$;
comment on function taskq._claimers(text, timestamptz) is
  'The workers that have asked for tasks of a queue lately, which of them are still there, and the tasks that they hold.';

-- When anybody last asked for tasks of a queue: a worker that is remembered; else the samples of two hours, else
-- the last task that ended. NULL: nobody that is known of.
create function taskq._last_claim(of_queue text, at timestamptz) returns timestamptz
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(
    (select max(w.seen_at) from taskq._workers_seen() w where w.queues is null or _last_claim.of_queue = any (w.queues)),
    (select max(s.at) from taskq.sample s
      where s.at > _last_claim.at - interval '2 hours' and s.at <= _last_claim.at
        and s.queue = _last_claim.of_queue and (s.started > 0 or s.claimers > 0)),
    greatest(
      (select d.claimed_at from taskq.done d where d.queue = _last_claim.of_queue and d.claimed_at is not null
        order by d.finished_at desc limit 1),
      (select d.claimed_at from taskq.dead_letter d where d.queue = _last_claim.of_queue order by d.died_at desc limit 1)))
$$;
comment on function taskq._last_claim(text, timestamptz) is
  'When anybody last asked for tasks of a queue; NULL if nobody is known to have.';

-- Whether anybody takes tasks from a queue now: a worker is there, or some task runs whose lease lasts and whose worker
-- is not known to have gone, or, where no workers are remembered (no preloading), it was worked on within 30 seconds.
create function taskq._is_worked_on(of_queue text, at timestamptz) returns boolean
  language sql stable set search_path = pg_catalog, pg_temp as $$
  with claimer as materialized (
    select c.worker, c.present, c.gone from taskq._claimers(_is_worked_on.of_queue, _is_worked_on.at) c
  )
  select exists (select from claimer c where c.present)
      or exists (select from taskq._running_tasks(_is_worked_on.of_queue, 2000) r
                  where r.lease_expires_at > _is_worked_on.at
                    and not exists (select from claimer c where c.worker = r.worker and c.gone))
      or not exists (select from claimer)
         and coalesce(taskq._last_claim(_is_worked_on.of_queue, _is_worked_on.at) > _is_worked_on.at - interval '30 seconds', false)
$$;
comment on function taskq._is_worked_on(text, timestamptz) is
  'Whether anybody takes tasks from a queue now.';

-- A moment, as people read it.
create function taskq._said(at timestamptz) returns text
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(to_char(_said.at, 'YYYY-MM-DD HH24:MI:SSOF'), '?')
$$;
comment on function taskq._said(timestamptz) is 'A moment to the second, in the time zone of the session.';

-- ---------------------------------------------------------------------------
-- why
-- ---------------------------------------------------------------------------

-- why: one row for each reason that holds, the most binding first.
--   reason       its code: superseded, paused, scheduled, retry, locked, unclaimed, blocked, limit, rate, behind, next;
--                of a task that does not wait: lease_over, cancel_requested, running; dead; succeeded, cancelled
--   explanation  the same in words
--   since        since when it holds            until  when it ends, if that is known or can be forecast
--   who          the role that paused, the worker that has the task
--   tasks        the tasks in the way, 10 at most
--   ahead        how many tasks come before     per_second  how many the workers take from the queue
--   usual_run    how long such a task usually takes
--   error        what it failed with last
-- No row if there is no such task, or the id is NULL.
-- Reads: one row, and what is kept for its queue; counts along the index up to 100,000 tasks ahead.
create function taskq.why(id bigint)
  returns table (rank integer, reason text, explanation text, since timestamptz, until timestamptz, who text,
                 tasks bigint[], ahead bigint, per_second double precision, usual_run interval, error text)
  language plpgsql volatile security definer rows 3 set search_path = pg_catalog, pg_temp as $$
declare
  v_now  timestamptz := taskq._now();
  v_task taskq.task;
begin
  rank := 0;
  select t.* into v_task from taskq.task t where t.id = why.id;
  if not found then
    return query select * from taskq._why_over(why.id);
  elsif v_task.state = 'running' then
    return query select row_number() over ()::integer, w.* from taskq._why_running(v_task, v_now) w;
  else
    return query select row_number() over ()::integer, w.* from taskq._why_waiting(v_task, v_now) w;
  end if;
end
$$;
comment on function taskq.why is
  'Why a task is not running now, and what it waits for: one row for each reason that holds, the most binding first, in words and with the facts. No row if there is no such task.';

-- A task that is over: one row.
create function taskq._why_over(of_id bigint)
  returns table (rank integer, reason text, explanation text, since timestamptz, until timestamptz, who text,
                 tasks bigint[], ahead bigint, per_second double precision, usual_run interval, error text)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp as $$
  select 1, 'dead', format('it is dead since %s, after %s, with "%s"; redrive(ids => ''{%s}'') brings it back',
                           taskq._said(d.died_at), case d.attempt when 1 then '1 attempt' else d.attempt || ' attempts' end,
                           taskq._last_error(d.errors), d.id),
         d.died_at, null::timestamptz, d.worker, null::bigint[], null::bigint, null::double precision, null::interval,
         taskq._last_error(d.errors)
    from taskq.dead_letter d where d.id = _why_over.of_id
  union all
  select 1, f.state,
         case f.state when 'succeeded' then format('it finished at %s', taskq._said(f.finished_at))
                      else format('it was cancelled at %s%s', taskq._said(f.finished_at), ': ' || f.cancel_reason) end,
         f.finished_at, null, f.worker, null, null, null, null, taskq._last_error(f.errors)
    from taskq._finished_task(_why_over.of_id) f
   limit 1
$$;
comment on function taskq._why_over(bigint) is 'why, for a task that has ended.';

create function taskq._why_running(task taskq.task, at timestamptz)
  returns table (reason text, explanation text, since timestamptz, until timestamptz, who text, tasks bigint[],
                 ahead bigint, per_second double precision, usual_run interval, error text)
  language plpgsql stable rows 2 set search_path = pg_catalog, pg_temp as $$
begin
  who := (_why_running.task).worker;
  error := taskq._last_error((_why_running.task).errors);
  if (_why_running.task).lease_expires_at <= _why_running.at then
    reason := 'lease_over';
    since := (_why_running.task).lease_expires_at;
    explanation := format('its lease was over at %s: the keeper, or the next claim from its queue, takes it back', taskq._said(since));
    return next;
  end if;
  if (_why_running.task).cancel_requested_at is not null then
    reason := 'cancel_requested';
    since := (_why_running.task).cancel_requested_at;
    until := (_why_running.task).lease_expires_at;
    explanation := format('somebody asked at %s to cancel it: it ends when worker %s hears of it, or its lease is over at %s',
                          taskq._said(since), who, taskq._said(until));
    return next;
  end if;
  reason := 'running';
  since := (_why_running.task).claimed_at;
  until := (_why_running.task).lease_expires_at;
  usual_run := taskq._usual_run((_why_running.task).queue, (_why_running.task).task_type, _why_running.at);
  explanation := format('it runs at worker %s since %s, %s; %s lease until %s', who, taskq._said(since),
                        case (_why_running.task).attempt when 1 then 'attempt 1' else format('attempt %s', (_why_running.task).attempt) end,
                        case when usual_run is null then 'how long such a task takes is not known yet;'
                             else format('such a task usually takes %s s;', round(extract(epoch from usual_run)::numeric, 1)) end,
                        taskq._said(until));
  return next;
end
$$;
comment on function taskq._why_running(taskq.task, timestamptz) is 'why, for a task that runs.';

create function taskq._why_waiting(task taskq.task, at timestamptz)
  returns table (reason text, explanation text, since timestamptz, until timestamptz, who text, tasks bigint[],
                 ahead bigint, per_second double precision, usual_run interval, error text)
  language plpgsql volatile rows 3 set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := _why_waiting.at;
  v_task   taskq.task := _why_waiting.task;
  v_queue  taskq.queue;
  v_parked boolean := v_task.run_at = 'infinity';
  v_run_at timestamptz := v_task.run_at;
  v_due    boolean;
  v_holder bigint;
  v_found  record;
  v_any    boolean := false;
begin
  select q.* into v_queue from taskq.queue q where q.name = v_task.queue;
  if v_parked then
    select p.run_at into v_run_at from taskq.parked p where p.id = v_task.id;
    v_run_at := coalesce(v_run_at, v_now);
  end if;
  v_due := v_run_at <= v_now;

  -- Its unique key has a successor: it will never run.
  select k.task_id into v_holder
    from taskq.unique_key k
   where k.task_type = v_task.task_type and k.key = v_task.unique_key and k.task_id <> v_task.id
     -- one that is up is free, although its row may still be there
     and not (k.let_go and k.kept_until <= v_now)
     and exists (select from taskq.task o where o.id = k.task_id);
  if found then
    reason := 'superseded';
    tasks := array[v_holder];
    explanation := format('task %s has taken its unique key meanwhile: it ends cancelled when it comes to be claimed', v_holder);
    return next;
    v_any := true;
  end if;
  tasks := null;

  if v_queue.paused_at is not null then
    reason := 'paused';
    since := v_queue.paused_at;
    who := v_queue.paused_by;
    explanation := format('its queue "%s" is paused since %s by %s', v_task.queue, taskq._said(since), who);
    return next;
    v_any := true;
  end if;
  since := null; who := null;

  if not v_due then
    until := v_run_at;
    error := taskq._last_error(v_task.errors);
    if v_task.attempt > 0 and v_task.errors is not null then
      reason := 'retry';
      since := (v_task.errors -> -1 ->> 'at')::timestamptz;
      who := v_task.errors -> -1 ->> 'worker';
      explanation := format('it waits for its retry at %s, after attempt %s failed with "%s"', taskq._said(until), v_task.attempt, error);
    else
      reason := 'scheduled';
      explanation := format('it is due only at %s', taskq._said(until));
    end if;
    return next;
    v_any := true;
  end if;
  since := null; until := null; who := null; error := null;

  -- A transaction that is open has it: a claim, a cancel, a replace that is not committed.
  for v_found in
    select x.* from (select taskq._top_transaction(t.xmax::text::bigint) as xid from taskq.task t where t.id = v_task.id) holder
     cross join lateral (
       select a.pid, a.xact_start as since, coalesce(nullif(a.application_name, ''), a.usename) as name
         from pg_stat_activity a where a.backend_xid::text::bigint = holder.xid and a.pid <> pg_backend_pid()
       union all
       select null, p.prepared, p.gid from pg_prepared_xacts p where p.transaction::text::bigint = holder.xid) x
  loop
    reason := 'locked';
    since := v_found.since;
    who := v_found.name;
    explanation := case when v_found.pid is not null then format('session %s (%s) has it in a transaction that is open since %s', v_found.pid, who, taskq._said(since))
                        else format('a prepared transaction (%L) has it since %s', coalesce(who, '?'), taskq._said(since)) end;
    return next;
    v_any := true;
  end loop;
  since := null; who := null;

  if not taskq._is_worked_on(v_task.queue, v_now) then
    reason := 'unclaimed';
    since := taskq._last_claim(v_task.queue, v_now);
    explanation := case when since is null then format('nobody is known to have claimed from queue "%s"', v_task.queue)
                        else format('nobody has claimed from queue "%s" since %s', v_task.queue, taskq._said(since)) end;
    return next;
    v_any := true;
  end if;
  since := null;

  if v_due and v_task.group_key is not null then
    select g.task_id into v_holder from taskq.group_turn g
     where g.queue = v_task.queue and g.group_key = v_task.group_key and g.task_id is not null;
    if found or v_parked then
      reason := 'blocked';
      tasks := array_remove(array[v_holder], null);
      ahead := (select count(*) from (
                  select from taskq.parked p
                   where p.queue = v_task.queue and p.group_key = v_task.group_key
                     and (p.priority > v_task.priority
                          or p.priority = v_task.priority and (p.run_at, p.id) < (v_run_at, v_task.id))
                   limit 100000) x);
      select t.claimed_at, t.worker into since, who from taskq.task t where t.id = v_holder;
      explanation := format('%s; %s of the group that wait aside %s ahead of it',
                            case when v_holder is null then 'another task of its group is the next'
                                 else format('its group is held by task %s, which worker %s has since %s', v_holder, who, taskq._said(since)) end,
                            ahead, case ahead when 1 then 'is' else 'are' end);
      return next;
      v_any := true;
    end if;
  end if;
  tasks := null; ahead := null; since := null; who := null;

  if v_queue.max_running is not null then
    select array_agg(s.task_id order by s.task_id) as ids, count(*) as used into v_found
      from taskq.slot s where s.queue = v_task.queue and s.task_id is not null;
    if v_found.used >= v_queue.max_running then
      reason := 'limit';
      tasks := v_found.ids[1:10];
      explanation := case v_queue.max_running when 0 then format('the limit of queue "%s" is 0: nothing begins', v_task.queue)
                       else format('the limit of %s is taken by %s %s%s', v_queue.max_running,
                                   case v_found.used when 1 then 'task' else 'tasks' end, array_to_string(tasks, ', '),
                                   case when v_found.used > 10 then format(' and %s others', v_found.used - 10) end) end;
      return next;
      v_any := true;
    end if;
  end if;
  tasks := null;

  if v_queue.rate is not null then
    -- (a token that is free much too late was used before the clock was set back: it is free, see permits_available.sql)
    select min(t.free_at) into until from taskq.rate_token t
     where t.queue = v_task.queue
    having min(case when t.free_at > v_now + make_interval(secs => taskq._token_period(v_queue.rate, v_queue.burst)) then v_now
                    else t.free_at end) > greatest(v_now, v_run_at);
    if found then
      reason := 'rate';
      explanation := format('the next token of the rate of %s comes at %s', v_queue.rate, taskq._said(until));
      return next;
      v_any := true;
    end if;
  end if;
  until := null;

  ahead := taskq._tasks_ahead(v_task.queue, v_task.priority, v_run_at, v_task.id, v_now);
  per_second := taskq._start_rate(v_task.queue, v_now);
  usual_run := taskq._usual_run(v_task.queue, v_task.task_type, v_now);
  if ahead > 0 then
    reason := 'behind';
    if v_queue.paused_at is null and ahead < 100000 and per_second is not null then
      until := greatest(v_run_at, v_now + make_interval(secs => ahead / per_second));
    end if;
    explanation := format('%s%s ahead of it%s', case when ahead >= 100000 then 'at least ' end,
                          case ahead when 1 then '1 task is' else ahead || ' tasks are' end,
                          case when per_second is null then ', and nothing was started in the last 15 minutes'
                               when until is null then format('; the rate was %s a second', round(per_second::numeric, 2))
                               else format('; at the present rate of %s a second its turn comes at %s', round(per_second::numeric, 2), taskq._said(until)) end);
    return next;
  elsif not v_any then
    reason := 'next';
    tasks := array(select r.id from taskq._running_tasks(v_task.queue, 2000) r limit 10);
    explanation := case when cardinality(tasks) = 0 then 'nothing holds it up: the next claim from its queue takes it'
                        else 'nothing holds it up: it is the next when a worker is free' end;
    return next;
  end if;
end
$$;
comment on function taskq._why_waiting(taskq.task, timestamptz) is 'why, for a task that waits.';
