-- taskq: the tables, and how a task travels through them
--
--   producer                     worker                          operator
--   --------                     ------                          --------
--   enqueue() --> [ task ] --claim()--> [ task, running ]
--                    ^                      |
--                    |                      +-- complete() ----------------> [ done ] --> [ archive ]
--                    |                      |                                   ^   retention over
--                    +-- fail(), release(), +                                   |
--                    |   lease over         +-- fail(), lease over: -- [ dead_letter ]
--                    |                          no retries left             |
--                    +------------------------------------------ redrive() -+
--
--   cancel() moves a waiting task to [ done ] with the state 'cancelled'; a
--   running one is asked to stop, and goes there when its lease ends.
--
-- A task is one row in exactly one of task, dead_letter, done and archive; every
-- move between them is a DELETE and an INSERT in one statement or transaction.
--
--      stored in task           shown as
--      --------------           --------
--      waiting, run_at later    scheduled      nothing promotes a task: the clock
--      waiting, run_at due      ready          alone makes a scheduled one ready
--      waiting, run_at infinity blocked        another task of its group runs (see parked)
--      running                  running
--
-- Order of claims: priority (higher first), run_at, id. The index task_ready_idx
-- keeps each lane (a queue and a priority) in that order, running tasks included,
-- so a claim changes no indexed column and is a heap-only update (HOT): no index
-- is written. The fillfactor leaves room on the page for the new versions, which are larger.
--
-- Lock order. Whatever waits for locks takes them in this order, so that nobody waits in a circle:
--   1. settings (queue, task_type, schedule), then claim_gate
--   2. rows of task, by rising id
--   3. rows of alert, then dead_letter, by rising id; finished ones: one purge at a time
--   4. what belongs to these tasks: slot and rate_token, group_turn, parked
--   5. unique_key by type and key, once_key
-- Outside of this order nobody waits: claim, recover, the keeper's duties, purge of waiting tasks, redrive
-- of dead letters, and the turn that goes to the next task of a group pass by rows that others have
-- locked. Freeing a key waits for nobody, as only the task that holds it does so. One step goes
-- back from 5 to 2: enqueue with on_conflict => 'replace' waits for the task that holds the key; who
-- ends that task asks for no key but that task's own. Two verbs in one transaction can
-- break the order all the same: 40P01, to be repeated.
--
-- Nobody but the extension's owner reads or writes these tables: the functions
-- are the way in (files enqueue, claim, finish ...), the views the way to look.

-- For the rest of the script: nobody's objects come before PostgreSQL's own. Everything of ours is named in full.
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

do $$
begin
  -- CREATE EXTENSION uses a schema that is already there. If another role owns
  -- it, that role could have laid objects in our way, or change ours later.
  if (select n.nspowner from pg_catalog.pg_namespace n where n.nspname operator(pg_catalog.=) 'taskq')
     operator(pg_catalog.<>) (select r.oid from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) current_user)
  then
    raise exception using
      errcode = '42501',
      message = 'schema taskq exists and belongs to another role',
      hint = 'Drop or rename that schema, or let its owner create the extension.';
  end if;
end
$$;

do $$
begin
  -- The same goes for who may create objects in it. (The owner of a schema may do so without a grant.)
  if exists (select from pg_catalog.pg_namespace n
              cross join lateral pg_catalog.aclexplode(n.nspacl) a
              where n.nspname operator(pg_catalog.=) 'taskq' and a.privilege_type operator(pg_catalog.=) 'CREATE'
                and a.grantee operator(pg_catalog.<>) n.nspowner)
  then
    raise exception using
      errcode = '42501',
      message = 'others may create objects in schema taskq',
      hint = 'Revoke that first: REVOKE CREATE ON SCHEMA taskq FROM ... (where ALTER DEFAULT PRIVILEGES gives it, create the schema before the extension).';
  end if;
  -- A function that is there already could be taken for one of ours.
  if exists (select from pg_catalog.pg_depend d
              where d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
                and d.refobjid operator(pg_catalog.=) 'taskq'::pg_catalog.regnamespace
                and d.classid operator(pg_catalog.=) any (array['pg_catalog.pg_class', 'pg_catalog.pg_proc', 'pg_catalog.pg_type', 'pg_catalog.pg_operator',
                                                                'pg_catalog.pg_collation', 'pg_catalog.pg_opclass', 'pg_catalog.pg_opfamily']::pg_catalog.regclass[]))
  then
    raise exception using
      errcode = '42710',
      message = 'schema taskq exists and is not empty',
      hint = 'Drop that schema, or what is in it.';
  end if;
end
$$;

comment on schema taskq is
  'Task queue. Producers call enqueue; workers claim, complete, fail; operators read the views and call configure_queue, redrive, purge.';

-- ---------------------------------------------------------------------------
-- defaults: one place for each value that a queue or a type may override
-- ---------------------------------------------------------------------------

create function taskq._default_lease() returns interval
  language sql immutable parallel safe
  return interval '5 minutes';
