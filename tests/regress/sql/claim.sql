-- claim: who gets what, in which order, for how long.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- the row that comes back
select taskq.enqueue('mail', '{"to": "ann"}', queue => 'a', priority => 3, max_retries => 2, headers => '{"h": 1}') as id;
set application_name = 'shop';
select id, token > 0 and token < 1 << 21 as token, task_type, queue, payload, headers, attempt, max_retries, priority,
       enqueued_at = taskq._now() as enqueued_at, lease_expires_at - taskq._now() as lease
  from taskq.claim();
reset application_name;
select state, worker = 'shop' as worker, claimed_at = taskq._now() as claimed_at, token = test.token(1) as token
  from taskq.task;
-- no arguments: one task
select taskq.enqueue('t' || n) from generate_series(1, 3) n;
select test.claim(1);
select count(*) from taskq.claim(0);
-- in the select list, too
select (c).task_type from (select taskq.claim(1) c) x;
delete from taskq.task;

-- n: bounds, and that a refusal takes nothing
select count(taskq.enqueue('n')) from generate_series(1, 1200);
select taskq.claim(-1);
select n, test.error(format('select from taskq.claim(%s)', coalesce(n::text, 'null')))
  from unnest('{NULL, -2147483648, -1, 0}'::int[]) n;
select test.error('select from taskq.claim(2147483648)');
select count(*) filter (where state = 'running') as running, max(token) as token from taskq.task;
-- a claim has 1,000 rows at most, and then the next one has the rest
select count(*) from taskq.claim(2147483647);
select count(*) from taskq.claim(1000);
select count(*) from taskq.claim(5);
select count(*), sum(attempt) from taskq.task;
delete from taskq.task;

-- order: priority, then run_at, then id; over all queues
begin;
select taskq.enqueue('low',    queue => 'a', priority => -100),
       taskq.enqueue('later',  queue => 'b', run_at => taskq._now() - interval '1 s'),
       taskq.enqueue('first',  queue => 'a', run_at => taskq._now() - interval '2 s'),
       taskq.enqueue('second', queue => 'b', run_at => taskq._now() - interval '2 s'),
       taskq.enqueue('third',  queue => 'a', run_at => taskq._now() - interval '2 s'),
       taskq.enqueue('top',    queue => 'b', priority => 100),
       taskq.enqueue('future', queue => 'a', priority => 100, delay => '1 us') \gset ignored_
savepoint a;
select test.claim(10);
rollback to a;
select test.claim(1) as one, test.claim(1) as two, test.claim(1) as three, test.claim(1) as four, test.claim(1) as five,
       test.claim(1) as six, test.claim(1) as seven;
rollback to a;
select test.claim(2) as two, test.claim(3) as three, test.claim(4) as four;
rollback;
-- equal priority and moment: by id, however they were enqueued, also after the table was rewritten
select taskq.enqueue('a'), taskq.enqueue('b'), taskq.enqueue('c') \gset ignored_
select taskq.enqueue('d') \gset ignored_
select taskq.enqueue('e') \gset ignored_
update taskq.task set bytes = bytes where id % 2 = 1;
vacuum full taskq.task;
select test.claim(1), test.claim(1), test.claim(3);
delete from taskq.task;

-- tasks due later do not stand in the way: thousands of them before, between and in every lane
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload)
select nextval('taskq.task_id_seq'), 'q' || n % 50, 50 - n % 7, taskq._now() + make_interval(secs => n), 3, taskq._now(), 4, 'later', '{}'
  from generate_series(1, 5000) n;
select taskq.enqueue('due', queue => 'q7', priority => -50) > 0 as enqueued;
select test.claim(10);
select test.claim(10, array['q7', 'q8']);
-- they become due by the clock alone
select test.pass('3 s');
select test.claim(10);
-- running tasks do not either
select count(*) from taskq.task where state = 'running';
select taskq.enqueue('due', queue => 'q1', priority => -50) > 0 as enqueued;
select test.claim(1, array['q1']);
delete from taskq.task;

-- queues
select taskq.enqueue('a', queue => 'a'), taskq.enqueue('b', queue => 'b'), taskq.enqueue('c', queue => 'c') \gset ignored_
begin;
select test.claim(9, array['a']);
select test.claim(9, array['c', 'b', 'c', 'nosuch', 'b']);
rollback;
begin;
select test.claim(9, null);
rollback;
select test.claim(9, '{}');
select test.claim(9, array['nosuch']);
select test.claim(9, array['A', 'a ', '*', '%']);
select q, test.error(format('select from taskq.claim(1, %L)', q))
  from (values ('{a,NULL}'), ('{NULL}'), ('{""}'), ('{' || repeat('x', 64) || '}')) v(q);
select test.error($$select from taskq.claim(1, 'a')$$);
select test.claim(9, '{{a,b},{b,c}}');
delete from taskq.task;

-- paused queues give nothing, named or not
select taskq.enqueue('a', queue => 'a'), taskq.enqueue('b', queue => 'b') \gset ignored_
select taskq.pause('a');
select test.claim(9, array['a']);
select test.claim(9);
select taskq.resume('a');
select test.claim(9);
delete from taskq.task;
delete from taskq.queue;

