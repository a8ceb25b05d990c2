-- cancel: at once, on request, or by force.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- waiting: ready and scheduled
select taskq.enqueue('a', unique_key => 'k') as id \gset
select taskq.cancel(:id, 'changed my mind');
select state, cancel_reason, attempt, claimed_at, worker, last_error, finished_at = taskq._now() as now from taskq.finished where id = :id;
select state, cancel_requested, finished_at is not null as finished from taskq.status(:id);
select taskq.enqueue('a', delay => '1 day') as id \gset
select taskq.cancel(:id);
select state, cancel_reason from taskq.finished where id = :id;
select test.claim(10);
select count(*) from taskq.unique_key;
-- again: nothing changes
select test.everything(:id) as before \gset
select taskq.cancel(:id), taskq.cancel(:id, 'once more', true);
select test.everything(:id) = :'before' as unchanged;

-- running: a request, which the worker hears by extend; complete still succeeds
select test.running('b') as id \gset
select taskq.cancel(:id);
select state, cancel_requested from taskq.status(:id);
select cancel_requested from taskq.extend(:id, test.token(:id));
select cancel_requested_at = taskq._now() as now, cancel_reason from taskq.tasks where id = :id;
-- the time of the first request and the last reason count
select test.pass('10 s');
select taskq.cancel(:id, 'second'), taskq.cancel(:id);
select cancel_requested_at = taskq._now() - interval '10 s' as first, cancel_reason from taskq.tasks where id = :id;
select taskq.complete(:id, test.token(:id));
select state, cancel_requested from taskq.status(:id);
select taskq.cancel(:id);

-- (fail, release and the lease's end of such a task make it cancelled: see those tests)

-- force ends the lease: every verb of the worker gets TQ001 from then on
select test.running('c') as id \gset
select test.token(:id) as token \gset
select taskq.cancel(:id, 'stop', force => true);
select state, cancel_reason, attempt, worker, last_error from taskq.finished where id = :id;
select test.everything(:id) as before \gset
select v, test.error(format(v, :id, :token)) from unnest(array['select taskq.complete(%s, %s)', 'select taskq.fail(%s, %s)',
  'select taskq.extend(%s, %s)', 'select taskq.release(%s, %s)', 'select taskq.complete(%s, %s, ''1'')', 'select taskq.fail(%s, %s, retry => false)']) v;
select count(*) from taskq.complete_many(array[:id], array[:token]);
select count(*) from taskq.fail_many(array[:id], array[:token]);
select test.everything(:id) = :'before' as unchanged;
select taskq.complete(:id, :token);
-- force after a request keeps the request's reason unless another is given
select test.running('c') as id \gset
select taskq.cancel(:id, 'asked'), taskq.cancel(:id, force => true);
select cancel_reason from taskq.finished where id = :id;
-- force on a waiting task is a plain cancel; NULL is no force
select taskq.enqueue('c') as id \gset
select taskq.cancel(:id, null, true);
select test.running('c') as id \gset
select taskq.cancel(:id, null, null);

-- dead ones are finished, too, and stay as they are
select test.running('d') as id \gset
select f.state from taskq.fail(:id, test.token(:id), retry => false) f;
select taskq.cancel(:id), taskq.cancel(:id, force => true);
select state from taskq.status(:id);
-- unknown ones
select i, taskq.cancel(i) from unnest('{-9223372036854775808, -1, 0, 3000000000, 9223372036854775807}'::bigint[]) i;
select taskq.purge('dead');
select taskq.cancel(:id);
-- refused
select taskq.cancel(null);
select taskq.cancel(1, '');
select r, test.error(format('select taskq.cancel(1, %L)', reason))
  from (values ('1000 bytes', repeat('x', 1000)), ('1001 bytes', repeat('x', 1001)), ('empty', ''), ('newline', E'a\nb'), ('quotes', '''"$$%s\')) v(r, reason);
-- in a queue that keeps nothing
select taskq.configure_queue('gone', '{"retention": "0"}') \gset ignored_
select taskq.enqueue('g', queue => 'gone') as id \gset
select taskq.cancel(:id), taskq.cancel(:id);
select count(*) from taskq.status(:id);
-- an aborted cancel cancels nothing
select taskq.enqueue('h') as id \gset
begin;
select taskq.cancel(:id);
rollback;
select state from taskq.status(:id);
