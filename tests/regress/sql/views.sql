-- The views and status: what people see.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- the columns of each
select c.relname, string_agg(a.attname, ', ' order by a.attnum)
  from pg_class c join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v' and c.relname !~ '^_' and a.attnum > 0
 group by c.relname order by c.relname;

-- one task in each state, in one queue
select taskq.configure_queue('q', '{"lease": "2 min", "retention": "7 days", "dead_letters_limit": 5}'), taskq.pause('q'), taskq.resume('q') \gset ignored_
select taskq.enqueue('ready', '{"p": 1}', queue => 'q', unique_key => 'k', headers => '{"h": 1}') as ready,
       taskq.enqueue('scheduled', queue => 'q', delay => '1 hour') as scheduled \gset
select test.pass('10 s');
select taskq.enqueue('x', queue => 'q', priority => 9) as running, taskq.enqueue('x', queue => 'q', priority => 9) as asked,
       taskq.enqueue('x', queue => 'q', priority => 9, max_retries => 0) as dead, taskq.enqueue('x', queue => 'q', priority => 9) as retry,
       taskq.enqueue('x', queue => 'q', priority => 9) as succeeded, taskq.enqueue('x', queue => 'q') as cancelled \gset
select count(*) from taskq.claim(5, array['q'], 'w');
select taskq.cancel(:asked, 'why'), taskq.cancel(:cancelled, 'because'),
       (select f.state from taskq.fail(:dead, test.token(:dead), 'first') f), (select f.state from taskq.fail(:retry, test.token(:retry), 'oops', '1 min') f),
       (select cancel_requested from taskq.extend(:running, test.token(:running), progress => '50')) \gset ignored_
select taskq.complete(:succeeded, test.token(:succeeded), '"r"') \gset ignored_
select test.pass('5 s');

-- status: at most one row, with what is known in that state
select n, (jsonb_strip_nulls(to_jsonb(s)) - '{queue,task_type,priority,max_retries,enqueued_at,run_at,claimed_at,lease_expires_at,finished_at}'::text[]) as status,
       taskq._now() - s.enqueued_at as age, s.run_at - s.enqueued_at as place, taskq._now() - s.claimed_at as claimed, s.lease_expires_at - s.claimed_at as lease,
       taskq._now() - s.finished_at as finished
  from (values (1, :ready), (2, :scheduled), (3, :running), (4, :asked), (5, :dead), (6, :retry), (7, :succeeded), (8, :cancelled)) v(n, id), taskq.status(v.id) s
 order by n;
select count(*) from unnest('{NULL, -1, 0, 3000000000, 9223372036854775807}'::bigint[]) i, taskq.status(i);
-- a finished task is found in the archive, too
begin;
insert into taskq.archive select * from taskq.done;
delete from taskq.done;
select state, result, last_error from taskq.status(:succeeded) union all select state, result, last_error from taskq.status(:cancelled);
select taskq.cancel(:succeeded), test.error(format('select taskq.complete(%s, 1)', :succeeded));
rollback;

-- queues
select queue, ready, scheduled, running, dead, taskq._now() - oldest_ready_at as oldest, oldest_ready_age, paused_at, paused_by, lease, retention, dead_letters_limit
  from taskq.queues;
-- its counts are those of the shared memory where they are kept, summed up over the types; the rest is read
select counted_at = taskq._now() as now, exact from taskq.queues;
begin;
create or replace function taskq._figures_kept() returns table (counted_at timestamptz, exact boolean) language sql rows 1 as 'select timestamptz ''2030-01-01'', false';
create or replace function taskq._figures()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint, enqueued bigint, started bigint, succeeded bigint, failed bigint,
                 retried bigint, dead bigint, expired bigint, cancelled bigint) language sql as
$$ values ('q', 'a', 1000::bigint, 2000::bigint, 3000::bigint, 4000::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint),
          ('q', 'b', 50, 60, 70, 80, 1, 1, 1, 1, 1, 1, 1, 1), ('r', 'a', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) $$;
