-- complete and complete_many.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
create function test.keyed(what text) returns bigint language plpgsql as $$
declare v_id bigint := taskq.enqueue(keyed.what, '{"p": 1}', queue => keyed.what, headers => '{"h": 1}', unique_key => keyed.what);
begin
  perform from taskq.claim(1, array[keyed.what], 'w1');
  return v_id;
end
$$;
select test.keyed('a') as id \gset
select test.pass('10 s');
select taskq.complete(:id, test.token(:id), '{"r": 1}');
select queue, task_type, state, attempt, worker, payload, headers, progress, result, errors, unique_key, cancel_reason, last_error,
       finished_at = taskq._now() as finished_now, claimed_at = taskq._now() - interval '10 s' as claimed, run_at = enqueued_at as run_at
  from taskq.finished where id = :id;
select count(*) from taskq.task;
-- without a result
select test.keyed('b') as id \gset
select taskq.complete(:id, test.token(:id));
select taskq.complete(id, token) from (select test.keyed('b') as id) r, lateral (select test.token(r.id) as token) t;
select queue, count(*), count(result) from taskq.finished group by queue order by queue;
-- JSON null is a result
select test.keyed('c') as id \gset
select taskq.complete(:id, test.token(:id), 'null');
select result, result is null as none from taskq.finished where id = :id;

-- TQ001 says where the task is. Waiting:
select taskq.enqueue('w') as id \gset
select taskq.complete(:id, 1);
select taskq.complete(:id, 0);
select taskq.cancel(:id) \gset ignored_
select taskq.enqueue('w', delay => '1 min') as id \gset
select taskq.complete(:id, 1);
select taskq.cancel(:id) \gset ignored_
-- held by another claim
select test.keyed('d') as id \gset
select taskq.complete(:id, test.token(:id) - 1);
select taskq.complete(:id, test.token(:id) + 1);
select test.error(format('select taskq.complete(%s, %s)', :id, t)) from unnest('{-9223372036854775808, -1, 0, 9223372036854775807}'::bigint[]) t;
-- finished, twice: the second changes nothing
select test.token(:id) as token \gset
select taskq.complete(:id, :token, '1');
select test.everything(:id) as before \gset
select taskq.complete(:id, :token, '2');
select test.everything(:id) = :'before' as unchanged;
-- cancelled
select test.keyed('e') as id \gset
select test.token(:id) as token \gset
select taskq.cancel(:id, force => true);
select taskq.complete(:id, :token);
-- dead
select test.keyed('f') as id \gset
select test.token(:id) as token \gset
select f.state from taskq.fail(:id, :token, retry => false) f;
select taskq.complete(:id, :token);
-- purged, and never there
select taskq.purge('dead') as purged;
select taskq.complete(:id, :token);
select test.error(format('select taskq.complete(%s, 1)', i)) from unnest('{-9223372036854775808, -1, 0, 3000000000, 9223372036854775807}'::bigint[]) i;
-- NULL
select taskq.complete(null, 1);
select taskq.complete(1, null);

-- an expired lease counts until the task is taken back; then the old token is stale
select test.keyed('late') as id \gset
select test.token(:id) as token \gset
select test.pass('1 hour');
begin;
select taskq.complete(:id, :token);
rollback;
select taskq._recover(100);
select taskq.complete(:id, :token);
select test.claim(1, array['late']);
select taskq.complete(:id, :token);
select taskq.complete(:id, test.token(:id));
select attempt, state from taskq.finished where queue = 'late';

-- the effect of a stale worker rolls back with its complete
create table test.effect (n int);
begin;
insert into test.effect values (1);
select taskq.complete(:id, :token);
commit;
select count(*) from test.effect;

-- after a cancel request complete still succeeds
select test.keyed('asked') as id \gset
select taskq.cancel(:id, 'no more');
select taskq.complete(:id, test.token(:id));
select state, cancel_reason from taskq.finished where queue = 'asked';

