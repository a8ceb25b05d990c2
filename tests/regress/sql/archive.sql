-- The archive duty: days ahead, days missed, retention, expired keys. In a database of its own,
-- because days pass here.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
select current_database() as home \gset
set client_min_messages = warning;
drop database if exists taskq_archive;
create database taskq_archive;
alter database taskq_archive set taskq.keeper = off;
\c taskq_archive
set client_min_messages = warning;
create extension taskq;
\i :begin
-- Finishes so many tasks of a queue at the clock's time.
create function test.finish(queue text, n integer = 1) returns void language plpgsql as $$
begin
  perform taskq.enqueue('t', queue => finish.queue) from generate_series(1, finish.n);
  while exists (select from taskq.task t where t.queue = finish.queue) loop
    perform count(taskq.complete(c.id, c.token)) from taskq.claim(1000, array[finish.queue]) c;
  end loop;
end
$$;
-- Sets the clock: noon (UTC) of a day of the test.
create function test.day(n integer) returns void language sql as $$
  select set_config('taskq.test_clock', format('%s 12:00+00', date '2031-01-01' + day.n), false)
$$;
-- Rounds, each in its transaction, until there is nothing left to do; and whether each moved tasks, or locked tables against those
-- who purge tasks.
create table test.round (moved boolean, locked boolean);
create procedure test.rounds() language plpgsql as $$
declare
  v_early bigint;
begin
  for i in 1 .. 50 loop
    select count(*) into v_early from taskq.archive_early;
    if taskq._duty_archive() = 0 then
      return;
    end if;
    insert into test.round
    select v_early < (select count(*) from taskq.archive_early),
           exists (select from pg_locks l join pg_class c on c.oid = l.relation
                    where l.pid = pg_backend_pid() and l.mode = 'AccessExclusiveLock' and c.relname ~ '^(done|archive)');
    commit;
  end loop;
  raise 'there is always something left to do';
end
$$;
-- The day of the test that a partition begins with.
create function test.day_of(at timestamptz) returns integer language sql as $$
  select (day_of.at at time zone 'UTC')::date - date '2031-01-01'
$$;
create view test.days as
  select 'done' as place, part, test.day_of(starts_at) as first, test.day_of(ends_at) - 1 as last from taskq._days('taskq.done')
  union all select 'archive', part, test.day_of(starts_at), test.day_of(ends_at) - 1 from taskq._days('taskq.archive_day');
create view test.tasks as
  select 'done' as place, tableoid::regclass as part, id, queue, test.day_of(finished_at) as day from taskq.done
  union all select 'archive', tableoid::regclass, id, queue, test.day_of(finished_at) from taskq.archive;
-- How many tasks there are, and whether each is in one place only.
create function test.tasks() returns text language sql as $$
  select format('%s tasks%s', count(*), case when count(*) > count(distinct id) then ', some of them twice' end) from test.tasks
$$;
\set ECHO all
-- days ahead: today and the 14 to come, once
select test.day(0) \gset ignored_
select taskq._duty_archive();
select place, count(*), min(first), max(last), bool_and(first = last) as single from test.days group by place;
select taskq._duty_archive();
-- each has the primary key, the index and the constraints of done_default, and belongs to no extension
select count(*), count(distinct string_agg) as kinds from (
  select c.oid, (select string_agg(regexp_replace(pg_get_indexdef(i.indexrelid), '.* USING', i.indisprimary::text), ',' order by i.indexrelid)
                   from pg_index i where i.indrelid = c.oid)
    from pg_class c where c.oid in (select inhrelid from pg_inherits where inhparent = 'taskq.done'::regclass)) x;
select count(*) from test.days d join pg_depend x on x.objid = d.part and x.deptype = 'e';
-- the next day, one more; the step is not needed again
select test.day(1) \gset ignored_
select taskq._duty_archive(), taskq._duty_archive();
-- a task goes to its day
select test.finish('q', 3);
select place, part, count(*) from test.tasks group by 1, 2;

