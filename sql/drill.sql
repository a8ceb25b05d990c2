-- The drill: a task that is made to fail goes the whole way, dead letter, alert and a person included,
-- and everything is as before at the end.
--
--   the caller                    shared memory             the keeper
--   ----------                    -------------             ----------
--   drill() --_ask_drill()------> request, its id --------> _duty_drill(), a step a transaction:
--     waits                                                    drill_run   how far it is
--     _drill_state() = over <---- no request <-------------    drill_step  what came out
--     returns drill_step
--
-- A function is one transaction, and nobody sees what it did before it ends: that is why the keeper
-- does the steps. Where a drill is, is in drill_run: a keeper that ends in the middle is followed by one
-- that goes on, and a caller who is cancelled stops nothing.
--
-- Nobody but the drill gets its task, also not a worker that claims from every queue: its queue is
-- paused for all others, and opened only inside the transaction in which the drill claims.

create sequence taskq.drill_id_seq;
comment on sequence taskq.drill_id_seq is 'Ids of drills.';

create table taskq.drill_run (
  id              bigint primary key,
  queue           text collate "C" not null,
  timeout         interval not null,
  asked_by        text not null,
  started_at      timestamptz not null,
  step            integer not null default 1,
  step_started_at timestamptz not null,
  failed          text,
  task_id         bigint,
  token           bigint,
  alert_id        bigint,
  finished_at     timestamptz
);
create unique index drill_run_open_idx on taskq.drill_run ((true)) where finished_at is null;
comment on table taskq.drill_run is 'The drills: the one that goes on, if any, and those that were last.';
comment on index taskq.drill_run_open_idx is 'One drill at a time.';
comment on column taskq.drill_run.id is 'The id of the drill.';
comment on column taskq.drill_run.queue is 'The queue it uses.';
comment on column taskq.drill_run.timeout is 'How long a person has to acknowledge its alert.';
comment on column taskq.drill_run.asked_by is 'The role that called drill.';
comment on column taskq.drill_run.started_at is 'When the keeper took it up.';
comment on column taskq.drill_run.step is 'The number of the step that is next.';
comment on column taskq.drill_run.step_started_at is 'When the step before ended.';
comment on column taskq.drill_run.failed is 'The step that did not hold, after which only cleaning up makes sense.';
comment on column taskq.drill_run.task_id is 'Its task.';
comment on column taskq.drill_run.token is 'The token of its last claim.';
comment on column taskq.drill_run.alert_id is 'The alert about its dead letter.';
comment on column taskq.drill_run.finished_at is 'When it had cleaned up; NULL while it goes on.';

create table taskq.drill_step (
  drill_id   bigint,
  number     integer,
  step       text not null,
  ok         boolean not null,
  started_at timestamptz not null,
  took       interval,
  detail     text not null,
  primary key (drill_id, number)
);
comment on table taskq.drill_step is 'What came out of each step of the last drills.';
comment on column taskq.drill_step.drill_id is 'The id of the drill.';
comment on column taskq.drill_step.number is 'Orders the steps.';
comment on column taskq.drill_step.step is 'The step.';
comment on column taskq.drill_step.ok is 'Whether it held.';
comment on column taskq.drill_step.started_at is 'When it began: when the one before ended.';
comment on column taskq.drill_step.took is 'How long it took; NULL if it was not tried.';
comment on column taskq.drill_step.detail is 'What happened, and what to do if it did not hold.';

-- Where a dump is restored, a drill that was open goes on, or is cleaned up if it is too old.
select pg_catalog.pg_extension_config_dump('taskq.drill_id_seq', '');
select pg_catalog.pg_extension_config_dump('taskq.drill_run', '');
select pg_catalog.pg_extension_config_dump('taskq.drill_step', '');

create function taskq._drill_type() returns text
  language sql immutable parallel safe
  return 'taskq.drill';
comment on function taskq._drill_type() is
  'The type of the tasks of drills, and the name of their worker and of their usual queue. What counts tasks for people leaves this type out.';

create function taskq._drill_steps() returns text[]
  language sql immutable parallel safe
  return array['queue ready', 'enqueued', 'claimed', 'failed', 'retried', 'dead letter', 'alert raised', 'a person was told',
               'redriven', 'claimed again', 'completed', 'alert cleared', 'cleaned up'];
comment on function taskq._drill_steps() is
  'The steps of a drill, in their order.';

-- ---------------------------------------------------------------------------
-- what is shared with the keeper (src/drill.rs)
-- ---------------------------------------------------------------------------