select queue, ready, scheduled, running, blocked, dead, counted_at = '2030-01-01' as counted_then, exact, oldest_ready_age from taskq.queues;
-- and then no task is counted
create or replace function taskq._count_tasks(queue text, now timestamptz) returns table (ready bigint, scheduled bigint, running bigint, blocked bigint) language plpgsql as
$$ begin raise 'counted'; end $$;
select count(*) from taskq.queues;
create or replace function taskq._figures_kept() returns table (counted_at timestamptz, exact boolean) language sql rows 1 as 'select now(), true where false';
select test.error('select from taskq.queues');
rollback;
-- those that are only configured, or have only dead letters, are there, too; those that never were are not
select taskq.configure_queue('configured', '{}'), taskq.pause('paused') \gset ignored_
select taskq.complete(c.id, c.token) from taskq.enqueue('f', queue => 'finished') e, taskq.claim(1, array['finished']) c;
select test.running('dead', 0) as id \gset
select f.state from taskq.fail(:id, test.token(:id)) f;
select queue, ready, scheduled, running, dead, oldest_ready_age, paused_by is not null as paused from taskq.queues order by queue collate "C";

-- tasks
select task_type, state, priority, attempt, max_retries, worker, unique_key, cancel_reason, cancel_requested_at is not null as asked, last_error,
       payload, headers, progress, redriven_at, bytes > 0 as bytes, run_at - enqueued_at as place, jsonb_array_length(errors) as errors
  from taskq.tasks where queue = 'q' order by id;
-- running
select task_type, worker, running_for, stuck, lease_expires_at - claimed_at as lease, attempt, max_retries, cancel_requested_at is not null as asked, progress
  from taskq.running order by id;
select test.pass('2 min');
select running_for, stuck from taskq.running order by id;
-- the clock alone makes a scheduled task ready
select state from taskq.status(:scheduled) union all select state from taskq.status(:retry);
select test.pass('1 hour');
select state from taskq.status(:scheduled) union all select state from taskq.status(:retry);
select ready, scheduled, running from taskq.queues where queue = 'q';
-- finished
select task_type, state, priority, attempt, worker, unique_key, cancel_reason, payload, headers, progress, result, last_error, errors
  from taskq.finished where queue = 'q' order by id;
-- dead_letters
select task_type, last_error, attempt, max_retries, priority, worker, redriven_at, acknowledged_at, unique_key, payload, headers, progress,
       jsonb_array_length(errors) as errors from taskq.dead_letters where queue = 'q';
-- both, and tasks, tell the group
select count(taskq.enqueue('grouped', queue => 'grouped', group_key => 'g' || n)) from generate_series(1, 3) n;
select count(taskq.complete(c.id, c.token)) from taskq.claim(1, array['grouped']) c;
select count(f) from taskq.claim(1, array['grouped']) c, taskq.fail(c.id, c.token, 'no', retry => false) f;
select group_key, state from taskq.finished where queue = 'grouped'
union all select group_key, 'dead' from taskq.dead_letters where queue = 'grouped'
union all select group_key, state from taskq.tasks where queue = 'grouped' order by 1;
-- task_types shows those that were configured
select taskq.configure_type('set', '{"priority": 1}') \gset ignored_
select task_type, queue, priority, max_retries, lease, backoff_base, backoff_factor, backoff_cap, jitter, updated_at = taskq._now() as now from taskq.task_types;
-- duties
select duty, every from taskq.duties order by duty;

-- with many queues and no statistics the names still come from the index
delete from taskq.task;
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 't', 'queue', 'q' || n % 500)) from generate_series(1, 5000) n));
select count(*), sum(ready), min(ready), max(ready) from taskq.queues where queue ~ '^q[0-9]';

-- a LIMIT, a queue or an id needs no look at the rest
create function test.plan(query text) returns boolean language plpgsql as $$
declare v_line text; v_seq boolean := false;
begin
  for v_line in execute 'explain ' || query loop
    v_seq := v_seq or v_line ~ 'Seq Scan on task|Sort';
  end loop;
  return v_seq;
end
$$;
analyze taskq.task;
select q, test.plan(q) as reads_all from unnest(array['select * from taskq.tasks where id = 17', 'select * from taskq.tasks where queue = ''q7''',
  'select * from taskq.finished where id = 17']) q;
