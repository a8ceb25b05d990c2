-- What diagnose finds about the database: the keeper, vacuum, claims, and whether the queue outgrows the server.
-- And diagnose itself.

create function taskq._find_keeper() returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := clock_timestamp();  -- as the duties are timed
  v_keeper record;
  v_late   record;
  v_wanted boolean;
begin
  select count(*) as number, min(a.backend_start) as since into v_keeper
    from pg_stat_activity a where a.backend_type = 'taskq keeper' and a.datname = current_database();
  select count(*) as number, string_agg(format('%s (%s)', d.name, case when d.error is not null then d.error when d.finished_at is null then 'never ran'
                                                                       else 'last round ' || taskq._said(d.finished_at) end), ', ' order by d.name) as said,
         count(*) filter (where d.error is null) as silent, min(d.finished_at) as since
    into v_late
    from taskq.duty d
   where d.error is not null
      or coalesce(greatest(d.finished_at, v_keeper.since), '-infinity') <= v_now - taskq._late_after(d.every, v_keeper.number > 0);
  -- one that should be there and is not is told of at once
  v_wanted := taskq._preloaded() and coalesce(current_setting('taskq.keeper', true), 'on') = 'on' and not taskq._excluded();
  if v_keeper.number = 0 and (v_wanted or v_late.silent > 0) then
    return next row(10, null, 'critical', 'keeper_off', 'the keeper is off: nobody takes back leases, enqueues schedules, sends alerts or takes samples',
      format('no keeper runs in database "%s"%s; duties that are late: %s', current_database(),
             case when v_wanted then '' else ' (taskq.keeper, taskq.excluded_databases or the library''s preloading say so)' end, coalesce(v_late.said, 'none yet')),
      jsonb_build_object('keeper', false, 'wanted', v_wanted, 'late', v_late.said, 'since', v_late.since),
      case when v_wanted then 'See the server log; start it: select taskq._start_keeper(). Meanwhile: call taskq.maintain()'
           else 'Switch it on (alter database … set taskq.keeper = on), or from a scheduler, every few seconds: call taskq.maintain()' end)::taskq._finding;
  elsif v_late.number > 0 then
    return next row(11, null, 'critical', 'keeper_late', 'the keeper is late, or its duties fail',
      format('%s: %s', taskq._plural(v_late.number, 'duty is late or fails', 'duties are late or fail'), v_late.said),
      jsonb_build_object('keeper', v_keeper.number > 0, 'duties', v_late.said, 'since', v_late.since),
      'What it does: select * from pg_stat_activity where backend_type = ''taskq keeper''. Its errors: select * from taskq.duties')::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_keeper() is 'Findings of diagnose: keeper_off, keeper_late.';

-- Held back for longer than taskq.vacuum_held_limit; before that if the table of tasks is full of dead rows already.
create function taskq._find_vacuum() returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_held  record;
  v_limit interval := make_interval(secs => taskq._seconds_setting('taskq.vacuum_held_limit'));
  v_dead  bigint := pg_stat_get_dead_tuples('taskq.task'::regclass);
  v_live  bigint := pg_stat_get_live_tuples('taskq.task'::regclass);
begin
  select h.* into v_held from taskq._vacuum_holders() h where h.since is not null limit 1;
  if found and (v_held.since < clock_timestamp() - v_limit
                or v_held.since < clock_timestamp() - interval '1 minute' and v_dead > 10000 and v_dead > 5 * v_live) then
    return next row(25, null, 'warning', 'vacuum_held', format('vacuum is held back by %s', v_held.who),
      format('since %s, for %s transactions; %s dead and %s live rows are in the table of tasks', taskq._said(v_held.since), v_held.transactions, v_dead, v_live),
      jsonb_build_object('kind', v_held.kind, 'who', v_held.who, 'since', v_held.since, 'transactions', v_held.transactions, 'dead_rows', v_dead, 'live_rows', v_live),
      v_held.advice)::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_vacuum() is 'Findings of diagnose: vacuum_held.';

