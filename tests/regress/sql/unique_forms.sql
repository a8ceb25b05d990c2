-- The forms of unique keys: what a second enqueue does, by the state of the first task, unique_until, unique_for
-- and on_conflict; superseded tasks; redrive; the archive duty; many keys.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- Brings a task with the key k into a state.
create function test.reach(state text, until text, kept interval) returns bigint language plpgsql as $$
declare
  v_id bigint := taskq.enqueue('u', '{"n": 1}', queue => 'q', unique_key => 'k', unique_until => reach.until, unique_for => reach.kept,
                               delay => case when reach.state = 'scheduled' then interval '1 day' end,
                               max_retries => case when reach.state ~ 'dead|redriven' then 0 end);
begin
  if reach.state = 'cancelled' then
    perform taskq.cancel(v_id);
  elsif reach.state = 'purged when ready' then
    perform taskq.purge('ready', task_type => 'u');
  elsif reach.state not in ('scheduled', 'ready') then
    perform from taskq.claim(1, array['q'], lease => '1 s');
    case reach.state
      when 'running' then null;
      when 'running, lease over' then perform test.pass('1 s');
      when 'taken back' then perform test.pass('1 s'), taskq._recover(10);
      when 'waiting for a retry' then perform taskq.fail(v_id, test.token(v_id), retry_in => '1 day');
      when 'running again' then
        perform taskq.fail(v_id, test.token(v_id), retry_in => '0');
        perform from taskq.claim(1, array['q']);
      when 'released' then perform taskq.release(v_id, test.token(v_id));
      when 'asked to stop' then perform taskq.cancel(v_id);
      when 'cancelled by force' then perform taskq.cancel(v_id, force => true);
      when 'succeeded' then perform taskq.complete(v_id, test.token(v_id));
      when 'purged when succeeded' then
        perform taskq.complete(v_id, test.token(v_id));
        perform taskq.purge('succeeded', task_type => 'u');
      else
        perform taskq.fail(v_id, test.token(v_id));
        if reach.state ~ 'redriven' then perform taskq.redrive('q'); end if;
        if reach.state = 'purged when dead' then perform taskq.purge('dead', task_type => 'u'); end if;
        if reach.state = 'redriven, running' then perform from taskq.claim(1, array['q']); end if;
    end case;
  end if;
  return v_id;
end
$$;

-- Who has the key: the first task, the second, nobody.
create function test.key(first bigint) returns text language sql as $$
  select coalesce((select case when k.task_id = key.first then 'first' else 'second' end
                          || case when k.let_go and k.kept_until <= taskq._now() then ', up' when k.let_go then ', kept' else '' end
                     from taskq.unique_key k where (k.task_type, k.key) = ('u', 'k')), 'free')
$$;

-- What a second enqueue answers when the first task is in a state: first (its id), replaced (its id, and it has the
-- new payload), own (a task of its own), NULL, TQ002. What else is stored is checked here, and said only if it is
-- wrong. With on_conflict NULL: who has the key. Nothing remains.
create function test.second(state text, until text, kept interval, later interval, on_conflict text, many boolean = false)
  returns text language plpgsql as $$
declare
  v_id     bigint;
  v_before text;
  v_key    text;
  v_task   taskq.task;
  v_answer bigint;
  v_new    boolean;
  v_said   text;
  v_wrong  text := '';
