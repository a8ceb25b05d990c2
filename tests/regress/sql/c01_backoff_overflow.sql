-- C01: the wait after failure number k is min(cap, base x factor^(k-1)), for every k.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select taskq.configure_type('t', '{"jitter": 0}') is not null as configured;
create temp table told (k serial, state text, wait interval);
create function test.fail_often(what text, times integer) returns void language plpgsql as $$
declare v_id bigint;
begin
  delete from taskq.task;
  truncate told restart identity;
  v_id := test.running(fail_often.what, 100);
  for i in 1 .. fail_often.times loop
    insert into told (state, wait) select f.state, f.run_at - taskq._now() from taskq.fail(v_id, test.token(v_id), 'x') f;
    perform test.pass((select t.wait from told t where t.k = i));
    perform from taskq.claim(1, array[fail_often.what]);
  end loop;
end
$$;
-- the first failure is number 1, and waits 30 s
select test.fail_often('t', 60);
select k, wait from told where k <= 12;
select count(*), bool_and(wait = least(30 * 2::numeric ^ (k - 1), 6 * 3600)::float8 * interval '1 s') as as_documented, bool_and(state = 'scheduled') as scheduled,
       bool_and(wait >= coalesce(before, '0')) as never_shorter
  from (select k, state, wait, lag(wait) over (order by k) as before from told) t;
-- with settings at which powers leave every type behind, and a cap of 100 years
select taskq.configure_type('t', '{"backoff_base": "100 years", "backoff_factor": 1000, "backoff_cap": "100 years"}') is not null as configured;
select test.fail_often('t', 3);
select count(*), bool_and(extract(epoch from wait) = extract(epoch from interval '100 years')) as capped from told;
select taskq.configure_type('t', '{"backoff_base": "1 us", "backoff_factor": 1000, "backoff_cap": "1 h"}') is not null as configured;
select test.fail_often('t', 99);
select k, wait from told where k <= 5;
select count(*), min(wait), max(wait), bool_and(wait >= coalesce(before, '0')) as never_shorter
  from (select k, wait, lag(wait) over (order by k) as before from told) t;
-- the failure after the last retry
select state, attempt from taskq.tasks;
select f.state from taskq.task t, taskq.fail(t.id, t.token, 'x') f;
select test.pass('1 h');
select test.claim(1, array['t']);
select f.state, f.run_at from taskq.task t, taskq.fail(t.id, t.token, 'x') f;
-- nor do attempts at the end of their type's range do harm
delete from taskq.task;
select test.running('t', 1000000) as id \gset
update taskq.task set attempt = 1000000;
select f.state, f.run_at - taskq._now() as wait from taskq.fail(:id, test.token(:id), 'x') f;
select test.pass('1 h');
select attempt from taskq.claim();
select f.state from taskq.fail(:id, test.token(:id), 'x') f;
