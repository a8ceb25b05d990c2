-- The upgrade from 0.1.0 to 0.2.0. Made by tools/upgrade.py; what is written by hand is in
-- sql/upgrades/0.1.0--0.2.0.sql, and stands first.

-- What the upgrade from 0.1.0 to 0.2.0 needs and tools/upgrade.py does not derive. It runs first.

-- Nobody's objects come before PostgreSQL's own.
set local search_path = pg_catalog, pg_temp;

do $$
begin
  -- The library reads texts as UTF-8.
  if (select pg_catalog.pg_encoding_to_char(d.encoding) from pg_catalog.pg_database d
       where d.datname operator(pg_catalog.=) pg_catalog.current_database()) operator(pg_catalog.<>) 'UTF8'
  then
    raise exception using
      errcode = '0A000',
      message = 'taskq needs a database whose encoding is UTF8',
      hint = 'Create one with: create database ... encoding ''UTF8'' template template0.';
  end if;
end
$$;

-- The types that the functions of diagnose return.
create type taskq._finding as (
  place    integer,
  queue    text,
  severity text,
  finding  text,
  cause    text,
  evidence text,
  facts    jsonb,
  advice   text);
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

-- _workers_seen returns more columns; the view that uses it comes back with the new one.
drop view taskq.workers;

-- Three triggers with conditions come in its place.
drop trigger limits_changed on taskq.queue;

drop function taskq._move_early(regclass, text);

drop function taskq._workers_seen();

create table taskq.load (
  at               timestamptz primary key,
  seconds          double precision not null,
  claims           bigint not null,
  claim_p50        double precision,
  claim_p95        double precision,
  wal_bytes        numeric not null,
  commits          bigint not null,
  blocks_read      bigint not null,
  blocks_hit       bigint not null,
  task_blocks_read bigint not null,
  task_blocks_hit  bigint not null
);

comment on table taskq.load is 'How the server fared, a row with each sample that had work, kept as long: for the question whether the queue outgrows it. The counters are those of PostgreSQL, since their last reset.';

comment on column taskq.load.at is 'When that was; as in sample.';

comment on column taskq.load.seconds is 'How long a time claims covers.';

comment on column taskq.load.claims is 'Calls of claim in that time.';

comment on column taskq.load.claim_p50 is 'Median of the seconds that they took; NULL if there were none.';

comment on column taskq.load.claim_p95 is 'The 95th percentile of the same.';

comment on column taskq.load.wal_bytes is 'WAL that the server has written, all databases.';

comment on column taskq.load.commits is 'Transactions of this database that were committed.';

comment on column taskq.load.blocks_read is 'Blocks of this database that were not in shared_buffers.';

comment on column taskq.load.blocks_hit is 'Blocks of this database that were.';

comment on column taskq.load.task_blocks_read is 'Blocks of the table task and its indexes that were not.';

comment on column taskq.load.task_blocks_hit is 'Blocks of the table task and its indexes that were.';

select pg_catalog.pg_extension_config_dump('taskq.load', '');

create function taskq._others() returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return (select string_agg(distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end, ', ')
            from (select 0::oid as grantee
                  union
                  select p.grantee
                    from pg_default_acl d
                    join pg_roles r on r.oid = d.defaclrole and r.rolname = current_user
                   cross join lateral aclexplode(d.defaclacl) p
                   where p.grantee <> d.defaclrole) a);

comment on function taskq._others() is
  'PUBLIC and the roles that ALTER DEFAULT PRIVILEGES gives rights on what the current role creates, for REVOKE.';

create function taskq._try_lock(purpose text, key integer = 0) returns boolean
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_try_lock';

comment on function taskq._try_lock(text, integer) is
  'Takes a lock that only one may have, if it is free, and says whether it was.';

create function taskq._wait_lock(purpose text, key integer = 0) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_wait_lock';

comment on function taskq._wait_lock(text, integer) is
  'Takes a lock that only one may have, and waits for it.';

create function taskq._try_turn_lock(queue text, group_key text) returns boolean
  language sql volatile
  return taskq._try_lock('turn', (pg_catalog.hashtext(_try_turn_lock.queue) operator(pg_catalog.&) (-256))
                                 operator(pg_catalog.|) (pg_catalog.hashtext(_try_turn_lock.group_key) operator(pg_catalog.&) 255));

comment on function taskq._try_turn_lock(text, text) is
  'Takes the lock on making the turn of a group, if it is free, and says whether it was.';

create function taskq._session_named(pid integer) returns text
  language sql volatile set search_path = pg_catalog, pg_temp
  return (select format('session %s (%s)', a.pid, concat_ws(', ', a.usename, nullif(a.application_name, ''), nullif(a.backend_type, 'client backend'), a.state))
            from pg_stat_activity a where a.pid = _session_named.pid);

comment on function taskq._session_named(integer) is
  'A session with its role, application and state, for people; NULL if there is none.';

create function taskq._top_transaction(xid bigint) returns bigint
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_top_transaction';

comment on function taskq._top_transaction(bigint) is
  'The transaction to which a transaction or subtransaction in progress belongs; NULL if it is over.';

create function taskq._prepared_locks()
  returns table (relation oid, mode text, transaction xid, gid text, since timestamptz)
  language sql volatile rows 100 set search_path = pg_catalog, pg_temp as $$
  with held as materialized (select l.* from pg_locks l where l.pid is null and l.granted)
  select l.relation, l.mode, p.transaction, p.gid, p.prepared
    from held l
    join held own on own.locktype = 'transactionid' and own.virtualtransaction = l.virtualtransaction
    join pg_prepared_xacts p on p.transaction = own.transactionid
   where l.locktype = 'relation' and p.database = current_database()
$$;

comment on function taskq._prepared_locks() is
  'Which locks on tables the prepared transactions of this database hold.';

create function taskq._lock_holders()
  returns table (relation oid, mode text, pid integer, who text, since timestamptz, advice text)
  language sql volatile rows 100 set search_path = pg_catalog, pg_temp as $$
  select l.relation, l.mode, l.pid, taskq._session_named(l.pid), a.xact_start,
         format('End its transaction: select pg_terminate_backend(%s)', l.pid)
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
   where l.locktype = 'relation' and l.granted
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
  union all
  select p.relation, p.mode, null, format('prepared transaction %L', p.gid), p.since,
         format('COMMIT PREPARED %L or ROLLBACK PREPARED %1$L', p.gid)
    from taskq._prepared_locks() p
$$;

comment on function taskq._lock_holders() is
  'Who holds locks on tables of this database, in which mode, since when their transaction is open, and what to do.';

create function taskq._figures_for_metrics()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint,
                 enqueued bigint, started bigint, succeeded bigint, failed bigint, retried bigint, dead bigint,
                 expired bigint, cancelled bigint, made_at timestamptz, bounds double precision[],
                 waiting_buckets bigint[], waiting_count bigint, waiting_sum double precision,
                 run_buckets bigint[], run_count bigint, run_sum double precision,
                 total_buckets bigint[], total_count bigint, total_sum double precision)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures_for_metrics';

comment on function taskq._figures_for_metrics() is
  'As _figures, with the moment at which each pair was first seen, and since then how many of the durations (waiting, run, and from enqueue to complete) were not longer than each of the bounds, how many there were, and their sum in seconds.';

create or replace function taskq._figures_kept()
  returns table (counted_at timestamptz, exact boolean)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures_kept';

create function taskq._take_claims()
  returns table (claims bigint, claim_p50 double precision, claim_p95 double precision)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_take_claims';

comment on function taskq._take_claims() is
  'How many calls of claim there were since this was called last, and the median and 95th percentile of the seconds that they took. No row without shared memory. For the sample duty.';

create function taskq._workers_seen()
  returns table (worker text, queues text[], first_seen_at timestamptz, seen_at timestamptz,
                 claimed_at timestamptz, claims bigint, claimed bigint, session_lives boolean,
                 calls_in_session bigint, waits boolean)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_workers_seen';

comment on function taskq._workers_seen() is
  'The workers that called claim or wait lately: for which queues (NULL: all), when first and last, when one last got a task, how many claims, and how many tasks; whether the session that it last called from is there, how often it has called from that, and whether that sleeps in wait. At most 512 workers, the ones not seen for longest forgotten first.';

create or replace function taskq.estimate(
  task_type text,
  inout queue text = null,
  out tasks_ahead bigint,
  out expected_start_at timestamptz,
  out expected_finish_at timestamptz)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now      timestamptz := taskq._now();
  v_type     text := taskq._check_name('task_type', estimate.task_type);
  v_settings taskq.task_type;
begin
  if estimate.queue is not null then
    perform taskq._check_name('queue', estimate.queue);
  end if;
  select t.* into v_settings from taskq.task_type t where t.name = v_type;
  queue := coalesce(estimate.queue, v_settings.queue, 'default');
  -- behind all that are due now: any id that is there is lower
  tasks_ahead := taskq._tasks_ahead(estimate.queue, coalesce(v_settings.priority, 0), v_now, 9223372036854775807, v_now);
  select e.start_at, e.finish_at into expected_start_at, expected_finish_at
    from taskq._expect(estimate.queue, v_type, estimate.tasks_ahead, v_now, v_now) e;
end
$$;

create function taskq._finished_task(of_id bigint) returns setof taskq.done
  language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp as $$
begin
  return query select f.* from taskq.done f where f.id = _finished_task.of_id;
  if not found then
    return query execute 'select a.* from taskq.archive a where a.id = $1' using _finished_task.of_id;
  end if;
end
$$;

comment on function taskq._finished_task(bigint) is
  'A task that has finished, from done or the archive.';

create or replace function taskq.status(id bigint)
  returns table (
    state              text,
    queue              text,
    task_type          text,
    priority           integer,
    attempt            integer,
    max_retries        integer,
    enqueued_at        timestamptz,
    run_at             timestamptz,
    tasks_ahead        bigint,
    expected_start_at  timestamptz,
    expected_finish_at timestamptz,
    claimed_at         timestamptz,
    lease_expires_at   timestamptz,
    worker             text,
    cancel_requested   boolean,
    finished_at        timestamptz,
    progress           jsonb,
    result             jsonb,
    last_error         text)
  language sql stable security definer rows 1 set search_path = pg_catalog, pg_temp as $$
  select taskq._displayed_state(t.state, t.run_at, c.now), t.queue, t.task_type, t.priority, t.attempt,
         t.max_retries, t.enqueued_at, c.run_at,
         a.tasks_ahead, e.start_at, coalesce(e.finish_at, r.finish_at),
         t.claimed_at, t.lease_expires_at, t.worker,
         t.cancel_requested_at is not null, null::timestamptz, t.progress, null::jsonb, taskq._last_error(t.errors)
    from taskq.task t
    left join taskq.parked p on p.id = t.id
   cross join lateral (select taskq._view_time() as now, coalesce(p.run_at, t.run_at) as run_at offset 0) c
   cross join lateral (
     select case t.state when 'running' then 0
                         else taskq._tasks_ahead(t.queue, t.priority, c.run_at, t.id, c.now) end as tasks_ahead offset 0) a
    left join lateral taskq._expect(t.queue, t.task_type, a.tasks_ahead, c.run_at, c.now) e on t.state = 'waiting'
    left join lateral (
      select greatest(t.claimed_at + u.usual_run, c.now) as finish_at
        from (select taskq._usual_run(t.queue, t.task_type, c.now) as usual_run offset 0) u
       where u.usual_run is not null) r on t.state = 'running'
   where t.id = status.id
  union all
  select 'dead', d.queue, d.task_type, d.priority, d.attempt, d.max_retries, d.enqueued_at, d.run_at, null, null, null,
         d.claimed_at, null, d.worker, false, d.died_at, d.progress, null, taskq._last_error(d.errors)
    from taskq.dead_letter d where d.id = status.id
  union all
  select f.state, f.queue, f.task_type, f.priority, f.attempt, f.max_retries, f.enqueued_at, f.run_at, null, null, null,
         f.claimed_at, null, f.worker, f.state = 'cancelled', f.finished_at, f.progress, f.result, taskq._last_error(f.errors)
    from taskq._finished_task(status.id) f
  limit 1