begin
  v_id := test.reach(second.state, second.until, second.kept);
  perform test.pass(second.later);
  if second.on_conflict is null then
    raise exception using errcode = 'UNDO0', message = test.key(v_id);
  end if;
  v_before := test.everything(v_id);
  v_key := (select k::text from taskq.unique_key k);
  select t.* into v_task from taskq.task t where t.id = v_id;
  begin
    if second.many then
      select m.id, m.created into strict v_answer, v_new
        from taskq.enqueue_many(jsonb_build_array(jsonb_build_object('task_type', 'u', 'payload', '{"n": 22}'::jsonb, 'priority', 7,
          'delay', '5 s', 'unique_key', 'k', 'unique_until', second.until, 'unique_for', '1 min', 'on_conflict', second.on_conflict,
          'headers', '{"h": 2}'::jsonb, 'queue', 'other', 'max_retries', 9))) m;
    else
      v_answer := taskq.enqueue('u', '{"n": 22}', priority => 7, delay => '5 s', unique_key => 'k', unique_until => second.until,
        unique_for => '1 min', on_conflict => second.on_conflict, headers => '{"h": 2}', queue => 'other', max_retries => 9);
      v_new := v_answer > v_id;
    end if;
    v_said := case when v_new then 'own' when v_answer is null then 'NULL' when v_answer <> v_id then 'strange'
                   when test.everything(v_id) = v_before then 'first' else 'replaced' end;
  exception when sqlstate 'TQ002' then v_said := 'TQ002';
  end;
  if v_said = 'own' then
    if (select count(*) from taskq.task t where t.id = v_answer and t.queue = 'other' and t.unique_until = second.until and t.bytes = (select s.bytes from test.size s)) <> 1
       or (select k::text from taskq.unique_key k) is distinct from
          format('(u,k,%s,%s,"%s",f)', v_answer, left((second.until = 'started')::text, 1), taskq._now() + interval '1 min') then
      v_wrong := v_wrong || ' WRONG NEW TASK';
    end if;
  elsif (select k::text from taskq.unique_key k) is distinct from v_key then
    v_wrong := v_wrong || ' KEY CHANGED';
  end if;
  if v_said = 'replaced' then
    v_task.payload := '{"n": 22}'; v_task.headers := '{"h": 2}'; v_task.priority := 7;
    v_task.run_at := taskq._now() + interval '5 s';
    v_task.bytes := (select s.bytes from test.size s);
    if v_task is distinct from (select t from taskq.task t where t.id = v_id) then
      v_wrong := v_wrong || ' WRONG REPLACEMENT';
    end if;
  elsif test.everything(v_id) is distinct from v_before then
    v_wrong := v_wrong || ' FIRST CHANGED';
  end if;
  if (select count(*) from taskq.task) <> (v_task.id is not null)::int + (v_said = 'own')::int then
    v_wrong := v_wrong || ' WRONG COUNT';
  end if;
  raise exception using errcode = 'UNDO0', message = v_said || v_wrong;
exception when sqlstate 'UNDO0' then return sqlerrm;
end
$$;

select taskq.enqueue('plain', '{"n": 22}', headers => '{"h": 2}') > 0 as stored;
create table test.size as select bytes from taskq.task;
delete from taskq.task;
create table test.state (ord serial, state text);
insert into test.state (state)
  values ('scheduled'), ('ready'), ('running'), ('running, lease over'), ('asked to stop'), ('taken back'), ('waiting for a retry'), ('running again'),
         ('released'), ('redriven'), ('redriven, running'), ('dead'), ('succeeded'), ('cancelled'), ('cancelled by force'),
         ('purged when ready'), ('purged when dead'), ('purged when succeeded');
create view test.cell as
  select s.ord, s.state, u.until, k.kept, k.later
    from test.state s, unnest('{finished,started}'::text[]) u(until),
         (values (null::interval, '0'::interval), ('1 h', '10 min'), ('1 h', '1 h')) k(kept, later);
create function test.seconds(kept interval, later interval)
  returns table (state text, until text, key text, ignore text, skip text, replace text, error text) language sql as $$
  select c.state, c.until, test.second(c.state, c.until, c.kept, c.later, null), test.second(c.state, c.until, c.kept, c.later, 'ignore'),
         test.second(c.state, c.until, c.kept, c.later, 'skip'), test.second(c.state, c.until, c.kept, c.later, 'replace'),
         test.second(c.state, c.until, c.kept, c.later, 'error')
    from test.cell c where c.kept is not distinct from seconds.kept and c.later = seconds.later
   order by c.until, c.ord
$$;
-- without unique_for
select * from test.seconds(null, '0');
-- within unique_for, and when it is over
select * from test.seconds('1 h', '10 min');
select * from test.seconds('1 h', '1 h');
-- enqueue_many does the same
select c.*, o as on_conflict from test.cell c, unnest('{ignore,skip,replace,error}'::text[]) o
 where test.second(c.state, c.until, c.kept, c.later, o) <> test.second(c.state, c.until, c.kept, c.later, o, many => true);
select count(*) from taskq.task;

-- who else has no key: NULL and 'finished' are the same, on_conflict without a key does nothing
select test.error($$select taskq.enqueue('u', unique_key => 'n', unique_until => null, on_conflict => null)$$);
select count(taskq.enqueue('nokey', unique_until => u, on_conflict => o)) from unnest('{finished,started}'::text[]) u, unnest('{ignore,skip,replace,error}'::text[]) o;
select count(*), count(unique_until) from taskq.task;
delete from taskq.task;

-- replace: the id, the queue, max_retries, the attempt, the history and the key stay
select taskq.configure_type('r', '{"priority": 4}') is not null as configured;
select taskq.enqueue('r', '{"v": 1}', queue => 'q', priority => 1, max_retries => 5, unique_key => 'k', unique_until => 'started', unique_for => '2 h',
                     headers => '{"h": 1}', delay => '1 min') as id \gset
