-- B06: a task is taken back when its own lease is over, whatever lease others of the queue have.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select taskq.configure_queue('q', '{"lease": "1 min"}') is not null as configured;
select taskq.configure_type('typed', '{"lease": "2 min"}') is not null as configured;
select taskq.enqueue('long', queue => 'q') as long \gset
select count(*) from taskq.claim(1, array['q'], lease => '60 min');
select taskq.enqueue('plain', queue => 'q'), taskq.enqueue('typed', queue => 'q') \gset ignored_
select count(*) from taskq.claim(2, array['q']);
select task_type, lease_expires_at - taskq._now() as lease from taskq.running order by id;
select t.task_type, e.lease_expires_at - taskq._now() as lease from taskq.task t, taskq.extend(t.id, t.token) e where t.task_type <> 'long' order by t.id;
-- ten rounds of the keeper in 59 minutes and 59 seconds
create procedure test.rounds(n integer, "time" interval) language plpgsql as $$
begin
  for i in 1 .. rounds.n loop
    perform test.pass(rounds."time" / rounds.n);
    perform taskq._run_duty(d.name) from taskq.duty d order by d.name;
    commit;
  end loop;
end
$$;
call test.rounds(10, '59 min 59 s');
select task_type, state, attempt from taskq.tasks order by id;
-- extend gives the length of the argument or of the settings; one heartbeat is one heartbeat
select lease_expires_at - taskq._now() as lease from taskq.extend(:long, test.token(:long), '30 min');
call test.rounds(10, '29 min 59 s');
select task_type, state from taskq.tasks where id = :long;
call test.rounds(1, '1 s');
select task_type, state, last_error from taskq.tasks where id = :long;