comment on function taskq._default_lease() is 'The lease where neither claim, type nor queue has one.';
create function taskq._default_retention() returns interval
  language sql immutable parallel safe
  return interval '30 days';
comment on function taskq._default_retention() is 'How long finished tasks stay in done if their queue does not say.';
create function taskq._default_dead_letters_limit() returns integer
  language sql immutable parallel safe
  return 3;
comment on function taskq._default_dead_letters_limit() is 'The alert dead_letters is raised above so many if the queue does not say.';
create function taskq._default_oldest_ready_limit() returns interval
  language sql immutable parallel safe
  return interval '1 hour';
comment on function taskq._default_oldest_ready_limit() is 'The alert oldest_ready is raised above this age if the queue does not say.';
create function taskq._default_expired_leases_limit() returns integer
  language sql immutable parallel safe
  return 10;
comment on function taskq._default_expired_leases_limit() is 'The alert expired_leases is raised above so many in 10 minutes if the queue does not say.';
create function taskq._default_unclaimed_limit() returns interval
  language sql immutable parallel safe
  return interval '5 minutes';
comment on function taskq._default_unclaimed_limit() is 'The alert unclaimed is raised above this age if the queue does not say.';

-- ---------------------------------------------------------------------------
-- settings of queues and types: a row only where something was configured
-- ---------------------------------------------------------------------------

create table taskq.queue (
  name                 text collate "C" primary key,
  lease                interval,
  retention            interval,
  dead_letters_limit   integer,
  oldest_ready_limit   interval,
  expired_leases_limit integer,
  unclaimed_limit      interval,
  max_running          integer,
  rate                 text collate "C",
  burst                integer,
  paused_at            timestamptz,
  paused_by            text,
  updated_at           timestamptz not null,
  constraint queue_pause check ((paused_at is null) = (paused_by is null))
);
comment on table taskq.queue is 'Settings of a queue, written by configure_queue, pause and resume. A queue without a row has the defaults; NULL means the default.';
comment on column taskq.queue.name is 'Name of the queue, 1 to 63 bytes.';
comment on column taskq.queue.lease is 'How long a claim holds a task of this queue, unless the claim or the task type says otherwise. Default 5 minutes.';
comment on column taskq.queue.retention is 'How long finished tasks stay in done before they are archived. Default 30 days; 0 keeps nothing.';
comment on column taskq.queue.dead_letters_limit is 'An alert is raised when the queue has more dead letters than this. Default 3.';
comment on column taskq.queue.max_running is 'No more tasks of the queue than this run at once. Default: no limit. See slot.';
comment on column taskq.queue.rate is 'No more tasks than this begin in a time, such as 100/minute. Default: no limit. See rate_token.';
comment on column taskq.queue.burst is 'How many of them may begin at once after a quiet time. Default: the number in the rate.';
comment on column taskq.queue.oldest_ready_limit is 'An alert is raised when the oldest ready task of the queue has been due for longer. Default 1 hour.';
comment on column taskq.queue.expired_leases_limit is 'An alert is raised when more leases of the queue than this ended in 10 minutes. Default 10.';
comment on column taskq.queue.unclaimed_limit is 'An alert is raised when a task has been ready for longer while nobody claims from the queue. Default 5 minutes.';
comment on column taskq.queue.paused_at is 'Since when nothing is claimed from the queue; NULL when it is open.';
comment on column taskq.queue.paused_by is 'The role that paused the queue.';
comment on column taskq.queue.updated_at is 'When a setting was last changed.';

create table taskq.task_type (
  name           text collate "C" primary key,
  queue          text collate "C",
  priority       integer,
  max_retries    integer,
  lease          interval,
  backoff_base   interval,
  backoff_factor double precision,
  backoff_cap    interval,
  jitter         double precision,
  updated_at     timestamptz not null
);
comment on table taskq.task_type is 'Settings of a task type, written by configure_type. A type without a row has the defaults; NULL means the default.';
comment on column taskq.task_type.name is 'The task type, 1 to 63 bytes: names the handler in the worker.';
comment on column taskq.task_type.queue is 'The queue that new tasks of this type go to. Default: default.';
comment on column taskq.task_type.priority is 'Priority of new tasks of this type, -100 to 100. Default 0.';
comment on column taskq.task_type.max_retries is 'Retries after the first run of new tasks of this type. Default 3.';
comment on column taskq.task_type.lease is 'How long a claim holds a task of this type, unless the claim says otherwise. Default: the lease of its queue.';
comment on column taskq.task_type.backoff_base is 'Wait after the first failure. Default 30 seconds.';
comment on column taskq.task_type.backoff_factor is 'By what each further wait grows. Default 2.';
comment on column taskq.task_type.backoff_cap is 'No wait grows beyond this (before jitter). Default 6 hours.';
comment on column taskq.task_type.jitter is 'Each wait is lengthened by a random share up to this one, so that retries spread out. Default 0.1.';
comment on column taskq.task_type.updated_at is 'When a setting was last changed.';

