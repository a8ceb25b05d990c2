-- redrive: dead letters wait again.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
create function test.dead(what text, queue text, n integer = 1, key text = null) returns bigint language plpgsql as $$
declare v_id bigint;
begin
  for i in 1 .. n loop
    v_id := taskq.enqueue(dead.what, jsonb_build_object('n', i), queue => dead.queue, priority => 7, max_retries => 0, unique_key => dead.key, headers => '{"h": 1}');
    perform f.* from taskq.claim(1, array[dead.queue]) c, taskq.fail(c.id, c.token, 'failure ' || i) f;
    perform test.pass('1 s');
  end loop;
  return v_id;
end
$$;
-- what comes back, and what is renewed
select test.dead('a', 'q') as id \gset
select token from taskq.dead_letter \gset
select redriven, skipped, skipped_ids from taskq.redrive('q');
select state, queue, task_type, priority, attempt, max_retries, run_at = taskq._now() as due_now, enqueued_at < taskq._now() as enqueued_before,
       redriven_at = taskq._now() as redriven_now, payload, headers, last_error, jsonb_array_length(errors) as errors
  from taskq.tasks where id = :id;
select count(*) from taskq.dead_letters;
select token = :token as token_kept from taskq.task;
-- the token goes on rising, and the retries are renewed: here none
select token > :token as rises, attempt from taskq.claim();
select taskq.complete(:id, :token);
select f.state from taskq.fail(:id, test.token(:id), 'again') f;
select jsonb_array_length(errors) as errors, attempt, redriven_at is not null as redriven, token > :token as rises
  from taskq.dead_letters join (select id, token from taskq.dead_letter) d using (id);
select redriven from taskq.redrive(ids => array[:id]);
delete from taskq.task;

-- filters: all that are given must hold
select test.dead('a', 'q', 2), test.dead('b', 'q', 2), test.dead('a', 'r', 2) \gset ignored_
create function test.redrive(queue text = null, task_type text = null, ids bigint[] = null, max_tasks int = null) returns text language plpgsql as $$
declare v text; v_got record;
begin
  select * into v_got from taskq.redrive(redrive.queue, redrive.task_type, redrive.ids, redrive.max_tasks);
  select coalesce(string_agg(format('%s@%s', t.task_type, t.queue), ' ' order by t.id), 'nothing') into v from taskq.task t;
  raise exception using errcode = 'UNDO0', message = format('%s redriven: %s; %s skipped', v_got.redriven, v, v_got.skipped);
exception when sqlstate 'UNDO0' then return sqlerrm;
end
$$;
select min(id) as first from taskq.dead_letter \gset
select test.redrive('q');
select test.redrive(task_type => 'a');
select test.redrive('q', 'a');
select test.redrive('*');
select test.redrive('*', 'b');
select test.redrive('r', 'b');
select test.redrive('nosuch');
select test.error('select taskq.redrive('''')');
select test.redrive(ids => array[:first, :first + 2, :first]);
select test.redrive('q', ids => array[:first, :first + 5]);
select test.redrive(ids => '{}');
select test.redrive(ids => array[null::bigint]);
-- at most so many: the longest dead first
select test.redrive('*', max_tasks => 3);
select test.redrive('*', max_tasks => 0);
select test.redrive(task_type => 'b', max_tasks => 1);
select test.redrive('*', max_tasks => 2147483647);
-- ids that are not dead are reported
select * from taskq.redrive(ids => array[:first, 3000000000, -1, null, :first]);
select * from taskq.redrive(ids => array[:first, :first + 1]);
select state from taskq.status(:first);
-- a wide spread of many stays within what a timestamp can hold
begin;
select redriven from taskq.redrive('*', per_second => 0.0001);
select max(run_at) - taskq._now() as last from taskq.tasks where redriven_at = taskq._now();
rollback;
-- refused, with nothing done
select * from taskq.redrive();
select taskq.redrive(max_tasks => 5);
select taskq.redrive('*', max_tasks => -1);
select taskq.redrive('*', per_second => 0);
select p, test.error(format('select taskq.redrive(''*'', per_second => %L)', p)) from unnest('{0, -1, NaN, Infinity, -Infinity, 1000001, 1e-300, 0.000099, 0.0001, 1000000}'::numeric[]) p;
select m, test.error(format('select taskq.redrive(''*'', max_tasks => %s)', m)) from unnest('{-2147483648, -1, 0}'::int[]) m;
\set VERBOSITY sqlstate
select taskq.redrive();
\set VERBOSITY default
delete from taskq.task;
delete from taskq.dead_letter;

-- per_second spreads them
select test.dead('s', 's', 5) \gset ignored_
begin;
select redriven from taskq.redrive('s', per_second => 2);
select run_at - taskq._now() as wait, payload from taskq.tasks order by run_at;
rollback;
begin;
select redriven from taskq.redrive('s', per_second => 0.01, max_tasks => 3);
select run_at - taskq._now() as wait from taskq.tasks order by run_at;
rollback;
delete from taskq.dead_letter;

-- a key that another one holds: skipped and reported, stays dead; free again: it takes it
select test.dead('k', 'k', key => 'x') as id \gset
select taskq.enqueue('k', queue => 'k', unique_key => 'x') as holder \gset
select redriven, skipped, skipped_ids = array[:id]::bigint[] as it from taskq.redrive('k');
select state from taskq.status(:id);
select taskq.cancel(:holder);
select redriven, skipped from taskq.redrive('k');
select task_id = :id as holder from taskq.unique_key;
select test.error($$select taskq.enqueue('k', unique_key => 'x', on_conflict => 'error')$$) ~ 'TQ002' as held;
delete from taskq.task;
delete from taskq.unique_key;
-- of some, those come that can: one that is held is in nobody's way
begin;
select test.dead('k', 'k', key => 'x') as held, test.dead('k', 'k') as free \gset
select taskq.enqueue('k', queue => 'k', unique_key => 'x') > 0 as holds;
select redriven, skipped from taskq.redrive('k', max_tasks => 1);
select state from taskq.status(:free);
select redriven, skipped_ids = array[:held]::bigint[] as it from taskq.redrive('k', max_tasks => 1);
rollback;
-- of two dead ones with one key, one comes back
select test.dead('k', 'k', 2, 'x') as id \gset
select redriven, skipped, skipped_ids = array[:id]::bigint[] as the_later from taskq.redrive('k');
delete from taskq.task;
delete from taskq.unique_key;
delete from taskq.dead_letter;

-- 2,000 at once
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'm', 'max_retries', 0)) from generate_series(1, 2000)));
do $$
begin
  for i in 1 .. 2 loop
    perform f.* from (select array_agg(c.id) as ids, array_agg(c.token) as tokens from taskq.claim(1000) c) c, taskq.fail_many(c.ids, c.tokens) f;
  end loop;
end
$$;
select count(*) from taskq.dead_letters;
select redriven from taskq.redrive(task_type => 'm');
select (select count(*) from taskq.dead_letters) as dead, (select count(*) from taskq.tasks) as waiting;