-- The server's figures now and usually. The counters are cumulative: what they rose by, per second of the clock; one
-- that was reset in between says nothing.
create function taskq._load_of(from_at timestamptz, until_at timestamptz)
  returns table (seconds double precision, claims bigint, claim_p50 double precision, claim_p95 double precision, high_p50 double precision,
                 wal double precision, commits double precision, cache double precision, task_blocks double precision)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp as $$
  with row as (
    select l.*, lag(l.at) over w as before_at,
           l.wal_bytes - lag(l.wal_bytes) over w as wal, l.commits - lag(l.commits) over w as committed,
           l.task_blocks_read - lag(l.task_blocks_read) over w as read, l.task_blocks_hit - lag(l.task_blocks_hit) over w as hit
      from taskq.load l
     where l.at > _load_of.from_at and l.at <= _load_of.until_at
    window w as (order by l.at)
  )
  select sum(extract(epoch from r.at - r.before_at))::double precision, sum(r.claims)::bigint,
         percentile_cont(0.5) within group (order by r.claim_p50), percentile_cont(0.9) within group (order by r.claim_p95),
         percentile_cont(0.95) within group (order by r.claim_p50),
         (sum(r.wal) filter (where r.wal >= 0))::double precision / nullif(sum(extract(epoch from r.at - r.before_at)) filter (where r.wal >= 0), 0)::double precision,
         (sum(r.committed) filter (where r.committed >= 0))::double precision / nullif(sum(extract(epoch from r.at - r.before_at)) filter (where r.committed >= 0), 0)::double precision,
         (sum(r.hit) filter (where r.hit >= 0))::double precision / nullif(sum(r.hit + r.read) filter (where r.hit >= 0 and r.read >= 0), 0)::double precision,
         (sum(r.hit + r.read) filter (where r.hit >= 0 and r.read >= 0))::double precision
    from row r
$$;
comment on function taskq._load_of(timestamptz, timestamptz) is
  'How long claims took in that time, and how fast the server''s counters rose: WAL, transactions, the cache for tasks.';

-- Why claims are slow: what can be seen of it now, the likeliest first.
create function taskq._claims_held_by() returns table (why text, advice text)
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_here  oid := (select d.oid from pg_database d where d.datname = current_database());
  v_found record;
  v_dead  bigint := pg_stat_get_dead_tuples('taskq.task'::regclass);
  v_live  bigint := pg_stat_get_live_tuples('taskq.task'::regclass);
  v_lanes bigint;
begin
  -- Whom do sessions wait for that want what a claim wants? Whoever only waits before them is not it, but whom that one waits for.
  with recursive ahead (pid, waiting) as (
      select p.pid, l.pid
        from pg_locks l
        join pg_class c on c.oid = l.relation and c.relnamespace = 'taskq'::regnamespace
       cross join lateral unnest(pg_blocking_pids(l.pid)) p(pid)
       where l.database = v_here and not l.granted and l.mode in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
      union
      select p.pid, a.waiting from ahead a cross join lateral unnest(pg_blocking_pids(a.pid)) p(pid)
  )
  select taskq._session_named(a.pid) as who, count(*) as waiting, format('End its transaction: select pg_terminate_backend(%s)', a.pid) as advice
    into v_found
    from ahead a
   where a.pid <> 0 and cardinality(pg_blocking_pids(a.pid)) = 0
   group by a.pid order by 2 desc, a.pid limit 1;
  if not found then  -- nobody waits at this moment, but the next claim will; or it is a transaction without a session
    select l.who, 0::bigint as waiting, l.advice into v_found
      from taskq._lock_holders() l
      join pg_class c on c.oid = l.relation and c.relnamespace = 'taskq'::regnamespace
     where l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
     order by l.since limit 1;
  end if;
  if found then
    return query select format('%s holds a lock on a table of taskq that %s for', v_found.who,
                               case v_found.waiting when 0 then 'claims wait' else taskq._plural(v_found.waiting, 'session waits', 'sessions wait') end),
                        v_found.advice;
  end if;
  if v_dead > 10000 and v_dead > 5 * v_live then
    select h.who, h.advice into v_found from taskq._vacuum_holders() h where h.since < clock_timestamp() - interval '10 seconds' limit 1;
    return query select format('%s dead rows stand beside %s live ones in the table of tasks%s', v_dead, v_live, ': vacuum is held back by ' || v_found.who),
                        coalesce(v_found.advice, 'Let autovacuum come more often: alter table taskq.task set (autovacuum_vacuum_cost_delay = 0); now: vacuum taskq.task');
  end if;
  v_lanes := (select count(*) from taskq._lanes(null));
  if v_lanes >= 200 then
    return query select format('a claim of any queue steps through %s lanes (queues and priorities)', v_lanes),
                        'Let workers name their queues: select * from taskq.claim(10, ''{mail}'')'::text;
  end if;
end
$$;
comment on function taskq._claims_held_by() is 'What can be seen now of why claims are slow.';

create function taskq._find_load(at timestamptz) returns setof taskq._finding
  language plpgsql volatile rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_span     interval := taskq._now_span();
  v_now      record;
  v_usual    record;
  v_why      record;
  v_work     record;
  v_best     double precision;
  v_wal      double precision;
  v_commits  double precision;
  v_seconds  double precision;
  v_slow     boolean;
