-- Groups: at most one task of each queue and group_key runs at a time, in the order of claims.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
create function test.put(what text, "group" text, queue text = 'q', priority integer = 0, delay interval = null, max_retries integer = null)
  returns bigint language sql as $$
  select taskq.enqueue(put.what, queue => put.queue, priority => put.priority, delay => put.delay, max_retries => put.max_retries, group_key => put."group")
$$;
create function test.id(what text) returns bigint language sql as $$ select t.id from taskq.task t where t.task_type = id.what $$;
create function test.complete(what text) returns void language sql as $$
  select taskq.complete(t.id, t.token) from taskq.task t where t.task_type = complete.what
$$;
-- The tasks of a queue, and what people see of them.
create function test.states(queue text = 'q') returns text language sql as $$
  select coalesce(string_agg(format('%s %s', t.task_type, t.state), ', ' order by t.id), 'none') from taskq.tasks t where t.queue = states.queue
$$;
-- What is wrong with groups, turns and parked tasks; 'sound' if nothing is.
create function test.sound(at timestamptz = taskq._now()) returns text language sql as $$
  select coalesce(string_agg(x.what, ', '), 'sound') from (
    select format('%s tasks of %s/%s run', count(*), t.queue, t.group_key) from taskq.task t
     where t.state = 'running' and t.group_key is not null group by t.queue, t.group_key having count(*) > 1
    union all
    select format('%s runs without its turn', t.task_type) from taskq.task t
     where t.state = 'running' and t.group_key is not null
       and not exists (select from taskq.group_turn g where (g.queue, g.group_key, g.task_id) = (t.queue, t.group_key, t.id))
    union all
    select format('%s/%s: the turn is with task %s, which does not run', g.queue, g.group_key, g.task_id) from taskq.group_turn g
     where g.task_id is not null and not exists (select from taskq.task t where t.id = g.task_id and t.state = 'running')
    union all
    select format('task %s is parked here and not there', coalesce(t.id, p.id)) from taskq.parked p
      full join (select k.id, k.queue, k.group_key, k.priority from taskq.task k where k.state = 'waiting' and k.run_at = 'infinity') t using (id, queue, group_key, priority)
     where p.id is null or t.id is null
    union all
    select distinct format('%s/%s: tasks are parked, and nobody will unpark them', p.queue, p.group_key) from taskq.parked p
     where not exists (select from taskq.group_turn g where g.queue = p.queue and g.group_key = p.group_key and g.task_id is not null)
       and not exists (select from taskq.task t where t.queue = p.queue and t.group_key = p.group_key and t.run_at <= sound.at)) x(what)
$$;
-- Nothing is left, and a new queue begins.
create function test.clear() returns void language sql as $$
  delete from taskq.task; delete from taskq.parked; delete from taskq.group_turn; delete from taskq.done; delete from taskq.dead_letter;
  delete from taskq.unique_key; delete from taskq.queue
$$;

-- one of each group runs, and those without a group as ever
select test.put('a1', 'a'), test.put('a2', 'a'), test.put('b1', 'b'), test.put('x', null), test.put('b2', 'b'), test.put('y', null), test.put('a3', 'a') \gset ignored_
select id, group_key from taskq.claim(1);
select test.claim(10);
select test.states(), test.sound();
select test.claim(10);
-- who gets a task is told its group
select test.complete('a1');
select task_type, group_key from taskq.claim(10);
select test.states(), test.sound();
-- one by one as well as many at once
select test.complete('b1');
select test.claim(1), test.claim(1);
select test.complete('a2'), test.complete('b2'), test.complete('x'), test.complete('y');
select test.claim(1), test.claim(1), test.states(), test.sound();
select test.complete('a3');
select count(*) as parked from taskq.parked;
select task_type, state, group_key from taskq.done order by id;

-- the same key in another queue is another group
select test.clear() \gset ignored_
select test.put('q1', 'a'), test.put('r1', 'a', 'r'), test.put('q2', 'a'), test.put('r2', 'a', 'r') \gset ignored_
select test.claim(10), test.claim(10, array['r']), test.sound();
select test.complete('r1');
select test.claim(10), test.sound();
-- keys that differ by case or accent only are different ones
select test.put('s', 'A'), test.put('t', 'á'), test.put('u', 'á'), test.put('v', 'á') \gset ignored_
select test.claim(10);

