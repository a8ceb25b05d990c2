-- diagnose: what is wrong, why, and what to do about it.
--
-- It compares what happens now with the usual: the samples of the last 2 minutes with those of the 3 hours before
-- (the last 12 samples, the 1,080 before them: it follows taskq.sample_interval). What it says about tasks and
-- workers themselves it reads from them, at the heads of the lanes, of bounded size. Without samples to compare
-- with, as in the first minutes, a finding that needs the usual waits for it, or has a fixed limit.
--
-- The findings in the order of causes: a fault further up explains those below it, and so stands first. This file
-- has the figures and diagnose itself; the findings are in the files diagnose_workers, diagnose_tasks,
-- diagnose_lanes and diagnose_server, one function a group, each called for one queue, or for the server.

create type taskq._finding as (
  place    integer,
  queue    text,
  severity text,
  finding  text,
  cause    text,
  evidence text,
  facts    jsonb,
  advice   text);
comment on type taskq._finding is 'A row of diagnose; place is its place in the order of causes.';

-- What a queue or type did now and usually.
create type taskq._comparison as (
  queue             text,
  task_type         text,
  seconds           double precision,  -- how long "now" is, and "usually"; the latter NULL: not known yet
  usual_seconds     double precision,
  enqueued          bigint,
  started           bigint,
  succeeded         bigint,
  failed            bigint,            -- without ended leases
  retried           bigint,
  dead              bigint,
  expired           bigint,
  run_p50           double precision,
  ready             bigint,            -- in the newest sample
  usual_enqueued    bigint,
  usual_succeeded   bigint,
  usual_failed      bigint,
  usual_retried     bigint,
  usual_expired     bigint,
  usual_run_p50     double precision,
  usual_run_p95     double precision,
  high_run_p50      double precision,  -- 95 % of the samples had no higher median
  usual_waiting_p95 double precision);
comment on type taskq._comparison is 'What a queue and task type did in the last 12 samples and in the 1,080 before them.';

create function taskq._now_span() returns interval
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select greatest(interval '5 seconds', current_setting('taskq.sample_interval')::interval * 12)
$$;
comment on function taskq._now_span() is 'How long "now" is for diagnose: 12 samples.';

-- The usual needs three times as long a time as "now" at least.
create function taskq._compare(of_queue text, at timestamptz) returns setof taskq._comparison
  language sql stable rows 5 set search_path = pg_catalog, pg_temp as $$
  with span as materialized (
    select extract(epoch from taskq._now_span())::double precision as now_seconds,
           _compare.at - taskq._now_span() as since,
           _compare.at - taskq._now_span() * 91 as usual_since,
           (select s.at from taskq.sample s where s.at > _compare.at - taskq._now_span() * 91 order by s.at limit 1) as first_at
  ), sampled as (
    -- (in the first minutes there is less than that)
    select x.*, least(p.now_seconds, extract(epoch from _compare.at - p.first_at + taskq._now_span() / 12)::double precision) as now_seconds, x.at > p.since as is_now, max(x.at) over () as newest_at,
           case when extract(epoch from p.since - p.first_at) >= 3 * p.now_seconds
                then extract(epoch from p.since - p.first_at)::double precision end as usual_seconds
      from span p
      join taskq.sample x on x.at > p.usual_since and x.at <= _compare.at
     where x.queue = coalesce(_compare.of_queue, x.queue)
  )
  select s.queue, s.task_type, min(s.now_seconds), min(s.usual_seconds),
         coalesce(sum(s.enqueued) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.started) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.succeeded) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.failed - s.expired) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.retried) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.dead) filter (where s.is_now), 0)::bigint,
         coalesce(sum(s.expired) filter (where s.is_now), 0)::bigint,
         percentile_cont(0.5) within group (order by s.run_p50) filter (where s.is_now),
         coalesce(sum(s.ready) filter (where s.is_now and s.at = s.newest_at), 0)::bigint,
         coalesce(sum(s.enqueued) filter (where not s.is_now), 0)::bigint,
         coalesce(sum(s.succeeded) filter (where not s.is_now), 0)::bigint,
         coalesce(sum(s.failed - s.expired) filter (where not s.is_now), 0)::bigint,
         coalesce(sum(s.retried) filter (where not s.is_now), 0)::bigint,
         coalesce(sum(s.expired) filter (where not s.is_now), 0)::bigint,
         percentile_cont(0.5) within group (order by s.run_p50) filter (where not s.is_now),
         percentile_cont(0.9) within group (order by s.run_p95) filter (where not s.is_now),
         percentile_cont(0.95) within group (order by s.run_p50) filter (where not s.is_now),
         percentile_cont(0.9) within group (order by s.waiting_p95) filter (where not s.is_now)
    from sampled s
   group by s.queue, s.task_type