-- ---------------------------------------------------------------------------
-- task: everything unfinished
-- ---------------------------------------------------------------------------

create sequence taskq.task_id_seq;
comment on sequence taskq.task_id_seq is 'Ids of tasks. Rolled-back and duplicate enqueues leave gaps.';

create table taskq.task (
  id                  bigint primary key,
  queue               text collate "C" not null,
  priority            integer not null,
  run_at              timestamptz not null,
  state               text collate "C" not null default 'waiting',
  token               bigint not null default 0,
  attempt             integer not null default 0,
  max_retries         integer not null,
  lease_expires_at    timestamptz,
  claimed_at          timestamptz,
  worker              text,
  cancel_requested_at timestamptz,
  enqueued_at         timestamptz not null,
  redriven_at         timestamptz,
  bytes               integer not null,
  task_type           text collate "C" not null,
  unique_key          text collate "C",
  unique_until        text collate "C",
  group_key           text collate "C",
  cancel_reason       text,
  payload             jsonb not null,
  headers             jsonb,
  progress            jsonb,
  errors              jsonb,
  -- one constraint, not several: each costs every INSERT and UPDATE its own parsing
  constraint task_life_cycle check (
    case state
      when 'waiting' then lease_expires_at is null and claimed_at is null and worker is null
                          and cancel_requested_at is null
      when 'running' then lease_expires_at is not null and claimed_at is not null and worker is not null
                          and attempt > 0 and token > 0
      else false
    end)
) with (fillfactor = 40);
create index task_ready_idx on taskq.task (queue, priority desc, run_at, id);

comment on table taskq.task is 'Every unfinished task, one row. Waiting tasks have no lease and no worker; running ones have both.';
comment on index taskq.task_ready_idx is 'The lanes in the order of claims. Contains running tasks too, so that a claim changes no index.';
comment on column taskq.task.id is 'The id that enqueue returned. Rises, with gaps.';
comment on column taskq.task.queue is 'The queue it waits in, resolved when it was enqueued.';
comment on column taskq.task.priority is 'Higher is claimed first, -100 to 100.';
comment on column taskq.task.run_at is 'Not claimed before this moment. A retry moves it; a lease that ends does not. Infinity: it is parked, see the table parked.';
comment on column taskq.task.state is 'waiting or running. Whether a waiting task is shown as ready or scheduled depends on run_at and the clock.';
comment on column taskq.task.token is 'Changes, and rises, with each claim; only its holder may complete, fail, extend or release. Stays below 2^53.';
comment on column taskq.task.attempt is 'Claims since it was enqueued or redriven, less releases.';
comment on column taskq.task.max_retries is 'It dies when failure number max_retries + 1 comes.';
comment on column taskq.task.lease_expires_at is 'Running: until when the worker has the right to it. After that it may be taken back.';
comment on column taskq.task.claimed_at is 'Running: when it was claimed.';
comment on column taskq.task.worker is 'Running: the name that the worker gave in its claim.';
comment on column taskq.task.cancel_requested_at is 'Running: when somebody asked to cancel it. It is not retried after that.';
comment on column taskq.task.enqueued_at is 'When it was enqueued.';
comment on column taskq.task.redriven_at is 'When it was last brought back from the dead letters.';
comment on column taskq.task.bytes is 'Size of payload and headers, as binary jsonb.';
comment on column taskq.task.task_type is 'Names the handler in the worker.';
comment on column taskq.task.unique_key is 'The unique key it was enqueued with; who has it now is in unique_key.';
comment on column taskq.task.unique_until is 'Until when it holds the key: finished, or started (its first claim).';
comment on column taskq.task.group_key is 'At most one task of each queue and group runs at a time.';
comment on column taskq.task.cancel_reason is 'The reason given with the request to cancel.';
comment on column taskq.task.payload is 'What the handler is to work on.';
comment on column taskq.task.headers is 'What travels beside the payload: trace ids, tenant, version.';
comment on column taskq.task.progress is 'What the worker last reported through extend.';
comment on column taskq.task.errors is 'Its failures, oldest first: attempt, at, worker, error. At most the last 20.';

-- ---------------------------------------------------------------------------
-- unique_key, once_key: only for tasks and effects that use the feature
-- ---------------------------------------------------------------------------

