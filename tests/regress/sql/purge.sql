-- purge: tasks are forgotten for good.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
create function test.fill() returns void language plpgsql as $$
declare v_queue text; v_n int;
begin
  delete from taskq.task; delete from taskq.dead_letter; delete from taskq.done; delete from taskq.archive; delete from taskq.unique_key;
  foreach v_queue in array array['q', 'r'] loop
    for v_n in 1 .. 3 loop
      perform taskq.enqueue('a', queue => v_queue);
      perform taskq.complete(c.id, c.token) from taskq.claim(1, array[v_queue]) c;
      perform taskq.enqueue('a', queue => v_queue, max_retries => 0);
      perform f.* from taskq.claim(1, array[v_queue]) c, taskq.fail(c.id, c.token, 'x') f;
      perform taskq.cancel(taskq.enqueue('a', queue => v_queue));
      perform test.pass('1 day');
    end loop;
  end loop;
  foreach v_queue in array array['q', 'r'] loop
    perform taskq.enqueue('a', queue => v_queue);
    perform taskq.claim(1, array[v_queue], lease => '300 days');
    for v_n in 1 .. 3 loop
      perform taskq.enqueue(case v_n when 3 then 'b' else 'a' end, queue => v_queue, unique_key => 'ready' || v_n || v_queue);
      perform taskq.enqueue(case v_n when 3 then 'b' else 'a' end, queue => v_queue, unique_key => 'later' || v_n || v_queue, delay => '300 days');
      perform test.pass('1 day');
    end loop;
  end loop;
end
$$;
create function test.left_over() returns text language sql as $$
  select string_agg(format('%s %s', n, state), ', ' order by state) from (
    select state, count(*) as n from (select state from taskq.tasks union all select state from taskq.finished union all select 'dead' from taskq.dead_letters) s
     group by state) c
$$;
create function test.purge(state text, queue text = null, task_type text = null, older_than interval = null) returns text language plpgsql as $$
declare v bigint;
begin
  v := taskq.purge(purge.state, purge.queue, purge.task_type, purge.older_than);
  raise exception using errcode = 'UNDO0', message = format('%s purged, left are %s, %s keys', v, test.left_over(), (select count(*) from taskq.unique_key));
exception when sqlstate 'UNDO0' then return sqlerrm;
end
$$;
select test.fill();
select test.left_over();
select s as state, test.purge(s) from unnest('{dead, succeeded, cancelled, scheduled, ready}'::text[]) s;
-- filters
select s as state, test.purge(s, 'q') from unnest('{dead, succeeded, cancelled, scheduled, ready}'::text[]) s;
select s as state, test.purge(s, task_type => 'b') from unnest('{dead, succeeded, cancelled, scheduled, ready}'::text[]) s;
select test.purge('ready', 'q', 'b'), test.purge('ready', 'nosuch'), test.error('select taskq.purge(''ready'', '''')'), test.purge('ready', '*');
-- age: of the death, the finish, or the enqueue
select s as state, test.purge(s, older_than => '11 days') from unnest('{dead, succeeded, cancelled, scheduled, ready}'::text[]) s;
select s as state, test.purge(s, older_than => '4 days') from unnest('{dead, succeeded, cancelled, scheduled, ready}'::text[]) s;
select test.purge('ready', older_than => '0'), test.purge('ready', older_than => '100 years');
-- a key of a purged task is free
select taskq.purge('ready', 'q', 'b');
select count(*) from taskq.unique_key where key = 'ready3q';
-- the archive, too
insert into taskq.archive select * from taskq.done;
delete from taskq.done;
select taskq.purge('succeeded', 'q'), taskq.purge('cancelled');
select state, count(*) from taskq.archive group by state;
-- retries that wait are scheduled like any other
select test.running('w') as id \gset
select f.state from taskq.fail(:id, test.token(:id)) f;
select taskq.purge('scheduled', 'w');
select count(*) from taskq.status(:id);
-- never running ones
select s, test.error(format('select taskq.purge(%L)', s)) from unnest('{NULL, running, "", waiting, finished, Dead, "dead "}'::text[]) s;
select taskq.purge('running');
select o, test.error(format('select taskq.purge(''dead'', older_than => %L)', o)) from unnest('{-1 us, 100 years 1 day, 10000 years, 178000000 years}'::interval[]) o;
select taskq.purge('dead', older_than => '-1 day');
\set VERBOSITY sqlstate
select taskq.purge('running');
select taskq.purge('dead', older_than => '-1 day');