$$;

create or replace function taskq._set_slots(queue text, max_running integer) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_mended bigint;
  v_task   bigint;
begin
  if _set_slots.max_running is null then
    delete from taskq.slot s
     where s.queue = _set_slots.queue
       and s.slot in (select f.slot from taskq.slot f where f.queue = _set_slots.queue for update skip locked);
    return 0;
  end if;
  -- A task and its slot change in one transaction, so one snapshot sees both or none.
  update taskq.slot s set task_id = null
   where s.queue = _set_slots.queue
     and s.slot in (select u.slot from taskq.slot u
                     where u.queue = _set_slots.queue and u.task_id is not null
                       and not exists (select from taskq.task t where t.id = u.task_id and t.state = 'running')
                       for update skip locked);
  get diagnostics v_mended = row_count;
  -- (ON CONFLICT alone would wait for open transactions that have changed a slot.)
  insert into taskq.slot (queue, slot)
  select _set_slots.queue, n from generate_series(1, _set_slots.max_running) n
   where not exists (select from taskq.slot s where s.queue = _set_slots.queue and s.slot = n)
      on conflict do nothing;
  for v_task in
    select t.id from taskq.task t
     where t.queue = _set_slots.queue and t.state = 'running'
       and not exists (select from taskq.slot s where s.queue = _set_slots.queue and s.task_id = t.id)
     order by t.id
  loop
    v_mended := v_mended + 1;
    update taskq.slot s set task_id = v_task
     where s.queue = _set_slots.queue
       and s.slot = (select f.slot from taskq.slot f
                      where f.queue = _set_slots.queue and f.task_id is null
                      order by f.slot limit 1 for update skip locked);
    if not found then
      insert into taskq.slot (queue, slot, task_id)
      select _set_slots.queue, coalesce(max(s.slot), 0) + 1, v_task from taskq.slot s where s.queue = _set_slots.queue;
    end if;
  end loop;
  delete from taskq.slot s
   where s.queue = _set_slots.queue
     and s.slot in (select f.slot from taskq.slot f
                     where f.queue = _set_slots.queue and f.slot > _set_slots.max_running and f.task_id is null
                       for update skip locked);
  return v_mended;
end
$$;

create or replace function taskq._limits_changed() returns trigger
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_queue taskq.queue;
begin
  select q.* into v_queue from taskq.queue q where q.name = coalesce(new.name, old.name);
  if tg_op = 'INSERT' and new.max_running is distinct from v_queue.max_running then
    return null;  -- it was changed in the same transaction: that event follows
  end if;
  if v_queue.max_running < coalesce(old.max_running, 2147483647) then
    perform taskq._wait_for_claims(v_queue.name);
  end if;
  perform taskq._set_slots(coalesce(new.name, old.name), v_queue.max_running);
  perform taskq._set_tokens(coalesce(new.name, old.name), v_queue.rate, v_queue.burst);
  perform taskq._note_opened(coalesce(new.name, old.name));
  return null;
end
$$;

create constraint trigger limits_set after insert on taskq.queue
  deferrable initially deferred
  for each row when (new.max_running is not null or new.rate is not null)
  execute function taskq._limits_changed();

create constraint trigger limits_altered after update of max_running, rate, burst on taskq.queue
  deferrable initially deferred
  for each row when ((new.max_running, new.rate, new.burst) is distinct from (old.max_running, old.rate, old.burst))
  execute function taskq._limits_changed();

create constraint trigger limits_gone after delete on taskq.queue
  deferrable initially deferred
  for each row when (old.max_running is not null or old.rate is not null)
  execute function taskq._limits_changed();

create or replace function taskq._mend_groups() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_free record;
begin
  -- A task and its turn change in one transaction, so one snapshot sees both or none.
  update taskq.group_turn g set task_id = null
   where (g.queue, g.group_key) in (
           select u.queue, u.group_key from taskq.group_turn u
            where u.task_id is not null
              and not exists (select from taskq.task t where t.id = u.task_id and t.state = 'running')
              for update skip locked);
  for v_free in
    select p.queue, p.group_key
      from (select distinct x.queue, x.group_key from taskq.parked x) p
      left join taskq.group_turn g on g.queue = p.queue and g.group_key = p.group_key
     where g.task_id is null
     limit 1000
  loop
    perform taskq._unpark_next(v_free.queue, v_free.group_key);
  end loop;
  delete from taskq.group_turn g
   where (g.queue, g.group_key) in (
           select f.queue, f.group_key from taskq.group_turn f
            where f.task_id is null
              and not exists (select from taskq.parked p where p.queue = f.queue and p.group_key = f.group_key)
              -- as who makes one: see sql/statements/turn_make.sql
              and taskq._try_turn_lock(f.queue, f.group_key)
            limit 1000
              for update skip locked);
end
$$;

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

