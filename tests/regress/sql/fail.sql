-- fail and fail_many: another try, the dead letters, or cancelled.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select taskq.configure_type('a', '{"jitter": 0}') \gset ignored_

-- the waits: 30 s, doubled each time; after max_retries more runs it is dead
select test.running('a', 3) as id \gset
create temp table told (n serial, state text, wait interval);
do $$
declare v record;
begin
  for i in 1 .. 4 loop
    select t.id, t.token into v from taskq.task t;
    insert into told (state, wait) select f.state, f.run_at - taskq._now() from taskq.fail(v.id, v.token, 'failure ' || i) f;
    perform test.pass('7 hours');
    perform from taskq.claim(1, array['a'], 'w' || i + 1);
  end loop;
end
$$;
select * from told;
select queue, task_type, attempt, max_retries, worker, last_error, jsonb_array_length(errors) as errors, payload, headers, unique_key,
       died_at = taskq._now() - interval '7 hours' as died, acknowledged_at, redriven_at
  from taskq.dead_letters;
select e.value ->> 'error' as error, (e.value ->> 'attempt')::int as attempt, e.value ->> 'worker' as worker,
       (e.value ->> 'at')::timestamptz < taskq._now() as at, (select count(*) from jsonb_object_keys(e.value)) as fields
  from taskq.dead_letters, jsonb_array_elements(errors) with ordinality e order by e.ordinality;
delete from taskq.dead_letter;

-- the state of a task that waits for its retry
select test.running('a') as id \gset
select state, run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), 'oops');
select state, attempt, run_at - taskq._now() as wait, claimed_at, lease_expires_at, worker, last_error from taskq.status(:id);
select test.claim(1, array['a']);
select test.pass('30 s');
select state from taskq.status(:id);
select test.claim(1, array['a']);
-- settings count at the failure
select taskq.configure_type('a', '{"backoff_base": "1 min", "backoff_factor": 3, "backoff_cap": "10 min"}') \gset ignored_
select run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), 'oops');
delete from taskq.task;
-- many failures: the cap holds, and nothing overflows
select test.running('a', 1000000) as id \gset
select taskq.configure_type('a', '{"backoff_base": null, "backoff_factor": null, "backoff_cap": null}') \gset ignored_
truncate told;
create function test.fail_often(id bigint, times integer) returns void language plpgsql as $$
begin
  for i in 1 .. times loop
    insert into told (state, wait) select f.state, f.run_at - taskq._now() from taskq.fail(fail_often.id, test.token(fail_often.id), 'x') f;
    update taskq.task t set run_at = taskq._now() where t.id = fail_often.id;
    perform from taskq.claim(1, array['a']);
  end loop;
end
$$;
select test.fail_often(:id, 60);
select wait, count(*) from told group by wait order by wait;
update taskq.task set attempt = 999990 where id = :id;
select taskq.configure_type('a', '{"backoff_factor": 1000, "backoff_cap": "100 years"}') \gset ignored_
select run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), 'x');
-- the history keeps the last 20
select jsonb_array_length(errors) as errors, errors -> 0 ->> 'attempt' as oldest, errors -> -1 ->> 'attempt' as newest from taskq.tasks where id = :id;
delete from taskq.task;
-- jitter only lengthens, by its share at most, and is spread
select taskq.configure_type('a', '{"jitter": 0.5, "backoff_factor": 1, "backoff_base": "100 s", "backoff_cap": null}') \gset ignored_
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'a', 'queue', 'a')) from generate_series(1, 100)));
with c as (select array_agg(c.id) as ids, array_agg(c.token) as tokens from taskq.claim(100, array['a']) c)
select min(f.run_at) >= taskq._now() + interval '100 s' as from_base, max(f.run_at) <= taskq._now() + interval '150 s' as to_share,
       max(f.run_at) - min(f.run_at) > interval '30 s' as spread
  from c, taskq.fail_many(ids, tokens) f;
delete from taskq.task;
delete from taskq.task_type;

-- retry_in overrides the wait and adds no retries
select test.running('r', 1) as id \gset
select state, run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), 'x', retry_in => '0');
select test.claim(1, array['r']);
select state, run_at from taskq.fail(:id, test.token(:id), 'x', retry_in => '5 s');
select test.running('r') as id \gset
begin;
select state, run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), retry_in => '100 years');
rollback;
select taskq.fail(:id, test.token(:id), retry_in => '-1 s');
select i, test.error(format('select taskq.fail(%s, test.token(%s), retry_in => %L)', :id, :id, i))
  from unnest('{-1 us, 100 years 1 day, 10000 years, 178000000 years}'::interval[]) i;
