-- Names: 1 to 63 bytes, anything but control characters, kept as they are and put into no SQL.
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
select sum(r.redriven) from good, taskq.redrive(queue => name, task_type => name) r where name <> '*';
select sum(taskq.purge('ready', name, name)) from good;
select count(taskq.once(name, name)) from good;
-- in bulk
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', name, 'queue', name)) from good));
select count(*) from good join taskq.task t on t.task_type = name and t.queue = name where t.state = 'waiting';

-- upper and lower case are two queues
select queue, running, ready from taskq.queues where queue in ('a', 'A') order by queue;

-- what is refused, and by whom
create temp table bad (n serial, what text, name text);
insert into bad (what, name) values
  ('null', null), ('empty', ''), ('64 bytes', repeat('x', 64)), ('200 bytes', repeat('x', 200)), ('32 x 2 bytes', repeat('é', 32)),
  ('newline', E'a\nb'), ('tab', E'\t'), ('escape', E'\x1b[2J'), ('delete', E'\x7f'), ('C1 control', U&'\0085'), ('a million', repeat('x', 1000000));
create temp table place (n serial, place text, call text);
insert into place (place, call) values
  ('enqueue.task_type', 'select taskq.enqueue(%L)'),
  ('enqueue.queue', 'select taskq.enqueue(''t'', queue => %L)'),
  ('enqueue_many.task_type', 'select taskq.enqueue_many(jsonb_build_array(jsonb_build_object(''task_type'', %L)))'),
  ('enqueue_many.queue', 'select taskq.enqueue_many(jsonb_build_array(jsonb_build_object(''task_type'', ''t'', ''queue'', %L)))'),
  ('claim.queues', 'select taskq.claim(1, array[%L])'),
  ('configure_queue', 'select taskq.configure_queue(%L, ''{}'')'),
  ('configure_type', 'select taskq.configure_type(%L, ''{}'')'),
  ('configure_type.queue', 'select taskq.configure_type(''t'', jsonb_build_object(''queue'', %L))'),
  ('pause', 'select taskq.pause(%L)'),
  ('resume', 'select taskq.resume(%L)'),
  ('once', 'select taskq.once(%L, ''k'')');
select what, test.error(format('select taskq.enqueue(%L)', name)) from bad order by n;
select place, test.error(format(call, repeat('x', 64))) from place order by n;
-- all places say the same to all of them; a NULL queue means the default where one may be left out
select place, count(*) filter (where test.error(format(call, name)) like '22023: %') as refused,
       string_agg(what, ', ' order by bad.n) filter (where test.error(format(call, name)) = 'no error') as accepted
  from place, bad group by place, place.n order by place.n;
-- messages do not repeat what may be long or bring a line of its own to the log
select max(length(test.error(format(call, name)))) < 100 as short,
       bool_or(test.error(format(call, name)) ~ '[[:cntrl:]]') as control_characters
  from place, bad;
select taskq._check_name('thing', E'a\tb');
select taskq._check_name('thing', 'name'), taskq._check_name(null, 'name');
select taskq._check_name(null, '');