-- 60 days without a keeper: complete goes on working, then into done_default
do $$ begin for i in 2 .. 60 loop perform test.day(i), test.finish('q', 2); end loop; end $$;
select part, count(*), min(day), max(day) from test.tasks where part::text like '%default' group by part;
select pg_relation_filenode('taskq.done_default') as node, 'taskq.done_default'::regclass::oid as oid \gset
select test.tasks();
-- the first round: today and the days ahead have partitions again, done_default is empty again
select taskq._duty_archive() > 0 as some;
select count(*) from taskq.done_default;
select count(*) as uncovered from generate_series(60, 74) d where not exists (select from test.days t where t.place = 'done' and d between t.first and t.last);
select step, error from taskq._archive_blockers();
-- what it had caught is a partition without having been copied
select d.part, d.first, d.last, pg_relation_filenode(d.part) = :node as same_file from test.days d where d.part = :oid;
-- the new one is in its place for pg_dump, too; the old one is an ordinary partition
select e.extconfig @> array['taskq.done_default'::regclass::oid] as registered, e.extconfig @> array[:oid::oid] as old_one,
       cardinality(e.extconfig) = (select count(distinct x) from unnest(e.extconfig) x) as all_different
  from pg_extension e where e.extname = 'taskq';
select c.relname from pg_depend d join pg_class c on c.oid = d.objid where d.deptype = 'e' and d.classid = 'pg_class'::regclass
   and c.relname like '%done%' order by 1;
-- after all rounds nothing is online that is older than 30 days, nothing archived that is not
call test.rounds();
select place, min(day), max(day), count(*) from test.tasks group by place;
select test.tasks();
-- days went as a whole, except those of done_default
select part, count(*), min(day), max(day) from test.tasks where place = 'archive' and day in (1, 2, 15, 16, 17, 30) group by part order by 3;
select test.finish('q');
select test.tasks();

-- a day past the retention is detached and attached, not copied
select test.day(61) \gset ignored_
call test.rounds();
select test.finish('q', 5);
select part, pg_relation_filenode(part) as node, part::oid as oid from test.days where place = 'done' and first = 61 \gset day_
select test.day(91) \gset ignored_
call test.rounds();
select place, part, pg_relation_filenode(part) = :day_node as same_file from test.days where part = :day_oid;
select test.day(92) \gset ignored_
call test.rounds();
select place, part, pg_relation_filenode(part) = :day_node as same_file from test.days where part = :day_oid;
-- its name and the CHECK that saves the scan
select conname, convalidated from pg_constraint where conrelid = :day_oid and contype = 'c' order by 1;
-- status finds a task in both places; finished only online ones
select test.finish('q');
select id as archived from test.tasks where day = 61 limit 1 \gset
select id as online from test.tasks where place = 'done' order by id desc limit 1 \gset
select s.state, s.queue from taskq.status(:archived) s;
select s.state, s.queue from taskq.status(:online) s;
select count(*) filter (where id = :online) as online, count(*) filter (where id = :archived) as archived from taskq.finished;
select taskq.cancel(:archived);

-- retentions: shorter, longer, none
select taskq.configure_queue('short', '{"retention": "7 days"}') ->> 'retention',
       taskq.configure_queue('long', '{"retention": "90 days"}') ->> 'retention',
       taskq.configure_queue('none', '{"retention": "0"}') ->> 'retention';
select test.day(100) \gset ignored_
call test.rounds();
select test.finish('q', 2), test.finish('short', 3), test.finish('long', 4), test.finish('none', 5);
select queue, count(*) from test.tasks where day = 100 group by queue order by 1;
create view test.day_100 as
  select queue, place, case when part::text like '%early' then 'early' else 'day' end as how, count(*) from test.tasks where day = 100 group by 1, 2, 3;
select test.day(106) \gset ignored_
call test.rounds();
select * from test.day_100 order by 1, 2;
select set_config('taskq.test_clock', '2031-04-18 12:00:00.000001+00', false) \gset ignored_
call test.rounds();
select * from test.day_100 order by 1, 2;
select test.day(131) \gset ignored_
call test.rounds();
select * from test.day_100 order by 1, 2;
-- the day follows as a whole, and meets what went ahead without trouble
select test.day(191) \gset ignored_
call test.rounds();
select * from test.day_100 order by 1, 2;
select step, error from taskq._archive_blockers();
-- a change counts for what is there already
select test.finish('long', 2);
select taskq.configure_queue('long', '{"retention": "0"}') ->> 'retention', taskq.configure_queue('short', '{"retention": null}') ->> 'retention';
select test.day(192) \gset ignored_
call test.rounds();
select place, count(*) from test.tasks where queue = 'long' and day = 191 group by place;

