-- A15: a task that was deleted while it ran. Its worker is told so by every verb, and nothing is stored.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select test.running('a') as a, test.running('b') as b \gset
select test.token(:a) as ta, test.token(:b) as tb \gset
-- purge does not take it
select taskq.purge('ready'), test.error('select taskq.purge(''running'')');
select count(*) from taskq.running;
-- a superuser does
delete from taskq.task where id = :a;
select taskq.complete(:a, :ta);
select taskq.fail(:a, :ta, 'x');
select taskq.fail(:a, :ta, 'x', retry => false);
select taskq.extend(:a, :ta);
select taskq.release(:a, :ta);
select taskq.cancel(:a, force => true);
\set VERBOSITY sqlstate
select taskq.complete(:a, :ta);
select taskq.fail(:a, :ta, 'x');
\set VERBOSITY default
-- in bulk it is left out, and its neighbour is not
select taskq.complete_many(array[:a, :b], array[:ta, :tb]) = :b as neighbour;
select count(*) from taskq.fail_many(array[:a], array[:ta]);
select count(*) from taskq.status(:a);
select (select count(*) from taskq.task) as task, (select count(*) from taskq.dead_letter) as dead_letter,
       (select array_agg(id) = array[:b::bigint] from taskq.done) as done, (select count(*) from taskq.archive) as archive;
-- one that has finished and was purged since
select taskq.purge('succeeded');
select taskq.complete(:b, :tb);
select (select count(*) from taskq.done) as done, (select count(*) from taskq.archive) as archive;
