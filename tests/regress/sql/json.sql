-- JSON: payload, headers, result and progress pass through as they are.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

-- SQL NULL is {}; JSON null, and everything else, stays what it is
select taskq.enqueue('j', null), taskq.enqueue('j', 'null'), taskq.enqueue('j', '[]'), taskq.enqueue('j', '""'),
       taskq.enqueue('j', '0'), taskq.enqueue('j', 'false') \gset ignored_
select task_type, payload, jsonb_typeof(payload) as type, headers from taskq.claim(10) with ordinality order by ordinality;
delete from taskq.task;
-- headers: SQL NULL is none, JSON null a value; in enqueue_many JSON null is "not given" but for the payload
select taskq.enqueue('j', headers => 'null'), taskq.enqueue('j', headers => null), taskq.enqueue('j', headers => '[1]') \gset ignored_
select count(*) from taskq.enqueue_many('[{"task_type": "j", "payload": null, "headers": null, "queue": null, "priority": null,
  "run_at": null, "delay": null, "max_retries": null, "unique_key": null, "on_conflict": null},
  {"task_type": "j", "payload": [null], "headers": {"a": null}}]');
select payload, headers from taskq.claim(10) with ordinality order by ordinality;
delete from taskq.task;

-- numbers keep all their digits; keys, characters and nesting stay
create temp table doc (n serial, doc jsonb);
insert into doc (doc) values
  ('1234567890123456789012345678901234567890'), ('0.1234567890123456789012345678901234567890'), ('1e-400'), ('1.0'), ('1.00'),
  ('-0'), ('1e400'), ('{"b": 1, "a": 2, "": {"é": "日本", "\u0001": "\ud83e\udd80", "\\": "\"''"}}'),
  ('["", " ", "null", "\n"]'), (to_jsonb(repeat('x', 100000))), ((select jsonb_object_agg(k, k) from generate_series(1, 10000) k));
select count(taskq.enqueue('j', doc, headers => doc, queue => n::text)) from doc;
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'j', 'payload', doc, 'headers', doc, 'queue', 'm' || n)) from doc));
select c.queue like 'm%' as many, count(*), bool_and(c.payload::text = doc::text and c.headers::text = doc::text) as same
  from taskq.claim(100) c join doc on n::text = trim('m' from c.queue) group by 1 order by 1;
-- through progress and result, too
select count(x.lease_expires_at) from taskq.task t join doc on t.queue = n::text, taskq.extend(t.id, t.token, progress => doc) x;
select count(taskq.complete(t.id, t.token, doc)) from taskq.task t join doc on t.queue = n::text;
select count(*), bool_and(f.payload::text = doc::text and f.headers::text = doc::text and f.progress::text = doc::text and f.result::text = doc::text) as same
  from taskq.finished f join doc on f.queue = n::text;
select count(*), bool_and(s.result::text = doc::text and s.progress::text = doc::text) as same
  from taskq.done f join doc on f.queue = n::text, taskq.status(f.id) s;
with m as (select array_agg(t.id order by t.id) as ids, array_agg(t.token order by t.id) as tokens, array_agg(doc order by t.id) as docs
             from taskq.task t join doc on t.queue = 'm' || n)
select count(c) from m, taskq.complete_many(ids, tokens, docs) c;
select count(*), bool_and(f.result::text = doc::text) as same from taskq.finished f join doc on f.queue = 'm' || n;

-- 6,000 levels deep: from enqueue over a retry, the dead letters and a redrive to the result
create temp table deep as select format('%s1%s', repeat('{"a":[', 3000), repeat(']}', 3000))::jsonb as doc;
select taskq.enqueue('deep', doc, max_retries => 0, headers => doc) > 0 as enqueued from deep;
select count(*) from deep, taskq.claim(1) c where c.payload = doc and c.headers = doc;
select count(*) from deep, taskq.task t, taskq.extend(t.id, t.token, progress => doc);
select f.state from taskq.task t, taskq.fail(t.id, t.token, 'x') f;
select redriven from taskq.redrive(task_type => 'deep');
select count(*) from deep, taskq.claim(1) c where c.payload = doc;
select count(taskq.complete(t.id, t.token, doc)) from deep, taskq.task t;
select count(*) from deep, taskq.finished f where f.payload = doc and f.headers = doc and f.progress = doc and f.result = doc;
select count(*) from deep, taskq.enqueue_many(jsonb_build_array(jsonb_build_object('task_type', 'deep', 'payload', doc, 'headers', doc)));
select count(*) from deep, taskq.claim(1) c where c.payload = doc;
-- 20,000 levels are PostgreSQL's own refusal
\set VERBOSITY sqlstate
select taskq.enqueue('deep', (repeat('[', 20000) || repeat(']', 20000))::jsonb);
\set VERBOSITY default
delete from taskq.task;