create table taskq.unique_key (
  task_type     text collate "C",
  key           text collate "C",
  task_id       bigint not null,
  until_started boolean not null,
  kept_until    timestamptz,
  let_go        boolean not null default false,
  primary key (task_type, key),
  constraint unique_key_let_go check (not let_go or kept_until is not null)
);
create index unique_key_kept_idx on taskq.unique_key (kept_until) where let_go;
comment on table taskq.unique_key is 'Who holds a unique key: from the enqueue until the task has finished, or was first claimed, and not before kept_until.';
comment on index taskq.unique_key_kept_idx is 'Finds the keys that are up, for the archive duty.';
comment on column taskq.unique_key.task_type is 'Keys of different types do not meet.';
comment on column taskq.unique_key.key is 'The key, 1 to 512 bytes.';
comment on column taskq.unique_key.task_id is 'The task that holds the key, or held it last.';
comment on column taskq.unique_key.until_started is 'The task lets go of the key at its first claim, not when it has finished.';
comment on column taskq.unique_key.kept_until is 'The key is not free before this moment (unique_for); NULL: as soon as the task lets go of it.';
comment on column taskq.unique_key.let_go is 'The task has let go of the key; only kept_until keeps it.';

create table taskq.once_key (
  scope      text collate "C",
  key        text collate "C",
  seen_at    timestamptz not null,
  expires_at timestamptz not null,
  primary key (scope, key)
);
create index once_key_expires_idx on taskq.once_key (expires_at);
comment on table taskq.once_key is 'What once has seen: one row for each effect that was made, kept until it expires.';
comment on column taskq.once_key.scope is 'Names the effect, such as invoice.paid.';
comment on column taskq.once_key.key is 'Names the occasion, such as the task id or an order number.';
comment on column taskq.once_key.seen_at is 'When once returned true for it.';
comment on column taskq.once_key.expires_at is 'After this it is forgotten: once would return true again.';

-- ---------------------------------------------------------------------------
-- slot, rate_token: only for queues with a limit or a rate
-- ---------------------------------------------------------------------------
-- A claim takes a free row of each for every task, passing by those that others have locked: claimers
-- never wait for each other, and a claim that is rolled back gives them back. They are not dumped: the
-- settings of the queues make them anew.

create table taskq.slot (
  queue   text collate "C",
  slot    integer,
  task_id bigint,
  primary key (queue, slot)
) with (fillfactor = 50);
create index slot_task_idx on taskq.slot (queue, task_id, slot);
comment on table taskq.slot is 'For a queue with max_running: one row for each task that may run at once, and who has it.';
comment on index taskq.slot_task_idx is 'Finds free slots (task_id is NULL) in their order, and that of a task.';
comment on column taskq.slot.queue is 'The queue.';
comment on column taskq.slot.slot is 'Counts from 1. One above max_running goes when its task ends: the limit was lowered, or set while more were running.';
comment on column taskq.slot.task_id is 'The running task that has the slot; NULL if it is free.';

create table taskq.rate_token (
  queue   text collate "C",
  token   integer,
  free_at timestamptz not null,
  primary key (queue, token)
) with (fillfactor = 50);
create index rate_token_free_idx on taskq.rate_token (queue, free_at);
comment on table taskq.rate_token is 'For a queue with a rate: as many rows as its burst. Each is used for one start, and free again burst / rate later, so any time T sees at most rate x T + burst starts.';
comment on index taskq.rate_token_free_idx is 'Finds the tokens that are free.';
comment on column taskq.rate_token.queue is 'The queue.';
comment on column taskq.rate_token.token is 'Counts from 1.';
comment on column taskq.rate_token.free_at is 'When it may be used again.';

-- ---------------------------------------------------------------------------
-- group_turn, parked: only for tasks with a group_key
-- ---------------------------------------------------------------------------
-- A claim takes the turn of a group for the task that it takes, passing by turns that others have
-- locked. A due task whose group's turn is taken is parked: its run_at becomes infinity, so that no
-- claim reads it again, and its place is kept here. When the turn is given back, the first parked task of
-- the group returns to its place.

create table taskq.group_turn (
  queue     text collate "C",
  group_key text collate "C",
  task_id   bigint,
  primary key (queue, group_key)
) with (fillfactor = 50);
comment on table taskq.group_turn is 'The turn of each group that has had a task running lately: at most one task of a group runs at a time.';
comment on column taskq.group_turn.queue is 'Groups of different queues do not meet.';
comment on column taskq.group_turn.group_key is 'The group, 1 to 512 bytes.';
comment on column taskq.group_turn.task_id is 'The running task of the group; NULL if none is.';

create table taskq.parked (
  id        bigint primary key,
  queue     text collate "C" not null,
  group_key text collate "C" not null,
  priority  integer not null,
  run_at    timestamptz not null
);
create index parked_order_idx on taskq.parked (queue, group_key, priority desc, run_at, id);
comment on table taskq.parked is 'Tasks that were due when another one of their group ran. Each is in task, too, with run_at infinity.';
comment on index taskq.parked_order_idx is 'The order in which they get their turn.';
comment on column taskq.parked.id is 'The task.';
comment on column taskq.parked.queue is 'Its queue.';
comment on column taskq.parked.group_key is 'Its group.';
comment on column taskq.parked.priority is 'Its priority.';
comment on column taskq.parked.run_at is 'The run_at that it returns to.';

create table taskq.claim_gate (nothing integer primary key);
comment on column taskq.claim_gate.nothing is 'There is none.';
comment on table taskq.claim_gate is 'Always empty. Every claim holds a weak lock on it; one that sets max_running waits for the claims that do not know of the limit yet.';