create function taskq._ask_drill(id bigint, queue text, timeout double precision, asked_by text) returns text
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_ask_drill';
comment on function taskq._ask_drill(bigint, text, double precision, text) is
  'Asks the keeper for a drill: asked, busy (there is one) or no keeper.';

create function taskq._drill_state(id bigint) returns text
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_drill_state';
comment on function taskq._drill_state(bigint) is
  'What became of a drill that was asked for: open, no keeper (open, but nobody works on it) or over.';

create function taskq._drill_asked()
  returns table (id bigint, queue text, timeout double precision, asked_by text)
  language c volatile rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_drill_asked';
comment on function taskq._drill_asked() is
  'The drill that was asked for and is not over; no row if there is none.';

create function taskq._drill_goes_on(id bigint) returns void
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_drill_goes_on';
comment on function taskq._drill_goes_on(bigint) is
  'Has the keeper run the drill duty again soon.';

create function taskq._drill_is_over(id bigint, queue text, task_type text) returns void
  language c volatile set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_drill_is_over';
comment on function taskq._drill_is_over(bigint, text, text) is
  'Tells the caller of a drill that it is over, and forgets what shared memory knows of its task and worker.';

-- ---------------------------------------------------------------------------
-- drill
-- ---------------------------------------------------------------------------

-- Why a queue cannot be used for a drill; NULL if it can. Only the queue that is named for drills may have
-- settings, which the drill takes away.
create function taskq._drill_obstacle(queue text) returns text
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select case
    when _drill_obstacle.queue = 'default' then 'is where tasks go by default'
    when exists (select from taskq.task t where t.queue = _drill_obstacle.queue and t.task_type <> taskq._drill_type())
      then 'has tasks'
    when exists (select from taskq.dead_letter d where d.queue = _drill_obstacle.queue and d.task_type <> taskq._drill_type())
      then 'has dead letters'
    when _drill_obstacle.queue <> taskq._drill_type() and exists (select from taskq.queue q where q.name = _drill_obstacle.queue)
      then 'has settings'
    when exists (select from taskq.task_type t where t.queue = _drill_obstacle.queue and t.name <> taskq._drill_type())
      then 'gets the tasks of a type'
  end
$$;
comment on function taskq._drill_obstacle(text) is
  'Why a queue cannot be used for a drill; NULL if it can.';

-- drill: sends a task that fails through retry, dead letter, alert, redrive and completion, and returns
-- each step, whether it held, and how long it took. The step "a person was told" holds only if
-- somebody calls acknowledge for the drill's alert in time: nobody can know who listens.
--   queue    a queue that nothing uses; it must not have tasks, dead letters or settings
--   timeout  how long that person has, 1 second to 10 minutes; each other step has 30 seconds
-- The keeper goes on with the drill, and cleans up, if the caller is cancelled.
-- Errors: 22023; 55000 without a keeper in this database; 55006 while another drill goes on; 25001 above
--   READ COMMITTED, where the keeper's steps cannot be seen.
-- Writes (the keeper does): drill_run, drill_step, and for the time of the drill queue, task_type, task,
--   dead_letter, done. One row of alert stays.
create function taskq.drill(queue text = 'taskq.drill', timeout interval = '30 seconds')
  returns table (step text, ok boolean, took interval, detail text)
  language plpgsql volatile security definer rows 13 set search_path = pg_catalog, pg_temp as $$
declare
  v_seconds  double precision := extract(epoch from drill.timeout);
  v_obstacle text;
  v_id       bigint;
  v_state    text;
  v_alone_at timestamptz;  -- since when there is no keeper
