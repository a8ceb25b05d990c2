-- What fails, and with which errors: read from the tasks themselves, each of which keeps its last 20 failures.
--
-- Nothing is kept for this beside the tasks, so it costs nothing until somebody asks; and then it looks at
-- a part, of bounded size, of what there is.

create function taskq._fold_error(error text) returns text
  language c immutable parallel safe
  as 'MODULE_PATHNAME', 'taskq_fold_error';
comment on function taskq._fold_error(text) is
  'An error''s text without what differs from task to task: numbers and ids become #, spaces are one, 200 characters are kept. Status codes (HTTP 503, 550 at the beginning) stay.';

-- The lanes (queues and priorities) that have unfinished tasks, of one queue or of all, by steps along the index.
create function taskq._lanes(queue text) returns table (queue text, priority integer)
  language sql stable rows 20 set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
  with recursive lane as (
    (select t.queue, t.priority
       from taskq.task t
      where t.queue >= coalesce(_lanes.queue, '')
      order by t.queue, t.priority desc, t.run_at, t.id
      limit 1)
    union all
    select next_lane.queue, next_lane.priority
      from lane l
     cross join lateral (
       (select t.queue, t.priority from taskq.task t
         where t.queue = l.queue and t.priority < l.priority
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       union all
       (select t.queue, t.priority from taskq.task t
         where t.queue > l.queue
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       limit 1) next_lane
     where l.queue = coalesce(_lanes.queue, l.queue)
  )
  select l.queue, l.priority from lane l where l.queue = coalesce(_lanes.queue, l.queue)
$$;
comment on function taskq._lanes(text) is
  'The lanes (queue and priority) that have unfinished tasks, of one queue or (NULL) of all.';

-- The failures of tasks, one row for each run that failed. It looks at so many tasks at most of each kind:
--   dead letters     the newest of each queue
--   unfinished ones  of each lane the first that are due, and the first that are due later
--   finished ones    the newest of each queue that finished within a day
-- The number is shared among the queues, or lanes, but each gets 20 in any case. complete says whether that
-- was all there were in the queue.
create function taskq._failed_runs(of_queue text, at_most integer)
  returns table (queue text, task_type text, id bigint, dead boolean, attempt integer, at timestamptz, worker text,
                 error text, complete boolean)
  language plpgsql stable rows 1000 set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = on set jit = off as $$
declare
  v_now    timestamptz := taskq._now();
  v_queues text[];
  v_lanes  bigint;
begin
  if _failed_runs.of_queue is not null then
    v_queues := array[_failed_runs.of_queue];
  else
    v_queues := array(
      select n.name from taskq._queue_names n
      union
      (with recursive finished(name) as (
         (select f.queue from taskq.done f where f.finished_at > v_now - interval '1 day' order by f.queue limit 1)
         union all
         select (select f.queue from taskq.done f
                  where f.finished_at > v_now - interval '1 day' and f.queue > x.name order by f.queue limit 1)
           from finished x where x.name is not null)
       select x.name from finished x where x.name is not null));
  end if;
  v_lanes := (select count(*) from taskq._lanes(_failed_runs.of_queue));
  return query
  with share as materialized (
    select greatest(20, _failed_runs.at_most / greatest(1, cardinality(v_queues))) as for_queue,
           greatest(20, _failed_runs.at_most / greatest(1, v_lanes)) as for_lane
  ), looked_at as (
    select q.name as queue, d.task_type, d.id, true as dead, d.errors, d.n <= s.for_queue as is_in,
           max(d.n) over (partition by q.name) <= s.for_queue as complete
      from share s
     cross join unnest(v_queues) q(name)
     cross join lateral (
       select x.task_type, x.id, x.errors, row_number() over () as n
         from (select y.task_type, y.id, y.errors from taskq.dead_letter y
                where y.queue = q.name order by y.queue desc, y.died_at desc limit s.for_queue + 1) x) d
    union all
    select l.queue, t.task_type, t.id, false, t.errors, t.n <= s.for_lane,
           max(t.n) over (partition by l.queue) <= s.for_lane
      from share s
     cross join taskq._lanes(_failed_runs.of_queue) l
     cross join lateral (
       select x.task_type, x.id, x.errors, row_number() over () as n
         from (select y.task_type, y.id, y.errors from taskq.task y
                where y.queue = l.queue and y.priority = l.priority and y.run_at <= v_now
                order by y.queue, y.priority desc, y.run_at, y.id limit s.for_lane + 1) x
       union all
       select x.task_type, x.id, x.errors, row_number() over () as n
         from (select y.task_type, y.id, y.errors from taskq.task y
                where y.queue = l.queue and y.priority = l.priority and y.run_at > v_now
                order by y.queue, y.priority desc, y.run_at, y.id limit s.for_lane + 1) x) t
    union all
    select q.name, f.task_type, f.id, false, f.errors, f.n <= s.for_queue,
           max(f.n) over (partition by q.name) <= s.for_queue
      from share s
     cross join unnest(v_queues) q(name)
     cross join lateral (
       select x.task_type, x.id, x.errors, row_number() over () as n
         from (select y.task_type, y.id, y.errors from taskq.done y
                where y.queue = q.name and y.finished_at > v_now - interval '1 day'
                order by y.finished_at desc limit s.for_queue + 1) x) f
  )
  select l.queue, l.task_type, l.id, l.dead, (e.value ->> 'attempt')::integer, (e.value ->> 'at')::timestamptz,
         e.value ->> 'worker', e.value ->> 'error', l.everything
    from (select x.*, bool_and(x.complete) over (partition by x.queue) as everything from looked_at x) l
   cross join lateral jsonb_array_elements(l.errors) e
   where l.is_in and l.errors is not null;
end
$$;
comment on function taskq._failed_runs(text, integer) is
  'The runs that failed, of one queue or (NULL) of all, by the errors that are kept in so many tasks of each kind at most.';

-- As the view failures, of one queue or (NULL) of all, from so many tasks of each kind at most.
create function taskq._failures(queue text, at_most integer)
  returns table (queue text, task_type text, error text, count bigint, attempts bigint, dead bigint,
                 first_seen_at timestamptz, last_seen_at timestamptz, sample_id bigint, sample_error text, complete boolean)
  language sql stable security definer rows 50 set search_path = pg_catalog, pg_temp as $$
  select r.queue, r.task_type, r.folded, count(distinct r.id), count(*), count(distinct r.id) filter (where r.dead),
         min(r.at), max(r.at), (array_agg(r.id order by r.at desc, r.id desc))[1],
         (array_agg(r.error order by r.at desc, r.id desc))[1], bool_and(r.complete)
    from (select x.*, coalesce(taskq._fold_error(x.error), '') as folded
            from taskq._failed_runs(_failures.queue, _failures.at_most) x) r
   group by r.queue, r.task_type, r.folded
   order by max(r.at) desc
$$;
comment on function taskq._failures(text, integer) is
  'The view failures, of one queue or (NULL) of all, from so many tasks of each kind at most.';

create view taskq.failures as
  select f.queue, f.task_type, f.error, f.count, f.attempts, f.dead, f.first_seen_at, f.last_seen_at, f.sample_id,
         f.sample_error, f.complete
    from taskq._failures(null, 10000) f;
comment on view taskq.failures is 'What fails, by queue, task type and error, numbers and ids folded: from the last 20 errors of at most 10,000 dead tasks, 10,000 that are due, 10,000 that are due later, and 10,000 of those that finished within a day.';
comment on column taskq.failures.queue is 'The queue.';
comment on column taskq.failures.task_type is 'The task type.';
comment on column taskq.failures.error is 'The error, with # for numbers and ids, 200 characters at most; "no error was given" where fail got none.';
comment on column taskq.failures.count is 'Tasks that it happened to.';
comment on column taskq.failures.attempts is 'Runs that ended with it.';
comment on column taskq.failures.dead is 'How many of these tasks are dead letters now.';
comment on column taskq.failures.first_seen_at is 'When it came first, as far as the tasks that were looked at know.';
comment on column taskq.failures.last_seen_at is 'When it came last.';
comment on column taskq.failures.sample_id is 'The task that it came to last.';
comment on column taskq.failures.sample_error is 'What it said there, in full.';
comment on column taskq.failures.complete is 'All tasks of these kinds in the queue were looked at: the counts are not those of a part.';