-- ---------------------------------------------------------------------------
-- dead_letter: retries used up; kept until a person decides
-- ---------------------------------------------------------------------------

create table taskq.dead_letter (
  id              bigint primary key,
  queue           text collate "C" not null,
  task_type       text collate "C" not null,
  priority        integer not null,
  token           bigint not null,
  attempt         integer not null,
  max_retries     integer not null,
  enqueued_at     timestamptz not null,
  run_at          timestamptz not null,
  claimed_at      timestamptz not null,
  died_at         timestamptz not null,
  redriven_at     timestamptz,
  acknowledged_at timestamptz,
  bytes           integer not null,
  worker          text not null,
  unique_key      text collate "C",
  unique_until    text collate "C",
  group_key       text collate "C",
  payload         jsonb not null,
  headers         jsonb,
  progress        jsonb,
  errors          jsonb not null
);
create index dead_letter_queue_idx on taskq.dead_letter (queue, died_at);
comment on table taskq.dead_letter is 'Tasks whose retries are used up or that fail(retry => false) gave up, with the history of their errors. redrive brings them back, purge forgets them.';
comment on column taskq.dead_letter.id is 'The id of the task, unchanged.';
comment on column taskq.dead_letter.queue is 'The queue it waited in, and returns to.';
comment on column taskq.dead_letter.task_type is 'Its type.';
comment on column taskq.dead_letter.priority is 'Its priority.';
comment on column taskq.dead_letter.token is 'Its last token: the next claim after a redrive has a higher one.';
comment on column taskq.dead_letter.attempt is 'How often it was tried.';
comment on column taskq.dead_letter.max_retries is 'How many retries it had.';
comment on column taskq.dead_letter.enqueued_at is 'When it was enqueued.';
comment on column taskq.dead_letter.run_at is 'When it was due for its last run.';
comment on column taskq.dead_letter.claimed_at is 'When its last run began.';
comment on column taskq.dead_letter.died_at is 'When it died.';
comment on column taskq.dead_letter.redriven_at is 'When it was last redriven, if it was.';
comment on column taskq.dead_letter.acknowledged_at is 'When a person acknowledged the alert that counted it; it does not count for alerts any more.';
comment on column taskq.dead_letter.bytes is 'Size of payload and headers.';
comment on column taskq.dead_letter.worker is 'The worker of its last run.';
comment on column taskq.dead_letter.unique_key is 'The unique key it was enqueued with. It has let go of it.';
comment on column taskq.dead_letter.unique_until is 'Until when it will hold the key when it is redriven: finished or started.';
comment on column taskq.dead_letter.group_key is 'Its group.';
comment on column taskq.dead_letter.payload is 'Its payload.';
comment on column taskq.dead_letter.headers is 'Its headers.';
comment on column taskq.dead_letter.progress is 'What its worker last reported.';
comment on column taskq.dead_letter.errors is 'Its failures, oldest first: attempt, at, worker, error. At most the last 20.';

-- ---------------------------------------------------------------------------
-- done, archive: finished tasks, a partition for each day (UTC) of finished_at
-- ---------------------------------------------------------------------------
-- The keeper makes the days ahead (file archive). A default partition catches
-- what finds no day, so complete works although no keeper runs.
--
-- Primary key and indexes stand on the partitions, not on the parents: pg_dump
-- knows the days as tables of their own, and a parent that comes with an index
-- gives it to a day before pg_restore does: "multiple primary keys".

create table taskq.done (
  id            bigint not null,
  queue         text collate "C" not null,
  task_type     text collate "C" not null,
  state         text collate "C" not null,
  priority      integer not null,
  attempt       integer not null,
  max_retries   integer not null,
  enqueued_at   timestamptz not null,
  run_at        timestamptz not null,
  claimed_at    timestamptz,
  finished_at   timestamptz not null,
  worker        text,
  unique_key    text collate "C",
  group_key     text collate "C",
  cancel_reason text,
  payload       jsonb not null,
  headers       jsonb,
  progress      jsonb,
  result        jsonb,
  errors        jsonb,
  early         boolean not null default false,
  constraint done_state check (state in ('succeeded', 'cancelled')),
  constraint done_early check (not early)
) partition by range (finished_at);
create table taskq.done_default partition of taskq.done default;
alter table taskq.done_default add constraint done_default_pkey primary key (id, finished_at);
create index done_default_queue_idx on taskq.done_default (queue, finished_at);
comment on table taskq.done is 'Finished tasks (succeeded, cancelled) until their retention is over. Partitioned by the day of finished_at, UTC.';
comment on column taskq.done.id is 'The id of the task, unchanged.';
comment on column taskq.done.queue is 'The queue it waited in.';
comment on column taskq.done.task_type is 'Its type.';
comment on column taskq.done.state is 'succeeded or cancelled.';
comment on column taskq.done.priority is 'Its priority.';
comment on column taskq.done.attempt is 'How often it was tried.';
comment on column taskq.done.max_retries is 'How many retries it had.';
comment on column taskq.done.enqueued_at is 'When it was enqueued.';
comment on column taskq.done.run_at is 'When it was due for its last run.';
comment on column taskq.done.claimed_at is 'When its last run began; NULL if it never ran.';
comment on column taskq.done.finished_at is 'When it finished.';
comment on column taskq.done.worker is 'The worker of its last run.';
comment on column taskq.done.unique_key is 'The unique key it held.';
comment on column taskq.done.group_key is 'Its group.';
comment on column taskq.done.cancel_reason is 'The reason given with cancel.';
comment on column taskq.done.payload is 'Its payload.';
comment on column taskq.done.headers is 'Its headers.';
comment on column taskq.done.progress is 'What its worker last reported.';
comment on column taskq.done.result is 'What complete stored.';
comment on column taskq.done.errors is 'Its failures, oldest first. At most the last 20.';
comment on column taskq.done.early is 'Whether it went to the archive before its day did, because its queue has a shorter retention than others. Never in done.';
comment on table taskq.done_default is 'Catches finished tasks whose day has no partition yet. Emptied by the archive duty.';

