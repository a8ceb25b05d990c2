-- extend: the heartbeat.
\set ECHO none
\getenv here PG_ABS_SRCDIR
\set begin :here '/begin.sql'
\i :begin
\set ECHO all
select test.freeze();

select test.running('a') as id \gset
select test.pass('4 min');
select lease_expires_at - taskq._now() as lease, cancel_requested from taskq.extend(:id, test.token(:id));
select attempt, state, progress, lease_expires_at - taskq._now() as lease from taskq.tasks where id = :id;
-- so nobody else gets it, however long it takes
do $$
begin
  for i in 1 .. 30 loop
    perform test.pass('100 s');
    perform taskq.extend(t.id, t.token) from taskq.task t;
    perform taskq._recover(100);
    assert test.claim(10) = 'nothing';
  end loop;
end
$$;
select state, attempt from taskq.tasks where id = :id;

-- the lease: the argument, else the type's, else the queue's, else 5 minutes; it may become shorter
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, test.token(:id), '366 days');
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, test.token(:id), '1 us');
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, test.token(:id), null);
select taskq.configure_queue('a', '{"lease": "2 min"}') \gset ignored_
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, test.token(:id));
select taskq.configure_type('a', '{"lease": "90 s"}') \gset ignored_
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, test.token(:id));
select l, test.error(format('select taskq.extend(%s, test.token(%s), %L)', :id, :id, l))
  from unnest('{0, -1 s, 366 days 1 s, 10000 years, -178000000 years}'::interval[]) l;
select taskq.extend(:id, test.token(:id), '0');

-- progress: kept when none is given, replaced as a whole
select count(*) from taskq.extend(:id, test.token(:id), progress => '{"done": 1, "of": 3}');
select progress from taskq.status(:id);
select count(*) from taskq.extend(:id, test.token(:id));
select progress from taskq.status(:id);
select count(*) from taskq.extend(:id, test.token(:id), progress => '{"done": 2}');
select progress from taskq.running where id = :id;
select count(*) from taskq.extend(:id, test.token(:id), progress => 'null');
select progress, progress is null as none from taskq.status(:id);
-- it stays with the task over a retry, and to its end
select count(*) from taskq.extend(:id, test.token(:id), progress => '"half"');
select f.state from taskq.fail(:id, test.token(:id), retry_in => '0') f;
select test.claim();
select progress from taskq.running where id = :id;

-- says that a cancel was requested
select taskq.cancel(:id);
select cancel_requested from taskq.extend(:id, test.token(:id));
select taskq.complete(:id, test.token(:id));
select progress from taskq.finished where id = :id;

-- a lease that is over but not taken back can still be extended; after that it cannot
select test.running('b') as id \gset
select test.token(:id) as token \gset
select test.pass('1 hour');
select stuck from taskq.running where id = :id;
select lease_expires_at - taskq._now() as lease from taskq.extend(:id, :token);
select stuck from taskq.running where id = :id;
select test.pass('1 hour');
select taskq._recover(10);
select taskq.extend(:id, :token);
select taskq.extend(:id, :token, progress => '1');
select test.claim(1, array['b']);
select taskq.extend(:id, :token);
select attempt, progress from taskq.tasks where id = :id;
\set VERBOSITY sqlstate
select taskq.extend(:id, :token);
select taskq.extend(null, 1);
select taskq.extend(1, null);
select taskq.extend(3000000000, 1);