-- lease: the argument, else the type's, else the queue's, else 5 minutes
select taskq.enqueue('plain', queue => 'plain'), taskq.enqueue('plain', queue => 'q'), taskq.enqueue('typed', queue => 'q') \gset ignored_
select taskq.configure_queue('q', '{"lease": "2 min"}'), taskq.configure_type('typed', '{"lease": "90 s"}') \gset ignored_
begin;
select task_type, queue, lease_expires_at - taskq._now() as lease from taskq.claim(9) with ordinality order by ordinality;
rollback;
begin;
select distinct lease_expires_at - taskq._now() as lease from taskq.claim(9, lease => '7 s');
rollback;
begin;
select distinct lease_expires_at - taskq._now() as lease from taskq.claim(9, lease => '366 days');
rollback;
select l, test.error(format('select from taskq.claim(1, lease => %L)', l))
  from unnest('{0, -1 s, 366 days 1 s, 100 years, 10000 years, -178000000 years}'::interval[]) l;
select taskq.claim(1, lease => '0');
select count(*) from taskq.running;
delete from taskq.task;
delete from taskq.queue;
delete from taskq.task_type;

-- the worker's name
select count(taskq.enqueue('w')) from generate_series(1, 9);
select w, test.error(format('select from taskq.claim(1, worker => %L)', w))
  from unnest(array['', E'a\nb', E'\x01', '  ', 'w''; drop table x; --']) w;
select test.error(format('select from taskq.claim(1, worker => %L)', repeat('x', 256)));
select count(*) from taskq.claim(1, worker => repeat('x', 255));
set application_name = '';
select count(*) from taskq.claim(1, worker => null);
select count(*) from taskq.running where worker = format('pid %s', pg_backend_pid());
reset application_name;
delete from taskq.task;

-- at most 16 MB of payload in one claim, but always one task
set taskq.max_payload_bytes = '100 MB';
select count(taskq.enqueue('big', to_jsonb(repeat('x', 5 * 1024 * 1024)))) from generate_series(1, 5);
select taskq.enqueue('huge', to_jsonb(repeat('x', 20 * 1024 * 1024)), priority => -1),
       taskq.enqueue('small', priority => -1) \gset ignored_
select test.claim(10) as one, test.claim(10) as two, test.claim(10) as three, test.claim(10) as four;
reset taskq.max_payload_bytes;
delete from taskq.task;

-- a lease that is over: the claim takes the task back itself, in its place, as a failure
select taskq.enqueue('lost'), taskq.enqueue('new') \gset ignored_
select test.claim(1);
select test.pass('4 min 59.999999 s');
begin;
select test.claim(9);
rollback;
select test.pass('1 us');
select state, stuck from taskq.tasks join (select id, stuck from taskq.running) r using (id);
select test.pass('1 us');
select state, stuck from taskq.tasks join (select id, stuck from taskq.running) r using (id);
select test.claim(9);
select errors -> 0 ->> 'error' as error, (errors -> 0 ->> 'attempt')::int as attempt, jsonb_array_length(errors) as errors
  from taskq.tasks where task_type = 'lost';
delete from taskq.task;
-- dead when that was its last run: then the claim goes on to the next
select taskq.enqueue('last', max_retries => 0), taskq.enqueue('next') \gset ignored_
select test.claim(1);
select test.pass('10 min');
select test.claim(1);
select task_type, last_error, attempt from taskq.dead_letters;
delete from taskq.task;
delete from taskq.dead_letter;

-- each claim makes the token rise, by a random step
select taskq.enqueue('token') as id \gset
create temp table seen (n serial, token bigint);
insert into seen (token) select token from taskq.claim(1);
do $$
begin
  for i in 1 .. 50 loop
    perform taskq.release(t.id, t.token) from taskq.task t;
    insert into seen (token) select c.token from taskq.claim(1) c;
  end loop;
end
$$;
select count(*), bool_and(step between 1 and 1048576) as steps, count(distinct step) > 40 as random
  from (select token - lag(token, 1, 0) over (order by n) as step from seen) s;
delete from taskq.task;

-- an aborted claim leaves no trace
select taskq.enqueue('again') > 0 as enqueued;
begin;
savepoint a;
select test.claim(1);
rollback to savepoint a;
select state, attempt, token from taskq.task;
select test.claim(1);
rollback;
select state, attempt, token, worker, lease_expires_at from taskq.task;
begin read only;
select test.error('select from taskq.claim(1)');
-- also where there is nothing to take; a claim of nothing is no write
select test.error($$select test.claim(1, array['empty'])$$);
select test.claim(0);
rollback;
-- a claim of nothing takes no transaction id
begin;
select test.claim(1, array['empty']);
select pg_current_xact_id_if_assigned() is null as no_xid;
commit;

-- above READ COMMITTED a claim that nobody disturbs works
begin isolation level repeatable read;
select test.claim(1);
rollback;
begin isolation level serializable;
select test.claim(1);
rollback;

-- a claim that cannot go on in time gives everything back
create function test.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return new; end $$;
create trigger slow before update on taskq.task for each row execute function test.slow();
set statement_timeout = '50 ms';
\set VERBOSITY sqlstate
select test.claim(1);
select test.claim(1);
\set VERBOSITY default
reset statement_timeout;
drop trigger slow on taskq.task;
drop function test.slow();
show enable_seqscan;
select state, attempt, token from taskq.task;
select test.claim(1);
