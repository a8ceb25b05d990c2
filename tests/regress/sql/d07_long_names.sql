-- D07: one limit for all names, 1 to 63 bytes without control characters, looked at before anything else.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
-- what fits is accepted by every verb
create temp table good (n serial, name text);
insert into good (name) values ('a'), (repeat('x', 43)), (repeat('x', 57)), (repeat('x', 58)), (repeat('x', 63)), (repeat('é', 31)), (repeat('é', 31) || 'x'), (repeat('🦀', 15) || 'xyz');
select octet_length(name) as bytes, length(name) as characters, taskq.enqueue(name, queue => name, unique_key => name, group_key => name) > 0 as enqueued,
       (select c.task_type = name and c.queue = name from taskq.claim(1, array[name], name) c) as claimed,
       taskq.configure_queue(name, '{"dead_letters_limit": 0}') is not null as configured, taskq.once(name, name) as once,
       taskq.schedule(name, '@daily', name, settings => jsonb_build_object('queue', name)) is not null as scheduled, taskq.unschedule(name) as unscheduled
  from good order by n;
select count(*) from taskq.running r join taskq.task t using (id) join good on r.queue = name and r.worker = name and t.group_key = name;
-- so are notifications and alerts about them
listen taskq_ready;
listen taskq_alert;
\o '| grep -o ''notification "[a-z_]*"'' | sort | uniq -c'
select taskq.release(t.id, t.token) from taskq.task t where t.state = 'running';
select taskq._wake();
select f.* from taskq.claim(10) c, taskq.fail(c.id, c.token, retry => false) f;
select taskq._duty_alert();
\o
unlisten *;
select count(*) from taskq.alerts join good on queue = name where state = 'open';
select count(*) from taskq.queues join good on queue = name where dead = 1;
delete from taskq.queue;
delete from taskq.dead_letter;
delete from taskq.unique_key;
delete from taskq.once_key;

-- what is refused, and by whom
create temp table bad (n serial, what text, name text);
insert into bad (what, name) values
  ('null', null), ('empty', ''), ('64 bytes', repeat('x', 64)), ('200 bytes', repeat('x', 200)), ('32 x 2 bytes', repeat('é', 32)),
  ('newline', E'a\nb'), ('tab', E'\t'), ('escape', E'\x1b[2J'), ('delete', E'\x7f'), ('C1 control', U&'\0085'), ('100,000 bytes', repeat('x', 100000));
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
  ('schedule.name', 'select taskq.schedule(%L, ''@daily'', ''t'')'),
  ('schedule.task_type', 'select taskq.schedule(''s'', ''@daily'', %L)'),
  ('unschedule', 'select taskq.unschedule(%L)'),
  ('estimate.task_type', 'select taskq.estimate(%L)'),
  ('estimate.queue', 'select taskq.estimate(''t'', %L)'),
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
-- nothing of all that was stored, not even half
select (select count(*) from taskq.task) as task, (select count(*) from taskq.queue) as queue, (select count(*) from taskq.task_type) as task_type,
       (select count(*) from taskq.unique_key) as unique_key, (select count(*) from taskq.once_key) as once_key, (select count(*) from taskq.schedule) as schedule;