-- the order of claims, within a group and between groups and others: priority, run_at, id
select test.clear() \gset ignored_
select test.put('low', 'a'), test.put('x', null, delay => '2 s'), test.put('later', 'a', delay => '3 s'), test.put('soon', 'a', delay => '1 s'), test.put('b', 'b', delay => '1 s'),
       test.put('high', 'a', priority => 5, delay => '4 s') \gset ignored_
select test.pass('10 s') \gset ignored_
select test.claim(10), test.states();
-- a claim of fewer takes them in the same order
select test.complete('high'), test.complete('b'), test.complete('x');
select test.claim(1), test.claim(1);
-- a new one of higher priority goes first when the turn is passed on
select test.put('higher', 'a', priority => 9) \gset ignored_
select test.claim(1), test.complete('low');
select test.claim(10), test.states();
-- and one that is put in place of a parked one's priority, too
select test.complete('higher');
select test.claim(1), test.complete('soon'), test.claim(1), test.states(), test.sound();

-- what is due later, or was put back, does not hold its group up
select test.clear() \gset ignored_
select test.put('a1', 'a'), test.put('a2', 'a', delay => '1 hour'), test.put('a3', 'a'), test.put('a4', 'a') \gset ignored_
select test.claim(10);
select f.state from taskq.fail(test.id('a1'), test.token(test.id('a1')), 'oops', retry_in => '1 min') f;
select test.claim(10), test.states();
-- when it is due again, it waits for the other, and comes before those that came later
select test.pass('1 min'), test.claim(10), test.states(), test.sound();
select test.complete('a3');
select test.claim(10), test.states(), test.sound();
select test.complete('a4'), test.claim(10), test.complete('a1'), test.claim(10), test.states();

-- every end passes the turn on: done, several groups at once
select test.clear() \gset ignored_
select count(test.put(g || n, g)) from unnest('{a,b,c}'::text[]) g, generate_series(1, 9) n;
select test.claim(10), test.claim(10);
select count(*) from taskq.complete_many(array(select t.id from taskq.task t where state = 'running'), array(select t.token from taskq.task t where state = 'running'));
select test.claim(10), test.sound();
-- the same one twice, and a stale one
select count(*) from taskq.complete_many(array(select t.id from taskq.task t where state = 'running') || array[test.id('a2'), 1], array(select t.token from taskq.task t where state = 'running') || array[test.token(test.id('a2')), 1]);
select test.claim(10), test.sound();
-- failures: for another run, and for good
select state from taskq.fail(test.id('a3'), test.token(test.id('a3')), retry_in => '1 hour');
select state from taskq.fail(test.id('b3'), test.token(test.id('b3')), retry => false);
select test.claim(10), test.sound();
select state from taskq.fail_many(array(select t.id from taskq.task t where state = 'running' order by id), array(select t.token from taskq.task t where state = 'running' order by id));
select test.claim(10), test.sound();
-- due at once: the same one again
select state from taskq.fail(test.id('a5'), test.token(test.id('a5')), retry_in => '0');
select test.claim(1), test.states(), test.sound();
-- releases: in its place it comes again; with a delay the next one comes
select taskq.release(test.id('b5'), test.token(test.id('b5')));
select test.claim(1), test.sound();
select taskq.release(test.id('b5'), test.token(test.id('b5')), '1 hour');
select test.claim(1), test.sound();
-- cancelled: by force, and as it ends after the request
select taskq.cancel(test.id('c4'), force => true);
select test.claim(1), test.sound();
select taskq.cancel(test.id('c5'));
select test.claim(1);
select state from taskq.fail(test.id('c5'), test.token(test.id('c5')));
select test.claim(1), test.sound();
select taskq.cancel(test.id('c6'));
select taskq.release(test.id('c6'), test.token(test.id('c6')));
select test.claim(1), test.sound();

-- the lease is over: taken back by the keeper's function, or by a claim
select test.clear() \gset ignored_
select test.put('a1', 'a', max_retries => 1), test.put('a2', 'a'), test.put('b1', 'b', max_retries => 0), test.put('b2', 'b') \gset ignored_
select test.claim(10), test.claim(10);
select test.pass('5 min');
select test.claim(10), test.states(), test.sound();
select test.claim(10), test.states(), test.sound();
select test.pass('5 min'), taskq._recover(10);
select test.states(), test.sound();
select test.claim(10), test.claim(10), test.states(), test.sound();
-- a claim of one that finds a dead one first gets the next
select test.clear() \gset ignored_
select test.put('a1', 'a', max_retries => 0), test.put('a2', 'a') \gset ignored_
select test.claim(1), test.claim(1);
select test.pass('5 min'), test.claim(1), test.states(), test.sound();