-- retry => false: no more runs, whatever is left; NULL is the default
select taskq.fail(:id, test.token(:id), retry_in => '1 s', retry => false);
select state, run_at from taskq.fail(:id, test.token(:id), 'give up', retry => false);
select state, attempt, max_retries, last_error from taskq.status(:id);
select test.running('r') as id \gset
select state from taskq.fail(:id, test.token(:id), null, null, null);
select last_error from taskq.status(:id);
delete from taskq.task;
delete from taskq.dead_letter;
-- max_retries 0: one run
select test.running('z', 0) as id \gset
select state, run_at from taskq.fail(:id, test.token(:id), 'once only');
select attempt, max_retries from taskq.dead_letters;
delete from taskq.dead_letter;

-- error texts: any characters, and long ones are cut
select test.running('e') as id \gset
begin;
select state from taskq.fail(:id, test.token(:id), E'line\nLOG:  fake\x01 ''"$$ %s \\ 日本');
select last_error = E'line\nLOG:  fake\x01 ''"$$ %s \\ 日本' as same from taskq.status(:id);
rollback;
begin;
select state from taskq.fail(:id, test.token(:id), '');
select last_error from taskq.status(:id);
rollback;
begin;
select state from taskq.fail(:id, test.token(:id), repeat('x', 10000));
select length(last_error) from taskq.status(:id);
rollback;
begin;
select state from taskq.fail(:id, test.token(:id), repeat('x', 1000000));
select length(last_error), right(last_error, 30) as note from taskq.status(:id);
rollback;
begin;
select state from taskq.fail(:id, test.token(:id), 'x' || repeat('é', 6000));
select octet_length(last_error) < 10100 as cut, right(last_error, 30) as note from taskq.status(:id);
rollback;

-- a cancel was requested: cancelled, never retried
select taskq.cancel(:id, 'not wanted');
select state, run_at from taskq.fail(:id, test.token(:id), 'too late');
select state, cancel_reason, last_error from taskq.finished where id = :id;

-- TQ001, with nothing changed
select test.running('s') as id \gset
select test.everything(:id) as before \gset
select taskq.fail(:id, test.token(:id) + 1, 'x');
select taskq.fail(3000000000, 1, 'x');
select test.everything(:id) = :'before' as unchanged;
select test.token(:id) as token \gset
select state from taskq.fail(:id, :token, 'x', retry_in => '0');
select taskq.fail(:id, :token, 'x');
select taskq.fail(:id, :token, 'x', retry => false);
select attempt, jsonb_array_length(errors) as errors from taskq.tasks where id = :id;
select test.claim(1, array['s']);
select taskq.complete(:id, test.token(:id));
select taskq.fail(:id, :token);
select taskq.fail(null, 1);
select taskq.fail(1, null);

-- fail_many: with the backoff of each type, stale pairs left out
select taskq.configure_type('x', '{"jitter": 0, "backoff_base": "7 s"}'), taskq.configure_type('y', '{"jitter": 0}') \gset ignored_
select test.running('x') as x, test.running('y') as y, test.running('z', 0) as z, test.running('c') as c, test.running('u') as u \gset
select taskq.cancel(:c) \gset ignored_
select task_type, f.state, f.run_at - taskq._now() as wait
  from taskq.fail_many(array[:z, :x, 5000000000, :c, :u, :y], array[test.token(:z), test.token(:x), 1, test.token(:c), 1, test.token(:y)],
                       array['ez', 'ex', 'e5', 'ec', 'eu', null]) f join (values (:x, 'x'), (:y, 'y'), (:z, 'z'), (:c, 'c'), (:u, 'u')) v(id, task_type) using (id)
 order by 1;
select task_type, s.state, s.last_error from (values (:x), (:y), (:z), (:c), (:u)) v(id), taskq.status(v.id) s order by 1;
-- errors may be left out
select f.state from taskq.fail_many(array[:u], array[test.token(:u)]) f;
select last_error from taskq.status(:u);
select count(*) from taskq.fail_many('{}', '{}');
select count(*) from taskq.fail_many('{}', '{}', '{}');
-- the same pair twice is one failure
select test.running('t') as id \gset
select count(*) from taskq.fail_many(array[:id, :id], array[test.token(:id), test.token(:id)], '{a,b}');
select attempt, jsonb_array_length(errors) as errors, last_error from taskq.tasks where id = :id;
-- what is refused
select taskq.fail_many(null, '{1}');
select taskq.fail_many('{1}', null);
select taskq.fail_many('{1}', '{1, 2}');
select taskq.fail_many('{1, 2}', '{1, 2}', '{a}');
select taskq.fail_many('{1, null}', '{1, 1}');