-- The archive has two halves, because a day that is attached must not meet rows of it that went
-- ahead. The comments of the columns come with them; the constraints would be in the way of early.
create table taskq.archive (like taskq.done including all excluding constraints) partition by list (early);
create table taskq.archive_day partition of taskq.archive for values in (false) partition by range (finished_at);
create table taskq.archive_default partition of taskq.archive_day default;
alter table taskq.archive_default add constraint archive_default_pkey primary key (id, finished_at);
create index archive_default_queue_idx on taskq.archive_default (queue, finished_at);
create table taskq.archive_early partition of taskq.archive for values in (true);
alter table taskq.archive_early add constraint archive_early_pkey primary key (id, finished_at);
create index archive_early_queue_idx on taskq.archive_early (queue, finished_at);
create index archive_early_finished_idx on taskq.archive_early (finished_at);
comment on table taskq.archive is 'Finished tasks whose retention is over.';
comment on table taskq.archive_day is 'Whole days, detached from done and attached here: no row is copied.';
comment on table taskq.archive_default is 'Tasks that somebody put into the archive by hand. The archive duty moves them to archive_early.';
comment on table taskq.archive_early is 'Tasks of queues with a shorter retention than others: moved here row by row, before their day comes.';

create table taskq.archive_trouble (
  step         text collate "C" primary key,
  failed_since timestamptz not null,
  failed_at    timestamptz not null,
  error        text not null,
  held_by      text
);
comment on table taskq.archive_trouble is 'Steps of the archive duty that failed at their last try. They are tried again every round; the row goes when they succeed.';
comment on column taskq.archive_trouble.step is 'The step, as the archive file names it.';
comment on column taskq.archive_trouble.failed_since is 'Since when it has failed at every try.';
comment on column taskq.archive_trouble.failed_at is 'When it failed last.';
comment on column taskq.archive_trouble.error is 'SQLSTATE and message of the last failure.';
comment on column taskq.archive_trouble.held_by is 'The transactions that stood in the way of its locks then, oldest first.';

-- ---------------------------------------------------------------------------
-- sample: what went through, every 10 seconds
-- ---------------------------------------------------------------------------

create table taskq.sample (
  at               timestamptz,
  queue            text collate "C",
  task_type        text collate "C",
  seconds          double precision not null,
  enqueued         bigint not null,
  started          bigint not null,
  succeeded        bigint not null,
  failed           bigint not null,
  retried          bigint not null,
  dead             bigint not null,
  expired          bigint not null,
  cancelled        bigint not null,
  ready            bigint not null,
  scheduled        bigint not null,
  running          bigint not null,
  blocked          bigint not null,
  oldest_ready_age interval,
  waiting_p50      double precision,
  waiting_p95      double precision,
  run_p50          double precision,
  run_p95          double precision,
  total_p50        double precision,
  total_p95        double precision,
  claimers         integer not null,
  primary key (at, queue, task_type)
);
comment on table taskq.sample is 'Figures of each queue and task type that had work, taken every 10 seconds by the sample duty, kept 7 days. The view history reads it.';
comment on column taskq.sample.at is 'When the figures were taken.';
comment on column taskq.sample.queue is 'The queue.';
comment on column taskq.sample.task_type is 'The task type.';
comment on column taskq.sample.seconds is 'How long a time the counts cover: since the sample before.';
comment on column taskq.sample.enqueued is 'Tasks enqueued, and dead letters redriven, in that time.';
comment on column taskq.sample.started is 'Claims in that time.';
comment on column taskq.sample.succeeded is 'Tasks completed in that time.';
comment on column taskq.sample.failed is 'Failures in that time, by fail or by the end of a lease: those that are retried and those that killed the task.';
comment on column taskq.sample.retried is 'Failures after which the task waits again.';
comment on column taskq.sample.dead is 'Failures after which it is a dead letter.';
comment on column taskq.sample.expired is 'Failures because the lease was over.';
comment on column taskq.sample.cancelled is 'Tasks that ended cancelled in that time.';
comment on column taskq.sample.ready is 'Tasks that were due and waited for a worker, at that moment.';
comment on column taskq.sample.scheduled is 'Tasks that were due later, retries included.';
comment on column taskq.sample.running is 'Tasks that a worker held.';
comment on column taskq.sample.blocked is 'Tasks that were due while another one of their group ran.';
comment on column taskq.sample.oldest_ready_age is 'How long the oldest ready task of the queue had been due; NULL if there was none.';
comment on column taskq.sample.waiting_p50 is 'Median of the seconds from due to claimed, of the tasks claimed in that time. NULL if there were none, as for the other medians and percentiles.';
comment on column taskq.sample.waiting_p95 is 'The 95th percentile of the same.';
comment on column taskq.sample.run_p50 is 'Median of the seconds from the claim to complete, of the tasks completed in that time.';
comment on column taskq.sample.run_p95 is 'The 95th percentile of the same.';
comment on column taskq.sample.total_p50 is 'Median of the seconds from enqueue to complete, of the tasks completed in that time.';
comment on column taskq.sample.total_p95 is 'The 95th percentile of the same.';
comment on column taskq.sample.claimers is 'Workers that claimed from the queue in that time, or tried to.';

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

