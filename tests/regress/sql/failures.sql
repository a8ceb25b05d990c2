-- The view failures, and how errors are folded.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
create function test.failures() returns setof text language sql as $$
  select format('%s %s "%s": %s tasks, %s attempts, %s dead, from %s to %s ago, last %s "%s"%s', f.queue, f.task_type, f.error, f.count, f.attempts, f.dead,
                taskq._now() - f.first_seen_at, taskq._now() - f.last_seen_at, f.sample_id, f.sample_error, case when not f.complete then ' (of a part)' end)
    from taskq.failures f order by f.last_seen_at desc, 1
$$;
create function test.fail(n integer, queue text, error text, retry boolean = true) returns void language sql as $$
  select from taskq.claim(fail.n, array[fail.queue], 'w1') c, taskq.fail(c.id, c.token, replace(fail.error, '$id', c.id::text), retry => fail.retry)
$$;
\set ECHO all
select test.freeze();
select e, taskq._fold_error(e) from unnest(array['customer 17 not found', 'HTTP 503', 'HTTP 404 for 404', E'a\n  b\t3.5', '',
  'task 9b2f6c1e-4f5d-4c8a-9a43-0d6f0c1b2a3d', 'lease expired', '550 no such mailbox', null]) e;
select length(taskq._fold_error(repeat('x1 ', 300)));
-- a folded text stays as it is
select bool_and(taskq._fold_error(taskq._fold_error(e)) = taskq._fold_error(e)) from unnest(array['customer 17', 'HTTP 503 at 10.0.0.1:80', '(421, b''x'')']) e;

select test.failures();
select count(taskq.enqueue('t', queue => 'q', max_retries => 1)) from generate_series(1, 5);
select test.fail(3, 'q', 'customer $id not found');
select test.pass('1 min');
select test.failures();
-- the same tasks again, some with another error; they are dead now
select test.fail(2, 'q', 'HTTP 503 for customer $id', false);
select test.failures();
select test.pass('1 h');
select test.fail(9, 'q', 'customer $id not found');
select test.failures();
-- one that succeeds after a failure is remembered for a day
delete from taskq.dead_letter;
select test.pass('1 h'), count(taskq.complete(c.id, c.token)) from taskq.claim(9, array['q']) c;
select test.failures();
select test.pass('23 h'), count(*) from test.failures();
select test.pass('1 h'), count(*) from test.failures();
-- the end of a lease, and no text at all
select taskq.enqueue('u', queue => 'r') as id \gset
select count(*) from taskq.claim(1, array['r'], 'w2', '1 s');
select test.pass('2 s'), taskq._recover(10);
select test.fail(1, 'r', null);
select test.failures();
select taskq.redrive(queue => '*'), count(taskq.cancel(t.id)) from taskq.task t;

-- a part only of many; each queue and lane has its share
delete from taskq.done;
insert into taskq.dead_letter (id, queue, task_type, priority, token, attempt, max_retries, enqueued_at, run_at, claimed_at, died_at, bytes, worker, payload, errors)
select n, 'd' || n % 2, 't', 0, 1, 1, 0, taskq._now(), taskq._now(), taskq._now(), taskq._now() - n * interval '1 s', 2, 'w', '{}',
       jsonb_build_array(jsonb_build_object('at', taskq._now() - n * interval '1 s', 'error', 'order ' || n, 'worker', 'w', 'attempt', 1))
  from generate_series(1, 1000) n;
select f.queue, f.count, f.attempts, f.dead, f.sample_id, f.complete from taskq._failures(null, 100) f order by 1;
select f.queue, f.count, f.complete from taskq._failures('d1', 100) f;
select f.queue, f.count, f.complete from taskq.failures f order by 1;
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type, payload, errors)
select 2000 + n, 'w', n % 2, taskq._now() + (n - 100) * interval '1 min', 3, taskq._now(), 2, 't', '{}', '[{"at": "2026-01-01T00:00:00Z", "error": "late 7", "worker": "w", "attempt": 1}]'
  from generate_series(1, 200) n;
select f.queue, f.count, f.complete from taskq._failures('w', 40) f;
select f.queue, f.count, f.complete from taskq._failures('w', 1000) f;
delete from taskq.task;
delete from taskq.dead_letter;