create function test.row(id bigint) returns setof jsonb language sql as $$
  select jsonb_build_object('state', t.state, 'payload', t.payload, 'headers', t.headers, 'priority', t.priority, 'wait', t.run_at - taskq._now(), 'attempt', t.attempt,
           'errors', jsonb_array_length(t.errors), 'queue', t.queue, 'max_retries', t.max_retries, 'until', t.unique_until) || to_jsonb(k) - '{key,task_id,task_type,kept_until}'::text[]
           || jsonb_build_object('kept', k.kept_until - taskq._now(), 'own', k.task_id = t.id)
    from taskq.task t, taskq.unique_key k where t.id = row.id
$$;
select * from test.row(:id);
select taskq.enqueue('r', '{"v": 2}', queue => 'other', priority => -3, max_retries => 9, unique_key => 'k', unique_until => 'finished', unique_for => '9 h',
                     headers => '{"h": 2}', delay => '3 min', on_conflict => 'replace') = :id as same;
select * from test.row(:id);
-- what is left out is as in a new task: the type's priority, no headers, an empty payload, due now
select bytes as before from taskq.task \gset
select taskq.enqueue('r', unique_key => 'k', on_conflict => 'replace') = :id as same;
select * from test.row(:id);
select bytes < :before as smaller from taskq.task;
-- no priority of the type: 0; the order of claims follows
select taskq.configure_type('r', '{"priority": null}') is not null as configured;
select taskq.enqueue('before', queue => 'q', priority => 2) > :id as later;
select taskq.enqueue('r', '{"v": 3}', unique_key => 'k', on_conflict => 'replace', run_at => taskq._now() - interval '1 min') = :id as same;
select * from test.row(:id);
begin;
select test.claim(2);
rollback;
select taskq.enqueue('r', '{"v": 3}', unique_key => 'k', on_conflict => 'replace', priority => 3) = :id as same;
select test.claim(2);
-- a retry that waits: it comes at the new moment, its history stays
select f.state from taskq.fail(:id, test.token(:id), 'e', retry_in => '1 h') f;
select taskq.enqueue('r', '{"v": 4}', unique_key => 'k', on_conflict => 'replace') = :id as same;
select * from test.row(:id);
-- a refusal changes nothing
select test.everything(:id) as before \gset
set taskq.max_payload_bytes = '1kB';
select test.error(format('select taskq.enqueue(''r'', %L, unique_key => ''k'', on_conflict => ''replace'')', jsonb_build_object('x', repeat('x', 2000))));
reset taskq.max_payload_bytes;
select test.error($$select taskq.enqueue('r', unique_key => 'k', on_conflict => 'replace', priority => 101)$$);
select test.claim();
select taskq.enqueue('r', '{"v": 5}', unique_key => 'k', on_conflict => 'replace');
select payload from taskq.task where id = :id;
-- after a rollback it is as before
select taskq.release(:id, test.token(:id));
begin;
select taskq.enqueue('r', '{"v": 6}', unique_key => 'k', on_conflict => 'replace') = :id as same;
rollback;
select payload from taskq.task where id = :id;
delete from taskq.task;
delete from taskq.unique_key;

-- duplicates within one call: the first has the key; replace gives it what the last has, then it is stored
create function test.many(variadic elements jsonb[]) returns setof text language sql as $$
  select format('%s %s %s', m.ord, coalesce((m.id - min(m.id) over ())::text, 'NULL'), case when m.created then 'created' else 'not' end)
    from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'm', 'unique_key', 'a') || e order by o)
                               from unnest(elements) with ordinality u(e, o))) m order by m.ord
$$;
create view test.stored as
  select t.id - min(t.id) over () as nth, t.payload, t.headers, t.priority, t.queue, t.max_retries, t.unique_key, t.unique_until, k.task_id = t.id as has_key, t.bytes
    from taskq.task t left join taskq.unique_key k on (k.task_type, k.key) = (t.task_type, t.unique_key) order by t.id;
select c as on_conflict, m.* from unnest('{ignore,skip}'::text[]) c,
  test.many(jsonb_build_object('unique_key', c), jsonb_build_object('unique_key', c, 'payload', 2, 'on_conflict', c), jsonb_build_object('unique_key', c || 2)) m;
