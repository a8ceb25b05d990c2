-- What the shared memory knows of the tasks is what a count of the tables finds, whatever was done to them.
\set ECHO none
\getenv here PG_ABS_SRCDIR
-- A database of its own: tables that other tests have emptied by hand would leave figures behind.
set client_min_messages = warning;
select current_database() as home \gset
drop database if exists taskq_figures;
create database taskq_figures template template0;
alter database taskq_figures set taskq.keeper = off;
\c taskq_figures
create extension taskq;
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- 'equal', or where the figures and a count differ
create function test.figures() returns text language sql as $$
  select coalesce(string_agg(format('%s/%s: figures %s/%s/%s, counted %s/%s/%s', queue, task_type, f.ready, f.scheduled,
                                    f.running, c.ready, c.scheduled, c.running), '; ' order by queue, task_type), 'equal')
    from taskq._figures() f
    full join (select t.queue, t.task_type,
                      count(*) filter (where t.state = 'waiting' and t.run_at <= taskq._now()) as ready,
                      count(*) filter (where t.state = 'waiting' and t.run_at > taskq._now()) as scheduled,
                      count(*) filter (where t.state = 'running') as running
                 from taskq.task t group by t.queue, t.task_type) c using (queue, task_type)
   where (coalesce(f.ready, 0), coalesce(f.scheduled, 0), coalesce(f.running, 0))
         <> (coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.running, 0))
$$;
-- what there is and what has happened, in all queues of a name
create function test.figures_of(queue text) returns text language sql as $$
  select format('ready %s scheduled %s running %s, enqueued %s started %s succeeded %s failed %s retried %s dead %s expired %s cancelled %s',
                sum(f.ready), sum(f.scheduled), sum(f.running), sum(f.enqueued), sum(f.started), sum(f.succeeded),
                sum(f.failed), sum(f.retried), sum(f.dead), sum(f.expired), sum(f.cancelled))
    from taskq._figures() f where f.queue = figures_of.queue
$$;
select test.freeze();
-- no figures before the first count; what was there before is counted then
select count(*) from taskq._figures_state();
select count(taskq.enqueue('t', queue => 'old', delay => make_interval(secs => n))) from generate_series(0, 2) n;
select count(*) from taskq._wake();
select exact, counted_at = taskq._now() as just_now from taskq._figures_state();
select test.figures(), test.figures_of('old');

-- enqueue, now and later
select count(taskq.enqueue('t', queue => 'a')) from generate_series(1, 3);
select count(taskq.enqueue('t', queue => 'a', delay => '1 minute')), count(taskq.enqueue('u', queue => 'a', run_at => taskq._now() - interval '1 day'));
select count(*) from taskq.enqueue_many(jsonb_build_array('{"task_type": "t", "queue": "a"}'::jsonb, '{"task_type": "v", "queue": "a", "delay": "1 minute"}'::jsonb,
                                                          jsonb_build_object('task_type', 'v', 'queue', 'a', 'run_at', taskq._now() - interval '1 hour')));
select test.figures(), test.figures_of('a');
-- a task that becomes due is scheduled until _wake has come by, and counted once
select test.pass('2 minutes');
select test.figures_of('a');
select taskq._wake() > 0 as told;
select test.figures(), test.figures_of('a');
select taskq._wake() from pg_sleep(0.15);
select test.figures(), test.figures_of('a');
-- one that becomes due while _wake comes by for others
select count(taskq.enqueue('t', queue => 'a', delay => make_interval(secs => n))) from generate_series(1, 5) n;
select test.pass('3 s');
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('a');
-- one that was due when it was enqueued and one that was not go the same way
select count(*) from taskq.claim(100, array['a']);
select test.figures(), test.figures_of('a');
select count(*) from taskq.task t, taskq.complete(t.id, t.token) where t.state = 'running';
select test.figures(), test.figures_of('a');
-- a scheduled one that is claimed when it has become due, before _wake has come by
select test.pass('10 s');
select count(*) from taskq.claim(100, array['a']);
select test.figures(), test.figures_of('a');
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('a');
select count(*) from (select array_agg(id order by id) as ids, array_agg(token order by id) as tokens from taskq.task where state = 'running') r,
                     taskq.complete_many(r.ids, r.tokens);