-- batches: more than a round's batch, to the last one, each once
select taskq.configure_queue('short', '{"retention": "1 day"}') ->> 'retention';
select test.finish('short', 2500), test.tasks();
select test.day(194) \gset ignored_
select taskq._move_early(part, 'short', 'infinity') from test.days where first = 192;
call test.rounds();
select part, count(*) from test.tasks where queue = 'short' and day = 192 group by part;
select test.tasks();

-- expired once-keys go, others stay
select bool_and(taskq.once('s', i::text, interval '1 hour')), bool_and(taskq.once('l', i::text)) from generate_series(1, 1500) i;
select test.pass('1 hour') \gset ignored_
call test.rounds();
select scope, count(*) from taskq.once_key group by scope;
select taskq.once('s', '1'), taskq.once('l', '1');

-- a clock that went wrong: a year ahead, and back. The days that it sent away do not come back, and
-- when the time comes for the same days again, their tasks go to the archive all the same
select test.finish('q', 3), test.tasks();
select test.day(194 + 365) \gset ignored_
call test.rounds();
select test.finish('q', 3);
select test.day(195) \gset ignored_
call test.rounds();
select test.finish('q', 3);
select test.tasks();
select place, min(day), max(day), count(*) from test.tasks where day > 194 group by place;
select test.day(230) \gset ignored_
call test.rounds();
select place, min(day), max(day), count(*) from test.tasks where day > 194 group by place;
select step, error from taskq._archive_blockers();
select test.tasks();
-- tasks beyond the days ahead do not stretch the partition of today
insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, finished_at, payload)
select -i, 'q', 't', 'succeeded', 0, 1, 3, d, d, d, '{}' from (values (1, timestamptz '2040-01-01 12:00+00'), (2, '2041-01-01 12:00+00')) x(i, d);
call test.rounds();
select part from test.tasks where id < 0 order by 1;

-- a large done_default, a step each round: the CHECK comes first; then what is of other days goes; the CHECK is validated; and it is
-- made the partition of its days
select test.day(300) \gset ignored_
insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, finished_at, payload)
select -i, 'q', 't', 'succeeded', 0, 1, 3, d, d, d, jsonb_build_object('p', repeat('x', 1700))
  from (select i, taskq._now() - make_interval(mins => i) as d from generate_series(10, 10010) i
        -- the clock was wrong once
        union all select 10011, taskq._now() + interval '400 days' union all select 10012, '2020-01-01 12:00+00') x;
select pg_relation_filenode('taskq.done_default') as node, taskq._default_is_large(taskq._now()) as large, test.tasks() \gset
select :'large' as large, :'tasks' as tasks;
select taskq._duty_archive();
select test.day_of(ends_at), valid from taskq._default_check();
select test.finish('q');
select taskq._duty_archive() as moved;
select taskq._duty_archive() > 0 as validated;
select valid from taskq._default_check();
select taskq._duty_archive() > 0 as some;
select count(*) from taskq._default_check();
select d.part, d.last, pg_relation_filenode(d.part) = :node as same_file from test.days d where d.last = 314;
select part from test.tasks where id in (-10011, -10012);
select * from taskq._archive_blockers();
select count(*) from taskq.done_default;
call test.rounds();
select test.tasks();
-- the CHECK is taken off in time, should the days pass before it is validated
select test.day(330) \gset ignored_
insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, finished_at, payload)
select -i, 'q', 't', 'succeeded', 0, 1, 3, d, d, d, jsonb_build_object('p', repeat('x', 1700))
  from (select i, taskq._now() - make_interval(secs => i) as d from generate_series(20000, 30000) i) x;