select * from test.stored;
delete from taskq.task;
select test.many('{"payload": 1}', '{"unique_key": null, "payload": 2}', '{"payload": 3, "on_conflict": "error"}');
select test.many('{"payload": 1, "on_conflict": "error"}');
select test.many('{"unique_key": "c", "payload": 1, "priority": 5, "headers": {}, "queue": "q", "max_retries": 7, "unique_until": "started"}',
                 '{"unique_key": "b", "payload": 2}',
                 '{"unique_key": "c", "payload": 3, "on_conflict": "ignore"}',
                 '{"unique_key": "c", "payload": {"long": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}, "on_conflict": "replace", "queue": "other", "priority": 1}',
                 '{"unique_key": "c", "payload": 5, "on_conflict": "skip"}',
                 '{"unique_key": "b", "payload": 6, "on_conflict": "replace", "priority": -1, "headers": [1]}',
                 '{"unique_key": "c", "payload": 7, "on_conflict": "replace"}');
select * from test.stored;
-- stored ones and own ones mixed; the later replace wins, in the order of the elements
select test.many('{"unique_key": "b", "payload": 10, "on_conflict": "replace"}', '{"unique_key": "d", "payload": 11}',
                 '{"unique_key": "b", "payload": 12, "on_conflict": "replace"}', '{"unique_key": "c", "on_conflict": "skip"}',
                 '{"unique_key": "d", "payload": 13, "on_conflict": "replace"}');
select nth, payload, priority, headers from test.stored;
-- one that runs: the call is refused with the element's number, nothing of it remains
select test.claim(1, array['default']);
select test.many('{"unique_key": "d", "payload": 20, "on_conflict": "replace"}', '{"unique_key": "e", "payload": 21}',
                 '{"unique_key": "a", "payload": 22, "on_conflict": "replace"}');
select nth, payload, priority, headers from test.stored;
-- keys of different types do not meet
select test.many('{"task_type": "x", "unique_key": "z"}', '{"task_type": "y", "unique_key": "z"}', '{"task_type": "x", "unique_key": "z", "on_conflict": "skip"}');
delete from taskq.task;
delete from taskq.unique_key;

-- bad arguments
select taskq.enqueue('u', unique_key => 'k', unique_until => 'start');
select taskq.enqueue('u', unique_key => 'k', unique_for => '-1 s');
select taskq.enqueue('u', unique_for => '1 s');
select taskq.enqueue('u', unique_key => 'k', on_conflict => 'update');
select u, test.error(format('select taskq.enqueue(''u'', unique_key => ''k'', unique_until => %L)', u))
  from unnest('{"", FINISHED, Started, "started ", dead, succeeded, ignore}'::text[]) u;
select o, test.error(format('select taskq.enqueue(''u'', unique_key => ''k'', on_conflict => %L)', o))
  from unnest('{"", IGNORE, "replace ", nothing, started}'::text[]) o;
-- they are checked even where they do nothing
select test.error($$select taskq.enqueue('u', unique_until => 'never')$$), test.error($$select taskq.enqueue('u', on_conflict => 'never')$$);
select f, test.error(format('select taskq.enqueue(''u'', unique_key => ''k'', unique_for => %L)', f))
  from unnest('{0, 1 us, 100 years, 36525 days, 36525 days 1 us, -1 us, -100 years, 1 mon -31 days, 100000000 years, 178000000 years}'::text[]) f;
-- of 0: none
select taskq.enqueue('u', unique_key => 'zero', unique_for => '0') as id \gset
select kept_until from taskq.unique_key where task_id = :id;
select test.error('select taskq.enqueue(''u'', unique_for => ''0'')');
-- the longest
select taskq.enqueue('u', unique_key => 'century', unique_for => '36525 days') as id \gset
select kept_until - taskq._now() as kept from taskq.unique_key where task_id = :id;
select e, test.error(format('select taskq.enqueue_many(%L)', format('[{"task_type": "a"}, {"task_type": "a", "unique_key": "k", %s}]', e)))
  from unnest(array['"unique_until": "start"', '"unique_until": 1', '"unique_until": ""', '"unique_for": "soon"', '"unique_for": "-1 s"', '"unique_for": 1',
                    '"unique_for": "1 s", "unique_key": null', '"unique_for": "200 years"', '"unique_for": {}', '"unique_for": null, "unique_until": null', '"on_conflict": "update"']) e;
select count(*) from taskq.task where task_type <> 'u';
delete from taskq.task;
delete from taskq.unique_key;