select test.figures(), test.figures_of('a');

-- fail: again later, again at once, dead
select test.running('f') as id \gset
select f.state from taskq.fail(:id, test.token(:id), 'no') f;
select test.figures(), test.figures_of('f');
select test.pass('2 minutes');
select taskq._wake() is not null;
select count(*) from taskq.claim(1, array['f']);
select f.state from taskq.fail(:id, test.token(:id), 'no', retry_in => '0 s') f;
select test.figures(), test.figures_of('f');
select count(*) from taskq.claim(1, array['f']);
select f.state from taskq.fail(:id, test.token(:id), 'no', retry => false) f;
select test.figures(), test.figures_of('f');
select test.running('g', 0) as dies, test.running('g') as retries \gset
select state from taskq.fail_many(array[:dies, :retries], array[test.token(:dies), test.token(:retries)]);
select test.figures(), test.figures_of('g');

-- release: in place, and later; of one that was scheduled once
select test.running('r') as id \gset
select taskq.release(:id, test.token(:id));
select test.figures(), test.figures_of('r');
select count(*) from taskq.claim(1, array['r']);
select taskq.release(:id, test.token(:id), '5 s');
select test.figures(), test.figures_of('r');
select test.pass('6 s');
select count(*) from taskq.claim(1, array['r']);
select taskq.release(:id, test.token(:id));
select test.figures();  -- (it counts as scheduled until _wake has come by)
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('r');

-- cancel: ready, scheduled, running, by force; and what a requested cancel does at the next verb
select taskq.cancel(taskq.enqueue('t', queue => 'c')), taskq.cancel(taskq.enqueue('t', queue => 'c', delay => '1 s'));
select test.figures(), test.figures_of('c');
select taskq.cancel(test.running('c'), force => true);
select test.figures(), test.figures_of('c');
select test.running('c') as one, test.running('c') as two, test.running('c') as three, test.running('c') as four \gset
select taskq.cancel(id) from unnest(array[:one, :two, :three, :four]) id;
select test.figures(), test.figures_of('c');
select taskq.complete(:one, test.token(:one));
select taskq.release(:two, test.token(:two));
select f.state from taskq.fail(:three, test.token(:three)) f;
select test.figures(), test.figures_of('c');
select test.pass('1 hour');
select taskq._recover(100) as took_back;
select taskq._wake() is not null from pg_sleep(0.15);  -- (others have become due)
select test.figures(), test.figures_of('c');

-- a lease that ends, found by a claim and by _recover; retries left and none left
select test.running('e', 1) as again, test.running('e', 0) as dies \gset
select test.pass('1 hour');
select count(*) from taskq.claim(1, array['e']);
select test.figures(), test.figures_of('e');
select test.pass('1 hour');
select taskq._recover(100);
select test.figures(), test.figures_of('e');

-- keys: a second enqueue, replace both ways, a task that was superseded
select taskq.enqueue('k', queue => 'k', unique_key => '1') as id \gset
select taskq.enqueue('k', queue => 'k', unique_key => '1') = :id as ignored, taskq.enqueue('k', queue => 'k', unique_key => '1', on_conflict => 'skip') is null as skipped;
select test.figures(), test.figures_of('k');
select taskq.enqueue('k', queue => 'k', unique_key => '1', delay => '1 minute', on_conflict => 'replace') = :id as later;
select test.figures(), test.figures_of('k');
select taskq.enqueue('k', queue => 'k', unique_key => '1', delay => '2 minutes', on_conflict => 'replace') = :id as later_still;
select test.figures(), test.figures_of('k');
select taskq.enqueue('k', queue => 'k', unique_key => '1', run_at => taskq._now() - interval '1 day', on_conflict => 'replace') = :id as sooner;
select test.figures(), test.figures_of('k');
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('k');
select taskq.enqueue('s', queue => 's', unique_key => '1', unique_until => 'started') as id \gset
select count(*) from taskq.claim(1, array['s']);
select taskq.enqueue('s', queue => 's', unique_key => '1', unique_until => 'started') <> :id as successor;
select f.state from taskq.fail(:id, test.token(:id), retry_in => '0 s') f;
select test.figures(), test.figures_of('s');
select count(*) from taskq.claim(5, array['s']);
select state, cancel_reason ~ 'superseded' as superseded from taskq.done where id = :id;
select test.figures(), test.figures_of('s');