begin
  perform taskq._check_name('queue', drill.queue);
  if v_seconds is null or v_seconds not between 1 and 600 then
    perform taskq._refuse('22023', 'timeout must be between 1 second and 10 minutes', 'Give a person the time to see the alert, as in ''2 minutes''.');
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    perform taskq._refuse('25001', 'a drill cannot be seen from a transaction above READ COMMITTED', 'Call drill outside a transaction block, or in one that is READ COMMITTED.');
  end if;
  v_obstacle := taskq._drill_obstacle(drill.queue);
  if v_obstacle is not null and not exists (select from taskq.drill_run r where r.finished_at is null) then
    perform taskq._refuse('22023', format('queue "%s" cannot be used for a drill: it %s', drill.queue, v_obstacle),
                          'Name a queue that nothing uses, or none.');
  end if;

  -- an open one may be in the table only: the server was started anew in the middle of it
  if exists (select from taskq.drill_run r where r.finished_at is null) then
    v_state := 'busy';
  else
    v_id := nextval('taskq.drill_id_seq');
    v_state := taskq._ask_drill(v_id, drill.queue, v_seconds, session_user::text);
  end if;
  if v_state = 'busy' then
    perform taskq._refuse('55006', 'another drill goes on', 'Wait until it is over: see taskq.drill_run.');
  elsif v_state <> 'asked' then
    perform taskq._refuse('55000', 'a drill needs the keeper of this database, and there is none', 'See taskq.health(): taskq must be in shared_preload_libraries, and taskq.keeper on.');
  end if;

  loop
    v_state := taskq._drill_state(v_id);
    exit when v_state = 'over';
    if v_state = 'open' then
      v_alone_at := null;
    elsif v_alone_at is null then
      v_alone_at := clock_timestamp();
    elsif v_alone_at < clock_timestamp() - interval '20 seconds' then  -- one that was ended would be back
      if not exists (select from taskq.drill_run r where r.id = v_id) then
        perform taskq._drill_is_over(v_id, drill.queue, taskq._drill_type());
      end if;
      perform taskq._refuse('55000', 'the keeper of this database has ended during the drill', 'See taskq.health(). The next keeper ends the drill and cleans up.');
    end if;
    perform pg_sleep(0.05);
  end loop;
  return query select s.step, s.ok, s.took, s.detail from taskq.drill_step s where s.drill_id = v_id order by s.number;
end
$$;
comment on function taskq.drill is
  'Sends a task that fails through retry, dead letter, alert, redrive and completion, and returns each step and whether it held. Acknowledge its alert meanwhile.';

-- ---------------------------------------------------------------------------
-- the steps
-- ---------------------------------------------------------------------------

-- Ends a step that did not hold; what it did is undone.
create function taskq._drill_fails(detail text) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = 'assert_failure', message = _drill_fails.detail;
end
$$;
comment on function taskq._drill_fails(text) is
  'Ends a step of a drill that did not hold.';

-- Claims the drill's task. Others see the queue paused at every moment: it is open only for what this
-- transaction does in between.
create function taskq._drill_claim(run taskq.drill_run) returns text
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_claim record;
  v_task  record;
begin
  update taskq.queue q set paused_at = null, paused_by = null where q.name = (_drill_claim.run).queue;
  select c.id, c.token, c.attempt into v_claim
    from taskq.claim(1, array[(_drill_claim.run).queue], taskq._drill_type()) c;
  update taskq.queue q set paused_at = (_drill_claim.run).started_at, paused_by = (_drill_claim.run).asked_by
   where q.name = (_drill_claim.run).queue;
  if v_claim.id is distinct from (_drill_claim.run).task_id then
    select s.state, s.worker into v_task from taskq.status((_drill_claim.run).task_id) s;
    perform taskq._drill_fails(format('task %s could not be claimed, it is %s%s: see whether somebody has resumed the queue, or put tasks into it',
                                      (_drill_claim.run).task_id, coalesce(v_task.state, 'gone'), ', held by ' || v_task.worker));
  end if;
  update taskq.drill_run r set token = v_claim.token where r.id = (_drill_claim.run).id;
  return format('task %s was claimed, attempt %s', v_claim.id, v_claim.attempt);
end
$$;
comment on function taskq._drill_claim(taskq.drill_run) is
  'Claims the task of a drill, which nobody else can.';

-- Fails the drill's task, which must then be in this state.
create function taskq._drill_fail(run taskq.drill_run, expected text) returns timestamptz
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_fail record;
begin
  select f.state, f.run_at into strict v_fail
    from taskq.fail((_drill_fail.run).task_id, (_drill_fail.run).token, 'fails on purpose: this is a drill') f;
  if v_fail.state <> _drill_fail.expected then
    perform taskq._drill_fails(format('task %s is %s and not %s', (_drill_fail.run).task_id, v_fail.state, _drill_fail.expected));
  end if;
  return v_fail.run_at;
end
$$;
comment on function taskq._drill_fail(taskq.drill_run, text) is
  'Fails the task of a drill and checks what becomes of it.';

-- Takes away what a drill made, but for the row of its alert. Returns what is still there: nothing, as a rule.
create function taskq._drill_clean(run taskq.drill_run) returns text
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
comment on function taskq._drill_clean(taskq.drill_run) is
  'Takes away the task and the settings of a drill, and returns what could not be taken away.';