-- a key that is up goes to the next enqueue, to the microsecond
select taskq.enqueue('u', unique_key => 'k', unique_for => '1 h') as first \gset
select test.claim();
select taskq.complete(:first, test.token(:first));
select test.key(:first);
select test.pass('59 min 59.999999 s');
select taskq.enqueue('u', unique_key => 'k') = :first as same, test.key(:first);
select taskq._forget_keys(taskq._now());
select test.pass('1 us');
select test.key(:first);
begin;
select taskq.enqueue('u', unique_key => 'k') > :first as own_task, test.key(:first);
rollback;
select test.key(:first);
-- and the archive duty removes it, but none that is held or kept
select taskq.enqueue('u', unique_key => 'held', unique_for => '1 s') > :first as own_task;
select taskq.enqueue('u', unique_key => 'kept', unique_for => '1 h') as kept \gset
select taskq.cancel(:kept);
select test.pass('1 min');
select test.archive() > 0 as worked;
select key, let_go from taskq.unique_key order by key;
select step, error from taskq.archive_trouble;
-- a task that lets go after unique_for frees it at once
select test.claim();
select count(taskq.complete(t.id, t.token)) from taskq.task t;
select key, let_go from taskq.unique_key order by key;
-- thousands at once
insert into taskq.unique_key (task_type, key, task_id, until_started, kept_until, let_go)
select 'many', n::text, -n, n % 2 = 0, taskq._now() + make_interval(secs => n - 4000), true from generate_series(1, 5000) n;
select taskq._forget_keys(taskq._now()) between 1000 and 4000 as removed;
select taskq._forget_keys(taskq._now()) + taskq._forget_keys(taskq._now()) + taskq._forget_keys(taskq._now()) + taskq._forget_keys(taskq._now()) >= 0 as rest;
select count(*), count(*) filter (where kept_until <= taskq._now()) as up from taskq.unique_key where task_type = 'many';
delete from taskq.unique_key;
delete from taskq.task;

-- superseded: started lets go at the first claim, and a retry does not take the key back
select taskq.enqueue('s', '{"n": 1}', unique_key => 'k', unique_until => 'started') as first \gset
select test.claim();
select taskq.enqueue('s', '{"n": 2}', unique_key => 'k', unique_until => 'started') as second \gset
select :second > :first as own_task;
select f.state from taskq.fail(:first, test.token(:first), 'broken', retry_in => '0') f;
select c.payload, c.attempt, c.id = :second as second from taskq.claim(2) c;
select state, cancel_reason = format('superseded by %s', :second) as reason, attempt, worker is not null as worker, claimed_at = taskq._now() as claimed,
       jsonb_array_length(errors) as errors, errors -> 0 ->> 'error' as error, result
  from taskq.finished where id = :first;
select state, last_error from taskq.status(:first);
select count(*) from taskq.unique_key;
-- the successor is in its turn superseded by the next
select taskq.release(:second, test.token(:second));
select taskq.enqueue('s', '{"n": 3}', unique_key => 'k', unique_until => 'started', delay => '1 h') as third \gset
select test.claim(9);
select cancel_reason = format('superseded by %s', :third) as reason from taskq.finished where id = :second;
-- by one that was taken back, released, scheduled or runs until it has finished
create function test.supersede(how text) returns text language plpgsql as $$
declare
  v_first  bigint := taskq.enqueue(how, unique_key => 'k', unique_until => 'started');
  v_second bigint;
  v_got    text;
begin
  perform from taskq.claim(1, lease => '1 s');
  if how ~ 'released' then
    perform taskq.release(v_first, test.token(v_first));
  elsif how ~ 'taken back' then
    perform test.pass('1 s');
  else
    perform taskq.fail(v_first, test.token(v_first), retry_in => '1 s');
  end if;
  v_second := taskq.enqueue(how, unique_key => 'k', unique_until => case when how ~ 'started' then 'started' else 'finished' end,
                            run_at => taskq._now() - interval '1 min', delay => null);
  if how !~ 'waiting' then
    perform from taskq.claim(1);
  end if;
  case
    when how ~ 'succeeded' then perform taskq.complete(v_second, test.token(v_second));
    when how ~ 'dead' then perform taskq.fail(v_second, test.token(v_second), retry => false);
    when how ~ 'cancelled' then perform taskq.cancel(v_second, force => true);
    when how ~ 'retry' then perform taskq.fail(v_second, test.token(v_second), retry_in => '1 h');
    else null;
  end case;
  perform test.pass('1 s');
  v_got := (select string_agg(case c.id when v_first then 'first' else 'second' end, ', ' order by c.id) from taskq.claim(9) c);
  return format('claimed %s; first is %s', coalesce(v_got, 'none'),
                replace((select concat_ws(', ', x.state, f.cancel_reason) from taskq.status(v_first) x left join taskq.finished f on f.id = v_first), v_second::text, 'second'));
