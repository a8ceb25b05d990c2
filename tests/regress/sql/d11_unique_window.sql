-- D11: when a unique key is held, step by step; a duplicate never ends in 23505.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
-- What an enqueue with the key answers at this moment, with none of it staying.
create function test.again(until text, on_conflict text) returns text language plpgsql as $$
declare v_holder bigint := (select max(t.id) from taskq.task t where t.task_type = again.until);
        v_id bigint;
begin
  v_id := taskq.enqueue(again.until, queue => again.until, unique_key => 'k', unique_until => again.until, on_conflict => again.on_conflict);
  raise exception using errcode = 'UNDO0';
exception
  when sqlstate 'UNDO0' then return case when v_id is null then 'NULL' when v_id = v_holder then 'the holder' else 'a new task' end;
  when others then return sqlstate;
end
$$;
create function test.step(what text) returns table (step text, "until" text, "ignore" text, skip text, replace text, error text) language sql as $$
  select step.what, u, test.again(u, 'ignore'), test.again(u, 'skip'), test.again(u, 'replace'), test.again(u, 'error')
    from unnest('{finished,started}'::text[]) u
$$;
create function test.each(verb text) returns void language plpgsql as $$
declare v record;
begin
  for v in select t.id, t.token from taskq.task t order by t.id loop
    execute format(each.verb, v.id, v.token);
  end loop;
end
$$;
create function test.enqueue() returns void language sql as $$
  select taskq.enqueue(u, queue => u, unique_key => 'k', unique_until => u, max_retries => 1, delay => '1 min') from unnest('{finished,started}'::text[]) u
$$;
create temp table told (n serial, step text, "until" text, "ignore" text, skip text, replace text, error text);
create function test.tell(what text) returns void language sql as $$
  insert into told (step, "until", "ignore", skip, replace, error) select * from test.step(tell.what)
$$;
select test.tell('nothing there'), test.enqueue(), test.tell('scheduled'), test.pass('1 min'), test.tell('ready') \gset ignored_
select test.claim(2);
select test.tell('running'), test.each('select taskq.release(%s, %s)'), test.tell('released') \gset ignored_
select test.claim(2);
select test.each('select * from taskq.fail(%s, %s, retry_in => ''1 min'')'), test.tell('waits for its retry'), test.pass('1 min') \gset ignored_
select test.claim(2);
select test.tell('running again'), test.each('select taskq.cancel(%s)'), test.tell('asked to stop'), test.pass('5 min'), test.tell('lease over') \gset ignored_
select taskq._recover(10);
select test.tell('cancelled'), test.enqueue(), test.pass('1 min') \gset ignored_
select test.claim(2);
select test.each('select taskq.complete(%s, %s)'), test.tell('succeeded'), test.enqueue(), test.pass('1 min') \gset ignored_
select test.claim(2);
select test.each('select * from taskq.fail(%s, %s, retry => false)'), test.tell('dead') \gset ignored_
select redriven from taskq.redrive('*');
select test.tell('redriven'), taskq.purge('ready'), test.tell('purged') \gset ignored_
select step, "until", "ignore", skip, replace, error from told order by n;
select count(*) from told where '23505' in ("ignore", skip, replace, error);
select count(*) from taskq.unique_key;
