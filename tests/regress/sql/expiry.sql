-- The end of a lease: a failure, but due at once and in its place.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

select test.running('a', 1) as id \gset
select test.token(:id) as token \gset
select taskq.enqueue('a', queue => 'a') as next \gset
-- not before its time; a longer lease of the claim wins over the settings
select taskq.configure_queue('b', '{"lease": "1 min"}') \gset ignored_
select taskq.enqueue('b', queue => 'b') as long \gset
select count(*) from taskq.claim(1, array['b'], lease => '60 min');
select test.pass('4 min 59.999999 s');
select taskq._recover(100);
select test.pass('1 us');
select taskq._recover(100);
select state, attempt, run_at = enqueued_at as place_kept, worker, claimed_at, last_error from taskq.status(:id);
select token = :token as token_kept from taskq.task where id = :id;
select errors -> 0 ->> 'worker' as worker, (errors -> 0 ->> 'attempt')::int as attempt, jsonb_array_length(errors) as errors from taskq.tasks where id = :id;
select state from taskq.status(:long);
-- it comes before those behind it
select id = :id as first from taskq.claim(1, array['a']);
-- the second time its retries are used up
select test.pass('5 min');
select taskq._recover(100);
select state, attempt, last_error, worker is not null as worker, claimed_at is not null as claimed from taskq.status(:id);
select jsonb_array_length(errors) as errors from taskq.dead_letters where id = :id;
select state from taskq.status(:long);

-- both ways to die leave the same traces
select test.running('f', 0) as failed, test.running('e', 0) as expired \gset
select f.state from taskq.fail(:failed, test.token(:failed), 'lease expired') f;
select test.pass('5 min');
select taskq._recover(100);
select (select jsonb_agg(k order by k) from jsonb_object_keys(to_jsonb(a)) k where to_jsonb(a) -> k <> to_jsonb(b) -> k) as different,
       (select jsonb_agg(k order by k) from jsonb_object_keys(a.errors -> 0) k where a.errors -> 0 -> k <> b.errors -> 0 -> k) as different
  from taskq.dead_letter a, taskq.dead_letter b where a.id = :failed and b.id = :expired;

-- a cancel was requested: cancelled, with the lease's end in its history
select test.running('c') as id \gset
select taskq.cancel(:id, 'asked');
select test.pass('5 min');
select taskq._recover(100);
select state, cancel_reason, last_error, attempt from taskq.finished where id = :id;
-- by a claim, too
select test.running('c') as id \gset
select taskq.cancel(:id) \gset ignored_
select test.pass('5 min');
select test.claim(1, array['c']);
select state, last_error from taskq.finished where id = :id;

-- a worker of the same name keeps nothing alive
select taskq.enqueue('n', queue => 'n') as id \gset
select count(*) from taskq.claim(1, array['n'], 'pod-0');
select test.pass('4 min');
select taskq.enqueue('n2', queue => 'n') as other \gset
select count(*) from taskq.claim(1, array['n'], 'pod-0');
select count(*) from taskq.extend(:other, test.token(:other));
select test.pass('1 min');
select taskq._recover(100);
select state from taskq.status(:id);
select state from taskq.status(:other);
delete from taskq.task;

-- _recover does so many at most
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'm')) from generate_series(1, 25)));
select count(*) from taskq.claim(25);
select test.pass('5 min');
select taskq._recover(0), taskq._recover(10), taskq._recover(10), taskq._recover(10), taskq._recover(10);
select state, count(*), min(attempt), max(attempt) from taskq.tasks group by state;
select taskq._recover(null);
-- a task enqueued for later, released with a delay, keeps its own time when its lease ends
delete from taskq.task;
select test.running('r') as id \gset
select taskq.release(:id, test.token(:id), '1 min');
select test.pass('1 min');
select run_at - enqueued_at as place from taskq.status(:id);
select test.claim(1, array['r']);
select test.pass('1 hour');
select taskq._duty_recover();
select state, run_at - enqueued_at as place from taskq.status(:id);

-- the clock may be set to a moment or by an offset, by a superuser only, and says so when it is neither
set taskq.test_clock = '+ 2 days';
select taskq._now() between clock_timestamp() + interval '47:59' and clock_timestamp() + interval '48:01' as ahead;
set taskq.test_clock = '-1 hour';
select taskq._now() between clock_timestamp() - interval '61 min' and clock_timestamp() - interval '59 min' as behind;
set taskq.test_clock = '2030-01-31 12:00Z';
select taskq._now() = '2030-01-31 12:00Z' as moment;
set taskq.test_clock = ' ';
select taskq._now() between now() and clock_timestamp() as real;
select c, test.error(format('set taskq.test_clock = %L; select taskq._now()', c)) from unnest(array['noon-ish', '+', '+ a while', 'infinity', '- ']) c;
set taskq.test_clock = 'noon-ish';
select taskq._now();
select test.error('select taskq.enqueue(''x'')');
create role taskq_test_plain;
set role taskq_test_plain;
set taskq.test_clock = '+ 1 day';
set taskq.max_payload_bytes = '2MB';
set taskq.keeper = off;
reset role;
drop role taskq_test_plain;