select taskq._duty_archive() > 0 as some;
select test.day_of(ends_at), valid from taskq._default_check();
select test.day(339) \gset ignored_
select taskq._duty_archive() > 0 as some;
select count(*) from taskq._default_check();
select taskq._duty_archive() > 0 as some;
select test.day_of(ends_at), valid from taskq._default_check();
call test.rounds();
select test.tasks();

-- what somebody puts into the archive by hand is not in the way
insert into taskq.archive select * from taskq.done where id = (select max(id) from taskq.done);
delete from taskq.done where id = (select max(id) from taskq.done);
select part from test.tasks where id = (select max(id) from test.tasks);
call test.rounds();
select test.tasks();
select part from test.tasks where id = (select max(id) from test.tasks);

-- a step that fails is noted, and does not stop the others
select test.day(400) \gset ignored_
alter table taskq.done add column surprise integer;
select bool_and(taskq.once('gone', i::text, interval '1 second')) from generate_series(1, 3) i;
select test.pass('1 minute') \gset ignored_
call test.rounds();
select step, error, held_by from taskq._archive_blockers();
select count(*) from taskq.once_key where scope = 'gone';
alter table taskq.done drop column surprise;
call test.rounds();
select test.tasks();
select step, error, held_by from taskq._archive_blockers();

-- the archive keeps all until it is told for how long, then what is younger: whole days, and what went ahead of its day
create view test.archived as
  select 'days' as what, count(*), min(first) as first from test.days where place = 'archive'
  union all select 'tasks', count(*), min(day) from test.tasks where place = 'archive' and part::text not like '%early'
  union all select 'early', count(*), min(day) from test.tasks where part::text like '%early';
select test.day(401) \gset ignored_
select taskq.configure_queue('short', '{"retention": "1 day"}') ->> 'retention', test.finish('short', 2);
select test.day(403) \gset ignored_
call test.rounds();
select * from test.archived;
-- who asks for a task that has not finished, or ends it, locks none of these days
select taskq.enqueue('locks') as id \gset
select t.id as archived from taskq.archive t where not t.early order by t.id limit 1 \gset
begin;
select state from taskq.status(:id);
select test.error(format('select taskq.complete(%s, 1)', :id));
select count(*) as days from pg_locks l join pg_class c on c.oid = l.relation
 where l.pid = pg_backend_pid() and c.relname ~ '^(done|archive)_\d';
select taskq.cancel(:id);
commit;
select count(*) as found from taskq.status(:archived) s where s.state in ('succeeded', 'cancelled') and s.finished_at is not null;
select reason from taskq.why(:archived);
select taskq.cancel(:archived);
delete from taskq.done where id = :id;
-- (what is no time to keep something for is refused, where people look)
set taskq.archive_retention = 'soon';
call test.rounds();
select step, error from taskq._archive_blockers();
set taskq.archive_retention = '-1 day';
call test.rounds();
select step, error from taskq._archive_blockers();
select count(*) from taskq.health() where "check" = 'archive' and not ok;
select * from test.archived;
set taskq.archive_retention = '300 days';
call test.rounds();
select * from test.archived;
select step, error from taskq._archive_blockers();
set taskq.archive_retention = '36 hours';
call test.rounds();
select * from test.archived;
set taskq.archive_retention = '';
select test.pass('1 day') \gset ignored_
call test.rounds();
select * from test.archived;

-- nobody can make columns of a day: not of one that was just made, nor of one from a dump, which brings no rights on types
select t.typname from pg_type t where t.typnamespace = 'taskq'::regnamespace and has_type_privilege('public', t.oid, 'usage');
do $$
begin
  execute (select format('grant usage on type %s to public', t.oid::regtype) from pg_type t where t.typname ~ '^done_\d{8}$' limit 1);
end
$$;
select count(*) from pg_type t where t.typnamespace = 'taskq'::regnamespace and has_type_privilege('public', t.oid, 'usage');
call test.rounds();
select count(*) from pg_type t where t.typnamespace = 'taskq'::regnamespace and has_type_privilege('public', t.oid, 'usage');

-- no round did both: who waits for a task that was moved holds these tables
select moved, locked from test.round group by 1, 2 order by 1, 2;

-- no table of ours is left when the extension goes
drop extension taskq cascade;
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'taskq';
\c :home
drop database taskq_archive;