-- One step. ok is NULL if there is still something to wait for; detail then says what.
create function taskq._drill_try(run taskq.drill_run, step text, out ok boolean, out detail text)
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_queue text := (_drill_try.run).queue;
  v_task  bigint := (_drill_try.run).task_id;
  v_alert taskq.alert;
  v_state text;
  v_at    timestamptz;
begin
  ok := true;
  if _drill_try.step in ('a person was told', 'alert cleared') then
    select a.* into v_alert from taskq.alert a where a.id = (_drill_try.run).alert_id;
  end if;
  case _drill_try.step
    when 'queue ready' then
      detail := taskq._drill_obstacle(v_queue);
      if detail is not null then
        perform taskq._drill_fails(format('queue "%s" %s: name one that nothing uses', v_queue, detail));
      end if;
      -- what an earlier drill may have left; its alert clears by itself
      perform taskq._drill_clean(_drill_try.run);
      if exists (select from taskq.alert a where a.queue = v_queue and a.cleared_at is null) then
        ok := null;
        detail := 'an earlier alert about the queue is still open: see taskq.alerts and whether the alert duty runs';
        return;
      end if;
      insert into taskq.queue (name, dead_letters_limit, paused_at, paused_by, updated_at)
      values (v_queue, 0, (_drill_try.run).started_at, (_drill_try.run).asked_by, taskq._now());
      insert into taskq.task_type (name, queue, max_retries, backoff_base, backoff_factor, jitter, updated_at)
      values (taskq._drill_type(), v_queue, 1, '0.5 seconds', 1, 0, taskq._now());
      detail := format('queue "%s" is paused for all others, and alerts from the first dead letter on', v_queue);

    when 'enqueued' then
      v_task := taskq.enqueue(taskq._drill_type(), priority => 100);  -- first, whatever else is put there
      update taskq.drill_run r set task_id = v_task where r.id = (_drill_try.run).id;
      detail := format('task %s waits in queue "%s"', v_task, v_queue);

    when 'claimed', 'claimed again' then
      detail := taskq._drill_claim(_drill_try.run);

    when 'failed' then
      v_at := taskq._drill_fail(_drill_try.run, 'scheduled');
      detail := format('task %s failed and waits for its retry until %s', v_task, v_at);

    when 'retried' then
      select s.run_at into v_at from taskq.status(v_task) s;
      if v_at > taskq._now() then
        ok := null;
        detail := format('task %s is not due before %s: see whether the server''s clock goes', v_task, v_at);
        return;
      end if;
      detail := taskq._drill_claim(_drill_try.run);

    when 'dead letter' then
      perform taskq._drill_fail(_drill_try.run, 'dead');
      if not exists (select from taskq.dead_letter d where d.id = v_task and d.queue = v_queue) then
        perform taskq._drill_fails(format('task %s is not among the dead letters', v_task));
      end if;
      detail := format('task %s failed again, has no retry left, and is a dead letter', v_task);

    when 'alert raised' then
      select a.* into v_alert from taskq.alert a
       where a.kind = 'dead_letters' and a.queue = v_queue and a.cleared_at is null;
      if not found then
        ok := null;
        detail := 'no alert about the dead letter: see in taskq.duties whether the alert duty runs';
        return;
      end if;
      update taskq.drill_run r set alert_id = v_alert.id where r.id = (_drill_try.run).id;
      detail := format('alert %s was sent on the channel taskq_alert', v_alert.id);

    when 'a person was told' then
      if v_alert.acknowledged_at is null then
        ok := null;
        detail := format('nobody called taskq.acknowledge(%s) within %s: see whether a program listens on taskq_alert, and whom it tells',
                         v_alert.id, (_drill_try.run).timeout);
        return;
      end if;
      detail := format('alert %s was acknowledged by %s', v_alert.id, v_alert.acknowledged_by);

    when 'redriven' then
      if (select r.redriven from taskq.redrive(ids => array[v_task]) r) = 1 then
        detail := format('task %s waits again', v_task);
      else
        select s.state into v_state from taskq.status(v_task) s;
        if v_state = 'dead' then
          ok := null;
          detail := format('task %s is locked by another transaction: see pg_locks', v_task);
        elsif v_state = 'ready' then
          detail := format('somebody else has redriven task %s', v_task);
        else
          perform taskq._drill_fails(format('task %s is %s: somebody else has dealt with it', v_task, coalesce(v_state, 'gone')));
        end if;
      end if;

    when 'completed' then
      perform taskq.complete(v_task, (_drill_try.run).token);
      select s.state into v_state from taskq.status(v_task) s;
      if v_state is distinct from 'succeeded' then
        perform taskq._drill_fails(format('task %s is %s', v_task, coalesce(v_state, 'gone')));
      end if;
      detail := format('task %s succeeded', v_task);

    when 'alert cleared' then
      if v_alert.cleared_at is null then
        ok := null;
        detail := format('alert %s is still open: see in taskq.duties whether the alert duty runs', v_alert.id);
        return;
      end if;
      detail := format('alert %s was cleared', v_alert.id);

    when 'cleaned up' then
      detail := taskq._drill_clean(_drill_try.run);
      if detail is not null then
        ok := null;
        detail := detail || ': see pg_locks; the next drill tries again';
        return;
      end if;
      detail := 'the task and the settings of the queue are gone; the alert stays in taskq.alerts';
  end case;