$$;
comment on function taskq._compare(text, timestamptz) is
  'What each queue and task type did now and usually, of one queue or (NULL) of all.';

-- The arrivals of a queue in steps as long as "now": how many in the last one, and of those before, where one without
-- any counts, the mean and what 95 % of them did not exceed. No row while the usual is not known.
create function taskq._arrivals(of_queue text, at timestamptz)
  returns table (arrived bigint, usual double precision, high double precision)
  language sql stable rows 1 set search_path = pg_catalog, pg_temp as $$
  with span as materialized (
    select extract(epoch from taskq._now_span()) as seconds,
           greatest(_arrivals.at - taskq._now_span() * 91,
                    (select s.at from taskq.sample s where s.at > _arrivals.at - taskq._now_span() * 91 order by s.at limit 1)) as since
  ), came as materialized (
    select floor(extract(epoch from _arrivals.at - s.at) / p.seconds)::integer as n, sum(s.enqueued) as arrived
      from span p join taskq.sample s on s.at > p.since and s.at <= _arrivals.at
     where s.queue = _arrivals.of_queue
     group by 1
  ), step as (
    select n, coalesce(c.arrived, 0) as arrived
      from span p
     cross join generate_series(0, floor(extract(epoch from _arrivals.at - p.since) / p.seconds)::integer - 1) n
      left join came c using (n)
  )
  select (sum(t.arrived) filter (where t.n = 0))::bigint, avg(t.arrived) filter (where t.n > 0)::double precision,
         percentile_cont(0.95) within group (order by t.arrived::double precision) filter (where t.n > 0)
    from step t
  having count(*) > 3
$$;
comment on function taskq._arrivals(text, timestamptz) is
  'How many tasks arrived in a queue now, usually, and in its busier times.';

-- ---------------------------------------------------------------------------
-- words
-- ---------------------------------------------------------------------------

create function taskq._figure(value double precision) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when _figure.value is null then '?'
              when abs(_figure.value) >= 100 then round(_figure.value::numeric)::text
              when abs(_figure.value) >= 1 then trim_scale(round(_figure.value::numeric, 1))::text
              else trim_scale(round(_figure.value::numeric, 3))::text end
$$;
comment on function taskq._figure(double precision) is 'A number with the digits that matter to people.';

create function taskq._span(seconds double precision) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when _span.seconds is null then '?'
              when _span.seconds < 120 then taskq._figure(_span.seconds) || ' s'
              when _span.seconds < 7200 then taskq._figure(_span.seconds / 60) || ' min'
              else taskq._figure(_span.seconds / 3600) || ' h' end
$$;
comment on function taskq._span(double precision) is 'A duration as people say it.';

create function taskq._usually(value double precision, unit text) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when _usually.value is null then 'the usual is not known yet' else 'usually ' || taskq._figure(_usually.value) || _usually.unit end
$$;
comment on function taskq._usually(double precision, text) is 'What is usual, in words.';

create function taskq._plural(number bigint, one text, many text) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$
  select _plural.number || ' ' || case _plural.number when 1 then _plural.one else _plural.many end
$$;
comment on function taskq._plural(bigint, text, text) is '1 task, 2 tasks.';

create function taskq._listed(texts text[], at_most integer) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$
  select array_to_string(_listed.texts[1:_listed.at_most], ', ')
         || case when cardinality(_listed.texts) > _listed.at_most
                 then format(' and %s more', cardinality(_listed.texts) - _listed.at_most) else '' end
$$;
comment on function taskq._listed(text[], integer) is 'The first of a list, and how many more there are.';