-- a task whose key is with another one is superseded, and passes the turn on
select test.clear() \gset ignored_
select taskq.enqueue('old', queue => 'q', unique_key => 'k', unique_until => 'started', group_key => 'a') \gset ignored_
select test.claim(1);
select state from taskq.fail(test.id('old'), test.token(test.id('old')), retry_in => '1 min');
select taskq.enqueue('old', queue => 'q', unique_key => 'k', group_key => 'a', delay => '1 hour') as new \gset
select test.put('a2', 'a', delay => '1 min') \gset ignored_
select test.pass('1 min');
select test.claim(1), test.states(), test.sound();
select test.claim(1), test.sound();
select state, cancel_reason = 'superseded by ' || :new as superseded from taskq.done;

-- a parked task: what people see
select test.clear() \gset ignored_
select test.put('a1', 'a'), test.put('a2', 'a', delay => '1 s'), test.put('a3', 'a') \gset ignored_
select test.pass('5 s'), test.claim(10);
select task_type, state, run_at - taskq._now() as due, group_key from taskq.tasks order by id;
select state, run_at - taskq._now() as due from taskq.status(test.id('a2'));
select queue, ready, scheduled, running, blocked from taskq.queues;
select test.error(format('select taskq.complete(%s, 1)', test.id('a2'))) ~ '^TQ001' as refused;
-- it can be cancelled; done has the real run_at
select taskq.cancel(test.id('a2'), 'no more'), test.states(), test.sound();
select state, run_at - taskq._now() as due, claimed_at, group_key from taskq.done;
-- the turn was not passed on: the other one stays where it is
select test.states();
-- the cancel of the one that has got the turn's place passes it on
select test.put('a4', 'a'), test.put('a5', 'a'), test.claim(10), test.complete('a1'), test.states();
select taskq.cancel(test.id('a3')), test.states(), test.sound();
-- so does its purge
select test.clear() \gset ignored_
select test.put('a1', 'a'), test.put('other', 'a'), test.put('a3', 'a'), test.claim(10), test.complete('a1'), test.states();
select taskq.purge('ready', 'q', 'other'), test.states(), test.sound();
select test.claim(10);
-- parked ones are purged as ready ones are
select test.put('a4', 'a'), test.put('a5', 'a'), test.claim(10), test.states();
select taskq.purge('scheduled', 'q'), taskq.purge('ready', 'q'), test.states(), test.sound();
-- replaced: it has its new place, parked or not, and passes the turn's place on if it is due later
select test.clear() \gset ignored_
select test.put('a1', 'a') \gset ignored_
select taskq.enqueue('k', '1', queue => 'q', unique_key => 'k', group_key => 'a') \gset ignored_
select test.put('a3', 'a'), test.claim(10), test.states();
select taskq.enqueue('k', '2', queue => 'q', unique_key => 'k', group_key => 'a', on_conflict => 'replace', priority => 3) = test.id('k') as replaced, test.states(), test.sound();
select test.claim(10), test.states(), test.sound();
select test.complete('a1'), test.states();
select taskq.enqueue('k', '3', queue => 'q', unique_key => 'k', group_key => 'a', on_conflict => 'replace', delay => '1 min') = test.id('k') as replaced, test.states(), test.sound();
select test.claim(10);

-- redriven: still of its group
select test.clear() \gset ignored_
select test.put('a1', 'a', max_retries => 0), test.put('a2', 'a'), test.claim(10);
select state from taskq.fail(test.id('a1'), test.token(test.id('a1')));
select task_type, group_key from taskq.dead_letter;
select test.claim(10), test.states();
select redriven from taskq.redrive('q');
select test.claim(10), test.states(), test.sound();
select test.complete('a2'), test.claim(10), test.sound();

