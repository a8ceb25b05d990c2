-- What diagnose finds about the tasks of a queue: they fail, are retried without end, got slower, are stuck; more arrive.

-- The commonest error of a type since then, without those of ended leases.
create function taskq._commonest_error(of_queue text, of_type text, since timestamptz)
  returns table (error text, number bigint, first_seen_at timestamptz, last_seen_at timestamptz, sample_id bigint)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp as $$
  select x.folded, count(*), min(x.at), max(x.at), (array_agg(x.id order by x.at desc))[1]
    from (select r.id, r.at, coalesce(taskq._fold_error(r.error), '') as folded
            from taskq._failed_runs(_commonest_error.of_queue, 4000) r
           where r.task_type = _commonest_error.of_type and r.at > _commonest_error.since and r.error is distinct from 'lease expired') x
   group by x.folded
   order by 2 desc, 1
   limit 1
$$;
comment on function taskq._commonest_error(text, text, timestamptz) is
  'The error that a type failed with most since then, numbers and ids folded.';

create function taskq._find_failing(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_type   taskq._comparison;
  v_share  double precision;
  v_usual  double precision;
  v_error  record;
begin
  foreach v_type in array _find_failing.types loop
    v_share := v_type.failed / nullif(v_type.failed + v_type.succeeded, 0)::double precision;
    v_usual := v_type.usual_failed / nullif(v_type.usual_failed + v_type.usual_succeeded, 0)::double precision;
    if v_type.usual_seconds is null or v_type.usual_failed + v_type.usual_succeeded < 20 then
      v_usual := null;
    end if;
    if v_type.failed >= 5 and v_share >= coalesce(2 * v_usual + 0.05, 0.3) then
      select e.* into v_error from taskq._commonest_error(v_type.queue, v_type.task_type, _find_failing.at - taskq._now_span()) e;
      return next row(60, v_type.queue, case when v_share >= 0.5 then 'critical' else 'warning' end, 'type_fails',
        format('tasks of type "%s" fail', v_type.task_type),
        format('%s %% of the runs in the last %s failed (%s): %s, %s dead; commonest error: "%s", %s times from %s to %s, last in task %s',
               taskq._figure(round(100 * v_share)), taskq._span(v_type.seconds), taskq._usually(round((100 * v_usual)::numeric, 1)::double precision, ' %'),
               taskq._plural(v_type.failed, 'failure', 'failures'), v_type.dead, v_error.error, v_error.number,
               taskq._said(v_error.first_seen_at), taskq._said(v_error.last_seen_at), v_error.sample_id),
        jsonb_build_object('task_type', v_type.task_type, 'failed', v_type.failed, 'succeeded', v_type.succeeded, 'dead', v_type.dead,
                           'share', v_share, 'usual_share', v_usual, 'seconds', v_type.seconds, 'error', v_error.error, 'error_count', v_error.number,
                           'first_seen_at', v_error.first_seen_at, 'last_seen_at', v_error.last_seen_at, 'sample_id', v_error.sample_id),
        format('Mend what it calls: select * from taskq.failures where task_type = %L. Then bring dead ones back: select * from taskq.redrive(queue => %L, task_type => %L)',
               v_type.task_type, v_type.queue, v_type.task_type))::taskq._finding;
    end if;
    if v_type.retried >= 20 and v_type.retried >= 2 * v_type.succeeded and v_type.retried >= 2 * v_type.enqueued then
      select e.* into v_error from taskq._commonest_error(v_type.queue, v_type.task_type, _find_failing.at - taskq._now_span()) e;
      return next row(65, v_type.queue, 'warning', 'retry_storm',
        format('most runs of type "%s" are retries that fail again', v_type.task_type),
        format('in the last %s %s retried, %s succeeded and %s arrived; %s retried in that time; commonest error: "%s", %s times',
               taskq._span(v_type.seconds), taskq._plural(v_type.retried, 'run was', 'runs were'), v_type.succeeded, v_type.enqueued,
               taskq._usually(v_type.usual_retried * v_type.seconds / v_type.usual_seconds, ''), coalesce(v_error.error, 'lease expired'), coalesce(v_error.number, v_type.expired)),
        jsonb_build_object('task_type', v_type.task_type, 'retried', v_type.retried, 'succeeded', v_type.succeeded, 'enqueued', v_type.enqueued,
                           'usual_retried', v_type.usual_retried * v_type.seconds / v_type.usual_seconds, 'seconds', v_type.seconds, 'error', v_error.error),
        format('Let retries wait longer: select taskq.configure_type(%L, ''{"backoff_base": "%s"}''); or stop the queue meanwhile: select taskq.pause(%L)',
               v_type.task_type,
               greatest(interval '1 minute', least(interval '100 years', 2 * coalesce((select t.backoff_base from taskq.task_type t where t.name = v_type.task_type), interval '30 seconds'))),
               v_type.queue))::taskq._finding;
    end if;
  end loop;
end
$$;
comment on function taskq._find_failing(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: type_fails, retry_storm.';

-- A type got slower if the tasks that finish say so, or, when hardly any finish, those that run; single ones that run
-- for much longer than the others are stuck. Tasks of workers that are gone are not stuck: their leases will end.
create function taskq._find_slow(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_type   taskq._comparison;
  v_runs   record;
  v_now    double precision;
  v_least  double precision := extract(epoch from taskq._now_span()) / 4;
  v_running taskq.task[];
  v_slower boolean;
begin
  if (_find_slow.q).running > 0 then
    v_running := array(
      select t
        from taskq._running_tasks((_find_slow.q).queue, 2000) r join taskq.task t on t.id = r.id
       where r.lease_expires_at > _find_slow.at
         and not exists (select from taskq._claimers((_find_slow.q).queue, _find_slow.at) c where c.worker = r.worker and c.gone));
  end if;
  foreach v_type in array _find_slow.types loop
    continue when v_type.usual_seconds is null or v_type.usual_succeeded < 20 or v_type.usual_run_p50 is null;
    select count(*) as number, percentile_cont(0.5) within group (order by r.seconds) as median,
           count(*) filter (where r.seconds > greatest(v_least, 10 * v_type.usual_run_p95)) as stuck,
           array_agg(r.id::text order by r.seconds desc) filter (where r.seconds > greatest(v_least, 10 * v_type.usual_run_p95)) as ids,
           array_agg(distinct r.worker) filter (where r.seconds > greatest(v_least, 10 * v_type.usual_run_p95)) as workers,
           max(r.seconds) as longest
      into v_runs
      from (select x.id, x.worker, extract(epoch from _find_slow.at - x.claimed_at)::double precision as seconds
              from unnest(v_running) x where x.task_type = v_type.task_type) r;
    v_now := case when v_runs.number >= 2 and v_runs.stuck = v_runs.number then v_runs.median  -- none gets through
                  when v_type.succeeded >= 5 then v_type.run_p50
                  when v_runs.number >= 2 and v_runs.median > v_least then v_runs.median end;
    v_slower := coalesce(v_now >= 2 * v_type.usual_run_p50 and v_now >= v_type.usual_run_p50 + 0.05 and v_now >= 1.3 * v_type.high_run_p50, false);
    if v_slower then
      return next row(70, v_type.queue, 'warning', 'tasks_slower',
        format('tasks of type "%s" take %s times as long as usual', v_type.task_type, taskq._figure(v_now / greatest(0.001, v_type.usual_run_p50))),
        format('%s now (median of the last %s, %s finished, %s running), usually %s', taskq._span(v_now), taskq._span(v_type.seconds),
               v_type.succeeded, v_runs.number, taskq._span(v_type.usual_run_p50)),
        jsonb_build_object('task_type', v_type.task_type, 'run', v_now, 'usual_run', v_type.usual_run_p50, 'factor', v_now / greatest(0.001, v_type.usual_run_p50),
                           'succeeded', v_type.succeeded, 'running', v_runs.number, 'seconds', v_type.seconds),
        format('Look at what its handler calls. Longest runs: select * from taskq.running where task_type = %L order by running_for desc limit 10', v_type.task_type))::taskq._finding;
    end if;
    if v_runs.stuck > 0 and not v_slower then
      return next row(75, v_type.queue, 'warning', 'tasks_stuck',
        format('%s of type "%s" run much longer than usual', taskq._plural(v_runs.stuck, 'task', 'tasks'), v_type.task_type),
        format('%s %s at %s %s, the longest for %s; such tasks usually take %s, hardly ever more than %s', case when v_runs.stuck = 1 then 'task' else 'tasks' end,
               taskq._listed(v_runs.ids, 10), case when cardinality(v_runs.workers) = 1 then 'worker' else 'workers' end, taskq._listed(v_runs.workers, 5),
               taskq._span(v_runs.longest), taskq._span(v_type.usual_run_p50), taskq._span(v_type.usual_run_p95)),
        jsonb_build_object('task_type', v_type.task_type, 'tasks', to_jsonb(v_runs.ids[1:100]::bigint[]), 'workers', to_jsonb(v_runs.workers), 'longest', v_runs.longest,
                           'usual_run', v_type.usual_run_p50, 'usual_run_p95', v_type.usual_run_p95),
        format('See what these workers do. To end one and try it again elsewhere, end its worker; to give it up: select taskq.cancel(%s, force => true)', v_runs.ids[1]))::taskq._finding;
    end if;
  end loop;
end
$$;
comment on function taskq._find_slow(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: tasks_slower, tasks_stuck.';

-- More arrivals are a finding only if the workers do not keep up.
create function taskq._find_arrivals(q taskq._standing, types taskq._comparison[], at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_arrivals record;
  v_type     record;
begin
  if not (_find_arrivals.q).behind then
    return;
  end if;
  select a.* into v_arrivals from taskq._arrivals((_find_arrivals.q).queue, _find_arrivals.at) a;
  if not found or v_arrivals.arrived < 20 or v_arrivals.arrived < 1.5 * v_arrivals.high
     or v_arrivals.arrived < 2 * v_arrivals.usual then
    return;
  end if;
  select t.task_type, t.enqueued, t.usual_enqueued * t.seconds / t.usual_seconds as usual, t.seconds into v_type
    from unnest(_find_arrivals.types) t order by t.enqueued - coalesce(t.usual_enqueued * t.seconds / t.usual_seconds, 0) desc limit 1;
  return next row(80, (_find_arrivals.q).queue, 'warning', 'arrivals_rose',
    format('more tasks arrive in queue "%s" than usual, most of type "%s"', (_find_arrivals.q).queue, v_type.task_type),
    format('%s arrived in the last %s, usually %s, in busy times %s; of type "%s" %s, usually %s; %s ready, the oldest for %s',
           v_arrivals.arrived, taskq._span(v_type.seconds), taskq._figure(v_arrivals.usual), taskq._figure(v_arrivals.high), v_type.task_type, v_type.enqueued,
           taskq._figure(v_type.usual), taskq._plural((_find_arrivals.q).ready, 'task is', 'tasks are'), taskq._span(extract(epoch from (_find_arrivals.q).oldest_age))),
    jsonb_build_object('arrived', v_arrivals.arrived, 'usual', v_arrivals.usual, 'busy', v_arrivals.high, 'task_type', v_type.task_type,
                       'of_type', v_type.enqueued, 'usual_of_type', v_type.usual, 'seconds', v_type.seconds, 'ready', (_find_arrivals.q).ready),
    format('Start more workers, or let urgent types go first: select taskq.configure_type(%L, ''{"priority": -10}''). When it will be over: select * from taskq.estimate(%L, %L)',
           v_type.task_type, v_type.task_type, (_find_arrivals.q).queue))::taskq._finding;
end
$$;
comment on function taskq._find_arrivals(taskq._standing, taskq._comparison[], timestamptz) is
  'Findings of diagnose: arrivals_rose.';