end
$$;
begin;
delete from taskq.task;
delete from taskq.unique_key;
savepoint a;
select test.supersede('failed, second waiting');
rollback to a;
select test.supersede('released, second waiting');
rollback to a;
select test.supersede('taken back, second waiting');
rollback to a;
select test.supersede('failed, second running');
rollback to a;
select test.supersede('failed, second waits for a retry');
rollback to a;
-- not when it has finished, or has let go of the key, too
select test.supersede('failed, second succeeded');
rollback to a;
select test.supersede('failed, second dead');
rollback to a;
select test.supersede('failed, second cancelled');
rollback to a;
select test.supersede('failed, second running, started');
rollback to a;
-- not by a task of another type or with another key
select taskq.enqueue('s', unique_key => 'k', unique_until => 'started') as first \gset
select test.claim();
select f.state from taskq.fail(:first, test.token(:first), retry_in => '0') f;
select count(taskq.enqueue(t, unique_key => k, unique_until => 'started')) from (values ('s', 'K'), ('t', 'k')) v(t, k);
select test.claim(9);
rollback;
-- nor within unique_for, when nobody else could have taken it; after that it is
select taskq.enqueue('w', unique_key => 'k', unique_until => 'started', unique_for => '1 h') as first \gset
select test.claim();
select f.state from taskq.fail(:first, test.token(:first), retry_in => '0') f;
select taskq.enqueue('w', unique_key => 'k', unique_until => 'started') = :first as same;
select test.claim();
select f.state from taskq.fail(:first, test.token(:first), retry_in => '1 h') f;
select test.pass('1 h');
select taskq.enqueue('w', unique_key => 'k', unique_until => 'started', unique_for => '1 h') as second \gset
select c.id = :second as second from taskq.claim(2, array['default']) c where c.task_type = 'w';
select cancel_reason = format('superseded by %s', :second) as reason from taskq.finished where id = :first;
delete from taskq.task;
delete from taskq.unique_key;

-- in one claim as in several: a successor that comes first lets go of the key
select taskq.enqueue('o', unique_key => 'k', unique_until => 'started') as first \gset
select test.claim();
select f.state from taskq.fail(:first, test.token(:first), retry_in => '1 h') f;
select count(taskq.enqueue('o', unique_key => 'k', unique_until => 'started'));
select test.pass('1 h');
select test.claim(2);
delete from taskq.task;
-- nor is a task superseded by one that only unique_for kept the key for, when that is over
select taskq.enqueue('o', unique_key => 'k', unique_until => 'started') as first \gset
select test.claim();
select f.state from taskq.fail(:first, test.token(:first), retry_in => '2 h') f;
select count(taskq.enqueue('o', unique_key => 'k', unique_until => 'started', unique_for => '1 h'));
select count(*) from taskq.claim(lease => '1 day');
select test.pass('2 h');
select test.claim(2);
delete from taskq.task;
delete from taskq.unique_key;
-- rows come in order, also where one that was superseded let another one of its group go before those that were taken
select taskq.enqueue('o', unique_key => 'k', unique_until => 'started', group_key => 'g') as first \gset
select test.claim();
select count(taskq.enqueue('o', unique_key => 'k', delay => '1 h'));
select taskq.release(:first, test.token(:first));
select count(taskq.enqueue('second', group_key => 'g')), count(taskq.enqueue('third', delay => '1 s'));
select test.pass('1 s');
select test.claim(2);
delete from taskq.task;
delete from taskq.parked;
delete from taskq.group_turn;
delete from taskq.unique_key;

