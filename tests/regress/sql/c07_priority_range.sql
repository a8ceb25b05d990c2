-- C07: a priority is between -100 and 100, and nothing changes it.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select p, test.error(format('select taskq.enqueue(''t'', priority => %s)', p)) as enqueue,
       test.error(format('select taskq.enqueue_many(''[{"task_type": "t", "priority": %s}]'')', p)) as enqueue_many,
       test.error(format('select taskq.configure_type(''t'', ''{"priority": %s}'')', p)) as configure_type,
       test.error(format('select taskq.schedule(''s'', ''@daily'', ''t'', settings => ''{"priority": %s}'')', p)) as schedule
  from unnest('{-2147483648, -101, -100, 100, 101, 2147483647}'::int[]) p;
select test.error('select taskq.enqueue(''t'', priority => 2147483648)'), test.error('select taskq.enqueue_many(''[{"task_type": "t", "priority": 99999999999999999999}]'')');
-- both ends in order, through five failures, a release, a redrive
select taskq.enqueue('low', priority => -100, max_retries => 5), taskq.enqueue('middle'), taskq.enqueue('high', priority => 100, max_retries => 5) \gset ignored_
do $$
begin
  for i in 1 .. 5 loop
    assert test.claim(3) ~ '^high attempt \d, (middle attempt 1, )?low attempt \d$';
    perform f.* from taskq.task t, taskq.fail(t.id, t.token, 'x', retry_in => '0') f where t.task_type <> 'middle';
  end loop;
end
$$;
select task_type, priority, state, jsonb_array_length(errors) as failures from taskq.tasks order by id;
select test.claim(9);
select taskq.release(t.id, t.token) from taskq.task t where t.state = 'running' order by t.id;
select test.claim(9);
select task_type, f.state from taskq.task t, taskq.fail(t.id, t.token, 'x') f where t.task_type <> 'middle' order by t.id;
select task_type, priority from taskq.dead_letters order by id;
select redriven from taskq.redrive('*');
select task_type, priority, state from taskq.tasks order by id;
select test.claim(9);
