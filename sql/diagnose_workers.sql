-- What diagnose finds about the workers of a queue: nobody claims, fewer claim, leases end, a pause.

-- How a queue stands, and who works on it; for all findings about it.
create type taskq._standing as (
  queue         text,
  ready         bigint,
  running       bigint,
  blocked       bigint,
  dead          bigint,
  oldest_age    interval,          -- of its ready tasks
  behind        boolean,           -- that is more than usual
  patience      interval,          -- what would be usual
  worked_on     boolean,
  present       bigint,            -- workers that ask for its tasks
  idle          bigint,            -- of these, without a task
  paused_at     timestamptz,
  paused_by     text,
  max_running   integer,
  rate          text,
  burst         integer);
comment on type taskq._standing is 'How a queue stands, for diagnose.';

create function taskq._stand(q taskq.queues, types taskq._comparison[], at timestamptz) returns taskq._standing
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  select row((_stand.q).queue, (_stand.q).ready, (_stand.q).running, (_stand.q).blocked, (_stand.q).dead, (_stand.q).oldest_ready_age,
             coalesce((_stand.q).oldest_ready_age > p.patience, false), p.patience,
             taskq._is_worked_on((_stand.q).queue, _stand.at), c.present, c.idle,
             (_stand.q).paused_at, (_stand.q).paused_by, (_stand.q).max_running, (_stand.q).rate, (_stand.q).burst)::taskq._standing
    from (select greatest(taskq._now_span() / 4, make_interval(secs => 3 * max(t.usual_waiting_p95))) as patience
            from unnest(_stand.types) t) p
   cross join lateral (
     select count(*) filter (where x.present) as present,
            count(*) filter (where x.present and x.holds is null) as idle
       from taskq._claimers((_stand.q).queue, _stand.at) x) c
$$;
comment on function taskq._stand(taskq.queues, taskq._comparison[], timestamptz) is
  'How a queue stands and who works on it.';

