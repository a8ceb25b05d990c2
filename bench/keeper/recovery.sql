-- 100,000 tasks that wait, and 1,000 that run, whose leases end one after the other, from now on.
select count(*) from taskq.enqueue_many((select jsonb_agg('{"task_type": "waits", "queue": "waits"}'::jsonb) from generate_series(1, 100000)));
select count(*) from taskq.enqueue_many((select jsonb_agg('{"task_type": "runs", "queue": "runs"}'::jsonb) from generate_series(1, 1000)));
do $$ begin
  for n in 1..1000 loop
    perform taskq.claim(1, '{runs}', 'w', make_interval(secs => 2 + n * 0.05));
  end loop;
end $$;
create table wakeup.lease as select t.id, t.lease_expires_at as ends_at from taskq.task t where t.state = 'running';