-- the limit: bytes of the binary jsonb, payload and headers together
set taskq.max_payload_bytes = '1kB';
select taskq.enqueue('j', to_jsonb(repeat('x', 1017)));
select n, test.error(format('select taskq.enqueue(''j'', to_jsonb(repeat(''x'', %s)))', n)) from unnest('{1000, 1015, 1016, 1017, 5000000}'::int[]) n;
select test.error($$select taskq.enqueue('j', to_jsonb(repeat('x', 500)), headers => to_jsonb(repeat('x', 500)))$$);
select test.error($$select taskq.enqueue('j', to_jsonb(repeat('x', 600)), headers => to_jsonb(repeat('x', 600)))$$);
select test.error($$select taskq.enqueue('j', headers => to_jsonb(repeat('x', 1100)))$$);
select test.error($$select taskq.enqueue_many(jsonb_build_array('{"task_type": "j"}'::jsonb, jsonb_build_object('task_type', 'j', 'payload', repeat('x', 1100))))$$);
-- the array as a whole may be larger
select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', 'j', 'payload', repeat('x', 900))) from generate_series(1, 100)));
-- compression does not help: it is the plain size that counts
select test.error($$select taskq.enqueue('j', to_jsonb(repeat('x', 1100)))$$);
select id, token from taskq.claim() \gset
select test.error(format('select taskq.complete(%s, %s, to_jsonb(repeat(''x'', 1100)))', :id, :token));
select test.error(format('select taskq.extend(%s, %s, progress => to_jsonb(repeat(''x'', 1100)))', :id, :token));
select test.error(format('select taskq.complete_many(array[%s], array[%s], array[to_jsonb(repeat(''x'', 1100))])', :id, :token));
select taskq.complete(:id, :token, to_jsonb(repeat('x', 1100)));
select state, progress from taskq.tasks where id = :id;
select lease_expires_at > taskq._now() as extended from taskq.extend(:id, :token, progress => to_jsonb(repeat('x', 900)));
select taskq.complete(:id, :token, to_jsonb(repeat('x', 900)));
select length(result #>> '{}') as result, length(progress #>> '{}') as progress from taskq.finished where id = :id;
-- a limit that was lowered later stops no task on its way
set taskq.max_payload_bytes = '1MB';
delete from taskq.task;
select taskq.enqueue('j', to_jsonb(repeat('x', 100000)), max_retries => 0) > 0 as enqueued;
set taskq.max_payload_bytes = '1kB';
select length(payload #>> '{}') from taskq.claim();
select f.state from taskq.task t, taskq.fail(t.id, t.token) f;
select redriven from taskq.redrive('*');
select count(taskq.complete(c.id, c.token)) from taskq.claim() c;
-- the setting: bounds and who may set it
select test.error($$set taskq.max_payload_bytes = 1023$$);
select test.error($$set taskq.max_payload_bytes = '256MB'$$);
reset taskq.max_payload_bytes;
show taskq.max_payload_bytes;

-- \u0000 and bad escapes are refused before anything is stored
delete from taskq.task;
select test.error(format('select taskq.enqueue(''j'', %L)', j))
  from unnest(array['{"a": "\u0000"}', '{"\u0000": 1}', '["\u0000"]', '"\ud800"', '{"a": }', '', '{} {}']) j;
select test.error($$select taskq.enqueue_many('[{"task_type": "j"}, {"task_type": "j", "payload": {"a": "\u0000"}}]')$$);
select count(*) from taskq.task;
-- a NUL that jsonb has as text, with its backslash, is text
select taskq.enqueue('j', '{"a": "\\u0000"}') > 0 as enqueued;
select payload ->> 'a' from taskq.claim();
