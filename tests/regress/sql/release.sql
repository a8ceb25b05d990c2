-- release: the task goes back, the attempt is not spent.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

select test.running('a') as id \gset
select test.token(:id) as token \gset
select test.pass('10 s');
select taskq.release(:id, :token);
-- it keeps its place, its token, and has no failure
select state, attempt, run_at = enqueued_at as place_kept, worker, claimed_at, lease_expires_at, last_error from taskq.status(:id);
select token = :token as token_kept, errors from taskq.task where id = :id;
select taskq.enqueue('later', queue => 'a') > 0 as enqueued;
select test.claim(2, array['a']);
-- with a delay
select taskq.release(:id, test.token(:id), '1 min');
select state, attempt, run_at - taskq._now() as wait from taskq.status(:id);
select test.claim(2, array['a']);
select test.pass('1 min');
select test.claim(2, array['a']);
select taskq.release(:id, test.token(:id), '0');
select state, attempt, run_at = taskq._now() as due_now from taskq.status(:id);
-- any number of times, also with no retries
select test.running('z', 0) as id \gset
do $$
begin
  for i in 1 .. 100 loop
    perform taskq.release(t.id, t.token) from taskq.task t where t.queue = 'z';
    assert test.claim(1, array['z']) = 'z attempt 1';
  end loop;
end
$$;
select attempt, state from taskq.tasks where id = :id;
-- a failure before it still counts
select test.running('f', 1) as id \gset
select f.state from taskq.fail(:id, test.token(:id), 'one', retry_in => '0') f;
select test.claim(1, array['f']);
select taskq.release(:id, test.token(:id));
select test.claim(1, array['f']);
select f.state from taskq.fail(:id, test.token(:id), 'two') f;

-- delays
select test.running('d') as id \gset
select taskq.release(:id, test.token(:id), '-1 s');
select d, test.error(format('select taskq.release(%s, test.token(%s), %L)', :id, :id, d))
  from unnest('{0, 1 us, 100 years, -1 us, 100 years 1 day, 10000 years, 178000000 years}'::interval[]) d;

-- a cancel was requested: cancelled
select taskq.cancel(:id, 'enough');
select taskq.release(:id, test.token(:id), '1 min');
select state, cancel_reason, last_error from taskq.finished where id = :id;

-- stale
select test.running('s') as id \gset
select test.everything(:id) as before \gset
select taskq.release(:id, test.token(:id) + 1);
select test.everything(:id) = :'before' as unchanged;
select test.token(:id) as token \gset
select taskq.release(:id, :token);
select taskq.release(:id, :token);
\set VERBOSITY sqlstate
select taskq.release(:id, :token, '1 min');
select taskq.release(null, 1);
select taskq.release(1, null);
select taskq.release(3000000000, 1);