-- redrive, at once and spread
select count(test.running('d', 0)) from generate_series(1, 5);
select count(*) from taskq.task t, taskq.fail(t.id, t.token) f where t.queue = 'd';
select test.figures(), test.figures_of('d');
select redriven from taskq.redrive('d', max_tasks => 1);
select test.figures(), test.figures_of('d');
select redriven from taskq.redrive('d', per_second => 1);
select test.figures();  -- (of those spread, the first is due by now: _wake tells)
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('d');
select test.pass('1 minute');
select taskq._wake() is not null from pg_sleep(0.15);
select test.figures(), test.figures_of('d');

-- purge
select count(taskq.enqueue('p', queue => 'p')), count(taskq.enqueue('p', queue => 'p', delay => '1 hour')) from generate_series(1, 3);
select test.figures(), test.figures_of('p');
select taskq.purge('ready', 'p');
select test.figures(), test.figures_of('p');
select taskq.purge('scheduled', 'p');
select test.figures(), test.figures_of('p');

-- settings that move tasks elsewhere
select taskq.configure_type('routed', '{"queue": "m"}') is not null;
select taskq.enqueue('routed') > 0;
select taskq.configure_queue('m', '{"retention": "0 s"}') is not null;
select count(c.id) from taskq.claim(1, array['m']) c, taskq.complete(c.id, c.token);
select test.figures(), test.figures_of('m');

-- what is rolled back did not happen; a savepoint takes back its own part only
begin;
select taskq.enqueue('x', queue => 'x') > 0;
select count(*) from taskq.claim(1, array['x']);
rollback;
select test.figures(), test.figures_of('x');
begin;
select taskq.enqueue('kept', queue => 'x') > 0;
savepoint a;
select taskq.enqueue('gone', queue => 'x') > 0;
savepoint b;
select taskq.enqueue('gone', queue => 'x', delay => '1 s') > 0;
release b;
rollback to a;
select taskq.enqueue('kept', queue => 'x') > 0;
savepoint b;
select taskq.enqueue('kept', queue => 'x', delay => '1 s') > 0;
savepoint c;
select count(*) from taskq.claim(1, array['x']);
rollback to c;
select count(*) from taskq.claim(1, array['x']);
release b;
release a;
select test.figures_of('x');  -- not before the commit
commit;
select test.figures(), test.figures_of('x');
do $$
begin
  perform taskq.enqueue('block', queue => 'x');
  begin
    perform taskq.enqueue('gone', queue => 'x');
    begin
      perform taskq.enqueue('gone', queue => 'x');
    exception when others then null;
    end;
    raise exception 'undo';
  exception when others then
    perform taskq.enqueue('block', queue => 'x', delay => '1 minute');
  end;
  for i in 1 .. 3 loop
    begin
      perform taskq.enqueue('block', queue => 'x');
      if i = 2 then raise exception 'undo'; end if;
    exception when others then null;
    end;
  end loop;
end
$$;
select test.figures(), test.figures_of('x');
-- verbs that fail change nothing
select test.running('y') as id \gset
select test.error(format('select taskq.complete(%s, %s)', :id, test.token(:id) + 1));
select test.error(format('select taskq.complete(%s, %s), 1/0', :id, test.token(:id)));
begin;
select taskq.complete(:id, test.token(:id));
select 1/0;
commit;
select test.figures(), test.figures_of('y');
-- many verbs on one task in one transaction
begin;
select taskq.complete(:id, test.token(:id));
select taskq.enqueue('y', queue => 'y') as id \gset
select count(*) from taskq.claim(1, array['y']);
select taskq.release(:id, test.token(:id), '1 minute');
select taskq.cancel(:id);
commit;
select test.figures(), test.figures_of('y');