-- a savepoint: the turn is given back with the task
select test.clear() \gset ignored_
select test.put('a1', 'a'), test.put('a2', 'a'), test.put('b1', 'b') \gset ignored_
begin;
savepoint s;
select test.claim(10);
rollback to s;
select test.states(), test.sound();
select test.claim(1);
savepoint s;
select test.claim(10), test.complete('a1'), test.claim(1), test.states();
rollback to s;
select test.states(), test.sound();
select test.claim(10), test.states(), test.sound();
rollback;
select test.states(), test.sound();
select count(*) as turns from taskq.group_turn;
begin;
select test.claim(10), test.complete('a1'), test.claim(10), test.states(), test.sound();
commit;
select test.states(), test.sound();

-- with a limit: the turn does not get lost where a slot is missing
select test.clear() \gset ignored_
select taskq.configure_queue('q', '{"max_running": 2}');
select count(test.put(g || n, g)) from unnest('{a,b,c}'::text[]) g, generate_series(1, 3) n;
select test.claim(10), test.claim(10), test.sound();
select test.complete('a1'), test.claim(10), test.sound();
select test.complete('a2'), test.complete('b1'), test.claim(1), test.claim(1), test.claim(1), test.sound();
-- all of them come to an end
create function test.finish(n integer) returns bigint language plpgsql as $$
declare
  v_rounds integer := 0;
begin
  while exists (select from taskq.task) loop
    perform taskq.complete(t.id, t.token) from taskq.task t where t.state = 'running';
    perform from taskq.claim(finish.n);
    if test.sound() <> 'sound' then raise 'round %: %', v_rounds, test.sound(); end if;
    if v_rounds > 10000 then raise 'it does not end: %', test.states(); end if;
    v_rounds := v_rounds + 1;
  end loop;
  return (select count(*) from taskq.done f where f.state = 'succeeded');
end
$$;
select test.finish(10);
select count(*) filter (where task_id is null) as free, count(*) from taskq.slot;
-- with a rate
select test.clear() \gset ignored_
select taskq.configure_queue('q', '{"rate": "2/minute"}');
select count(test.put(g || n, g)) from unnest('{a,b,c}'::text[]) g, generate_series(1, 3) n;
select test.claim(10), test.claim(10), test.sound();
select test.complete('a1'), test.complete('b1'), test.claim(10), test.sound();
select test.pass('1 min'), test.claim(10), test.claim(10), test.sound();
select test.pass('1 min'), test.claim(1), test.claim(10), test.states(), test.sound();

-- bad keys
select length(k) as length, test.error(format('select taskq.enqueue(%L, group_key => %L)', 't', k))
  from unnest(array['', repeat('x', 513), repeat('é', 257), E'a\nb', E'\x7f', repeat('é', 256), ' ']) k;
select test.error(format('select taskq.enqueue_many(%L)', jsonb_build_array('{"task_type": "t"}'::jsonb, jsonb_build_object('task_type', 't', 'group_key', k))))
  from unnest(array['""', to_jsonb(repeat('x', 513)), '"a\tb"', '1', '["a"]', 'null', to_jsonb(repeat('x', 512))]::jsonb[]) k;
-- long ones work, none means none
select test.clear() \gset ignored_
select count(*) from taskq.enqueue_many(jsonb_build_array('{"task_type": "n", "queue": "q"}'::jsonb, '{"task_type": "n", "queue": "q", "group_key": null}'::jsonb,
  jsonb_build_object('task_type', 'l1', 'queue', 'q', 'group_key', repeat('x', 512)), jsonb_build_object('task_type', 'l2', 'queue', 'q', 'group_key', repeat('x', 511) || 'y'),
  jsonb_build_object('task_type', 'l3', 'queue', 'q', 'group_key', repeat('x', 512))));
select test.claim(10), test.states(), test.sound();
select test.finish(10);

-- many tasks of one group at the head of a queue: each is parked once, and is then in nobody's way
select test.clear() \gset ignored_
create function test.pages(statement text) returns bigint language plpgsql as $$
declare
  v_plan json;
