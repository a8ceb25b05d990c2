-- Operators: bring dead letters back, or forget tasks.

-- Refuses filters that no task could pass, because no queue or task type can be called so.
create function taskq._check_filters(queue text, task_type text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if _check_filters.queue is not null then
    perform taskq._check_name('queue', _check_filters.queue);
  end if;
  if _check_filters.task_type is not null then
    perform taskq._check_name('task_type', _check_filters.task_type);
  end if;
end
$$;
comment on function taskq._check_filters(text, text) is
  'Refuses filters that name what no queue or task type can be called.';

-- redrive: dead letters wait again, with their retries renewed and their token still rising.
-- All given filters must hold; with none, queue => '*' says that all are meant.
--   max_tasks   at most so many, longest dead first
--   per_second  spreads their run_at, so many a second; NULL: all due at once
-- A task whose unique key is held by another one is skipped. Of ids that were given, all that were
-- not redriven are reported as skipped.
-- Errors: 22023.
-- Locks: the rows of dead_letter, passing by those that others have locked; then keys in sorted
--   order, as enqueue_many does, waiting for a transaction that is just taking one of them.
-- Writes: dead_letter -> task, unique_key.
create function taskq.redrive(
  queue      text = null,
  task_type  text = null,
  ids        bigint[] = null,
  max_tasks  integer = null,
  per_second numeric = null)
  returns table (redriven bigint, skipped bigint, skipped_ids bigint[])
  language plpgsql volatile security definer rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  v_now  timestamptz := taskq._now();
  v_task taskq.dead_letter;
  v_step interval := '0';
  v_kept timestamptz;  -- unique_for counts on from the enqueue
  v_redriven bigint[] := '{}';
begin
  perform taskq._check_filters(redrive.queue, redrive.task_type);
  if redrive.queue is null and redrive.task_type is null and redrive.ids is null then
    perform taskq._refuse('22023', 'redrive was given no filter', 'Name a queue, a task type or ids; queue => ''*'' means all dead letters.');
  end if;
  if redrive.max_tasks < 0 then
    perform taskq._refuse('22023', 'max_tasks must not be negative', 'Give a number of tasks, or NULL for all.');
  end if;
  if redrive.per_second is not null and redrive.per_second not between 0.0001 and 1000000 then
    perform taskq._refuse('22023', 'per_second must be between 0.0001 and 1000000', 'Give the number of tasks a second, such as 0.5 or 20.');
  end if;
  if redrive.per_second is not null then
    v_step := make_interval(secs => (1 / redrive.per_second)::double precision);
  end if;

  redriven := 0;
  skipped_ids := '{}';
  for v_task in
    select d.* from taskq.dead_letter d
     where d.id = any (array(
             -- Of some, those come first that can be had: others must not stand in their way for ever.
             select c.id from taskq.dead_letter c
              where (redrive.queue is null or redrive.queue = '*' or c.queue = redrive.queue)
                and (redrive.task_type is null or c.task_type = redrive.task_type)
                and (redrive.ids is null or c.id = any (redrive.ids))
              order by redrive.max_tasks is not null
                         and exists (select from taskq.unique_key k
                                      where k.task_type = c.task_type and k.key = c.unique_key
                                        and not (k.let_go and (k.kept_until <= v_now or k.task_id = c.id))),
                       c.died_at, c.id
              limit redrive.max_tasks
                for update skip locked))
     order by d.task_type, d.unique_key, d.id
       for update skip locked
  loop
    if v_task.unique_key is not null then
      delete from taskq.unique_key k
       where k.task_type = v_task.task_type and k.key = v_task.unique_key
         and k.let_go and (k.kept_until <= v_now or k.task_id = v_task.id)
      returning k.kept_until into v_kept;
      insert into taskq.unique_key (task_type, key, task_id, until_started, kept_until)
      values (v_task.task_type, v_task.unique_key, v_task.id, v_task.unique_until = 'started', v_kept)
          on conflict do nothing;
      if not found then
        skipped_ids := skipped_ids || v_task.id;
        continue;
      end if;
    end if;
    delete from taskq.dead_letter d where d.id = v_task.id;
    insert into taskq.task (id, queue, priority, run_at, token, max_retries, enqueued_at, redriven_at, bytes, task_type,
                            unique_key, unique_until, group_key, payload, headers, progress, errors)
    values (v_task.id, v_task.queue, v_task.priority, v_now + v_step * redriven, v_task.token, v_task.max_retries,
            v_task.enqueued_at, v_now, v_task.bytes, v_task.task_type, v_task.unique_key, v_task.unique_until,
            v_task.group_key, v_task.payload, v_task.headers, v_task.progress, v_task.errors);
    perform taskq._note_redriven(v_task.queue, v_task.task_type, v_now + v_step * redriven, v_task.enqueued_at);
    redriven := redriven + 1;
    v_redriven := v_redriven || v_task.id;
  end loop;
  if redrive.ids is not null then
    -- whatever the reason (not dead, key held, locked, beyond max_tasks): nothing is silently dropped
    skipped_ids := array(select i.id from unnest(redrive.ids) i(id) where i.id is not null
                         except select r.id from unnest(v_redriven) r(id) order by 1);
  end if;
  skipped := cardinality(skipped_ids);
  return next;
end
$$;
comment on function taskq.redrive is
  'Dead letters wait again, with renewed retries. Filters must all hold; queue => ''*'' means all. Skips, and reports, tasks whose unique key is held by another, and given ids that were not redriven.';

-- purge: forgets tasks for good: dead, succeeded, cancelled, scheduled or ready ones, never
-- running ones. Finished ones are forgotten in the archive, too.
--   older_than  only those that died, finished or were enqueued longer ago
-- Returns how many. Errors: 22023.
-- Locks: the rows of task or dead_letter by rising id, passing by waiting tasks that others have locked;
--   of finished tasks, waits for another purge of such.
-- Writes: dead_letter, done and archive, or task, unique_key and parked.
create function taskq.purge(
  state      text,
  queue      text = null,
  task_type  text = null,
  older_than interval = null)
  returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := taskq._now();
  v_age    numeric := extract(epoch from purge.older_than);
  v_before timestamptz := 'infinity';
  v_count  bigint;
  v_more   bigint;
  v_ids    bigint[];
  v_groups jsonb;
begin
  perform taskq._check_filters(purge.queue, purge.task_type);
  if purge.state is null or purge.state not in ('dead', 'succeeded', 'cancelled', 'scheduled', 'ready') then
    perform taskq._refuse('22023', 'state is not valid', 'Use dead, succeeded, cancelled, scheduled or ready; running tasks can be cancelled.');
  end if;
  if v_age < 0 or v_age > 3155760000 then
    perform taskq._refuse('22023', 'older_than must be between 0 and 100 years', 'Give an interval such as ''7 days''.');
  end if;
  if v_age is not null then
    v_before := v_now - make_interval(secs => v_age::double precision);
  end if;

  if purge.state = 'dead' then
    -- in the order of ids, so that two of these, or one and acknowledge, never wait for each other in a circle
    with doomed as materialized (
      select d.id from taskq.dead_letter d
       where (purge.queue is null or d.queue = purge.queue) and (purge.task_type is null or d.task_type = purge.task_type)
         and d.died_at < v_before
       order by d.id
         for update
    )
    delete from taskq.dead_letter d using doomed m where d.id = m.id;
    get diagnostics v_count = row_count;
  elsif purge.state in ('succeeded', 'cancelled') then
    -- One at a time: by different filters the same rows are found in different orders. (The archive duty
    -- passes by rows that are locked, and nobody else deletes any.)
    perform taskq._wait_lock('purge');
    delete from taskq.done f
     where f.state = purge.state and (purge.queue is null or f.queue = purge.queue)
       and (purge.task_type is null or f.task_type = purge.task_type) and f.finished_at < v_before;
    get diagnostics v_count = row_count;
    delete from taskq.archive f
     where f.state = purge.state and (purge.queue is null or f.queue = purge.queue)
       and (purge.task_type is null or f.task_type = purge.task_type) and f.finished_at < v_before;
    get diagnostics v_more = row_count;
    v_count := v_count + v_more;
  else
    with doomed as (
      select t.id from taskq.task t
       where t.state = 'waiting' and taskq._displayed_state(t.state, t.run_at, v_now) in (purge.state, case purge.state when 'ready' then 'blocked' end)
         and (purge.queue is null or t.queue = purge.queue) and (purge.task_type is null or t.task_type = purge.task_type)
         and t.enqueued_at < v_before
       order by t.id
         for update skip locked
    ), gone as (
      delete from taskq.task t using doomed d where t.id = d.id
      returning t.id, t.queue, t.task_type, t.run_at, t.enqueued_at, t.unique_key, t.group_key
    ), freed as (
      delete from taskq.unique_key k using gone g
       where k.task_type = g.task_type and k.key = g.unique_key and k.task_id = g.id
         and not (k.let_go and k.kept_until <= v_now)  -- a producer may just be taking it
    )
    select count(taskq._note_gone(g.queue, g.task_type, g.run_at, g.enqueued_at)::text),
           array_agg(g.id) filter (where g.group_key is not null),
           jsonb_agg(distinct jsonb_build_array(g.queue, g.group_key)) filter (where g.group_key is not null)
      into v_count, v_ids, v_groups from gone g;
    -- (In statements of their own, which see what claims have parked before the rows were locked.)
    delete from taskq.parked p where p.id = any (v_ids);
    -- one of them may have been the next of its group
    perform taskq._unpark_next(e.value ->> 0, e.value ->> 1) from jsonb_array_elements(v_groups) e
      where exists (select from taskq.parked p where p.queue = e.value ->> 0 and p.group_key = e.value ->> 1);
  end if;
  return v_count;
end
$$;
comment on function taskq.purge is
  'Forgets tasks for good and returns how many: dead, succeeded, cancelled, scheduled or ready ones; never running ones.';