create or replace function taskq.redrive(
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

create or replace function taskq.purge(
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

comment on column taskq.queues.blocked is 'Tasks that are due and were put aside, because another one of their group runs.';

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

create or replace view taskq.finished as
  select f.id, f.queue, f.task_type, f.state, f.priority, f.attempt, f.max_retries, f.enqueued_at, f.run_at, f.claimed_at,
         f.finished_at, f.worker, f.unique_key, f.cancel_reason, f.payload, f.headers, f.progress, f.result,
         taskq._last_error(f.errors) as last_error, f.errors, f.group_key
    from taskq.done f;

comment on column taskq.finished.group_key is 'Its group.';

create or replace view taskq.dead_letters as
  select d.id, d.queue, d.task_type, d.died_at, taskq._last_error(d.errors) as last_error, d.attempt, d.max_retries,
         d.priority, d.enqueued_at, d.run_at, d.claimed_at, d.worker, d.redriven_at, d.acknowledged_at, d.unique_key,
         d.payload, d.headers, d.progress, d.errors, d.group_key
    from taskq.dead_letter d;

comment on column taskq.dead_letters.group_key is 'Its group.';

create or replace function taskq._duty_alert() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := taskq._now();
  v_clock  timestamptz := clock_timestamp();
  v_repeat interval := make_interval(secs => taskq._seconds_setting('taskq.alert_repeat'));
  v_count  bigint := 0;
  v_all    boolean;
  v_found  record;
  v_alert  taskq.alert;
  v_state  text;
begin
  v_all := not exists (select from taskq.horizon h where h.at > v_clock - interval '10 seconds' and h.at <= v_clock)
           or not exists (select from pg_stat_get_activity(pg_backend_pid()) a where a.backend_type = 'taskq keeper');
  -- an old transaction may have an old snapshot, which says what came next then, not now
  if v_all and now() > v_clock - interval '1 second' then
    delete from taskq.horizon h where h.at < v_clock - interval '24 hours' or h.at > v_clock;
    insert into taskq.horizon (at, next_xid) values (v_clock, pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
        on conflict do nothing;
  end if;
  for v_found in
    select a.id, coalesce(a.kind, f.kind) as kind, coalesce(a.queue, f.queue) as queue, coalesce(f.value, 0) as value,
           f.alert_limit, coalesce(f.value <= f.clear_limit, true) as back, f.detail, a.detail as old_detail,
           a.acknowledged_at is null and v_repeat > interval '0' and coalesce(a.repeated_at, a.raised_at) <= v_now - v_repeat as again
      from (select d.* from taskq._watch_dead_letters() d
            union all select q.* from taskq._watch_queues(v_now) q where v_all
            union all select b.* from taskq._watch_database() b where v_all) f
      full join (select x.* from taskq.alert x
                  where x.cleared_at is null and (v_all or x.kind = 'dead_letters')) a
        on a.kind = f.kind and coalesce(a.queue, '') = coalesce(f.queue, '')
     where a.id is not null or f.value > f.alert_limit
     order by 2, 3
  loop
    v_state := null;
    if v_found.id is not null then
      -- (A lock costs a transaction id: not where nothing is new.)
      continue when not (v_found.back or v_found.again or v_found.detail is distinct from v_found.old_detail);
      -- Whoever is just acknowledging it is not waited for: the next round comes soon.
      perform from taskq.alert a where a.id = v_found.id for no key update skip locked;
      continue when not found;
    end if;
    -- each looks again at what another round may have done meanwhile
    if v_found.id is null then
      insert into taskq.alert (kind, queue, value, alert_limit, detail, raised_at)
      values (v_found.kind, v_found.queue, v_found.value, v_found.alert_limit, v_found.detail, v_now)
          on conflict do nothing
      returning * into v_alert;
      v_state := case when found then 'raised' end;
    elsif v_found.back then
      update taskq.alert a set cleared_at = v_now
       where a.id = v_found.id and a.cleared_at is null
      returning * into v_alert;
      v_state := case when found then 'cleared' end;
    elsif v_found.again then
      update taskq.alert a
         set repeated_at = v_now, value = v_found.value, alert_limit = v_found.alert_limit, detail = v_found.detail
       where a.id = v_found.id and a.cleared_at is null and a.acknowledged_at is null
         and coalesce(a.repeated_at, a.raised_at) <= v_now - v_repeat
      returning * into v_alert;
      v_state := case when found then 'repeated' end;
    elsif v_found.detail is distinct from v_found.old_detail then
      update taskq.alert a set detail = v_found.detail where a.id = v_found.id and a.cleared_at is null;
    end if;
    if v_state is not null then
      perform taskq._announce(v_alert, v_state, v_found.value, v_now);
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end
$$;

create or replace function taskq.acknowledge(alert_id bigint) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := taskq._now();
  v_alert taskq.alert;
begin
  select a.* into v_alert from taskq.alert a where a.id = acknowledge.alert_id for update;
  if not found then
    perform taskq._refuse('22023', 'there is no such alert', 'See taskq.alerts for the ids.');
  end if;
  if v_alert.acknowledged_at is not null then
    return;
  end if;
  update taskq.alert a set acknowledged_at = v_now, acknowledged_by = session_user where a.id = v_alert.id;
  if v_alert.cleared_at is null and v_alert.kind = 'dead_letters' then
    with seen as materialized (
      select d.id from taskq.dead_letter d
       where d.queue = v_alert.queue and d.acknowledged_at is null
       order by d.id
         for no key update
    )
    update taskq.dead_letter d set acknowledged_at = v_now from seen s where d.id = s.id;
  end if;
end
$$;

create or replace function taskq._archive_holders() returns text
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

create or replace function taskq._archive_step(step text, at timestamptz) returns bigint
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

create or replace function taskq._duty_archive() returns bigint
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

create or replace function taskq._days(parent regclass)
  returns table (part regclass, starts_at timestamptz, ends_at timestamptz)
  language sql stable rows 60
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
  select b.part,
         case b.bound[1] when 'MINVALUE' then '-infinity' else trim('''' from b.bound[1]) end::timestamptz,
         case b.bound[2] when 'MAXVALUE' then 'infinity' else trim('''' from b.bound[2]) end::timestamptz
    from (select c.oid::regclass as part,
                 regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM [(](.+)[)] TO [(](.+)[)]$') as bound
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
           where i.inhparent = _days.parent) b
   where b.bound is not null
$$;

create or replace function taskq._archive_retention() returns interval
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_setting   text := (select nullif(trim(s.setting), '') from pg_settings s
                        where s.name = 'taskq.archive_retention' and s.context in ('superuser', 'sighup', 'postmaster'));
  v_retention interval;
begin
  if v_setting is null then
    return null;
  end if;
  begin
    v_retention := v_setting::interval;
  exception when data_exception then
    null;
  end;
  if (v_retention >= '0') is not true then
    perform taskq._refuse('22023', format('setting taskq.archive_retention is not valid: %L', left(v_setting, 50)),
                          'It must be an interval that is not negative, such as ''2 years'', or empty, which means for ever.');
  end if;
  return v_retention;
end
$$;

create or replace function taskq._create_finished(name text, meaning text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  execute format('create table taskq.%I (like taskq.done including all excluding comments)', _create_finished.name);
  execute format('alter table taskq.%I add primary key (id, finished_at)', _create_finished.name);
  execute format('create index on taskq.%I (queue, finished_at)', _create_finished.name);
  execute format('comment on table taskq.%I is %L', _create_finished.name, _create_finished.meaning);
  execute format('revoke all on taskq.%I from %s', _create_finished.name, taskq._others());
  execute format('revoke all on type taskq.%I from %s', _create_finished.name, taskq._others());
end
$$;

create or replace function taskq._bound_default(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_check record;
  v_moved bigint;
begin
  select c.* into v_check from taskq._default_check() c;
  if found then
    if v_check.ends_at < _bound_default.at + interval '7 days' or not exists (select from taskq.done_default) then
      lock table only taskq.done_default in access exclusive mode;
      alter table taskq.done_default drop constraint done_default_days;
      return 1;
    elsif not v_check.valid then
      v_moved := taskq._move_early('taskq.done_default', outside => tstzrange(v_check.starts_at, v_check.ends_at));
      if v_moved > 0 then
        return v_moved;
      end if;
      alter table taskq.done_default validate constraint done_default_days;
      return 1;
    end if;
  elsif taskq._default_is_large(_bound_default.at) and exists (select from taskq.done_default) then
    lock table only taskq.done_default in access exclusive mode;
    perform taskq._check_days(
      'taskq.done_default', 'done_default_days',
      (select coalesce(max(d.ends_at), '-infinity') from taskq._days('taskq.done') d
        where d.ends_at <= _bound_default.at),
      (select least(min(d.starts_at), date_trunc('day', _bound_default.at) + interval '15 days')
         from taskq._days('taskq.done') d where d.starts_at > _bound_default.at),
      not_valid => true);
    return 1;
  end if;
  return 0;
end
$$;

create or replace function taskq._open_days(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_missed record;
  v_caught boolean := exists (select from taskq.done_default);
  v_spare  text;
  v_days   timestamptz[];
  v_name   text;
  v_moves  text := '';
begin
  select m.* into v_missed from taskq._days_missed(_open_days.at) m;
  if v_caught and v_missed.ends_at is null then
    return 0;
  end if;
  v_days := array(select d from taskq._days_missing(_open_days.at) d
                   where v_missed.ends_at is null or d < v_missed.starts_at or d >= v_missed.ends_at);
  if cardinality(v_days) = 0 and not v_caught then
    return 0;
  end if;

  begin
    for i in 1 .. cardinality(v_days) loop
      v_name := taskq._day_name('done', v_days[i], v_days[i] + interval '1 day');
      perform taskq._create_finished(v_name, 'Finished tasks of this day (UTC).');
      perform taskq._check_days(format('taskq.%I', v_name), v_name || '_days', v_days[i], v_days[i] + interval '1 day');
      v_moves := v_moves || format('alter table taskq.done attach partition taskq.%I for values %s;',
                                   v_name, taskq._bounds(v_days[i], v_days[i] + interval '1 day'));
    end loop;
    if v_caught then
      v_spare := taskq._free_name('done_default_next');
      perform taskq._create_finished(v_spare, 'Catches finished tasks whose day has no partition yet. Emptied by the archive duty.');
      lock table only taskq.done in access exclusive mode;
      lock table only taskq.done_default in access exclusive mode nowait;
      perform taskq._replace_default(v_spare, v_missed.starts_at, v_missed.ends_at);
    else
      lock table only taskq.done in share update exclusive mode;
      lock table only taskq.done_default in access exclusive mode;
    end if;
    execute v_moves;
  exception when check_violation then
    if v_caught then
      raise;
    end if;
    -- A task has come to done_default since we looked: its day is one that was missed.
    return taskq._open_days(_open_days.at);
  end;
  return cardinality(v_days) + v_caught::integer;
end
$$;

create or replace function taskq._close_days(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '50ms' as $$
declare
  v_day   record;
  v_days  regclass[] := '{}';
  v_moves text[] := '{}';
  v_until timestamptz;
  v_count bigint := 0;
begin
  -- the commands are written before the first lock
  for v_day in select d.* from taskq._days_due(_close_days.at) d where d.whole or taskq._is_empty(d.part) limit 100 loop
    v_days := v_days || v_day.part;
    v_moves := v_moves || case when not v_day.whole then format('drop table %s', v_day.part)
      else format('alter table taskq.archive_day attach partition %1$s for values %2$s; alter table %1$s rename to %3$I',
                  v_day.part, taskq._bounds(v_day.starts_at, v_day.ends_at),
                  taskq._day_name('archive', v_day.starts_at, v_day.ends_at)) end;
  end loop;
  if cardinality(v_days) = 0 then
    return 0;
  end if;
  lock table only taskq.done in access exclusive mode;
  v_until := clock_timestamp() + interval '50 ms';
  lock table only taskq.done_default in access exclusive mode nowait;
  lock table only taskq.archive_day in share update exclusive mode nowait;
  lock table only taskq.archive_default in access exclusive mode nowait;
  for i in 1 .. cardinality(v_days) loop
    begin
      execute format('lock table only %s in access exclusive mode nowait', v_days[i]);
    exception when lock_not_available then
      continue;
    end;
    execute format('alter table taskq.done detach partition %s', v_days[i]);
    execute v_moves[i];
    v_count := v_count + 1;
    exit when clock_timestamp() > v_until;
  end loop;
  if v_count = 0 then
    raise lock_not_available using message = 'the tables of all days that are due are in use';
  end if;
  return v_count;
end
$$;

create or replace function taskq._drop_days(at timestamptz) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_before timestamptz := _drop_days.at - taskq._archive_retention();
  v_days   regclass[] := array(select d.part from taskq._days('taskq.archive_day') d
                                where d.ends_at <= v_before order by d.ends_at);
  v_until  timestamptz := clock_timestamp() + interval '50 ms';
  v_count  bigint := 0;
begin
  if cardinality(v_days) = 0 then
    return 0;
  end if;
  lock table only taskq.archive_day, taskq.archive_default in access exclusive mode nowait;
  for i in 1 .. cardinality(v_days) loop
    execute format('lock table only %s in access exclusive mode nowait', v_days[i]);
    execute format('drop table %s', v_days[i]);
    v_count := v_count + 1;
    exit when clock_timestamp() > v_until;
  end loop;
  return v_count;
end
$$;

create function taskq._move_early(part regclass, queue text = null, before timestamptz = null, outside tstzrange = null) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_count bigint;
begin
  execute format($sql$
    with gone as (
      delete from %1$s d where d.ctid = any (array(
        select f.ctid from %1$s f
         where ($1 is null or f.queue = $1) and ($2 is null or f.finished_at < $2) and ($3 is null or not f.finished_at <@ $3)
         order by f.finished_at
         limit 1000
           for update skip locked))
      returning d.*
    )
    insert into taskq.archive (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at,
                               claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers,
                               progress, result, errors, early)
    select g.id, g.queue, g.task_type, g.state, g.priority, g.attempt, g.max_retries, g.enqueued_at, g.run_at,
           g.claimed_at, g.finished_at, g.worker, g.unique_key, g.group_key, g.cancel_reason, g.payload, g.headers,
           g.progress, g.result, g.errors, true
      from gone g
    $sql$, _move_early.part)
  using _move_early.queue, _move_early.before, _move_early.outside;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function taskq._move_early(regclass, text, timestamptz, tstzrange) is
  'Moves a batch of finished tasks to the archive, row by row.';

create or replace function taskq._archive_early(at timestamptz) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_until    timestamptz := clock_timestamp() + interval '0.25 seconds';
  v_shortest interval := (select least(taskq._default_retention(), min(q.retention)) from taskq.queue q);
  v_part     regclass;
  v_queue    record;
  v_batch    bigint;
  v_full     boolean;
  v_count    bigint := taskq._move_early('taskq.archive_default');
begin
  loop
    v_full := false;
    for v_part in
      select d.part from taskq._days('taskq.done') d
       where d.starts_at < _archive_early.at - v_shortest
         and d.part not in (select w.part from taskq._days_due(_archive_early.at) w where w.whole)
      union all select 'taskq.done_default'
    loop
      for v_queue in select q.queue, q.before from taskq._queues_due(v_part, _archive_early.at) q loop
        v_batch := taskq._move_early(v_part, v_queue.queue, v_queue.before);
        v_count := v_count + v_batch;
        v_full := v_full or v_batch = 1000;
        if clock_timestamp() > v_until then
          return v_count;
        end if;
      end loop;
    end loop;
    exit when not v_full;
  end loop;
  return v_count;
end
$$;

create or replace function taskq._drill_clean(run taskq.drill_run) returns text
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_type text := taskq._drill_type();
begin
  perform taskq.cancel(t.id, force => true) from taskq.task t
    where t.queue = (_drill_clean.run).queue and t.task_type = v_type;
  perform taskq.purge(s.state, (_drill_clean.run).queue, v_type) from unnest(array['dead', 'cancelled', 'succeeded']) s(state);
  -- what others have put there goes on, when the pause has gone with the settings
  if exists (select from taskq.task t where t.queue = (_drill_clean.run).queue) then
    perform taskq._note_opened((_drill_clean.run).queue);
  end if;
  set constraints taskq.limits_gone immediate;  -- the keeper may leave nothing to the commit
  delete from taskq.queue q where q.name = (_drill_clean.run).queue;
  delete from taskq.task_type t where t.name = v_type;
  return (select string_agg(format('task %s is %s', t.id, t.state), ', ') from taskq.task t
           where t.queue = (_drill_clean.run).queue and t.task_type = v_type);
end
$$;

create function taskq._sample_load(taken_at timestamptz, covers double precision) returns void
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into taskq.load (at, seconds, claims, claim_p50, claim_p95, wal_bytes, commits, blocks_read, blocks_hit,
                          task_blocks_read, task_blocks_hit)
  select _sample_load.taken_at, _sample_load.covers, coalesce(c.claims, 0), c.claim_p50, c.claim_p95, w.wal_bytes,
         pg_stat_get_db_xact_commit(d.oid),
         pg_stat_get_db_blocks_fetched(d.oid) - pg_stat_get_db_blocks_hit(d.oid), pg_stat_get_db_blocks_hit(d.oid),
         t.fetched - t.hit, t.hit
    from pg_database d
   cross join pg_stat_get_wal() w
   cross join lateral (
     select sum(pg_stat_get_blocks_fetched(r.oid))::bigint as fetched, sum(pg_stat_get_blocks_hit(r.oid))::bigint as hit
       from (select 'taskq.task'::regclass::oid as oid
             union all select i.indexrelid from pg_index i where i.indrelid = 'taskq.task'::regclass) r) t
    left join taskq._take_claims() c on true
   where d.datname = current_database()
      on conflict do nothing
$$;

comment on function taskq._sample_load(timestamptz, double precision) is
  'Notes in load how long claims took and what the server''s counters say.';

create or replace function taskq._duty_sample() returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  -- plans are kept, and must not be those for a small table when it has become a large one
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now      timestamptz := taskq._now();  -- first: it loads the library, which knows the settings
  v_interval interval := current_setting('taskq.sample_interval')::interval;
  v_kept     interval := current_setting('taskq.sample_retention')::interval;
  v_begin    timestamptz := pg_postmaster_start_time();
  v_since    timestamptz;
  v_shared   boolean := exists (select from taskq._figures_kept());
  v_deleted  bigint;
begin
  select d.counted_until into v_since from taskq.duty d where d.name = 'sample' for update;
  if v_since > v_now then
    v_since := null;  -- the clock was set back
  end if;
  if v_since is null or v_now - v_since >= v_interval * 0.9 then
    v_since := coalesce(v_since, v_now - v_interval);
    if v_shared and v_begin > v_since and v_begin < v_now then
      v_since := v_begin;  -- shared memory knows only what happened since
    elsif not v_shared then
      v_since := greatest(v_since, v_now - interval '1 hour');
      -- what it knows already is in the tables: not once more in the next sample
      perform from taskq._take_figures();
    end if;

    with figure as materialized (
      select t.*, null::bigint as claimers from taskq._take_figures() t where v_shared
      union all
      select t.* from taskq._figures_from_tables(v_since, v_now) t where not v_shared
    ), claimer as (
      select q.queue, count(*) as workers
        from (select distinct f.queue from figure f) q
        join taskq._workers_seen() w on (w.waits or w.seen_at >= least(v_since, v_now - interval '30 seconds'))
                                         and (w.queues is null or q.queue = any (w.queues))
       group by q.queue
    )
    insert into taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired,
                              cancelled, ready, scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95,
                              run_p50, run_p95, total_p50, total_p95, claimers)
    select v_now, f.queue, f.task_type, extract(epoch from v_now - v_since), f.enqueued, f.started, f.succeeded, f.failed,
           f.retried, f.dead, f.expired, f.cancelled, f.ready, f.scheduled, f.running, f.blocked, v_now - o.run_at, f.waiting_p50,
           f.waiting_p95, f.run_p50, f.run_p95, f.total_p50, f.total_p95, coalesce(f.claimers, c.workers, 0)
      from figure f
      left join claimer c on c.queue = f.queue
      left join taskq._oldest_ready o on o.queue = f.queue collate "C"
     where not starts_with(f.queue, 'taskq.') and f.task_type <> taskq._drill_type()
       and (f.ready > 0 or f.scheduled > 0 or f.running > 0 or f.blocked > 0 or f.enqueued > 0 or f.started > 0 or f.succeeded > 0
            or f.failed > 0 or f.cancelled > 0);
    if found then
      perform taskq._sample_load(v_now, extract(epoch from v_now - v_since));
    end if;
    -- (a changed interval counts for the keeper from here on)
    update taskq.duty d set counted_until = v_now, every = v_interval where d.name = 'sample';
  end if;

  delete from taskq.sample s
   where s.ctid = any (array(
           select o.ctid from taskq.sample o where o.at < v_now - v_kept order by o.at limit 10000));
  get diagnostics v_deleted = row_count;
  delete from taskq.load l
   where l.ctid = any (array(
           select o.ctid from taskq.load o where o.at < v_now - v_kept order by o.at limit 10000));
  return v_deleted;
end
$$;

create or replace function taskq._check_time_zone(time_zone text) returns text
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_name text := 'UTC';
begin
  if _check_time_zone.time_zone is distinct from 'UTC' then
    v_name := (select min(z.name) from pg_timezone_names z where lower(z.name) = lower(_check_time_zone.time_zone));
  end if;
  -- Some of these names are abbreviations as well, and PostgreSQL takes them for those: one offset for summer and winter.
  if exists (select from pg_timezone_abbrevs a
              where a.abbrev = upper(v_name) and a.abbrev not in ('UTC', 'UCT', 'GMT', 'ZULU')) then
    perform taskq._refuse('22023', format('%s is an abbreviation, which knows no summer time', v_name),
                          'Give a name such as ''Europe/Berlin''; pg_timezone_names has them all.');
  end if;
  if v_name is null then
    perform taskq._refuse('22023', case when _check_time_zone.time_zone is null then 'time_zone must not be null'
                                        else 'there is no time zone of that name' end,
                          'Give a name such as ''Europe/Berlin'' or ''UTC''; pg_timezone_names has them all.');
  end if;
  return v_name;
end
$$;

create function taskq._ran_ahead(last_run_at timestamptz) returns boolean
  language sql volatile set search_path = pg_catalog, pg_temp
  return _ran_ahead.last_run_at > taskq._now() + interval '1 hour';

comment on function taskq._ran_ahead(timestamptz) is
  'Whether a schedule''s last run is more than an hour ahead, so that the clock was wrong; NULL if it never ran.';

create or replace function taskq.schedule(name text, cron text, task_type text, payload jsonb = '{}', time_zone text = 'UTC',
                               settings jsonb = '{}')
  returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz;
  v_new taskq.schedule;
begin
  v_new.name := taskq._check_name('name', schedule.name);
  v_new.task_type := taskq._check_name('task_type', schedule.task_type);
  v_new.payload := coalesce(schedule.payload, '{}');
  v_new.settings := jsonb_strip_nulls(taskq._check_settings('schedule', schedule.settings));
  v_new.cron := schedule.cron;
  v_new.time_zone := taskq._check_time_zone(schedule.time_zone);
  -- The clock is read after the wait for a round that has the row: what that enqueued is past.
  perform from taskq.schedule s where s.name = v_new.name for no key update;
  v_now := taskq._now();
  v_new.next_run_at := taskq._cron_next(v_new.cron, v_new.time_zone, v_now);
  if v_new.next_run_at is null then
    perform taskq._refuse('22023', 'the cron expression never comes true',
                          'No year has such a day. Write it like ''0 0 28 2 *'', or ''0 0 L 2 *'' for the last day of February.');
  end if;
  perform taskq._check_size('the payload with its headers', v_new.payload,
                            taskq._schedule_headers(v_new.name, v_new.next_run_at));
  if coalesce((v_new.settings -> 'paused')::boolean, false) then
    v_new.next_run_at := null;
  end if;
  insert into taskq.schedule as s (name, cron, time_zone, task_type, payload, settings, next_run_at, updated_at)
  values (v_new.name, v_new.cron, v_new.time_zone, v_new.task_type, v_new.payload, v_new.settings, v_new.next_run_at, v_now)
      on conflict on constraint schedule_pkey do update
     set cron = excluded.cron, time_zone = excluded.time_zone, task_type = excluded.task_type, payload = excluded.payload,
         settings = excluded.settings, updated_at = excluded.updated_at, error = null, error_at = null,
         next_run_at = case when s.cron = excluded.cron and s.time_zone = excluded.time_zone and excluded.next_run_at is not null
                             and s.next_run_at >= v_now - interval '60 seconds' and not coalesce(taskq._ran_ahead(s.last_run_at), false)
                            then s.next_run_at else excluded.next_run_at end,
         last_run_at = case when not taskq._ran_ahead(s.last_run_at) then s.last_run_at end
   -- (as text, because 1 and 1.0 are equal as jsonb)
   where (s.cron, s.time_zone, s.task_type, s.payload::text, s.settings::text)
      is distinct from (excluded.cron, excluded.time_zone, excluded.task_type, excluded.payload::text, excluded.settings::text)
      or taskq._ran_ahead(s.last_run_at);
end
$$;

create or replace function taskq._duty_wake() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- After a failure: a queue of notifications that was full stays full, though nobody holds it up any more, until
  -- somebody moves its tail; this does.
  if exists (select from taskq.duty d where d.name = 'wake' and d.error is not null) then
    perform pg_notification_queue_usage();
  end if;
  perform taskq._wake();
  return 0;  -- it changes no rows, and leaves nothing to do for another round
end
$$;

create function taskq._half_restored() returns boolean
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if (select s.is_called from taskq.task_id_seq s) then
    return false;
  end if;
  begin
    return exists (select from taskq.task) or exists (select from taskq.dead_letter)
           or exists (select from taskq.done) or exists (select from taskq.archive)
           or exists (select from taskq.group_turn) or exists (select from taskq.parked)
           or exists (select from taskq.schedule s where s.last_task_id is not null)
           or not (select s.is_called from taskq.alert_id_seq s) and exists (select from taskq.alert);
  exception when others then
    return false;  -- what is broken here shows in the duty that needs it
  end;
end
$$;

comment on function taskq._half_restored() is
  'Whether a dump is just being restored: rows are there, and its sequences are not.';

create or replace function taskq._run_duty(duty text) returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_duty  taskq.duty;
  v_start timestamptz := clock_timestamp();
  v_rows  bigint;
  v_code  text;
  v_error text;
begin
  select d.* into v_duty from taskq.duty d where d.name = _run_duty.duty;
  if not found then
    perform taskq._refuse('22023', 'there is no such duty', 'See taskq.duties.');
  end if;
  if taskq._half_restored() then
    return 0;
  end if;
  -- (a row lock would cost even an idle round a transaction id)
  if not taskq._try_lock('duty', hashtext(v_duty.name)) then
    return 0;
  end if;
  begin
    execute format('select taskq.%I()', '_duty_' || v_duty.name) into v_rows;
  exception
    when query_canceled then
      raise;
    when others then
      get stacked diagnostics v_code = returned_sqlstate, v_error = message_text;
      perform taskq._duty_failed(v_duty.name, v_code, v_error);
      return 0;
  end;
  if v_rows > 0 or v_duty.error is not null or v_duty.finished_at is null
     or v_duty.finished_at < v_start - interval '10 seconds' then
    update taskq.duty d set started_at = v_start, finished_at = clock_timestamp(), rows = v_rows, error = null
     where d.name = v_duty.name;
  end if;
  return v_rows;
end
$$;

create or replace procedure taskq.maintain()
  language plpgsql as $$
declare
  -- the caller's search_path holds here, for types and operators as well
  v_duty pg_catalog.text;
  v_rows pg_catalog.int8;
begin
  commit;  -- refuses at once in a transaction block
  -- (alert last: it looks how late the others are)
  foreach v_duty in array array['recover', 'schedule', 'limits', 'drill', 'sample', 'archive', 'wake', 'alert'] loop
    -- a round is bounded: go on while it finds something, but not for ever
    for v_round in 1..100 loop
      v_rows := taskq._run_duty(v_duty);
      commit;
      exit when v_rows operator(pg_catalog.=) 0;
    end loop;
  end loop;
end
$$;

create function taskq._preloaded() returns boolean
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_preloaded';

comment on function taskq._preloaded() is
  'Whether the server has loaded the library at its start.';

create function taskq._excluded() returns boolean
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_excluded';

comment on function taskq._excluded() is
  'Whether taskq.excluded_databases names this database.';

create function taskq._late_after(every interval, with_keeper boolean) returns interval
  language sql immutable set search_path = pg_catalog, pg_temp
  return _late_after.every * 3 + case when _late_after.with_keeper then interval '20 seconds' else interval '100 seconds' end;

comment on function taskq._late_after(interval, boolean) is
  'How old the last round of a duty may be.';

create or replace function taskq.health()
  returns table ("check" text, ok boolean, value text, "limit" text, advice text)
  language plpgsql stable security definer rows 10 set search_path = pg_catalog, pg_temp as $$
declare
  v_version text := (select e.extversion from pg_extension e where e.extname = 'taskq');
  v_duty    record;
  v_steps   bigint;
  v_holders text;
  v_held    record;
  v_since   timestamptz := (select min(a.backend_start) from pg_stat_activity a
                             where a.backend_type = 'taskq keeper' and a.datname = current_database());
begin
  "check" := 'library preloaded';
  ok := taskq._preloaded();
  -- (The setting itself is not for everybody: the owner of the extension may be a superuser no more.)
  value := case when ok then 'yes' else 'no' end;
  "limit" := null;
  advice := case when not ok then 'Add taskq to shared_preload_libraries and restart the server, or run CALL taskq.maintain() from a scheduler every few seconds.' end;
  return next;

  "check" := 'keeper running';
  value := (select count(*)::text from pg_stat_activity a where a.backend_type = 'taskq keeper' and a.datname = current_database());
  ok := value = '1';
  "limit" := '1';
  advice := case when not ok and taskq._excluded()
                   then 'taskq.excluded_databases names this database: take it out, or run CALL taskq.maintain() from a scheduler.'
                 when not ok and current_setting('taskq.keeper', true) = 'off' then 'taskq.keeper is off here: switch it on, or run CALL taskq.maintain() from a scheduler.'
                 when not ok then 'See the server log for the reason; max_worker_processes may be used up. CALL taskq.maintain() does its work meanwhile.' end;
  return next;

  "check" := 'library version';
  value := taskq._library_version();
  "limit" := v_version;
  ok := value = v_version;
  advice := case when not ok then 'Run ALTER EXTENSION taskq UPDATE, or install the library of that version and restart.' end;
  return next;

  for v_duty in select d.* from taskq.duty d order by d.name loop
    "check" := format('duty %s', v_duty.name);
    value := coalesce(v_duty.error, v_duty.finished_at::text, 'never ran');
    "limit" := format('%s old', taskq._late_after(v_duty.every, v_since is not null));
    ok := v_duty.error is null
          and greatest(v_duty.finished_at, v_since) > clock_timestamp() - taskq._late_after(v_duty.every, v_since is not null);
    ok := coalesce(ok, false);
    advice := case when not ok and taskq._half_restored()
                     then 'A dump is being restored: duties begin when its sequences are there.'
                   when v_duty.error is not null then 'The last round failed: mend the cause; the duty goes on by itself.'
                   when not ok then 'The keeper is late or missing: see the checks above.' end;
    return next;
  end loop;

  "check" := 'archive';
  select count(*), string_agg(b.step, ', '), string_agg(b.held_by, ', ') into v_steps, value, v_holders
    from taskq._archive_blockers() b;
  ok := v_steps = 0;
  "limit" := null;
  advice := case when not ok then coalesce('Steps wait for a lock. End what holds it: ' || v_holders || '.',
                                           'Steps fail: see taskq._archive_blockers().') end;
  return next;

  "check" := 'vacuum held back';
  select h.* into v_held from taskq._vacuum_holders() h where h.since is not null limit 1;
  "limit" := make_interval(secs => taskq._seconds_setting('taskq.vacuum_held_limit'))::text;
  ok := v_held.since is null
        or v_held.since >= clock_timestamp() - make_interval(secs => taskq._seconds_setting('taskq.vacuum_held_limit'));
  value := case when ok then 'no' else format('by %s, since %s', v_held.who, v_held.since::timestamptz(0)) end;
  advice := case when not ok then v_held.advice end;
  return next;

  "check" := 'schedules';
  select count(*), string_agg(s.name, ', ' order by s.name) into v_steps, value
    from taskq.schedule s where s.error is not null or taskq._ran_ahead(s.last_run_at);
  ok := v_steps = 0;
  "limit" := null;
  advice := case when not ok then 'Their last round failed, or they ran ahead while the clock was wrong: see last_error and last_run_at in taskq.schedules, and call taskq.schedule again with what is right.' end;
  return next;

  "check" := 'clock';
  select format('%s s at %s', round(j.seconds::numeric, 1), j.at), j.at < taskq._now() - interval '1 hour' into value, ok
    from taskq._clock_jump() j;
  ok := coalesce(ok, true);
  "limit" := '5 s in the last hour';
  advice := case when not ok then 'The server''s clock was set, or the machine stood still. What was due in between is late or early by that; look at its time service.' end;
  return next;

  "check" := 'rights';
  select count(*), string_agg(format('%s of %s', m.part, m.role), ', '),
         'They lack what was added to these parts: ' || string_agg(format('select taskq.grant_%s(%L)', m.part, quote_ident(m.role)), '; ')
    into v_steps, value, advice
    from taskq._rights_missing() m;
  ok := v_steps = 0;
  "limit" := null;
  return next;

  "check" := 'open alerts';
  value := (select count(*)::text from taskq.alert a where a.cleared_at is null and a.acknowledged_at is null);
  "limit" := '0';
  ok := value = '0';
  advice := case when not ok then 'See taskq.alerts and taskq.dead_letters; redrive, purge or acknowledge.' end;
  return next;
end
$$;

create function taskq._fold_error(error text) returns text
  language c immutable parallel safe
  as 'MODULE_PATHNAME', 'taskq_fold_error';

comment on function taskq._fold_error(text) is
  'An error''s text without what differs from task to task: numbers and ids become #, spaces are one, 200 characters are kept. Status codes (HTTP 503, 550 at the beginning) stay.';

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

create function taskq._said(at timestamptz) returns text
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(to_char(_said.at, 'YYYY-MM-DD HH24:MI:SSOF'), '?')
$$;

comment on function taskq._said(timestamptz) is 'A moment to the second, in the time zone of the session.';

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

comment on type taskq._finding is 'A row of diagnose; place is its place in the order of causes.';

comment on type taskq._comparison is 'What a queue and task type did in the last 12 samples and in the 1,080 before them.';

create function taskq._now_span() returns interval
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select greatest(interval '5 seconds', current_setting('taskq.sample_interval')::interval * 12)
$$;

comment on function taskq._now_span() is 'How long "now" is for diagnose: 12 samples.';

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

create view taskq.overview as
  with clock as materialized (
    select taskq._view_time() as at
  ), lately as materialized (
    select s.queue, pg_catalog.sum(s.enqueued) as enqueued, pg_catalog.sum(s.succeeded) as succeeded, pg_catalog.sum(s.failed) as failed,
           pg_catalog.sum(s.started) as started, pg_catalog.max(s.waiting_p95) as waiting, pg_catalog.max(s.run_p50) as run, pg_catalog.max(s.claimers) as claimers,
           -- a sample has a row for each type; its time counts once
           greatest(60, pg_catalog.sum(s.seconds) filter (where s.is_first)) as seconds
      from clock
      join (select x.*, pg_catalog.row_number() over (partition by x.at, x.queue order by x.task_type) operator(pg_catalog.=) 1 as is_first
              from taskq.sample x, clock c
             where x.at operator(pg_catalog.>) (c.at operator(pg_catalog.-) '1 minute'::interval) and x.at operator(pg_catalog.<=) c.at) s on true
     group by s.queue
  )
  select q.queue, q.ready,
         pg_catalog.date_trunc('second', q.oldest_ready_age) as oldest,
         q.running, q.scheduled as later, q.blocked, q.dead,
         pg_catalog.round((l.enqueued operator(pg_catalog./) l.seconds)::numeric, 1) as in_s,
         pg_catalog.round((l.succeeded operator(pg_catalog./) l.seconds)::numeric, 1) as done_s,
         pg_catalog.round((100 operator(pg_catalog.*) l.failed operator(pg_catalog./) nullif(l.succeeded operator(pg_catalog.+) l.failed, 0))::numeric) as fail_pct,
         pg_catalog.round(l.waiting::numeric, 1) as wait_s,
         pg_catalog.round(l.run::numeric, 2) as run_s,
         l.claimers as workers,
         case when q.ready operator(pg_catalog.>) 0 and l.started operator(pg_catalog.>) l.enqueued
              then pg_catalog.date_trunc('second', pg_catalog.make_interval(secs => (q.ready operator(pg_catalog.*) l.seconds operator(pg_catalog./) (l.started operator(pg_catalog.-) l.enqueued))::double precision)) end as empty_in,
         pg_catalog.concat_ws(', ', case when q.paused_at is not null then 'paused' end,
                              case when q.max_running is not null and q.running operator(pg_catalog.>=) q.max_running then 'limit full' end,
                              a.kinds) as note
    from taskq.queues q
    left join lately l on l.queue operator(pg_catalog.=) q.queue
    left join lateral (
      select pg_catalog.string_agg('alert '::text operator(pg_catalog.||) x.kind, ', ' order by x.kind) as kinds
        from taskq.alert x where x.queue operator(pg_catalog.=) q.queue and x.cleared_at is null and x.acknowledged_at is null) a on true
   order by q.oldest_ready_age desc nulls last, q.dead desc, q.queue;

comment on view taskq.overview is 'One screen for psql: each queue, how it stands and what it did in the last minute. Use it with \watch; for what is wrong and why see diagnose.';

comment on column taskq.overview.queue is 'The queue.';

comment on column taskq.overview.ready is 'Tasks that are due and wait for a worker.';

comment on column taskq.overview.oldest is 'How long its oldest ready task has been due.';

comment on column taskq.overview.later is 'Tasks that are due later, retries included.';

comment on column taskq.overview.running is 'Tasks that a worker holds.';

comment on column taskq.overview.blocked is 'Tasks that are due and were put aside, because another one of their group runs.';

comment on column taskq.overview.dead is 'Dead letters.';

comment on column taskq.overview.in_s is 'Tasks that arrived, a second, in the last minute.';

comment on column taskq.overview.done_s is 'Tasks that succeeded, a second.';

comment on column taskq.overview.fail_pct is 'How many of a hundred runs failed.';

comment on column taskq.overview.wait_s is 'Seconds that tasks waited from due to claimed, the 95th percentile.';

comment on column taskq.overview.run_s is 'Seconds that they ran, the median (of the slowest type).';

comment on column taskq.overview.workers is 'Workers that asked for its tasks.';

comment on column taskq.overview.empty_in is 'When nothing is ready any more, if it goes on like that; empty: never.';

comment on column taskq.overview.note is 'paused, limit full, and alerts that nobody has acknowledged.';

create function taskq._metrics_tasks()
  returns table (
    queue text, task_type text,
    ready_tasks bigint, scheduled_tasks bigint, running_tasks bigint, blocked_tasks bigint, dead_letters bigint,
    enqueued_total bigint, started_total bigint, succeeded_total bigint, failed_total bigint,
    died_total bigint, expired_total bigint, cancelled_total bigint,
    waiting_seconds double precision[], waiting_seconds_bucket bigint[], waiting_seconds_sum double precision, waiting_seconds_count bigint,
    run_seconds double precision[], run_seconds_bucket bigint[], run_seconds_sum double precision, run_seconds_count bigint,
    turnaround_seconds double precision[], turnaround_seconds_bucket bigint[], turnaround_seconds_sum double precision, turnaround_seconds_count bigint)
  language sql volatile security definer rows 200
  set search_path = pg_catalog, pg_temp set jit = off as $$
  with kept as materialized (
    select exists (select from taskq._figures_kept()) as figures
  ), figure as materialized (
    select f.* from taskq._figures_for_metrics() f
  ), standing as materialized (
    select f.queue, f.task_type, f.ready, f.scheduled, f.running, f.blocked from figure f where (select k.figures from kept k)
    union all
    -- nobody keeps them: they are counted, which takes its time with very many tasks
    select t.queue, t.task_type,
           count(*) filter (where t.state = 'waiting' and t.run_at <= c.now),
           count(*) filter (where t.state = 'waiting' and t.run_at > c.now and t.run_at < 'infinity'),
           count(*) filter (where t.state = 'running'),
           count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity')
      from taskq.task t cross join (select taskq._view_time() as now offset 0) c
     where not (select k.figures from kept k)
     group by t.queue, t.task_type
  ), dead as materialized (
    select d.queue, d.task_type, count(*) as letters from taskq.dead_letter d group by d.queue, d.task_type
  ), pair as (
    select p.queue, p.task_type, f.made_at, min(f.made_at) over (partition by p.queue) as queue_made_at
      from (select s.queue, s.task_type from standing s
            union select f.queue, f.task_type from figure f
            union select d.queue, d.task_type from dead d) p
      left join figure f on f.queue = p.queue and f.task_type = p.task_type
     where not starts_with(p.queue, 'taskq.')  -- the extension's own, as in history
  ), in_order as (
    select p.queue, p.task_type, p.made_at,
           dense_rank() over (order by p.queue_made_at nulls last, p.queue) <= 100 as queue_is_shown
      from pair p
  ), placed as (
    select o.queue, o.task_type, o.queue_is_shown,
           row_number() over (order by not o.queue_is_shown, o.made_at nulls last, o.queue, o.task_type) <= 200 as is_shown
      from in_order o
  ), labelled as materialized (
    select case when p.queue_is_shown then p.queue else 'other' end as queue_label,
           case when p.queue_is_shown and p.is_shown then p.task_type else 'other' end as type_label,
           s.ready, s.scheduled, s.running, s.blocked, d.letters,
           f.enqueued, f.started, f.succeeded, f.failed, f.dead, f.expired, f.cancelled, f.bounds,
           f.waiting_buckets, f.waiting_sum, f.waiting_count, f.run_buckets, f.run_sum, f.run_count,
           f.total_buckets, f.total_sum, f.total_count
      from placed p
      left join standing s on s.queue = p.queue and s.task_type = p.task_type
      left join dead d on d.queue = p.queue and d.task_type = p.task_type
      left join figure f on f.queue = p.queue and f.task_type = p.task_type
  ), bucket as (
    select l.queue_label, l.type_label, u.nth,
           sum(u.waiting)::bigint as waiting, sum(u.run)::bigint as run, sum(u.total)::bigint as total
      from labelled l
     cross join lateral unnest(l.waiting_buckets, l.run_buckets, l.total_buckets) with ordinality u(waiting, run, total, nth)
     group by l.queue_label, l.type_label, u.nth
  ), buckets as (
    select b.queue_label, b.type_label, array_agg(b.waiting order by b.nth) as waiting,
           array_agg(b.run order by b.nth) as run, array_agg(b.total order by b.nth) as total
      from bucket b group by b.queue_label, b.type_label
  ), summed as (
    select l.queue_label, l.type_label,
           coalesce(sum(l.ready), 0)::bigint as ready, coalesce(sum(l.scheduled), 0)::bigint as scheduled,
           coalesce(sum(l.running), 0)::bigint as running, coalesce(sum(l.blocked), 0)::bigint as blocked,
           coalesce(sum(l.letters), 0)::bigint as letters,
           sum(l.enqueued)::bigint as enqueued, sum(l.started)::bigint as started, sum(l.succeeded)::bigint as succeeded,
           sum(l.failed)::bigint as failed, sum(l.dead)::bigint as dead, sum(l.expired)::bigint as expired,
           sum(l.cancelled)::bigint as cancelled, min(l.bounds) as bounds,
           sum(l.waiting_sum) as waiting_sum, sum(l.waiting_count)::bigint as waiting_count,
           sum(l.run_sum) as run_sum, sum(l.run_count)::bigint as run_count,
           sum(l.total_sum) as total_sum, sum(l.total_count)::bigint as total_count
      from labelled l group by l.queue_label, l.type_label
  )
  select s.queue_label, s.type_label, s.ready, s.scheduled, s.running, s.blocked, s.letters,
         s.enqueued, s.started, s.succeeded, s.failed, s.dead, s.expired, s.cancelled,
         s.bounds, b.waiting, s.waiting_sum, s.waiting_count,
         s.bounds, b.run, s.run_sum, s.run_count,
         s.bounds, b.total, s.total_sum, s.total_count
    from summed s
    left join buckets b on b.queue_label = s.queue_label and b.type_label = s.type_label
   order by s.queue_label collate "C", s.type_label collate "C"
$$;

comment on function taskq._metrics_tasks() is
  'For monitoring, of each queue and task type: what is there, and since the server started what happened and how long it took. The columns _total and _seconds are NULL where the library is not preloaded.';

create function taskq._metrics_queues()
  returns table (queue text, oldest_ready_age_seconds double precision, paused integer, workers bigint)
  language sql volatile security definer rows 50
  set search_path = pg_catalog, pg_temp set jit = off as $$
  select q.name, coalesce(extract(epoch from c.now - o.run_at), 0)::double precision,
         (s.paused_at is not null)::integer,
         case when exists (select from taskq._figures_kept()) then
           (select count(*) from taskq._workers_seen() w
             where (w.waits or w.seen_at >= c.now - interval '30 seconds') and (w.queues is null or q.name = any (w.queues))) end
    from (select taskq._view_time() as now offset 0) c
   cross join (select n.name, row_number() over (order by n.name collate "C") as nth from taskq._queue_names n
                where not starts_with(n.name, 'taskq.')) q
    left join taskq.queue s on s.name = q.name
    left join taskq._oldest_ready o on o.queue = q.name
   where q.nth <= 100
   order by q.name collate "C"
$$;

comment on function taskq._metrics_queues() is
  'For monitoring, of each queue (the first 100 by name): the age of its oldest ready task, whether it is paused, and how many workers asked for its tasks in the last 30 seconds, or wait for them (NULL without a keeper).';

create function taskq._metrics_alerts()
  returns table (kind text, queue text, open bigint, acknowledged bigint)
  language sql stable security definer rows 10
  set search_path = pg_catalog, pg_temp as $$
  select a.kind, coalesce(a.queue, ''), count(*) filter (where a.acknowledged_at is null),
         count(*) filter (where a.acknowledged_at is not null)
    from taskq.alert a where a.cleared_at is null
   group by a.kind, a.queue order by a.kind, a.queue collate "C" limit 500
$$;

comment on function taskq._metrics_alerts() is
  'For monitoring: the alerts that are not cleared, by kind and queue (empty: the database).';

create function taskq._metrics_duties()
  returns table (duty text, last_success_timestamp_seconds double precision, failing integer)
  language sql stable security definer rows 10
  set search_path = pg_catalog, pg_temp as $$
  select d.name, coalesce(extract(epoch from d.finished_at), 0)::double precision, (d.error is not null)::integer
    from taskq.duty d order by d.name
$$;

comment on function taskq._metrics_duties() is
  'For monitoring: when the last round of each duty of the keeper went well (0: never), and whether the last one failed.';

create function taskq._metrics_database()
  returns table (version text, keeper_running integer, counts_exact integer, vacuum_held_seconds double precision)
  language sql volatile security definer rows 1
  set search_path = pg_catalog, pg_temp as $$
  select e.extversion,
         exists (select from pg_stat_activity a
                  where a.backend_type = 'taskq keeper' and a.datname = current_database())::integer,
         coalesce((select k.exact from taskq._figures_kept() k), true)::integer,
         coalesce((select greatest(extract(epoch from clock_timestamp() - h.since), 0)
                     from taskq._vacuum_holders() h where h.since is not null limit 1), 0)::double precision
    from pg_extension e where e.extname = 'taskq'
$$;

comment on function taskq._metrics_database() is
  'For monitoring: the version, whether a keeper is at work, whether the counts are exact, and for how long something has held back vacuum.';

create function taskq.metrics() returns text
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_metrics';

comment on function taskq.metrics is
  'Figures of queues, task types, alerts and the keeper in the text format of Prometheus.';

create function taskq._board_curve(since timestamptz, until timestamptz, steps integer, by_queue boolean)
  returns table (at timestamptz, queue text, ready bigint, is_known boolean)
  language sql stable security definer rows 1000
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  with step as materialized (
    select _board_curve.since + (_board_curve.until - _board_curve.since) * (n - 1) / _board_curve.steps as begins_at,
           _board_curve.since + (_board_curve.until - _board_curve.since) * n / _board_curve.steps as ends_at
      from generate_series(1, _board_curve.steps) n
  ), moment as materialized (
    select s.begins_at, s.ends_at, last.at
      from step s
      left join lateral (
        select x.at from taskq.sample x where x.at > s.begins_at and x.at <= s.ends_at order by x.at desc limit 1) last on true
  )
  select m.ends_at, x.queue, x.ready, true
    from moment m
   cross join lateral (
     select y.queue, sum(y.ready)::bigint as ready from taskq.sample y where y.at = m.at group by y.queue) x
   where m.at is not null and _board_curve.by_queue
  union all
  select m.ends_at, null, (select sum(y.ready)::bigint from taskq.sample y where y.at = m.at), true
    from moment m
   where m.at is not null and not _board_curve.by_queue
  union all
  select m.ends_at, null, 0,
         exists (select from taskq.sample x where x.at <= m.begins_at)
         and coalesce(
           (select n.at - make_interval(secs => n.seconds) > m.begins_at  -- a sample says how far back it counts
                   and not (m.ends_at <= pg_postmaster_start_time() and n.at > pg_postmaster_start_time())
              from (select x.at, x.seconds from taskq.sample x where x.at > m.ends_at order by x.at limit 1) n),
           (select d.counted_until > m.begins_at from taskq.duty d where d.name = 'sample'))
    from moment m
   where m.at is null
$$;

comment on function taskq._board_curve(timestamptz, timestamptz, integer, boolean) is
  'How many tasks of each queue, or in all, were ready at so many moments in that time. A moment without tasks has one row without a queue, which says whether that is known.';

create function taskq._board_pairs(since timestamptz)
  returns table (queue text, task_type text, enqueued double precision, started double precision, succeeded double precision,
                 failed double precision, ended double precision,
                 waiting_p50 double precision, waiting_p95 double precision, run_p50 double precision, run_p95 double precision)
  language sql stable security definer rows 100
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  select s.queue, s.task_type, sum(s.enqueued), sum(s.started), sum(s.succeeded), sum(s.failed),
         sum(s.succeeded + s.dead + s.cancelled),
         sum(s.waiting_p50 * s.started) / nullif(sum(s.started), 0),
         sum(s.waiting_p95 * s.started) / nullif(sum(s.started), 0),
         sum(s.run_p50 * s.succeeded) / nullif(sum(s.succeeded), 0),
         sum(s.run_p95 * s.succeeded) / nullif(sum(s.succeeded), 0)
    from taskq.sample s
   where s.at > _board_pairs.since
   group by s.queue, s.task_type
$$;

comment on function taskq._board_pairs(timestamptz) is
  'What each queue and task type did since that moment, by the samples.';

create function taskq._board_start_rates(now timestamptz)
  returns table (queue text, rate double precision)
  language sql stable security definer rows 50
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashagg = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  -- (in the order of the primary key, so that nothing is sorted that is large)
  with moment as materialized (
    select s.queue, s.at, max(s.seconds) as seconds,
           sum(s.started)::double precision as started, sum(s.ready)::double precision as ready
      from taskq.sample s
     where s.at > _board_start_rates.now - interval '15 minutes' and s.at <= _board_start_rates.now
     group by s.at, s.queue
  ), worked as (
    select m.queue, m.started, m.seconds,
           lag(m.ready) over w >= greatest(m.started, 1)
           and lag(m.at) over w > m.at - make_interval(secs => m.seconds * 1.5) as backlog
      from moment m
     where m.ready > 0 or m.started > 0
    window w as (partition by m.queue order by m.at)
  )
  select w.queue, nullif(coalesce(sum(w.started) filter (where w.backlog) / sum(w.seconds) filter (where w.backlog),
                                  sum(w.started) / sum(w.seconds)), 0)
    from worked w
   group by w.queue
$$;

comment on function taskq._board_start_rates(timestamptz) is
  'How many tasks a second the workers take from each queue while it has a backlog, by the samples of the last 15 minutes.';

create function taskq._board_running(now timestamptz)
  returns table (id bigint, queue text, task_type text, worker text, claimed_at timestamptz, lease_expires_at timestamptz,
                 attempt integer, cancel_requested boolean)
  language sql volatile security definer rows 100
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
  with recursive lane(queue, priority) as (
    (select t.queue, t.priority from taskq.task t order by t.queue, t.priority desc, t.run_at, t.id limit 1)
    union all
    select n.queue, n.priority
      from lane l
     cross join lateral (
       (select t.queue, t.priority from taskq.task t
         where t.queue = l.queue and t.priority < l.priority
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       union all
       (select t.queue, t.priority from taskq.task t
         where t.queue > l.queue
         order by t.queue, t.priority desc, t.run_at, t.id limit 1)
       limit 1) n
  ), known as materialized (
    select f.queue, sum(f.running)::bigint as running from taskq._figures() f group by f.queue
  ), walked as materialized (
    -- without figures nobody knows where any run: everywhere they may
    select l.queue, l.priority, least(coalesce(k.running, 500), 500) as at_most, count(*) over () as lanes
      from lane l
      left join known k on k.queue = l.queue
     where k.running > 0 or not exists (select from taskq._figures_kept())
  )
  select r.id, r.queue, r.task_type, r.worker, r.claimed_at, r.lease_expires_at, r.attempt, r.cancel_requested_at is not null
    from walked w
   cross join lateral (
     select h.* from (
       select t.* from taskq.task t
        where t.queue = w.queue and t.priority = w.priority and t.run_at <= _board_running.now
        order by t.queue, t.priority desc, t.run_at, t.id
        limit greatest(20000 / w.lanes, 100)) h
      where h.state = 'running'
      limit w.at_most) r
   limit 1000
$$;

comment on function taskq._board_running(timestamptz) is
  'Running tasks, 1,000 at most, as far as a bounded search finds them.';

create function taskq._board() returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_now      timestamptz := taskq._view_time();
  v_window   interval := '15 minutes';
  v_hour     json;
  v_day      json;
  v_pairs    json;
  v_running  json;
  v_alerts   json;
  v_errors   json;
  v_queues   record;
  v_dead     record;
  v_workers  record;
begin
  select coalesce(json_agg(p), '[]') into v_pairs from taskq._board_pairs(v_now - v_window) p;
  select coalesce(json_agg(r), '[]') into v_running
    from (select x.id, x.queue, x.task_type, x.worker, x.attempt, x.cancel_requested,
                 extract(epoch from v_now - x.claimed_at) as running_for,
                 extract(epoch from x.lease_expires_at - v_now) as lease_left
            from taskq._board_running(v_now) x) r;
  select coalesce(json_agg(json_build_array(extract(epoch from c.at), c.queue, case when c.is_known then c.ready end) order by c.at), '[]') into v_hour
    from taskq._board_curve(v_now - interval '1 hour', v_now, 60, true) c;
  select coalesce(json_agg(json_build_array(extract(epoch from c.at), case when c.is_known then c.ready end) order by c.at), '[]') into v_day
    from taskq._board_curve(v_now - interval '1 day', v_now, 96, false) c;
  select coalesce(json_agg(json_build_object(
           'id', a.id, 'kind', a.kind, 'queue', a.queue, 'value', a.value,
           'limit', a.alert_limit, 'detail', a.detail, 'acknowledged_by', a.acknowledged_by,
           'age', extract(epoch from v_now - a.raised_at)) order by a.acknowledged_at is not null, a.raised_at), '[]') into v_alerts
    from (select x.* from taskq.alert x where x.cleared_at is null
           order by x.acknowledged_at is not null, x.raised_at limit 30) a;
  select coalesce(json_agg(json_build_object(
           'queue', f.queue, 'task_type', f.task_type, 'error', f.error, 'tasks', f.count,
           'runs', f.attempts, 'dead', f.dead, 'first', extract(epoch from v_now - f.first_seen_at),
           'last', extract(epoch from v_now - f.last_seen_at), 'id', f.sample_id)), '[]') into v_errors
    from (select x.* from taskq._failures(null, 2000) x order by x.attempts desc, x.last_seen_at desc limit 12) f;

  with queue as materialized (
    select q.queue, q.ready, q.scheduled, q.running, q.blocked, q.dead, extract(epoch from q.oldest_ready_age) as oldest,
           extract(epoch from v_now - q.paused_at) as paused_for, q.paused_by,
           r.rate as start_rate,
           row_number() over (order by q.oldest_ready_age desc nulls last, q.ready desc, q.queue collate "C") as nth
      from taskq.queues q
      left join taskq._board_start_rates(v_now) r on r.queue = q.queue
  )
  select coalesce(json_agg(q order by q.nth) filter (where q.nth <= 100), '[]') as shown, count(*) as in_all,
         json_build_object('ready', coalesce(sum(q.ready), 0), 'scheduled', coalesce(sum(q.scheduled), 0),
                           'running', coalesce(sum(q.running), 0), 'blocked', coalesce(sum(q.blocked), 0),
                           'dead', coalesce(sum(q.dead), 0), 'oldest', max(q.oldest)) as totals
    into v_queues
    from queue q;

  with letters as (
    select d.queue, d.task_type, count(*) as letters, max(d.died_at) as died_at, max(d.id) as newest,
           row_number() over (order by count(*) desc, d.queue collate "C", d.task_type collate "C") as nth
      from taskq.dead_letter d group by d.queue, d.task_type
  )
  select coalesce(json_agg(json_build_object(
           'queue', l.queue, 'task_type', l.task_type, 'letters', l.letters,
           'age', extract(epoch from v_now - l.died_at),
           'error', (select left(taskq._last_error(x.errors), 500) from taskq.dead_letter x where x.id = l.newest),
           'redrive', format('select * from taskq.redrive(queue => %L, task_type => %L);', l.queue, l.task_type))
           order by l.nth) filter (where l.nth <= 20), '[]') as shown,
         count(*) as in_all
    into v_dead
    from letters l;

  with worker as (
    select w.worker, w.queues, w.claims, w.claimed, extract(epoch from v_now - w.seen_at) as seen,
           extract(epoch from v_now - w.claimed_at) as last_got,
           row_number() over (order by w.seen_at desc, w.worker collate "C") as nth
      from taskq._workers_seen() w
  )
  select coalesce(json_agg(w order by w.nth) filter (where w.nth <= 40), '[]') as shown, count(*) as in_all
    into v_workers
    from worker w;

  return json_build_object(
    'database', current_database(),
    'version', (select e.extversion from pg_extension e where e.extname = 'taskq'),
    'at_text', to_char(v_now at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
    -- the rates are those of so many seconds: less where the samples begin later
    'window', coalesce((select extract(epoch from least(v_window, v_now - (s.at - make_interval(secs => s.seconds))))
                          from (select x.at, x.seconds from taskq.sample x order by x.at limit 1) s
                         where s.at > v_now - v_window), extract(epoch from v_window)),
    'exact', coalesce((select k.exact from taskq._figures_kept() k), true),
    'hour', v_hour,
    'day', v_day,
    'pairs', v_pairs,
    'running', v_running,
    'running_in_all', (select sum(f.running)::bigint from taskq._figures() f where exists (select from taskq._figures_kept())),
    'health', (select json_agg(json_build_object('check', h."check", 'ok', h.ok, 'value', h.value, 'limit', h."limit", 'advice', h.advice))
                 from taskq.health() h),
    'alerts', v_alerts,
    'alerts_in_all', (select count(*) from taskq.alert a where a.cleared_at is null),
    'errors', v_errors,
    'duties', (select coalesce(json_agg(json_build_object('duty', d.name, 'every', extract(epoch from d.every), 'error', d.error,
                        'rows', d.rows, 'age', extract(epoch from clock_timestamp() - d.finished_at)) order by d.name), '[]')
                 from taskq.duty d),
    'queues', v_queues.shown,
    'queues_in_all', v_queues.in_all,
    'totals', v_queues.totals,
    'dead', v_dead.shown,
    'dead_in_all', v_dead.in_all,
    'workers', v_workers.shown,
    'workers_in_all', v_workers.in_all)::text;
end
$$;

comment on function taskq._board() is
  'Everything that the board shows, as one object in JSON. For dashboard.';

create function taskq.dashboard() returns text
  language c volatile security definer set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_dashboard';

comment on function taskq.dashboard is
  'The board: one self-contained HTML page about health, queues, types, errors, dead letters, running tasks, workers and the keeper.';

create or replace function taskq._parts()
  returns table (part text, kind text, object text)
  language sql immutable rows 60 set search_path = pg_catalog, pg_temp as $$
  values
    ('producer', 'function', 'taskq.enqueue'),
    ('producer', 'function', 'taskq.enqueue_many'),
    ('producer', 'function', 'taskq.status'),
    ('producer', 'function', 'taskq.estimate'),
    ('producer', 'function', 'taskq.cancel'),
    ('worker',   'function', 'taskq.claim'),
    ('worker',   'procedure', 'taskq.wait'),
    ('worker',   'function', 'taskq._claimable'),
    ('worker',   'function', 'taskq.extend'),
    ('worker',   'function', 'taskq.release'),
    ('worker',   'function', 'taskq.complete'),
    ('worker',   'function', 'taskq.complete_many'),
    ('worker',   'function', 'taskq.fail'),
    ('worker',   'function', 'taskq.fail_many'),
    ('worker',   'function', 'taskq.once'),
    ('worker',   'function', 'taskq.status'),
    ('worker',   'function', 'taskq.estimate'),
    ('operator', 'function', 'taskq.configure_queue'),
    ('operator', 'function', 'taskq.configure_type'),
    ('operator', 'function', 'taskq.pause'),
    ('operator', 'function', 'taskq.resume'),
    ('operator', 'function', 'taskq.cancel'),
    ('operator', 'function', 'taskq.redrive'),
    ('operator', 'function', 'taskq.purge'),
    ('operator', 'function', 'taskq.acknowledge'),
    ('operator', 'function', 'taskq.drill'),
    ('operator', 'function', 'taskq.schedule'),
    ('operator', 'function', 'taskq.unschedule'),
    ('operator', 'procedure', 'taskq.maintain'),
    ('operator', 'function', 'taskq._run_duty'),
    ('operator', 'part',     'reader'),
    ('reader',   'function', 'taskq.status'),
    ('reader',   'function', 'taskq.estimate'),
    ('reader',   'function', 'taskq.health'),
    ('reader',   'function', 'taskq.why'),
    ('reader',   'function', 'taskq.diagnose'),
    ('reader',   'function', 'taskq.metrics'),
    ('reader',   'function', 'taskq.dashboard'),
    ('reader',   'view',     'taskq.queues'),
    ('reader',   'view',     'taskq.task_types'),
    ('reader',   'view',     'taskq.tasks'),
    ('reader',   'view',     'taskq.running'),
    ('reader',   'view',     'taskq.finished'),
    ('reader',   'view',     'taskq.dead_letters'),
    ('reader',   'view',     'taskq.workers'),
    ('reader',   'view',     'taskq.history'),
    ('reader',   'view',     'taskq.alerts'),
    ('reader',   'view',     'taskq.duties'),
    ('reader',   'view',     'taskq.schedules'),
    ('reader',   'view',     'taskq.failures'),
    ('reader',   'view',     'taskq.overview'),
    -- the exporter's queries
    ('reader',   'function', 'taskq._metrics_tasks'),
    ('reader',   'function', 'taskq._metrics_queues'),
    ('reader',   'function', 'taskq._metrics_alerts'),
    ('reader',   'function', 'taskq._metrics_duties'),
    ('reader',   'function', 'taskq._metrics_database'),
    -- functions in a view are called with the rights of the one who looks
    ('reader',   'function', 'taskq._view_time'),
    ('reader',   'function', 'taskq._count_tasks'),
    ('reader',   'function', 'taskq._figures'),
    ('reader',   'function', 'taskq._figures_kept'),
    ('reader',   'function', 'taskq._workers_seen'),
    ('reader',   'function', 'taskq._displayed_state'),
    ('reader',   'function', 'taskq._local_time'),
    ('reader',   'function', 'taskq._last_error'),
    ('reader',   'function', 'taskq._failures'),
    ('reader',   'function', 'taskq._default_lease'),
    ('reader',   'function', 'taskq._default_retention'),
    ('reader',   'function', 'taskq._default_dead_letters_limit'),
    ('reader',   'function', 'taskq._default_oldest_ready_limit'),
    ('reader',   'function', 'taskq._default_expired_leases_limit'),
    ('reader',   'function', 'taskq._default_unclaimed_limit')
$$;

create or replace function taskq._grant_part(part text, role regrole) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_object record;
begin
  if _grant_part.role is null then
    perform taskq._refuse('22023', 'role must not be null', 'Name an existing role, as in ''app''::regrole.');
  end if;
  perform taskq._wait_lock('grant');  -- two that change the same rights at once would fail
  execute format('grant usage on schema taskq to %s', _grant_part.role);
  for v_object in select p.kind, p.object from taskq._parts() p where p.part = _grant_part.part loop
    case v_object.kind
      when 'part' then perform taskq._grant_part(v_object.object, _grant_part.role);
      when 'view' then execute format('grant select on %s to %s', v_object.object, _grant_part.role);
      -- names are unique: one function a verb, no overloads
      else execute format('grant execute on %s %s to %s', v_object.kind, v_object.object, _grant_part.role);
    end case;
  end loop;
  insert into taskq.granted_part (part, role)
  select _grant_part.part, r.rolname from pg_roles r where r.oid = _grant_part.role
      on conflict do nothing;
end
$$;

comment on function taskq.grant_reader is
  'Lets a role read the views, payloads and errors included, and call status, estimate, why, diagnose, health, metrics and dashboard.';

create function taskq._close_types(members_only boolean) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_type  oid;
  v_count bigint := 0;
begin
  for v_type in
    select t.oid from pg_type t
     where t.typnamespace = 'taskq'::regnamespace and t.typcategory <> 'A'
       and exists (select from aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
                    where a.grantee = 0 or _close_types.members_only and a.grantee <> t.typowner)
       and pg_has_role(current_user, t.typowner, 'usage')
       and (not _close_types.members_only
            or exists (select from pg_depend d
                        where d.deptype = 'e' and d.refclassid = 'pg_extension'::regclass
                          and (d.classid, d.objid) in (('pg_type'::regclass, t.oid), ('pg_class'::regclass, t.typrelid))))
  loop
    execute format('revoke all on type %s from %s', v_type::regtype, taskq._others());
    v_count := v_count + 1;
  end loop;
  return v_count;
end
$$;

comment on function taskq._close_types(boolean) is
  'Closes the types of all tables, views and functions to PUBLIC, and to whom default privileges name.';

create function taskq._rights_missing()
  returns table (part text, role name)
  language sql stable rows 10 set search_path = pg_catalog, pg_temp as $$
  select g.part, r.rolname
    from taskq.granted_part g
    join pg_roles r on r.rolname = g.role
   where exists (select from taskq._parts() p
                  where (p.part = g.part or p.part in (select i.object from taskq._parts() i where i.part = g.part and i.kind = 'part'))
                    and case p.kind when 'part' then false
                                    when 'view' then not has_table_privilege(r.oid, to_regclass(p.object)::oid, 'select')
                                    else not has_function_privilege(r.oid, to_regproc(p.object)::oid, 'execute') end)
   order by g.part, r.rolname
$$;

comment on function taskq._rights_missing() is
  'Roles that lack something of a part that they were granted.';

create function taskq._give_to_owner() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_command text;
begin
  for v_command in
    select format('alter %s %s owner to %s', o.type, o.identity, e.extowner::regrole)
      from pg_extension e
      join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
      join (select 'pg_proc'::regclass as classid, p.oid, p.proowner as owner from pg_proc p
            union all select 'pg_class'::regclass, c.oid, c.relowner from pg_class c where c.relkind in ('r', 'p', 'v', 'S')
            -- (Since 18 the types of arrays and of tables' rows are members, too. They follow.)
            union all select 'pg_type'::regclass, t.oid, t.typowner from pg_type t
                       where t.typcategory <> 'A'
                         and not exists (select from pg_class c where c.oid = t.typrelid and c.relkind <> 'c')) m
        on m.classid = d.classid and m.oid = d.objid and m.owner <> e.extowner
     cross join pg_identify_object(d.classid, d.objid, 0) o
     where e.extname = 'taskq'
     order by d.classid, d.objid
  loop
    execute v_command;
  end loop;
end
$$;

comment on function taskq._give_to_owner() is
  'Gives what an upgrade has made to the owner of the extension.';

create function taskq._grant_again() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform taskq._close_types(members_only => true);
  perform taskq._grant_part(g.part, r.oid::regrole)
     from taskq.granted_part g
     join pg_roles r on r.rolname = g.role
    order by g.part, g.role;
  -- What a script grants, PostgreSQL takes for a part of the extension, which pg_dump leaves out. These
  -- are the grants of this database, and a dump must have them.
  update pg_init_privs i
     set initprivs = array(select a.item
                             from unnest(i.initprivs) with ordinality a(item, ord)
                            where exists (select from aclexplode(array[a.item]) p where p.grantee in (0, p.grantor))
                            order by a.ord)
   where i.privtype = 'e'
     and (i.classoid = 'pg_namespace'::regclass and i.objoid = 'taskq'::regnamespace
          or exists (select from pg_depend d
                      where d.classid = i.classoid and d.objid = i.objoid and d.deptype = 'e'
                        and d.refclassid = 'pg_extension'::regclass
                        and d.refobjid = (select e.oid from pg_extension e where e.extname = 'taskq')))
     and exists (select from aclexplode(i.initprivs) p where p.grantee not in (0, p.grantor));
end
$$;

comment on function taskq._grant_again() is
  'Ends an upgrade: grants every role of granted_part its parts again.';

select taskq._give_to_owner();

do $$
declare
  v_object text;
begin
  foreach v_object in array array[
    'table taskq.load',
    'function taskq._others()',
    'function taskq._try_lock(text, integer)',
    'function taskq._wait_lock(text, integer)',
    'function taskq._try_turn_lock(text, text)',
    'function taskq._session_named(integer)',
    'function taskq._top_transaction(bigint)',
    'function taskq._prepared_locks()',
    'function taskq._lock_holders()',
    'function taskq._figures_for_metrics()',
    'function taskq._take_claims()',
    'function taskq._workers_seen()',
    'function taskq._finished_task(bigint)',
    'function taskq._check_filters(text, text)',
    'table taskq.workers',
    'function taskq._move_early(regclass, text, timestamptz, tstzrange)',
    'function taskq._sample_load(timestamptz, double precision)',
    'function taskq._ran_ahead(timestamptz)',
    'function taskq._half_restored()',
    'function taskq._preloaded()',
    'function taskq._excluded()',
    'function taskq._late_after(interval, boolean)',
    'function taskq._fold_error(text)',
    'function taskq._lanes(text)',
    'function taskq._failed_runs(text, integer)',
    'function taskq._failures(text, integer)',
    'table taskq.failures',
    'function taskq._running_tasks(text, integer)',
    'function taskq._claimers(text, timestamptz)',
    'function taskq._last_claim(text, timestamptz)',
    'function taskq._is_worked_on(text, timestamptz)',
    'function taskq._said(timestamptz)',
    'function taskq.why(bigint)',
    'function taskq._why_over(bigint)',
    'function taskq._why_running(taskq.task, timestamptz)',
    'function taskq._why_waiting(taskq.task, timestamptz)',
    'function taskq._now_span()',
    'function taskq._compare(text, timestamptz)',
    'function taskq._arrivals(text, timestamptz)',
    'function taskq._figure(double precision)',
    'function taskq._span(double precision)',
    'function taskq._usually(double precision, text)',
    'function taskq._plural(bigint, text, text)',
    'function taskq._listed(text[], integer)',
    'function taskq._stand(taskq.queues, taskq._comparison[], timestamptz)',
    'function taskq._find_workers(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._commonest_error(text, text, timestamptz)',
    'function taskq._find_failing(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._find_slow(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._find_arrivals(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._find_limits(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._largest_group(text)',
    'function taskq._first_ready(text, integer, timestamptz)',
    'function taskq._find_crowding(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._find_backlog(taskq._standing, taskq._comparison[], timestamptz)',
    'function taskq._find_keeper()',
    'function taskq._find_vacuum()',
    'function taskq._load_of(timestamptz, timestamptz)',
    'function taskq._claims_held_by()',
    'function taskq._find_load(timestamptz)',
    'function taskq._is_known(text)',
    'function taskq._findings(text)',
    'function taskq.diagnose(text)',
    'table taskq.overview',
    'function taskq._metrics_tasks()',
    'function taskq._metrics_queues()',
    'function taskq._metrics_alerts()',
    'function taskq._metrics_duties()',
    'function taskq._metrics_database()',
    'function taskq.metrics()',
    'function taskq._board_curve(timestamptz, timestamptz, integer, boolean)',
    'function taskq._board_pairs(timestamptz)',
    'function taskq._board_start_rates(timestamptz)',
    'function taskq._board_running(timestamptz)',
    'function taskq._board()',
    'function taskq.dashboard()',
    'function taskq._close_types(boolean)',
    'function taskq._rights_missing()',
    'function taskq._give_to_owner()',
    'function taskq._grant_again()'
  ] loop
    execute pg_catalog.format('revoke all on %s from %s', v_object, taskq._others());
  end loop;
end
$$;

-- Roles keep the parts they were granted, and get what was added to them.
select taskq._grant_again();

-- The keeper of the old version has left when its library went.
select taskq._start_keeper();