-- ---------------------------------------------------------------------------
-- schedule: tasks that come by the clock
-- ---------------------------------------------------------------------------
-- No index but the key: there are few rows, and so every change of next_run_at is heap-only (HOT),
-- which keeps the table small although some schedules run every second.

create table taskq.schedule (
  name         text collate "C" primary key,
  cron         text not null,
  time_zone    text not null,
  task_type    text collate "C" not null,
  payload      jsonb not null,
  settings     jsonb not null,
  next_run_at  timestamptz,
  last_run_at  timestamptz,
  last_task_id bigint,
  missed       bigint not null default 0,
  error        text,
  error_at     timestamptz,
  updated_at   timestamptz not null
) with (fillfactor = 50);
comment on table taskq.schedule is 'Schedules, written by schedule and unschedule; the schedule duty enqueues what is due and moves next_run_at past it.';
comment on column taskq.schedule.name is 'Name of the schedule, 1 to 63 bytes.';
comment on column taskq.schedule.cron is 'The cron expression, as it was given.';
comment on column taskq.schedule.time_zone is 'The time zone whose clocks the expression means.';
comment on column taskq.schedule.task_type is 'The type of its tasks.';
comment on column taskq.schedule.payload is 'The payload of its tasks.';
comment on column taskq.schedule.settings is 'The settings that were given: queue, priority, max_retries, paused, missed, max_missed. What is not in it has its default.';
comment on column taskq.schedule.next_run_at is 'The next occurrence that is not enqueued yet; NULL if it is paused or none comes any more.';
comment on column taskq.schedule.last_run_at is 'The last occurrence that was enqueued.';
comment on column taskq.schedule.last_task_id is 'The task of that occurrence.';
comment on column taskq.schedule.missed is 'Occurrences that were missed, because no keeper was there, and not made up for.';
comment on column taskq.schedule.error is 'SQLSTATE and message of its last round if that failed; NULL if it went well.';
comment on column taskq.schedule.error_at is 'When that was. It is tried again every minute.';
comment on column taskq.schedule.updated_at is 'When it was made or last changed by schedule.';

-- ---------------------------------------------------------------------------
-- alert, horizon, duty, granted_part: what the keeper and the operator keep
-- ---------------------------------------------------------------------------