begin
  select l.* into v_now from taskq._load_of(_find_load.at - v_span, _find_load.at) l;
  select l.* into v_usual from taskq._load_of(_find_load.at - v_span * 91, _find_load.at - v_span) l;
  v_slow := coalesce(v_now.claims >= 20 and v_usual.seconds >= 3 * extract(epoch from v_span) and v_usual.claims >= 60
                     and v_now.claim_p50 >= 3 * v_usual.claim_p50 and v_now.claim_p50 >= 1.5 * v_usual.high_p50 and v_now.claim_p50 >= 0.02, false);
  if v_slow then
    select string_agg(w.why, '; ') as why, (array_agg(w.advice))[1] as advice into v_why from taskq._claims_held_by() w;
    return next row(26, null, 'warning', 'claims_slower', format('claims take %s times as long as usual%s', taskq._figure(v_now.claim_p50 / v_usual.claim_p50), ': ' || v_why.why),
      format('%s ms now (median of %s), 95 %%: %s ms; usually %s ms; %s %% of the blocks of tasks were in the cache, usually %s %%', taskq._figure(v_now.claim_p50 * 1000), v_now.claims,
             taskq._figure(v_now.claim_p95 * 1000), taskq._figure(v_usual.claim_p50 * 1000), taskq._figure(100 * v_now.cache), taskq._figure(100 * v_usual.cache)),
      jsonb_build_object('claim', v_now.claim_p50, 'claim_p95', v_now.claim_p95, 'usual_claim', v_usual.claim_p50, 'claims', v_now.claims,
                         'cache', v_now.cache, 'usual_cache', v_usual.cache, 'why', v_why.why),
      coalesce(v_why.advice, 'The server is busy with something else: select * from pg_stat_activity where state = ''active'''))::taskq._finding;
  end if;

  -- Does the queue outgrow the server? Tasks wait and no worker does, yet the workers spend their time with taskq rather
  -- than with tasks, and it has a large share of what the server does. A task's life writes about 1,180 bytes of WAL without its payload, and is three transactions at most.
  v_seconds := v_now.seconds + extract(epoch from v_span) / 12;  -- the first sample has what came before it, too
  select sum(s.enqueued) / v_seconds as arrived, sum(s.started) / v_seconds as started,
         sum(s.enqueued + s.started + s.succeeded + s.failed + s.cancelled) / v_seconds as steps,
         sum(s.started * s.run_p50) / v_seconds
           / greatest(1, (select count(*) from taskq._workers_seen() w where w.seen_at > _find_load.at - interval '30 seconds')) as busy
    into v_work from taskq.sample s where s.at > _find_load.at - v_span and s.at <= _find_load.at;
  v_wal := least(1, v_work.steps / 3 * 1180 / nullif(v_now.wal, 0));
  v_commits := least(1, v_work.steps / nullif(v_now.commits, 0));
  if v_now.seconds >= extract(epoch from v_span) / 8 and v_work.arrived >= 100 and (v_wal >= 0.5 or v_commits >= 0.5 or v_now.cache < 0.9)
     and v_work.arrived >= 0.9 * v_work.started and v_work.busy < 0.5
     and (select sum(s.ready) from taskq.sample s
           where s.at = (select max(x.at) from taskq.sample x where x.at > _find_load.at - v_span and x.at <= _find_load.at)) > 10 * v_work.started
     and not exists (select from taskq._workers_seen() w where w.waits) then
    v_best := (select max(m.started) from (
               select sum(s.started) / max(s.seconds) as started from taskq.sample s
                where s.at > _find_load.at - v_span * 91 and s.at <= _find_load.at group by s.at) m);
    return next row(94, null, 'warning', 'outgrowing', 'the queue comes near what this database can do',
      format('%s tasks a second arrive and %s are started (the most in the last hours was %s), though the workers spend only %s %% of their time with tasks and none waits; of all that the server does, taskq is about %s %% of the WAL and %s %% of the transactions of this database; %s %% of the blocks of tasks were in the cache; claims take %s ms',
             taskq._figure(v_work.arrived), taskq._figure(v_work.started), taskq._figure(v_best), taskq._figure(round((100 * v_work.busy)::numeric)::double precision),
             taskq._figure(round((100 * v_wal)::numeric)::double precision),
             taskq._figure(round((100 * v_commits)::numeric)::double precision), taskq._figure(round((100 * v_now.cache)::numeric, 1)::double precision), taskq._figure(v_now.claim_p50 * 1000)),
      jsonb_build_object('arrived', v_work.arrived, 'started', v_work.started, 'sustained', v_best, 'busy', v_work.busy, 'wal_share', v_wal, 'transaction_share', v_commits, 'cache', v_now.cache, 'claim', v_now.claim_p50),
      'Claim and complete in batches (claim(10), complete_many), keep less online (retention), then a server of its own for the queue')::taskq._finding;
  end if;
