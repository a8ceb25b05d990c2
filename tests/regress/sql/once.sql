-- once: true the first time.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();
select taskq.once('invoice.paid', '17'), taskq.once('invoice.paid', '17'), taskq.once('invoice.paid', '18'),
       taskq.once('invoice.sent', '17'), taskq.once('Invoice.paid', '17');
select scope, key, seen_at = taskq._now() as seen_now, expires_at - seen_at as kept from taskq.once_key order by 1, 2;

-- it belongs to the caller's transaction
begin;
select taskq.once('s', 'a');
rollback;
begin;
savepoint a;
select taskq.once('s', 'a');
rollback to a;
select taskq.once('s', 'a');
select taskq.once('s', 'a');
commit;
select taskq.once('s', 'a');

-- kept for as long as said, to the microsecond, and counted anew when it comes again after that
select taskq.once('s', 'minute', '1 minute');
select test.pass('59.999999 s');
select taskq.once('s', 'minute', '1 minute');
select test.pass('1 us');
select taskq.once('s', 'minute', '2 minutes');
select test.pass('119.999999 s');
select taskq.once('s', 'minute', '1 us');
select test.pass('1 us');
select taskq.once('s', 'minute');
-- 30 days if nothing is said
select test.pass('29 days 23:59:59.999999');
select taskq.once('s', 'minute');
select test.pass('1 us');
select taskq.once('s', 'minute');

-- what is refused
select taskq.once(null, 'k');
select taskq.once('s', null);
select taskq.once('s', 'k', '0');
select k, test.error(format('select taskq.once(''s'', %L)', key))
  from (values ('512 bytes', repeat('x', 512)), ('513 bytes', repeat('x', 513)), ('empty', ''), ('quotes', '''"$$%s\')) v(k, key);
select f, test.error(format('select taskq.once(''s'', ''for'', %L)', f))
  from unnest('{1 us, 100 years, 100 years 1 day, 10000 years, 178000000 years, 0, -1 s, -178000000 years}'::interval[]) f;
-- months and days are fixed seconds here, too
select taskq.once('s', 'month', '1 month');
select expires_at - seen_at as kept from taskq.once_key where key = 'month';

-- as the guard of an effect: the effect is made once, however often the task runs
create table test.effect (n int);
select taskq.enqueue('pay', max_retries => 5) as id \gset
create function test.work(id bigint, token bigint, go_wrong boolean) returns text language plpgsql as $$
begin
  begin
    if taskq.once('pay', work.id::text) then
      insert into test.effect values (1);
    end if;
    if work.go_wrong then raise exception 'no'; end if;
    perform taskq.complete(work.id, work.token);
    return 'completed';
  exception when others then
    return (select f.state from taskq.fail(work.id, work.token, sqlerrm, retry_in => '0') f);
  end;
end
$$;
select test.work(c.id, c.token, true) from taskq.claim() c;
select count(*) from test.effect;
select test.work(c.id, c.token, false) from taskq.claim() c;
select count(*) from test.effect;
