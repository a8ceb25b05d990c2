-- D03: no payload is {}; a JSON null is a value, and comes back as such.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select taskq.enqueue('t', null), taskq.enqueue('t', 'null'::jsonb), taskq.enqueue('t', '{}'), taskq.enqueue('t', '[]'), taskq.enqueue('t', '""'),
       taskq.enqueue('t') \gset ignored_
select count(*) from taskq.enqueue_many('[{"task_type": "t"}, {"task_type": "t", "payload": null}, {"task_type": "t", "payload": {}},
  {"task_type": "t", "payload": []}, {"task_type": "t", "payload": ""}]');
select payload, jsonb_typeof(payload) as type, payload is null as sql_null, headers from taskq.claim(20) with ordinality order by ordinality;
-- no column that a reader looks into may be without a payload
select c.oid::regclass as "table" from pg_class c join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p') and a.attname = 'payload' and not a.attnotnull;
-- it stays what it is through failure, death and redrive
select test.token(2) as token \gset
select state from taskq.fail(2, :token, 'x', retry => false);
select payload, payload is null as sql_null from taskq.dead_letters;
select redriven from taskq.redrive(ids => array[2]);
select payload, payload is null as sql_null from taskq.claim();
-- results and progress: there is none, or it is a JSON null
select test.token(2) as two, test.token(3) as three \gset
select progress is null as none, count(e) from taskq.running r, taskq.extend(2, :two, progress => 'null') e where r.id = 2 group by 1;
select taskq.complete(2, :two, 'null');
select taskq.complete(3, :three);
select id, payload, progress, progress is null as no_progress, result, result is null as no_result from taskq.finished order by id;
