-- What diagnose finds about the lanes of a queue: a limit or a rate holds work back, one group or type fills it,
-- a priority starves; and, where nothing else is found, that more arrives than is done.

create function taskq._find_limits(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_queue text := (_find_limits.q).queue;
  v_used  record;
  v_next  timestamptz;
begin
  if not (_find_limits.q).behind or (_find_limits.q).paused_at is not null or (_find_limits.q).idle = 0 then
    return;
  end if;
  if (_find_limits.q).max_running is not null then
    select count(*) as number, array_agg(s.task_id::text order by s.task_id) as ids into v_used
      from taskq.slot s where s.queue = v_queue and s.task_id is not null;
    if v_used.number >= (_find_limits.q).max_running then
      return next row(85, v_queue, 'warning', 'limit_holds',
        format('the limit of queue "%s" holds work back although workers are idle', v_queue),
        format('max_running is %s, and %s; %s ready, the oldest for %s; %s idle', (_find_limits.q).max_running,
               case v_used.number when 0 then 'nothing may run' else format('taken by %s %s', case v_used.number when 1 then 'task' else 'tasks' end, taskq._listed(v_used.ids, 10)) end,
               taskq._plural((_find_limits.q).ready, 'task is', 'tasks are'), taskq._span(extract(epoch from (_find_limits.q).oldest_age)),
               taskq._plural((_find_limits.q).idle, 'worker is', 'workers are')),
        jsonb_build_object('max_running', (_find_limits.q).max_running, 'tasks', to_jsonb(v_used.ids[1:100]::bigint[]), 'ready', (_find_limits.q).ready, 'idle_workers', (_find_limits.q).idle),
        case when (_find_limits.q).max_running = 10000 then 'It is the largest limit there is. If what they call bears more, take it away: '
             else 'If what they call bears more: ' end
          || format('select taskq.configure_queue(%L, ''{"max_running": %s}'')', v_queue,
                    case when (_find_limits.q).max_running = 10000 then 'null'
                         else least(10000, greatest(1, (_find_limits.q).max_running * 2))::text end))::taskq._finding;
    end if;
  end if;
  if (_find_limits.q).rate is not null then
    select min(t.free_at) into v_next from taskq.rate_token t where t.queue = v_queue;
    select sum(t.started) / min(t.seconds) as started, p.number / p.seconds::double precision as permitted into v_used
      from unnest(_find_limits.types) t cross join taskq._rate_parts((_find_limits.q).rate) p group by p.number, p.seconds;
    if v_next > _find_limits.at or v_used.started >= 0.8 * v_used.permitted then
      return next row(86, v_queue, 'warning', 'rate_holds',
        format('the rate of queue "%s" holds work back although workers are idle', v_queue),
        format('%s may begin, the next one %s; %s ready, the oldest for %s; %s arrived in the last %s; %s idle', (_find_limits.q).rate,
               case when v_next > _find_limits.at then 'at ' || taskq._said(v_next) else 'now' end,
               taskq._plural((_find_limits.q).ready, 'task is', 'tasks are'), taskq._span(extract(epoch from (_find_limits.q).oldest_age)),
               (select sum(t.enqueued) from unnest(_find_limits.types) t), taskq._span(extract(epoch from taskq._now_span())),
               taskq._plural((_find_limits.q).idle, 'worker is', 'workers are')),
        jsonb_build_object('rate', (_find_limits.q).rate, 'next_token_at', v_next, 'ready', (_find_limits.q).ready, 'idle_workers', (_find_limits.q).idle),
        format('If what they call bears more: select taskq.configure_queue(%L, ''{"rate": "…"}'')', v_queue))::taskq._finding;
    end if;
  end if;
end
$$;
comment on function taskq._find_limits(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: limit_holds, rate_holds.';

-- Of the parked tasks a part is read, evenly, if there are more than some 5,000.
create function taskq._largest_group(of_queue text)
  returns table (group_key text, share double precision, oldest_at timestamptz)
  language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_percent real := least(100, 100 * 50 / greatest(1, pg_relation_size('taskq.parked') / 8192)::real);
begin
  return query
  select p.group_key, count(*) / sum(count(*)) over ()::double precision, min(p.run_at)
    from taskq.parked p tablesample system (v_percent)
   where p.queue = _largest_group.of_queue
   group by p.group_key
   order by 2 desc, 1
   limit 1;
end
$$;
comment on function taskq._largest_group(text) is
  'The group of a queue that has most blocked tasks, and its share of them.';

create function taskq._first_ready(of_queue text, priority integer, at timestamptz) returns table (id bigint, run_at timestamptz)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  select t.id, t.run_at from taskq.task t
   where t.queue = _first_ready.of_queue and t.priority = _first_ready.priority and t.run_at <= _first_ready.at and t.state = 'waiting'
   order by t.queue, t.priority desc, t.run_at, t.id
   limit 1
$$;
comment on function taskq._first_ready(text, integer, timestamptz) is 'The first ready task of a lane.';

create function taskq._find_crowding(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_queue  text := (_find_crowding.q).queue;
  v_group  record;
  v_holder record;
  v_type   record;
  v_low    record;
  v_high   record;
begin
  if (_find_crowding.q).paused_at is not null then
    return;
  end if;
  if (_find_crowding.q).blocked >= 10 and (_find_crowding.q).blocked >= (_find_crowding.q).ready then
    select g.* into v_group from taskq._largest_group(v_queue) g;
    if v_group.share >= 0.5 and v_group.oldest_at < _find_crowding.at - taskq._now_span() / 4 then
      select t.id, t.worker, t.claimed_at into v_holder
        from taskq.group_turn g join taskq.task t on t.id = g.task_id
       where g.queue = v_queue and g.group_key = v_group.group_key;
      return next row(90, v_queue, 'warning', 'group_fills',
        format('one group fills queue "%s": its tasks run one at a time', v_queue),
        format('%s blocked, %s %% of them in group "%s", the oldest since %s; %s', taskq._plural((_find_crowding.q).blocked, 'task is', 'tasks are'),
               taskq._figure(round((100 * v_group.share)::numeric)::double precision), v_group.group_key, taskq._said(v_group.oldest_at),
               case when v_holder.id is null then 'nobody has its turn' else format('task %s has its turn, at worker %s since %s', v_holder.id, v_holder.worker, taskq._said(v_holder.claimed_at)) end),
        jsonb_build_object('group_key', v_group.group_key, 'share', v_group.share, 'blocked', (_find_crowding.q).blocked, 'oldest_at', v_group.oldest_at, 'holder', v_holder.id),
        case when v_holder.id is null then 'Use a finer group_key where the order does not matter'
             else format('See why its task takes so long: select * from taskq.why(%s). Use a finer group_key where the order does not matter', v_holder.id) end)::taskq._finding;
    end if;
  end if;
  if not (_find_crowding.q).behind then
    return;
  end if;
  -- types: by what is ready of each
  select t.task_type, t.ready, sum(t.ready) over () as total, count(*) filter (where t.ready > 0) over () as number into v_type
    from unnest(_find_crowding.types) t order by t.ready desc limit 1;
  if v_type.number >= 2 and v_type.ready >= 20 and v_type.ready >= 0.8 * v_type.total then
    return next row(92, v_queue, 'warning', 'type_fills',
      format('type "%s" fills queue "%s", and others wait behind it', v_type.task_type, v_queue),
      format('%s of %s ready tasks are of that type; the oldest waits for %s', v_type.ready, v_type.total, taskq._span(extract(epoch from (_find_crowding.q).oldest_age))),
      jsonb_build_object('task_type', v_type.task_type, 'ready', v_type.ready, 'of', v_type.total),
      -- (made by quote and jsonb, because it is to be run; a longer name would be refused)
      format('Give it a queue of its own, or a lower priority: select taskq.configure_type(%L, %L); or start more workers', v_type.task_type,
             jsonb_build_object('queue', case when octet_length(v_queue) <= 58 then v_queue || '.bulk' else 'bulk' end)))::taskq._finding;
  end if;
  -- priorities: of the oldest lane the first task has waited long, of a higher one it has not
  select l.priority, f.run_at, f.id into v_low
    from taskq._lanes(v_queue) l cross join lateral taskq._first_ready(v_queue, l.priority, _find_crowding.at) f
   order by f.run_at limit 1;
  select l.priority, f.run_at, f.id into v_high
    from taskq._lanes(v_queue) l cross join lateral taskq._first_ready(v_queue, l.priority, _find_crowding.at) f
   where l.priority > v_low.priority
   order by f.run_at limit 1;
  if _find_crowding.at - v_high.run_at < (_find_crowding.at - v_low.run_at) / 2 then
    return next row(93, v_queue, 'warning', 'starved',
      format('old tasks of queue "%s" starve behind higher priorities', v_queue),
      format('task %s with priority %s is due since %s, while the oldest with priority %s waits for %s; at most %s before the old ones',
             v_low.id, v_low.priority, taskq._said(v_low.run_at), v_high.priority, taskq._span(extract(epoch from _find_crowding.at - v_high.run_at)),
             taskq._plural(taskq._tasks_ahead(v_queue, v_low.priority, v_low.run_at, v_low.id, _find_crowding.at), 'task comes', 'tasks come')),
      jsonb_build_object('task', v_low.id, 'priority', v_low.priority, 'due_since', v_low.run_at, 'higher_priority', v_high.priority, 'higher_due_since', v_high.run_at),
      'Start more workers, or give the lower ones a queue and workers of their own: select taskq.configure_type(''…'', ''{"queue": "…"}'')')::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_crowding(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: group_fills, type_fills, starved.';

-- The queue is behind, and nothing that is found explains it: then there are too few workers.
create function taskq._find_backlog(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_sum record;
begin
  if (_find_backlog.q).behind and (_find_backlog.q).paused_at is null then
    select sum(t.enqueued) as enqueued, sum(t.started) as started, min(t.seconds) as seconds into v_sum from unnest(_find_backlog.types) t;
    return next row(99, (_find_backlog.q).queue, 'warning', 'falling_behind',
      format('the workers of queue "%s" do not keep up', (_find_backlog.q).queue),
      format('%s ready, the oldest for %s; %s a second arrive and %s are started, by %s, of which %s idle', taskq._plural((_find_backlog.q).ready, 'task is', 'tasks are'),
             taskq._span(extract(epoch from (_find_backlog.q).oldest_age)), taskq._figure(v_sum.enqueued / v_sum.seconds), taskq._figure(v_sum.started / v_sum.seconds),
             taskq._plural((_find_backlog.q).present, 'worker', 'workers'), taskq._plural((_find_backlog.q).idle, 'is', 'are')),
      jsonb_build_object('ready', (_find_backlog.q).ready, 'enqueued', v_sum.enqueued, 'started', v_sum.started, 'seconds', v_sum.seconds,
                         'workers', (_find_backlog.q).present, 'idle_workers', (_find_backlog.q).idle),
      format('Start more workers for queue %L. When it will be over: select * from taskq.status(id) of its last task', (_find_backlog.q).queue))::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_backlog(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: falling_behind.';