-- all of this was exact from the first count on
select exact from taskq._figures_state();

-- _take_figures: what has happened since it was last called and committed
select test.running('take') as id \gset
select test.pass('4 s');
select taskq.complete(:id, test.token(:id));
begin;
select enqueued, started, succeeded, failed, running, round(run_p50) as run_p50 from taskq._take_figures() where queue = 'take';
rollback;
begin;
savepoint a;
select enqueued, started, succeeded, failed, running, round(run_p50) as run_p50 from taskq._take_figures() where queue = 'take';
commit;
select enqueued, started, succeeded, failed, running, run_p50, run_p95, waiting_p50, total_p50 from taskq._take_figures() where queue = 'take';
select test.running('take') > 0;
select enqueued, started, succeeded, failed, running, run_p50 from taskq._take_figures() where queue = 'take';
select test.figures_of('take');
-- percentiles: 100 tasks that waited for 0.1 to 10 s, and ran for 2 s
select count(taskq.enqueue('late', queue => 'late')) from generate_series(1, 100);
do $$
declare
  v_begin timestamptz := taskq._now();
  v_task record;
begin
  for i in 1 .. 100 loop
    perform test.pass(v_begin + make_interval(secs => 0.1 * i) - taskq._now());
    select c.id, c.token into v_task from taskq.claim(1, array['late']) c;
    perform test.pass('2 s');
    perform taskq.complete(v_task.id, v_task.token);
  end loop;
end
$$;
select abs(waiting_p50 / 5 - 1) < 0.1 as waiting_p50, abs(waiting_p95 / 9.5 - 1) < 0.1 as waiting_p95,
       abs(run_p50 / 2 - 1) < 0.1 as run_p50, abs(run_p95 / 2 - 1) < 0.1 as run_p95,
       abs(total_p50 / 7 - 1) < 0.1 as total_p50, abs(total_p95 / 11.5 - 1) < 0.1 as total_p95
  from taskq._take_figures() where queue = 'late';
-- the time before a task is due is not waiting
select taskq.enqueue('soon', queue => 'soon', delay => '100 s') > 0;
select test.pass('103 s');
select count(*) from taskq.claim(1, array['soon']);
select round(waiting_p50) as waiting_p50 from taskq._take_figures() where queue = 'soon';

-- workers that have called claim
select count(*) from taskq.claim(1, array['none', 'late'], 'w-1');
select count(*) from taskq.claim(0, worker => 'w-0');
select taskq.enqueue('w', queue => 'w') > 0;
select count(*) from taskq.claim(5, array['w'], 'w-2');
select test.pass('1 minute');
select count(*) from taskq.claim(1, array['w'], 'w-2');
select count(*) from taskq.claim(1, null, 'w-3');
select worker, queues, taskq._now() - first_seen_at as first_seen, taskq._now() - seen_at as seen, taskq._now() - claimed_at as claimed,
       claims, claimed as tasks
  from taskq._workers_seen() where worker ~ '^w-[0-9]$' order by worker;
begin;
select count(*) from taskq.claim(1, array['w'], 'w-4');
rollback;
select claims, claimed from taskq._workers_seen() where worker = 'w-4';

-- what was changed without the verbs is found when all is counted again, after a while
create function test.wake_until_equal() returns text language plpgsql as $$
begin
  for i in 1 .. 200 loop  -- a count rests for a while after the one before
    perform taskq._wake();
    exit when test.figures() = 'equal';
    perform pg_sleep(0.05);
  end loop;
  return test.figures();
end
$$;
select test.pass('11 minutes'), test.wake_until_equal();
delete from taskq.task;
select test.figures() = 'equal' as equal;
select test.pass('9 minutes'), taskq._wake() is not null;
select test.figures() = 'equal' as equal;
select test.pass('2 minutes'), test.wake_until_equal();
select test.figures(), exact from taskq._figures_state();

-- a new extension begins anew
set client_min_messages = warning;
drop extension taskq;
create extension taskq;
select count(*) from taskq._figures() where ready + scheduled + running > 0;
\c :home
drop database taskq_figures;