-- a claim gives as many as there are, and in order, whatever it cancels: 30 superseded ones before, between and behind
select count(taskq.enqueue('s', unique_key => p || '/' || n, unique_until => 'started', priority => p)) from unnest('{9,5}'::int[]) p, generate_series(1, 30) n;
select count(*) from taskq.claim(60);
select count(*) from (select taskq.release(t.id, t.token) from taskq.task t) x;
select count(taskq.enqueue('s', unique_key => unique_key, unique_until => 'started', delay => '1 h')) from taskq.task;
select count(taskq.enqueue('high', priority => 9)), count(taskq.enqueue('low', priority => 5)), count(taskq.enqueue('lowest', priority => 1)) from generate_series(1, 3);
begin;
select test.claim(1);
select test.claim(1);
select test.claim(2);
select test.claim(4);
rollback;
begin;
select test.claim(5);
select test.claim(5);
rollback;
select test.claim(100);
select state, count(*), count(*) filter (where cancel_reason ~ '^superseded by \d+$') as superseded from taskq.finished where task_type = 's' and finished_at = taskq._now() group by state;
select count(*) from taskq.unique_key;
delete from taskq.task;
delete from taskq.unique_key;
-- what is claimed stays below 16 MB also when large ones are superseded or there are small ones among them
set taskq.max_payload_bytes = '8MB';
select count(taskq.enqueue('s', unique_key => n::text, unique_until => 'started')) from generate_series(1, 5) n;
select count(*) from taskq.claim(5);
select count(*) from (select taskq.release(t.id, t.token) from taskq.task t) x;
select count(taskq.enqueue('s', unique_key => unique_key, unique_until => 'started', delay => '1 h')) from taskq.task;
select count(taskq.enqueue('large', jsonb_build_object('x', repeat('x', 5000000)))) from generate_series(1, 6);
select count(*) from taskq.claim(20) where task_type = 'large';
select count(*) from taskq.claim(20) where task_type = 'large';
delete from taskq.task;
delete from taskq.unique_key;
select count(taskq.enqueue('s', unique_key => n::text, unique_until => 'started')) from generate_series(1, 8) n;
select count(*) from taskq.claim(8);
select count(*) from (select taskq.release(t.id, t.token) from taskq.task t) x;
select count(taskq.enqueue('s', unique_key => unique_key, unique_until => 'started', delay => '1 h')) from taskq.task;
select count(taskq.enqueue('large', jsonb_build_object('x', repeat('x', 7000000)))) from generate_series(1, 8);
select count(*) from taskq.claim(11) where task_type = 'large';
reset taskq.max_payload_bytes;
delete from taskq.task;
delete from taskq.unique_key;

-- redrive: with a key that another holds it is skipped; else it comes back with its own
create function test.die(what text, until text, kept interval = null) returns bigint language plpgsql as $$
declare
  v_id bigint := taskq.enqueue(what, unique_key => 'k', unique_until => until, unique_for => kept);
begin
  perform taskq.fail(c.id, c.token, retry => false) from taskq.claim(1, array['default']) c;
  return v_id;
end
$$;
select test.die('d', 'finished') as f \gset
select test.die('e', 'started') as s \gset
select taskq.enqueue('d', unique_key => 'k') as df \gset
select taskq.enqueue('e', unique_key => 'k', unique_until => 'started') as es \gset
select redriven, skipped, skipped_ids = array[:f, :s]::bigint[] as both from taskq.redrive('*');
-- still when the holder of a started key dies; a started one that runs does not hold it any more
select test.claim(2);
select redriven, skipped_ids = array[:f]::bigint[] as finished_one from taskq.redrive('*');
-- it holds the key again, until its next claim
select test.error($$select taskq.enqueue('e', unique_key => 'k', on_conflict => 'error')$$) ~ format('task %s ', :s) as held;
select task_id = :s as own, until_started, let_go from taskq.unique_key where task_type = 'e';
select test.claim(1);
select test.error($$select taskq.enqueue('e', unique_key => 'k', on_conflict => 'error')$$);
select taskq.complete(:df, test.token(:df));
select redriven, skipped from taskq.redrive('*');
select task_id = :f as own, until_started, let_go from taskq.unique_key where task_type = 'd';
delete from taskq.task;
delete from taskq.unique_key;
-- with its own key, still kept: unique_for counts on from the enqueue
select test.die('d', 'finished', '1 h') as f \gset
select test.die('e', 'started', '1 h') as s \gset
select test.pass('20 min');
select count(*) filter (where let_go) from taskq.unique_key;
select redriven, skipped from taskq.redrive('*');
select task_type, task_id in (:f, :s) as own, until_started, let_go, kept_until - taskq._now() as kept from taskq.unique_key order by task_type;
select test.claim(2);
select task_type, let_go from taskq.unique_key order by task_type;
select count(taskq.complete(t.id, t.token)) from taskq.task t;
select task_type, let_go, kept_until - taskq._now() as kept from taskq.unique_key order by task_type;
delete from taskq.unique_key;
-- a key of another task that is kept although that has finished is held, too; one that is up is not
select test.die('d', 'finished') as f \gset
select taskq.enqueue('d', unique_key => 'k', unique_for => '1 h') as other \gset
select taskq.cancel(:other);
select redriven, skipped from taskq.redrive('*');
select test.pass('1 h');
select redriven, skipped from taskq.redrive('*');
select task_id = :f as own, let_go from taskq.unique_key;
delete from taskq.task;
delete from taskq.unique_key;
-- of several dead ones with one key one comes back, the one that was enqueued first
select test.die('d', 'finished') as a, test.die('d', 'finished') as b, test.die('d', 'finished') as c \gset
select redriven, skipped_ids = array[:b, :c]::bigint[] as others from taskq.redrive('*');
delete from taskq.task;
delete from taskq.dead_letter;
delete from taskq.unique_key;