end
$$;
comment on function taskq._drill_try(taskq.drill_run, text) is
  'Tries one step of a drill.';

-- One round of the drill duty: one step of the drill that goes on, if it need not be waited for. Never waits
-- itself. Returns 1 if a step ended.
create function taskq._duty_drill() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  v_run      taskq.drill_run;
  v_asked    record;
  v_steps    text[] := taskq._drill_steps();
  v_step     text;
  v_ok       boolean;
  v_detail   text;
  v_now      timestamptz := clock_timestamp();  -- also where the tests' clock stands still
  v_patience interval := '30 seconds';
begin
  select * into v_asked from taskq._drill_asked();
  select r.* into v_run from taskq.drill_run r where r.finished_at is null;
  if not found then
    if v_asked.id is null then
      return 0;
    end if;
    select r.* into v_run from taskq.drill_run r where r.id = v_asked.id;
    if found then
      -- it has ended, and that is committed: the caller may look
      perform taskq._drill_is_over(v_run.id, v_run.queue, taskq._drill_type());
      return 0;
    end if;
    delete from taskq.drill_step s where s.drill_id <= v_asked.id - 10;
    delete from taskq.drill_run r where r.id <= v_asked.id - 10;
    insert into taskq.drill_run (id, queue, timeout, asked_by, started_at, step_started_at)
    values (v_asked.id, v_asked.queue, make_interval(secs => v_asked.timeout), v_asked.asked_by, v_now, v_now)
    returning * into v_run;
  end if;

  v_step := v_steps[v_run.step];
  if v_run.failed is null and v_step <> 'cleaned up' and v_run.started_at < v_now - v_run.timeout - interval '5 minutes' then
    v_run.failed := 'the drill was interrupted for too long';
  end if;
  if v_run.failed is not null and v_step <> 'cleaned up' then
    v_ok := false;
    v_detail := format('not tried: %s', v_run.failed);
  else
    begin
      select t.ok, t.detail into v_ok, v_detail from taskq._drill_try(v_run, v_step) t;
    exception
      when query_canceled then
        raise;
      when lock_not_available then
        v_ok := null;
        v_detail := 'another transaction holds a lock: see pg_locks';
      when assert_failure then
        v_ok := false;
        v_detail := sqlerrm;
      when others then
        v_ok := false;
        v_detail := format('%s (SQLSTATE %s)', sqlerrm, sqlstate);
    end;
    v_now := clock_timestamp();
    if v_step = 'a person was told' then
      v_patience := v_run.timeout;
    end if;
    if v_ok is null and v_now > v_run.step_started_at + v_patience then
      v_ok := false;
    end if;
    -- a drill of which nobody took notice goes on all the same
    if not v_ok and v_step <> 'a person was told' then
      v_run.failed := format('"%s" did not hold', v_step);
    end if;
  end if;
  if v_ok is not null then
    insert into taskq.drill_step (drill_id, number, step, ok, started_at, took, detail)
    values (v_run.id, v_run.step, v_step, v_ok, v_run.step_started_at,
            case when v_detail not like 'not tried: %' then v_now - v_run.step_started_at end, v_detail);
    update taskq.drill_run r
       set step = v_run.step + 1, step_started_at = v_now, failed = v_run.failed,
           finished_at = case when v_run.step = cardinality(v_steps) then v_now end
     where r.id = v_run.id;
  end if;
  perform taskq._drill_goes_on(v_run.id);
  return case when v_ok is null then 0 else 1 end;
end
$$;
comment on function taskq._duty_drill() is
  'One round of the drill duty: one step of the drill that goes on.';