begin
  execute 'explain (analyze, buffers, timing off, summary off, format json) ' || pages.statement into v_plan;
  return (v_plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (v_plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
end
$$;
create procedure test.claims(times integer) language plpgsql as $$
begin
  for i in 1 .. claims.times loop
    perform from taskq.claim(1);
    commit;
  end loop;
end
$$;
create view test.updates as select n_tup_upd from pg_stat_user_tables where relid = 'taskq.task'::regclass;
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'many', 'queue', 'q', 'group_key', 'a')) from generate_series(1, 20000)));
select count(test.put('x' || n, case when n % 2 = 0 then 'x' || n end)) from generate_series(1, 400) n;
select pg_stat_force_next_flush();
select pg_stat_reset_single_table_counters('taskq.task'::regclass);
call test.claims(1);
select test.states('none'), test.sound();
-- no claim parks more than it can do in a moment
select count(*) from taskq.claim(1);
select count(*) between 1000 and 2000 as bounded from taskq.parked;
call test.claims(30);
select count(*) as parked from taskq.parked;
select count(*) > 0 as others from taskq.task where state = 'running' and task_type <> 'many';
select pg_stat_force_next_flush();
-- each once, and those that were claimed
select n_tup_upd - (select count(*) from taskq.task where state = 'running') as parked from test.updates;
call test.claims(10);
select pg_stat_force_next_flush();
select n_tup_upd - (select count(*) from taskq.task where state = 'running') as parked from test.updates;
vacuum taskq.task, taskq.parked;
select test.claim(1) \gset ignored_
select test.pages('select * from taskq.claim(1)') < 150 as few_pages;
select test.pages('select * from taskq.claim(1)') < 150 as few_pages;
-- nor does the end of one, or a cancel, look at all of them
select test.pages(format('select taskq.complete(%s, %s)', t.id, t.token)) < 150 as few_pages from taskq.task t where t.state = 'running' and t.task_type = 'many';
select test.claim(1), test.sound();
select test.pages(format('select taskq.cancel(%s)', max(id))) < 60 as few_pages from taskq.parked;
select count(*) from taskq.parked;
select queue, ready, running, blocked from taskq.queues;

-- many groups: an end does not look at all turns
select test.clear() \gset ignored_
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'n', 'queue', 'q', 'group_key', 'g' || n % 5000)) from generate_series(1, 10000) n));
do $$ begin for i in 1 .. 10 loop perform from taskq.claim(1000); end loop; end $$;
select test.sound(), count(*) from taskq.parked;
vacuum analyze taskq.task, taskq.parked, taskq.group_turn;
-- (the first one makes its plans anew)
select taskq.complete(t.id, t.token) from taskq.task t where t.state = 'running' order by t.id limit 1;
select test.pages(format('select taskq.complete(%s, %s)', t.id, t.token)) < 60 as few_pages from taskq.task t where t.state = 'running' order by t.id limit 3;
select test.claim(10), count(*) from taskq.parked;

-- the duty mends what does not fit
select test.clear() \gset ignored_
select test.put('a1', 'a'), test.put('a2', 'a'), test.put('b1', 'b'), test.put('b2', 'b'), test.put('b3', 'b'), test.put('c1', 'c'), test.claim(10);
select test.complete('c1');
-- nothing is wrong: nothing is done, but for a turn that nobody needs
select taskq._duty_limits(), test.states(), test.sound();
select group_key from taskq.group_turn order by 1;
-- a turn whose task does not run
delete from taskq.task where task_type = 'a1';
select test.sound();
select taskq._duty_limits(), test.states(), test.sound();
select test.claim(10);
-- parked tasks whose group has no turn
delete from taskq.task where task_type = 'b1';
delete from taskq.group_turn where group_key = 'b';
select test.sound();
select taskq._duty_limits(), test.states(), test.sound();
select test.claim(10), test.states(), test.sound();
select test.complete('a2'), test.complete('b2'), test.claim(10), test.sound();
select test.complete('b3'), taskq._duty_limits();
select count(*) as turns from taskq.group_turn;

-- a dump has both tables
select extconfig @> array['taskq.group_turn'::regclass::oid, 'taskq.parked'::regclass::oid] as dumped from pg_extension where extname = 'taskq';

-- a task that ends in the claim, because its lease is over, gives its place to the next one, though that has a group
select test.clear() \gset ignored_
select taskq.enqueue('first', queue => 'o') as first \gset
select taskq.enqueue('grouped', queue => 'o', group_key => 'g') is not null as stored;
select taskq.enqueue('later', queue => 'o') is not null as stored;
select c.task_type from taskq.claim(1, array['o'], lease => '1 s') c;
select taskq.cancel(:first);
select test.pass('1 s');
select c.task_type from taskq.claim(1, array['o']) c;
select c.task_type from taskq.claim(9, array['o']) c;