-- a queue that keeps nothing
select taskq.configure_queue('gone', '{"retention": "0"}') \gset ignored_
select test.keyed('gone') as id \gset
select test.token(:id) as token \gset
select taskq.complete(:id, :token);
select count(*) from taskq.status(:id);
select taskq.complete(:id, :token);

-- complete_many: what was finished, in the order of ids; stale pairs are left out, nothing is raised
delete from taskq.done;
select test.keyed('m' || n) from generate_series(1, 5) n;
select array_agg(id order by id) as ids, array_agg(token order by id) as tokens, min(id) as first from taskq.task \gset
create temp table before as select test.everything(id) as it from taskq.task;
-- no pair is right
select count(*) from taskq.complete_many(:'ids', array[1, 2, 3, 4, 5]);
select count(*) from taskq.complete_many('{}', '{}');
select count(*) from taskq.complete_many('{0, -1, 3000000000}', '{1, 1, 1}');
select count(*) from before join taskq.task t on it = test.everything(t.id);
-- some are: in any order, with the results that belong to them
select array_agg(c - :first order by c) from taskq.complete_many(array[:first + 2, :first, 7000000000, :first + 1],
  array[test.token(:first + 2), test.token(:first), 5, 5], array['2', null, '7', '1']::jsonb[]) c;
select id - :first as n, result from taskq.finished order by id;
select id - :first as n from taskq.task order by id;
-- the same pair twice counts once; the same id with a wrong and the right token is finished by the right one
select c - :first as n from taskq.complete_many(array[:first + 1, :first + 1], array[test.token(:first + 1), test.token(:first + 1)]) c;
select c - :first as n from taskq.complete_many(array[:first + 3, :first + 3], array[1, test.token(:first + 3)], array['"wrong"', '"right"']::jsonb[]) c;
select result from taskq.finished where id = :first + 3;
-- what is refused
select taskq.complete_many(null, '{1}');
select taskq.complete_many('{1}', null);
select taskq.complete_many('{1, 2}', '{1}');
select taskq.complete_many('{1, 2}', '{1, 2}', array['1']::jsonb[]);
select taskq.complete_many('{1, null}', '{1, 2}');
select taskq.complete_many('{1, 2}', '{null, 2}');
select count(*) from taskq.task;
select count(*) from taskq.unique_key;

-- results in whatever form the array comes: as a constant, from a row (with a short header, compressed, out of line), and from
-- a variable, where it is expanded
create temp table batch (what text, ids bigint[], tokens bigint[], results jsonb[]);
alter table batch alter results set storage extended;
create function test.batch(what text, size integer, incompressible boolean) returns void language plpgsql as $$
begin
  perform taskq.enqueue('result', queue => 'forms', payload => to_jsonb(batch.what)) from generate_series(1, 5);
  insert into batch
  select batch.what, array_agg(c.id order by c.id), array_agg(c.token order by c.id),
         array_agg(jsonb_build_object('n', c.id, 'x', case when incompressible
           then (select string_agg(md5(c.id::text || i), '') from generate_series(1, size / 32) i) else repeat('y', size) end) order by c.id)
    from taskq.claim(5, '{forms}') c;
end
$$;
select test.batch('short', 1, false), test.batch('compressed', 20000, false), test.batch('out of line', 200000, true);
select b.what, count(c) from batch b, taskq.complete_many(b.ids, b.tokens, b.results) c group by b.what order by b.what;
select test.batch('variable', 100000, true);
do $$
declare
  v record;
  v_results jsonb[];
begin
  select * into v from batch b where b.what = 'variable';
  for i in 1 .. 5 loop
    v_results[i] := v.results[i];
  end loop;
  perform taskq.complete_many(v.ids, v.tokens, v_results);
end
$$;
select b.what, bool_and(f.result = b.results[n]) as same, count(f.result)
  from batch b, unnest(b.ids) with ordinality i(id, n) left join taskq.finished f using (id)
 group by b.what order by b.what;
