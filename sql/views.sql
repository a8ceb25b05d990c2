-- What people look at. Views are plural, tables singular. See grant_reader.

-- The queues there are: those with unfinished or dead tasks, and those that were configured. Steps
-- along the indexes from name to name, so the number of tasks does not matter.
create view taskq._queue_names as
  with recursive waiting(name) as (
    (select t.queue from taskq.task t order by t.queue limit 1)
    union all
    select (select t.queue from taskq.task t where t.queue operator(pg_catalog.>) w.name order by t.queue limit 1)
      from waiting w where w.name is not null
  ), dead(name) as (
    (select d.queue from taskq.dead_letter d order by d.queue limit 1)
    union all
    select (select d.queue from taskq.dead_letter d where d.queue operator(pg_catalog.>) w.name order by d.queue limit 1)
      from dead w where w.name is not null
  )
  select w.name from waiting w where w.name is not null
  union select d.name from dead d where d.name is not null
  union select q.name from taskq.queue q;
comment on view taskq._queue_names is 'Names of queues that have unfinished or dead tasks or settings.';

-- Since when the oldest ready task of each queue has been due. Steps from lane to lane (a queue and a
-- priority), and in each over the running tasks at its head, so the number of waiting tasks does not matter.
create view taskq._oldest_ready as
  with recursive lane(queue, priority, run_at) as (
    (select t.queue, t.priority, t.run_at
       from taskq.task t order by t.queue, t.priority desc, t.run_at, t.id limit 1)
    union all
    select n.queue, n.priority, n.run_at
      from lane l
     cross join lateral (
       (select t.queue, t.priority, t.run_at from taskq.task t
         where t.queue operator(pg_catalog.=) l.queue and t.priority operator(pg_catalog.<) l.priority
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       union all
       (select t.queue, t.priority, t.run_at from taskq.task t
         where t.queue operator(pg_catalog.>) l.queue
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       limit 1) n
  )
  select l.queue, pg_catalog.min(o.run_at) as run_at
    from (select taskq._view_time() as at offset 0) clock
   cross join lane l
   cross join lateral (
     select t.run_at from taskq.task t
      where t.queue operator(pg_catalog.=) l.queue and t.priority operator(pg_catalog.=) l.priority
        and t.run_at operator(pg_catalog.<=) clock.at and t.state operator(pg_catalog.=) 'waiting'
      order by t.queue, t.priority desc, t.run_at, t.id
      limit 1) o
   where l.run_at operator(pg_catalog.<=) clock.at
   group by l.queue;
comment on view taskq._oldest_ready is 'Queues that have ready tasks, and since when the oldest one of each has been due.';

-- Counts come from shared memory if they are kept there; otherwise they are made here. (In a function, because
-- the planner cannot know that it is not called: it would expect long work, and compile the query.)
create function taskq._count_tasks(queue text, now timestamptz)
  returns table (ready bigint, scheduled bigint, running bigint, blocked bigint)
  language sql stable security definer rows 1 set search_path = pg_catalog, pg_temp as $$
  select count(*) filter (where t.state = 'waiting' and t.run_at <= _count_tasks.now),
         count(*) filter (where t.state = 'waiting' and t.run_at > _count_tasks.now and t.run_at < 'infinity'),
         count(*) filter (where t.state = 'running'),
         count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity')
    from taskq.task t where t.queue = _count_tasks.queue
$$;
comment on function taskq._count_tasks(text, timestamptz) is
  'Counts the unfinished tasks of a queue, by looking at all of them.';

create view taskq.queues as
  with figures_state as materialized (
    select s.counted_at, s.exact from taskq._figures_kept() s
  ), figure as materialized (
    select f.queue, pg_catalog.sum(f.ready)::bigint as ready, pg_catalog.sum(f.scheduled)::bigint as scheduled,
           pg_catalog.sum(f.running)::bigint as running, pg_catalog.sum(f.blocked)::bigint as blocked
      from taskq._figures() f group by f.queue
  )
  select n.name as queue,
         case when s.counted_at is null then c.ready else coalesce(f.ready, 0) end as ready,
         case when s.counted_at is null then c.scheduled else coalesce(f.scheduled, 0) end as scheduled,
         case when s.counted_at is null then c.running else coalesce(f.running, 0) end as running,
         case when s.counted_at is null then c.blocked else coalesce(f.blocked, 0) end as blocked,
         d.dead,
         coalesce(s.counted_at, clock.at) as counted_at,
         coalesce(s.exact, true) as exact,
         o.run_at as oldest_ready_at,
         clock.at operator(pg_catalog.-) o.run_at as oldest_ready_age,
         q.paused_at, q.paused_by, q.max_running, q.rate, q.burst,
         coalesce(q.lease, taskq._default_lease()) as lease,
         coalesce(q.retention, taskq._default_retention()) as retention,
         coalesce(q.dead_letters_limit, taskq._default_dead_letters_limit()) as dead_letters_limit,
         coalesce(q.oldest_ready_limit, taskq._default_oldest_ready_limit()) as oldest_ready_limit,
         coalesce(q.expired_leases_limit, taskq._default_expired_leases_limit()) as expired_leases_limit,
         coalesce(q.unclaimed_limit, taskq._default_unclaimed_limit()) as unclaimed_limit
    from (select taskq._view_time() as at offset 0) clock
   cross join taskq._queue_names n
    left join taskq.queue q on q.name operator(pg_catalog.=) n.name
    left join figures_state s on true
    left join figure f on f.queue operator(pg_catalog.=) n.name
    left join taskq._oldest_ready o on o.queue operator(pg_catalog.=) n.name
    left join lateral (
      -- (offset 0: the condition stays in here, and is looked at before the function is called)
      select x.ready, x.scheduled, x.running, x.blocked from taskq._count_tasks(n.name, clock.at) x where s.counted_at is null offset 0) c on true
   cross join lateral (
     select pg_catalog.count(*) as dead from taskq.dead_letter x where x.queue operator(pg_catalog.=) n.name) d;
comment on view taskq.queues is 'Each queue that has unfinished or dead tasks or settings, with its counts by state, its oldest ready task, pause and settings. Where no keeper is at work it counts what is there, which takes its time with very many tasks.';
comment on column taskq.queues.queue is 'Name of the queue.';
comment on column taskq.queues.ready is 'Tasks that are due and wait for a worker.';
comment on column taskq.queues.scheduled is 'Tasks that are due later, retries included.';
comment on column taskq.queues.running is 'Tasks that a worker holds.';
comment on column taskq.queues.blocked is 'Tasks that are due and were put aside, because another one of their group runs.';
comment on column taskq.queues.max_running is 'No more of its tasks run at once; NULL: no limit.';
comment on column taskq.queues.rate is 'No more of its tasks begin in a time; NULL: no limit.';
comment on column taskq.queues.burst is 'How many of them may begin at once; NULL: the number in the rate.';
comment on column taskq.queues.dead is 'Dead letters.';
comment on column taskq.queues.counted_at is 'When the tasks were last counted one by one; since then ready, scheduled and running have followed each commit.';
comment on column taskq.queues.exact is 'Whether nothing has made these counts doubtful since. They are counted again when something has: a restart, a prepared transaction.';
comment on column taskq.queues.oldest_ready_at is 'Since when the oldest ready task has been due.';
comment on column taskq.queues.oldest_ready_age is 'How long that is.';
comment on column taskq.queues.paused_at is 'Since when the queue is paused; NULL if it is not.';
comment on column taskq.queues.paused_by is 'Who paused it.';
comment on column taskq.queues.lease is 'The lease of its tasks, unless the claim or the type says otherwise.';
comment on column taskq.queues.retention is 'How long its finished tasks stay online.';
comment on column taskq.queues.dead_letters_limit is 'An alert is raised above so many dead letters.';
comment on column taskq.queues.oldest_ready_limit is 'An alert is raised when a task has been ready for longer.';
comment on column taskq.queues.expired_leases_limit is 'An alert is raised above so many leases that end within 10 minutes.';
comment on column taskq.queues.unclaimed_limit is 'An alert is raised when a task has been ready for longer and nobody claims.';

create view taskq.workers as
  select w.worker, w.queues, w.first_seen_at, w.seen_at, w.claimed_at, w.claims, w.claimed
    from taskq._workers_seen() w;
comment on view taskq.workers is 'The workers that have called claim or wait lately. Kept in shared memory: empty where the library is not preloaded. At most 512, those not seen for longest forgotten first. What each of them holds is in running.';
comment on column taskq.workers.worker is 'The name that it gives in its claims.';
comment on column taskq.workers.queues is 'The queues that it last asked for; NULL: all.';
comment on column taskq.workers.first_seen_at is 'When it was seen first.';
comment on column taskq.workers.seen_at is 'When it was seen last, with or without a task to get.';
comment on column taskq.workers.claimed_at is 'When it last got a task.';
comment on column taskq.workers.claims is 'How often it has asked.';
comment on column taskq.workers.claimed is 'How many tasks it got.';

create view taskq.history as
  select s.at, s.queue, s.task_type, s.seconds,
         s.ready, s.scheduled, s.running, s.blocked, s.oldest_ready_age,
         s.enqueued, s.started, s.succeeded, s.failed, s.retried, s.dead, s.expired, s.cancelled,
         s.enqueued operator(pg_catalog./) s.seconds as enqueued_per_second,
         s.started operator(pg_catalog./) s.seconds as started_per_second,
         s.succeeded operator(pg_catalog./) s.seconds as succeeded_per_second,
         s.waiting_p50, s.waiting_p95, s.run_p50, s.run_p95, s.total_p50, s.total_p95, s.claimers
    from taskq.sample s;
comment on view taskq.history is 'What each queue and task type did, a row every 10 seconds while it has tasks or had any since the last one. For a backlog curve sum ready by at; fast with a condition on at.';
comment on column taskq.history.enqueued_per_second is 'enqueued, divided by seconds.';
comment on column taskq.history.started_per_second is 'started, divided by seconds.';
comment on column taskq.history.succeeded_per_second is 'succeeded, divided by seconds.';

create view taskq.task_types as
  select t.name as task_type,
         coalesce(t.queue, 'default') as queue,
         coalesce(t.priority, 0) as priority,
         coalesce(t.max_retries, 3) as max_retries,
         t.lease,
         coalesce(t.backoff_base, '30 seconds'::interval) as backoff_base,
         coalesce(t.backoff_factor, 2) as backoff_factor,
         coalesce(t.backoff_cap, '6 hours'::interval) as backoff_cap,
         coalesce(t.jitter, 0.1) as jitter,
         t.updated_at
    from taskq.task_type t;
comment on view taskq.task_types is 'The task types that were configured, with the settings as they work. Types without settings work with the defaults.';
comment on column taskq.task_types.task_type is 'Name of the type.';
comment on column taskq.task_types.queue is 'The queue of its new tasks.';
comment on column taskq.task_types.priority is 'The priority of its new tasks.';
comment on column taskq.task_types.max_retries is 'Retries of its new tasks.';
comment on column taskq.task_types.lease is 'Its lease; NULL: that of the queue.';
comment on column taskq.task_types.backoff_base is 'Wait after the first failure.';
comment on column taskq.task_types.backoff_factor is 'What each further wait is multiplied with.';
comment on column taskq.task_types.backoff_cap is 'No wait is longer.';
comment on column taskq.task_types.jitter is 'The largest share of a wait that is added at random.';
comment on column taskq.task_types.updated_at is 'When it was last configured.';

create view taskq.tasks as
  select t.id, t.queue, t.task_type,
         taskq._displayed_state(t.state, t.run_at, taskq._view_time()) as state,
         t.priority,
         case when t.run_at operator(pg_catalog.=) 'infinity'
              then (select p.run_at from taskq.parked p where p.id operator(pg_catalog.=) t.id) else t.run_at end as run_at,
         t.attempt, t.max_retries, t.enqueued_at, t.claimed_at, t.lease_expires_at, t.worker, t.group_key,
         t.cancel_requested_at, t.cancel_reason, t.redriven_at, t.unique_key, t.bytes, t.payload, t.headers, t.progress,
         taskq._last_error(t.errors) as last_error, t.errors
    from taskq.task t;
comment on view taskq.tasks is 'Every unfinished task with the state that people see. Streams: use a LIMIT, a queue or an id.';
comment on column taskq.tasks.state is 'ready, scheduled, blocked or running.';
comment on column taskq.tasks.run_at is 'Not claimed before this moment; of a blocked task the moment at which it was due.';
comment on column taskq.tasks.last_error is 'The newest error.';

create view taskq.running as
  select t.id, t.queue, t.task_type, t.worker, t.claimed_at,
         taskq._view_time() operator(pg_catalog.-) t.claimed_at as running_for,
         t.lease_expires_at,
         t.lease_expires_at operator(pg_catalog.<) taskq._view_time() as stuck,
         t.attempt, t.max_retries, t.cancel_requested_at, t.progress
    from taskq.task t
   where t.state operator(pg_catalog.=) 'running';
comment on view taskq.running is 'What workers hold. Streams: use a LIMIT or a queue.';
comment on column taskq.running.running_for is 'How long this run has taken.';
comment on column taskq.running.stuck is 'The lease is over and nobody has taken the task back yet.';

create view taskq.finished as
  select f.id, f.queue, f.task_type, f.state, f.priority, f.attempt, f.max_retries, f.enqueued_at, f.run_at, f.claimed_at,
         f.finished_at, f.worker, f.unique_key, f.cancel_reason, f.payload, f.headers, f.progress, f.result,
         taskq._last_error(f.errors) as last_error, f.errors, f.group_key
    from taskq.done f;
comment on view taskq.finished is 'Succeeded and cancelled tasks within their retention. Streams: use a LIMIT, a queue or an id.';
comment on column taskq.finished.last_error is 'The newest error of the runs before.';
comment on column taskq.finished.group_key is 'Its group.';

create view taskq.dead_letters as
  select d.id, d.queue, d.task_type, d.died_at, taskq._last_error(d.errors) as last_error, d.attempt, d.max_retries,
         d.priority, d.enqueued_at, d.run_at, d.claimed_at, d.worker, d.redriven_at, d.acknowledged_at, d.unique_key,
         d.payload, d.headers, d.progress, d.errors, d.group_key
    from taskq.dead_letter d;
comment on view taskq.dead_letters is 'Tasks whose retries are used up, with the history of their errors. redrive brings them back, purge forgets them.';
comment on column taskq.dead_letters.last_error is 'The error of the last run.';
comment on column taskq.dead_letters.group_key is 'Its group.';

create view taskq.alerts as
  select a.id, a.kind, a.queue,
         case when a.cleared_at is not null then 'cleared' when a.acknowledged_at is not null then 'acknowledged' else 'open' end as state,
         a.value, a.alert_limit, a.detail, a.raised_at, a.repeated_at, a.cleared_at, a.acknowledged_at, a.acknowledged_by
    from taskq.alert a;
comment on view taskq.alerts is 'Open and past alerts.';
comment on column taskq.alerts.state is 'open, acknowledged or cleared.';

create view taskq.duties as
  select d.name as duty, d.every, d.finished_at, d.rows, d.error, d.error_at from taskq.duty d;
comment on view taskq.duties is 'The keeper''s duties and how their last round went. A round that changed nothing is noted every 10 seconds only.';

-- A column of a view that is just one of a table has that table's comment.
do $$
declare
  v_column record;
begin
  for v_column in
    select v.relname as view, a.attname as name, pg_catalog.min(d.description) as comment
      from pg_catalog.pg_class v
      join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) v.relnamespace
                                    and n.nspname operator(pg_catalog.=) 'taskq'
      join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) v.oid and a.attnum operator(pg_catalog.>) 0
      join (values ('tasks', 'task'), ('running', 'task'), ('finished', 'done'), ('dead_letters', 'dead_letter'),
                   ('alerts', 'alert'), ('duties', 'duty'), ('history', 'sample')) pair(view, base) on pair.view operator(pg_catalog.=) v.relname
      join pg_catalog.pg_class t on t.relnamespace operator(pg_catalog.=) n.oid and t.relname operator(pg_catalog.=) pair.base
      join pg_catalog.pg_attribute b on b.attrelid operator(pg_catalog.=) t.oid
                                    and b.attname operator(pg_catalog.=) a.attname
      join pg_catalog.pg_description d on d.objoid operator(pg_catalog.=) t.oid
                                      and d.classoid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                                      and d.objsubid operator(pg_catalog.=) b.attnum
     where v.relkind operator(pg_catalog.=) 'v'
       and pg_catalog.col_description(v.oid, a.attnum) is null
     group by v.relname, a.attname
  loop
    execute pg_catalog.format('comment on column taskq.%I.%I is %L', v_column.view, v_column.name, v_column.comment);
  end loop;
end
$$;
comment on column taskq.duties.duty is 'The duty; the function taskq._duty_<name> does one round of it.';
