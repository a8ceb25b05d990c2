-- B12: there is no lease without an end, and no value that means one thing here and another there.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
-- (What PostgreSQL 15 and 16 do not know as an interval they refuse themselves, as 22007.)
create function test.refused(sql text) returns boolean language sql as $$
  select test.error(refused.sql) ~ '^(22023|22007|22008): '
$$;
select taskq.enqueue('t') as waiting, test.running('r') as running \gset
create temp table lease (n serial, lease text);
insert into lease (lease) values ('0'), ('-1 s'), ('-1 us'), ('1 month -31 days'), ('100 years'), ('infinity'), ('-infinity'), ('366 days 1 us');
select l.lease, test.refused(format('select from taskq.claim(1, lease => %L)', l.lease)) as claim,
       test.refused(format('select from taskq.extend(%s, test.token(%s), %L)', :running, :running, l.lease)) as extend,
       test.refused(format('select taskq.configure_queue(''q'', jsonb_build_object(''lease'', %L))', l.lease)) as queue,
       test.refused(format('select taskq.configure_type(''t'', jsonb_build_object(''lease'', %L))', l.lease)) as type
  from lease l order by l.n;
-- nothing was claimed, extended or set by that
select state, attempt, lease_expires_at - taskq._now() as lease from taskq.tasks order by id;
select count(*) from taskq.queue;
select taskq.claim(1, lease => '0');
select taskq.extend(:running, test.token(:running), '-1 s');
-- NULL and what is left out are the setting
select taskq.configure_queue('default', '{"lease": "7 min"}') is not null as configured;
select lease_expires_at - taskq._now() as lease from taskq.claim(1, lease => null);
select lease_expires_at - taskq._now() as lease from taskq.extend(:waiting, test.token(:waiting), null);
select taskq.configure_queue('default', '{"lease": null}') ->> 'lease' as lease;
select lease_expires_at - taskq._now() as lease from taskq.extend(:waiting, test.token(:waiting));
-- the longest one has an end, too
select lease_expires_at - taskq._now() as lease from taskq.extend(:waiting, test.token(:waiting), '366 days');
select taskq.cancel(:running, force => true);
select test.pass('365 days 23:59:59.999999');
select taskq._recover(10);
select test.pass('1 us');
select taskq._recover(10);
select state from taskq.tasks where id = :waiting;
-- other times of that kind
select d.delay, test.refused(format('select taskq.enqueue(''d'', delay => %L)', d.delay)) as enqueue,
       test.refused(format('select taskq.enqueue(''d'', unique_key => ''k'', unique_for => %L)', d.delay)) as unique_for,
       test.refused(format('select taskq.once(''s'', ''k'', %L)', d.delay)) as keep_for
  from unnest('{-1 s, infinity, -infinity, 101 years}'::text[]) d(delay);
select test.running('f') as id \gset
select d.delay, test.refused(format('select from taskq.fail(%s, test.token(%s), retry_in => %L)', :id, :id, d.delay)) as retry_in,
       test.refused(format('select taskq.release(%s, test.token(%s), %L)', :id, :id, d.delay)) as release
  from unnest('{-1 s, infinity, -infinity, 101 years}'::text[]) d(delay);
select test.error('select taskq.enqueue(''d'', run_at => ''infinity'')'), test.error('select taskq.enqueue(''d'', run_at => ''-infinity'')');