end
$$;
comment on function taskq._find_load(timestamptz) is 'Findings of diagnose: claims_slower, outgrowing.';

create function taskq._is_known(of_queue text) returns boolean
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from taskq.queue q where q.name = _is_known.of_queue)
      or exists (select from taskq.task t where t.queue = _is_known.of_queue)
      or exists (select from taskq.dead_letter d where d.queue = _is_known.of_queue)
      or exists (select from taskq.done d where d.queue = _is_known.of_queue)
$$;
comment on function taskq._is_known(text) is 'Whether a queue has settings, or has or had tasks.';

create function taskq._findings(of_queue text) returns setof taskq._finding
  language plpgsql volatile rows 5 set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := taskq._now();
  v_all    taskq._comparison[];
  v_types  taskq._comparison[];
  v_queue  text;
  v_stood  taskq.queues[];
  v_stand  taskq._standing;
  v_found  taskq._finding[];
begin
  perform taskq._check_filters(_findings.of_queue, null);
  if _findings.of_queue is not null and not taskq._is_known(_findings.of_queue) then
    return;
  end if;
  return query select * from taskq._find_keeper();
  return query select * from taskq._find_vacuum();
  return query select * from taskq._find_load(v_now);
  v_all := array(select c from taskq._compare(_findings.of_queue, v_now) c);
  v_stood := array(select q from taskq.queues q where q.queue = coalesce(_findings.of_queue, q.queue));
  for v_queue in
    select n.name from taskq._queue_names n
     where n.name = coalesce(_findings.of_queue, n.name) and not starts_with(n.name, 'taskq.')
     union select (c).queue from unnest(v_all) c
     order by 1
  loop
    v_types := array(select c from unnest(v_all) c where (c).queue = v_queue);
    v_stand := (select taskq._stand(s, v_types, v_now) from unnest(v_stood) s where (s).queue = v_queue);
    v_found := array(select f from taskq._find_failing(v_stand, v_types, v_now) f);
    if v_stand.queue is not null then
      v_found := v_found
        || array(select f from taskq._find_workers(v_stand, v_types, v_now) f)
        || array(select f from taskq._find_slow(v_stand, v_types, v_now) f)
        || array(select f from taskq._find_arrivals(v_stand, v_types, v_now) f)
        || array(select f from taskq._find_limits(v_stand, v_types, v_now) f)
        || array(select f from taskq._find_crowding(v_stand, v_types, v_now) f);
      if not exists (select from unnest(v_found) f where (f).severity <> 'info') then
        v_found := v_found || array(select f from taskq._find_backlog(v_stand, v_types, v_now) f);
      end if;
    end if;
    return query select (f).* from unnest(v_found) f;
  end loop;
end
$$;
comment on function taskq._findings(text) is 'All findings about a queue, or (NULL) about all, and about the database.';

-- diagnose: what is wrong with a queue, or with all of them and with the database, and what to do about it.
--   queue  NULL: all
-- One row a finding, causes before what they explain: rank, queue (NULL: the database), severity (critical, warning,
-- info), finding (a code), cause (in words), evidence (the figures, now and usual), facts (the same, as JSON), and
-- advice: the call to make. One row nothing_found, severity ok, if all is well. No row for a queue that nobody knows.
-- Errors: 22023 for a name that no queue can have.
-- Reads: samples of 3 hours, figures, lane heads, dead letters; all bounded.
create function taskq.diagnose(queue text = null)
  returns table (rank bigint, queue text, severity text, finding text, cause text, evidence text, facts jsonb, advice text)
  language sql volatile security definer rows 5 set search_path = pg_catalog, pg_temp as $$
  with found as materialized (
    select f.* from taskq._findings(diagnose.queue) f
  )
  select row_number() over (order by f.severity = 'info', f.place, f.queue collate "C", f.cause collate "C"),
         f.queue, f.severity, f.finding, f.cause, f.evidence, f.facts, f.advice
    from found f
  union all
  select 1, diagnose.queue, 'ok', 'nothing_found', 'nothing found', '', '{}', null
   where not exists (select from found)
     and (diagnose.queue is null or taskq._is_known(diagnose.queue))
   order by 1
$$;
comment on function taskq.diagnose is
  'What is wrong with a queue, or (NULL) with all of them: ranked findings, each with severity, cause, evidence (now against the usual of the last hours) and advice. One row "nothing found" if all is well, none for a queue that nobody knows.';
