-- D08: names are kept as they are, whatever characters they have, and are put into no SQL.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- what is accepted comes back unchanged, everywhere a name goes
create temp table good (n serial, name text);
insert into good (name) values
  ('a'), ('A'), ('ä'), (' '), ('a''b'), ('a"b'), ('a;drop table taskq.task;--'), ('$$'), ('$1'), ('%s'), ('%I %L'),
  ('\'), ('\n'), ('pg_temp'), ('taskq'), ('null'), ('NULL'), ('*'), ('a,b'), ('{a}'), ('日本語'), ('🦀'),
  (repeat('x', 63)), (repeat('é', 31)), (repeat('é', 31) || 'x'), (U&'\00A0'), (U&'\200B'), (U&'\202E');
select count(*), count(distinct name), max(octet_length(name)) as longest from good;
select count(taskq.enqueue(name, queue => name, unique_key => name)) from good;
select name, t.id is null as missing
  from good left join taskq.task t on t.task_type = good.name and t.queue = good.name and t.unique_key = good.name
 where t.id is null;
select count(*) from good, taskq.claim(1, array[name], name) c where c.task_type = name and c.queue = name;
select count(*) from good join taskq.running r on r.queue = name and r.worker = name and r.task_type = name;
select count(*) from taskq.queues join good on queue = name where running = 1;
select count(taskq.configure_queue(name, '{"dead_letters_limit": 1}')), count(taskq.configure_type(name, jsonb_build_object('queue', name))) from good;
select count(*) from good join taskq.task_types on task_type = name and queue = name;
select count(taskq.pause(name)), count(taskq.resume(name)) from good;
select count(f) from taskq.task t, taskq.fail(t.id, t.token, 'x', retry => false) f;
-- (each finds its own one and no other; to redrive * means all)
select count(*), bool_and(r.redriven = 1) as each_its_own from good, taskq.redrive(queue => name, max_tasks => 2) r where name <> '*';
select redriven from taskq.redrive(task_type => '*');
select count(*), bool_and(taskq.purge('ready', queue => name) = 1) as each_its_own from good where n % 2 = 0;
select count(*), bool_and(taskq.purge('ready', task_type => name) = 1) as each_its_own from good where n % 2 = 1;
select count(taskq.once(name, name)) from good;
select count(*) from good, taskq.estimate(name) e where e.queue = name;
select count(taskq.schedule(name, '@daily', name, settings => jsonb_build_object('queue', name))) from good;
select count(*) from good join taskq.schedules s on s.name = good.name and s.task_type = good.name and s.queue = good.name;
select count(*) from good where taskq.unschedule(name);
-- in bulk
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', name, 'queue', name)) from good));
select count(*) from good join taskq.task t on t.task_type = name and t.queue = name where t.state = 'waiting';
-- upper and lower case are two queues
select test.claim(9, array['A']);
select queue, running, ready from taskq.queues where queue in ('a', 'A') order by queue;
select count(*) from taskq.release((select id from taskq.running), (select token from taskq.task where state = 'running'));

-- finished, archived, and shown
select count(taskq.configure_queue(name, '{"retention": "1 s"}')) from good;
select count(*) from good, taskq.claim(1, array[name], name) c, taskq.complete_many(array[c.id], array[c.token]) d where c.task_type = name;
select count(*) from good join taskq.finished f on f.queue = name and f.task_type = name and f.worker = name;
select test.pass('2 s') \gset ignored_
select test.archive() >= 28 as archived;
select count(*) from good join taskq.archive a on a.queue = name and a.task_type = name;
select count(*) from taskq.done join good on name = queue;
select * from taskq._archive_blockers();
select count(taskq.enqueue(name, queue => name)) as enqueued from good;
select count(*) from good where exists (select from taskq.diagnose(name));
select count(*) from good, taskq.claim(1, array[name], name) c, taskq.why(c.id) w where w.reason = 'running' and w.who = name;
select length(taskq.metrics()) > 1000 as metrics, length(taskq.dashboard()) > 1000 as board;

-- what cannot be a name is refused everywhere, also where it would only be looked for
select left(name, 3) as name, octet_length(name) as bytes, count(*) as verbs,
       string_agg(verb, ', ') filter (where not starts_with(test.error('select ' || format(verb, name)), '22023')) as accepted_by
  from unnest(array['', repeat('x', 64), repeat('é', 32), E'a\nb', E'\x7f']) name,
       unnest(string_to_array($$taskq.enqueue(%1$L); taskq.enqueue('t', queue => %1$L); taskq.claim(1, array[%1$L]); taskq.configure_queue(%1$L, '{}');
              taskq.configure_type(%1$L, '{}'); taskq.pause(%1$L); taskq.resume(%1$L); taskq.estimate(%1$L); taskq.estimate('t', %1$L);
              taskq.redrive(%1$L); taskq.redrive(task_type => %1$L); taskq.purge('dead', %1$L); taskq.purge('ready', task_type => %1$L);
              taskq.diagnose(%1$L); taskq.schedule(%1$L, '@daily', 't'); taskq.schedule('s', '@daily', %1$L); taskq.unschedule(%1$L);
              taskq.drill(%1$L)$$, ';')) verb
 group by 1, 2 order by 2, 1;

-- everything is still there
select to_regclass('taskq.task') is not null as task, count(*) from pg_namespace where nspname ~ 'drop|%|\$';