-- purge frees
select taskq.enqueue('p', unique_key => 'ready', unique_for => '1 h'), taskq.enqueue('p', unique_key => 'scheduled', delay => '1 h') \gset ignored_
select taskq.enqueue('p', unique_key => 'retry', unique_until => 'started', unique_for => '1 h', priority => 1) as id \gset
select test.claim();
select f.state from taskq.fail(:id, test.token(:id), retry_in => '1 h') f;
select key, let_go from taskq.unique_key order by key;
select taskq.purge('ready'), taskq.purge('scheduled');
select count(*) from taskq.unique_key;

-- 100,000 elements in no order: 15,000 with a key that is stored, 40,000 with 10,000 other keys, 45,000 with one of their own
create temp table stored as
  select m.id, 'stored ' || m.ord as key
    from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'big', 'unique_key', 'stored ' || n) order by n) from generate_series(1, 15000) n)) m;
create temp table asked as
  select row_number() over (order by md5(n::text))::int as ord, (array['ignore', 'skip', 'replace'])[1 + n % 3] as on_conflict,
         case when n <= 15000 then 'stored ' || n when n <= 55000 then 'several ' || n % 10000 else 'single ' || n end as key
    from generate_series(1, 100000) n;
create temp table answer as
  select * from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'big', 'payload', ord, 'unique_key', key, 'on_conflict', on_conflict) order by ord) from asked));
select count(*), count(distinct ord) as ords, count(*) filter (where created) as created, count(*) filter (where not created) as duplicates from answer;
-- of each key: the task that has it, and the element whose payload that has
create temp table expected as
  select a.key, coalesce(s.id, (array_agg(w.id order by a.ord))[1]) as id, s.id is not null as stored, min(a.ord) as first,
         coalesce(max(a.ord) filter (where a.on_conflict = 'replace'), case when s.id is null then min(a.ord) end) as payload
    from asked a join answer w using (ord) left join stored s using (key) group by a.key, s.id;
select count(*) filter (where w.created is distinct from (not e.stored and a.ord = e.first)) as wrong_created,
       count(*) filter (where w.id is distinct from case when w.created or a.on_conflict <> 'skip' then e.id end) as wrong_id
  from asked a join answer w using (ord) join expected e using (key);
select count(*), count(*) filter (where t.payload is distinct from coalesce(to_jsonb(e.payload), '{}')) as wrong_payload,
       count(*) filter (where k.task_id is distinct from t.id or k.let_go) as wrong_key
  from expected e left join taskq.task t on t.id = e.id left join taskq.unique_key k on (k.task_type, k.key) = ('big', e.key);
select (select count(*) from taskq.task) as tasks, (select count(*) from taskq.unique_key) as keys;
delete from taskq.task;
delete from taskq.unique_key;

-- keys of 512 bytes, ASCII and not, that differ in the last byte only
create view test.long as select n, repeat('-', 511 % octet_length(c)) || repeat(c, 511 / octet_length(c)) || chr(65 + n) as key from generate_series(1, 20) n, unnest('{x,é,"\""}'::text[]) c;
select octet_length(key), count(*) from test.long group by 1;
select count(distinct taskq.enqueue(repeat('t', 63), unique_key => key, unique_for => '1 h')) from test.long;
select o, count(*), count(m.id), count(*) filter (where created) as created
  from unnest('{ignore,skip,replace}'::text[]) o,
       taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', repeat('t', 63), 'unique_key', key, 'on_conflict', o, 'payload', o)) from test.long)) m group by o;
select payload, count(*) from taskq.task group by 1;
select test.error(format('select taskq.enqueue(%L, unique_key => %L, on_conflict => ''error'')', repeat('t', 63), key)) ~ '^TQ002' as refused, count(*) from test.long group by 1;
select count(*) from taskq.claim(100);
select count(*) from (select taskq.complete(t.id, t.token) from taskq.task t) x;
select count(*) filter (where let_go) from taskq.unique_key;
select test.pass('1 h');
select count(distinct taskq.enqueue(repeat('t', 63), unique_key => key)), count(*) from test.long;
select count(*) filter (where let_go or kept_until is not null), count(*) from taskq.unique_key;