create sequence taskq.alert_id_seq;
comment on sequence taskq.alert_id_seq is 'Ids of alerts.';
create table taskq.alert (
  id              bigint primary key default pg_catalog.nextval('taskq.alert_id_seq'),
  kind            text collate "C" not null,
  queue           text collate "C",
  value           bigint not null,
  alert_limit     bigint not null,
  detail          text,
  raised_at       timestamptz not null,
  repeated_at     timestamptz,
  cleared_at      timestamptz,
  acknowledged_at timestamptz,
  acknowledged_by text,
  constraint alert_kind check (kind in ('dead_letters', 'oldest_ready', 'expired_leases', 'unclaimed', 'keeper_late', 'vacuum_held')),
  constraint alert_queue check ((queue is null) = (kind in ('keeper_late', 'vacuum_held'))),
  constraint alert_acknowledged check ((acknowledged_at is null) = (acknowledged_by is null))
);
create unique index alert_open_idx on taskq.alert (kind, queue) nulls not distinct where cleared_at is null;
comment on table taskq.alert is 'Alerts, open and past: raised once, cleared once.';
comment on index taskq.alert_open_idx is 'One open alert of a kind for each queue, or for the database.';
comment on column taskq.alert.id is 'The id for acknowledge.';
comment on column taskq.alert.kind is 'What it is about: dead_letters, oldest_ready, expired_leases, unclaimed, keeper_late or vacuum_held.';
comment on column taskq.alert.queue is 'The queue it is about; NULL: the whole database (keeper_late, vacuum_held).';
comment on column taskq.alert.value is 'The figure that was over the limit when the alert was raised, or was found when it was last repeated: a number, or whole seconds (oldest_ready, unclaimed, keeper_late, vacuum_held).';
comment on column taskq.alert.alert_limit is 'The limit at that moment.';
comment on column taskq.alert.detail is 'keeper_late: the duties that are late; vacuum_held: who holds it back. Otherwise NULL.';
comment on column taskq.alert.raised_at is 'When it was raised.';
comment on column taskq.alert.repeated_at is 'When it was last sent again, because it was still open and nobody had acknowledged it (taskq.alert_repeat).';
comment on column taskq.alert.cleared_at is 'When the figure was back; NULL while the alert is open.';
comment on column taskq.alert.acknowledged_at is 'When a person acknowledged it.';
comment on column taskq.alert.acknowledged_by is 'The role that acknowledged it.';

create table taskq.horizon (
  at       timestamptz primary key,
  next_xid bigint not null
);
comment on table taskq.horizon is 'Which transaction id came next at which moment, for a day: a replication slot tells only the id that it holds, not since when.';
comment on column taskq.horizon.at is 'When the alert duty looked at everything.';
comment on column taskq.horizon.next_xid is 'No transaction with this id or a later one had ended then.';

create table taskq.duty (
  name         text collate "C" primary key,
  every        interval not null,
  started_at   timestamptz,
  finished_at  timestamptz,
  rows         bigint,
  error        text,
  error_at     timestamptz,
  logged_at    timestamptz,
  counted_until timestamptz
);
comment on table taskq.duty is 'The keeper''s duties: how often each is due and how its last round went.';
comment on column taskq.duty.name is 'The duty; the function taskq._duty_<name> does one round of it.';
comment on column taskq.duty.every is 'How often it is due.';
comment on column taskq.duty.started_at is 'When its last round began.';
comment on column taskq.duty.finished_at is 'When its last round that went well ended.';
comment on column taskq.duty.rows is 'How many rows that round changed.';
comment on column taskq.duty.error is 'The error of its last round; NULL if it went well.';
comment on column taskq.duty.error_at is 'When that error happened.';
comment on column taskq.duty.counted_until is 'The sample duty: until when what happened is in its samples. By the clock of taskq._now().';
comment on column taskq.duty.logged_at is 'When an error of it was last written to the server log (once a minute at most).';

create table taskq.granted_part (
  part     text collate "C",
  role     name,
  primary key (part, role),
  constraint granted_part_part check (part in ('producer', 'worker', 'operator', 'reader'))
);
comment on table taskq.granted_part is 'Which part was opened to which role. Upgrade scripts grant again from here.';
comment on column taskq.granted_part.part is 'producer, worker, operator or reader.';
comment on column taskq.granted_part.role is 'The role, by name: names survive a dump, oids do not.';

-- ---------------------------------------------------------------------------
-- dump: tables and sequences of an extension are dumped only if named here
-- ---------------------------------------------------------------------------

select pg_catalog.pg_extension_config_dump('taskq.queue', '');
select pg_catalog.pg_extension_config_dump('taskq.task_type', '');
select pg_catalog.pg_extension_config_dump('taskq.task_id_seq', '');
select pg_catalog.pg_extension_config_dump('taskq.task', '');
select pg_catalog.pg_extension_config_dump('taskq.unique_key', '');
select pg_catalog.pg_extension_config_dump('taskq.once_key', '');
select pg_catalog.pg_extension_config_dump('taskq.group_turn', '');
select pg_catalog.pg_extension_config_dump('taskq.parked', '');
select pg_catalog.pg_extension_config_dump('taskq.dead_letter', '');
select pg_catalog.pg_extension_config_dump('taskq.done', '');
select pg_catalog.pg_extension_config_dump('taskq.done_default', '');
select pg_catalog.pg_extension_config_dump('taskq.archive', '');
select pg_catalog.pg_extension_config_dump('taskq.archive_day', '');
select pg_catalog.pg_extension_config_dump('taskq.archive_default', '');
select pg_catalog.pg_extension_config_dump('taskq.archive_early', '');
select pg_catalog.pg_extension_config_dump('taskq.sample', '');
select pg_catalog.pg_extension_config_dump('taskq.load', '');
select pg_catalog.pg_extension_config_dump('taskq.schedule', '');
select pg_catalog.pg_extension_config_dump('taskq.alert_id_seq', '');
select pg_catalog.pg_extension_config_dump('taskq.alert', '');
select pg_catalog.pg_extension_config_dump('taskq.granted_part', '');