create function taskq._find_workers(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_gone     record;
  v_usual    bigint;
  v_last     timestamptz := taskq._last_claim((_find_workers.q).queue, _find_workers.at);
  v_queue    text := (_find_workers.q).queue;
  v_expired  record;
  v_at       text;
begin
  if (_find_workers.q).paused_at is not null then
    if (_find_workers.q).ready > 0 then
      return next row(20, v_queue, 'warning', 'paused',
        format('queue "%s" is paused', v_queue),
        format('%s, and %s ready, the oldest for %s; paused since %s by %s', taskq._plural((_find_workers.q).idle, 'worker is idle', 'workers are idle'),
               taskq._plural((_find_workers.q).ready, 'task is', 'tasks are'), taskq._span(extract(epoch from (_find_workers.q).oldest_age)),
               taskq._said((_find_workers.q).paused_at), (_find_workers.q).paused_by),
        jsonb_build_object('paused_at', (_find_workers.q).paused_at, 'paused_by', (_find_workers.q).paused_by,
                           'ready', (_find_workers.q).ready, 'idle_workers', (_find_workers.q).idle),
        format('select taskq.resume(%L)', v_queue))::taskq._finding;
    end if;
  end if;

  -- who has asked for tasks lately and does not any more
  select count(*) as number, coalesce(array_agg(x.said order by x.seen_at desc), '{}') as said, max(x.seen_at) as seen_at,
         coalesce(jsonb_agg(jsonb_build_object('worker', x.worker, 'seen_at', x.seen_at, 'session_gone', x.gone, 'holds', x.holds)), '[]') as facts,
         coalesce(bool_or(x.gone), false) as gone
    into v_gone
    from (select c.*, format('worker %s was last seen at %s%s', c.worker, taskq._said(c.seen_at),
                             case when c.holds is not null then format(' and holds %s %s', case when cardinality(c.holds) = 1 then 'task' else 'tasks' end,
                                                                       taskq._listed(c.holds::text[], 5)) else '' end) as said
            from taskq._claimers(v_queue, _find_workers.at) c
           where not c.present and c.seen_at > _find_workers.at - taskq._now_span() * 91) x;
  v_usual := (select percentile_disc(0.5) within group (order by m.claimers)
                from (select max(s.claimers) as claimers from taskq.sample s
                       where s.queue = v_queue and s.at > _find_workers.at - taskq._now_span() * 91
                         and s.at <= _find_workers.at - taskq._now_span() / 6
                       group by s.at) m);
  v_usual := coalesce(v_usual, (_find_workers.q).present + v_gone.number);

  if not (_find_workers.q).worked_on and (_find_workers.q).ready > 0 and (_find_workers.q).paused_at is null
     and (v_gone.gone or (_find_workers.q).oldest_age > taskq._now_span() / 4) then
    return next row(30, v_queue, 'critical', 'nobody_claims',
      format('nobody claims from queue "%s"', v_queue),
      format('%s ready, the oldest for %s; the last claim was %s; %s', taskq._plural((_find_workers.q).ready, 'task is', 'tasks are'),
             taskq._span(extract(epoch from (_find_workers.q).oldest_age)),
             case when v_last is null then 'never, as far as is known' else 'at ' || taskq._said(v_last) end,
             case when v_gone.number > 0 then taskq._listed(v_gone.said, 5) else format('usually %s', taskq._plural(v_usual, 'worker asks', 'workers ask')) end),
      jsonb_build_object('ready', (_find_workers.q).ready, 'last_claim_at', v_last, 'workers', 0, 'usual_workers', v_usual, 'vanished', v_gone.facts),
      format('Start workers that claim from %L. Who was there: select * from taskq.workers', v_queue))::taskq._finding;
  elsif (_find_workers.q).present < v_usual and v_gone.number > 0 then
    return next row(40, v_queue, case when (_find_workers.q).behind or v_gone.gone then 'warning' else 'info' end, 'claimers_fewer',
      format('fewer workers claim from queue "%s"', v_queue),
      format('%s, usually %s; %s', taskq._plural((_find_workers.q).present, 'worker asks', 'workers ask'), v_usual, taskq._listed(v_gone.said, 5)),
      jsonb_build_object('workers', (_find_workers.q).present, 'usual_workers', v_usual, 'vanished', v_gone.facts),
      'Start them again, and see why they ended. Who is there: select * from taskq.workers')::taskq._finding;
  end if;

  select sum(t.expired)::bigint as expired, sum(t.usual_expired)::double precision as usual, min(t.seconds) as seconds, min(t.usual_seconds) as usual_seconds,
         (array_agg(t.task_type order by t.expired desc))[1] as task_type
    into v_expired from unnest(_find_workers.types) t;
  if v_expired.expired >= 3 and v_expired.expired > coalesce(3 * v_expired.usual * v_expired.seconds / v_expired.usual_seconds, 0) then
    select string_agg(format('%s (%s)', x.worker, x.number), ', ' order by x.number desc, x.worker) into v_at
      from (select r.worker, count(*) as number
              from taskq._failed_runs(v_queue, 2000) r
             where r.at > _find_workers.at - taskq._now_span() and r.error = 'lease expired'
             group by r.worker order by 2 desc limit 5) x;
    return next row(50, v_queue, 'warning', 'leases_expire',
      'leases end without an answer: workers die, or their leases are too short',
      format('%s ended in the last %s (%s), most of type "%s"; of workers: %s', taskq._plural(v_expired.expired, 'lease', 'leases'),
             taskq._span(v_expired.seconds), taskq._usually(v_expired.usual * v_expired.seconds / v_expired.usual_seconds, ''), v_expired.task_type, coalesce(v_at, '?')),
      jsonb_build_object('expired', v_expired.expired, 'usual_expired', v_expired.usual * v_expired.seconds / v_expired.usual_seconds,
                         'seconds', v_expired.seconds, 'task_type', v_expired.task_type, 'workers', v_at),
      format('See the logs of these workers. If they live: call extend at a third of the lease, or give more time: select taskq.configure_type(%L, ''{"lease": "%s"}'')',
             v_expired.task_type, least(interval '366 days', 3 * coalesce((select t.lease from taskq.task_type t where t.name = v_expired.task_type),
                                                                           (select s.lease from taskq.queue s where s.name = v_queue), taskq._default_lease()))))::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_workers(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: paused, nobody_claims, claimers_fewer, leases_expire.';
