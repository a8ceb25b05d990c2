-- C03: max_retries is the number of runs after the first, whichever way a run goes wrong; there is no run without a first.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
create function test.runs(max_retries integer, how text) returns integer language plpgsql as $$
declare
  v_id bigint := taskq.enqueue('t', max_retries => runs.max_retries);
  v_runs integer := 0;
begin
  while exists (select from taskq.claim()) loop
    v_runs := v_runs + 1;
    case runs.how
      when 'fail' then
        perform taskq.fail(v_id, test.token(v_id), retry_in => '0');
      when 'many' then
        perform taskq.fail_many(array[v_id], array[test.token(v_id)]);
        perform test.pass('10 min');   -- more than the fifth backoff
      when 'expire' then
        perform test.pass('5 min');
        perform taskq._recover(10);
    end case;
  end loop;
  assert (select s.state = 'dead' and s.attempt = v_runs from taskq.status(v_id) s);
  return v_runs;
end
$$;
create function test.each_way(max_retries integer) returns table (fail integer, many integer, expire integer) language sql as $$
  select test.runs(each_way.max_retries, 'fail'), test.runs(each_way.max_retries, 'many'), test.runs(each_way.max_retries, 'expire')
$$;
select r as max_retries, runs.* from unnest('{0, 1, 2, 5}'::int[]) r, test.each_way(r) runs;
-- none is the default: 3; or the setting of the type
select * from test.each_way(null);
select taskq.configure_type('t', '{"max_retries": 0}') ->> 'max_retries' as max_retries;
select * from test.each_way(null) union all select * from test.each_way(1);
select taskq.configure_type('t', '{"max_retries": null}') ->> 'max_retries' as max_retries;
select * from test.each_way(null);
-- a failure that says so ends it at the first run
select test.running('r', 5) as id \gset
select state from taskq.fail(:id, test.token(:id), retry => false);
-- "not even once" cannot be said
select taskq.enqueue('t', max_retries => -1);
select test.error('select taskq.enqueue_many(''[{"task_type": "t", "max_retries": -1}]'')'),
       test.error('select taskq.configure_type(''t'', ''{"max_retries": -1}'')'),
       test.error('select taskq.schedule(''s'', ''@daily'', ''t'', settings => ''{"max_retries": -1}'')');
