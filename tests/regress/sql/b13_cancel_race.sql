-- B13: a worker whose task was cancelled is told the same by every verb, and the task stays cancelled.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select test.running('a') as id \gset
select test.token(:id) as token \gset
select taskq.cancel(:id, 'not needed', force => true);
select test.everything(:id) as before \gset
select taskq.complete(:id, :token);
select taskq.fail(:id, :token, 'x');
-- the code for all of them
select verb, left(test.error(format(verb, :id, :token)), 5) as sqlstate
  from unnest(array['select taskq.complete(%s, %s)', 'select taskq.fail(%s, %s, ''x'')', 'select taskq.fail(%s, %s, retry => false)',
                    'select taskq.extend(%s, %s)', 'select taskq.release(%s, %s)']) verb;
select taskq.complete_many(array[:id], array[:token]);
select count(*) from taskq.fail_many(array[:id], array[:token]);
select test.everything(:id) = :'before' as unchanged;
select state, cancel_reason from taskq.finished where id = :id;
-- without force the worker decides: it may complete the task, and a failure ends it cancelled
select test.running('b') as b, test.running('c') as c \gset
select test.token(:b) as tb, test.token(:c) as tc \gset
select taskq.cancel(:b), taskq.cancel(:c);
select taskq.complete(:b, :tb);
select taskq.fail(:b, :tb, 'x');
select state from taskq.fail(:c, :tc, 'x');
select taskq.complete(:c, :tc);
select id = :b as completed, state from taskq.finished where id in (:b, :c) order by id;
