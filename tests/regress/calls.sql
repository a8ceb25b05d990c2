-- Sourced by h02_shadowing: everything that a plain role may use which was granted all parts. Nothing that it prints
-- depends on the time or on tokens, and it leaves no tasks; so it must print the same however names are shadowed.
-- (Its own names are qualified: it is what it calls that is tested.)
select taskq.enqueue('a', '{"n": 1}', unique_key => 'k', headers => '{"h": 1}') operator(pg_catalog.>) 0 as enqueued;
select taskq.enqueue('a', '{"n": 2}', unique_key => 'k', on_conflict => 'replace') operator(pg_catalog.>) 0 as replaced;
select taskq.enqueue('a', unique_key => 'k', on_conflict => 'skip') is null as skipped;
select test.code('select taskq.enqueue(''a'', unique_key => ''k'', on_conflict => ''error'')');
select test.code('select taskq.enqueue('''')');
select taskq.enqueue('late', delay => '1 hour', queue => 'later', max_retries => 2) operator(pg_catalog.>) 0 as enqueued;
select e.ord, e.created from taskq.enqueue_many('[{"task_type": "m", "unique_key": "m", "group_key": "g", "queue": "m"}, {"task_type": "m", "unique_key": "m"},
  {"task_type": "m", "run_at": "2001-01-01T00:00:00Z", "queue": "m", "priority": 7, "unique_key": "n", "unique_for": "1 s", "unique_until": "started"}]') e;
select e.queue, e.tasks_ahead from taskq.estimate('a') e;
select t.task_type, t.queue, t.state, t.attempt, t.priority, t.payload, t.headers from taskq.tasks t order by t.id using operator(pg_catalog.<);
select c.id, c.token, c.task_type, c.payload from taskq.claim(1, array['default'], 'w') c \gset
\echo :task_type :payload
select e.cancel_requested from taskq.extend(:id, :token, lease => '1 minute', progress => '{"half": true}') e;
select taskq.release(:id, :token);
select c.id, c.token from taskq.claim(1, array['default'], 'w') c \gset
select r.task_type, r.attempt, r.worker, r.stuck from taskq.running r;
select w.worker from taskq.workers w where w.worker operator(pg_catalog.=) 'w';
select f.state from taskq.fail(:id, :token, 'x', retry => false) f;
select test.code(pg_catalog.format('select taskq.complete(%s, %s)', :id, :token));
select s.state, s.attempt, s.last_error, s.progress from taskq.status(:id) s;
select d.task_type, d.attempt, d.last_error from taskq.dead_letters d;
select taskq.configure_queue('default', '{"dead_letters_limit": 0}') operator(pg_catalog.->>) 'dead_letters_limit' as dead_letters_limit;
select taskq._run_duty('alert');
select a.id, a.kind, a.queue, a.value from taskq.alerts a where a.kind operator(pg_catalog.=) 'dead_letters' and a.cleared_at is null \gset alert_
\echo :alert_kind :alert_queue :alert_value
select taskq.acknowledge(:alert_id);
select w.rank, w.reason, w.explanation is not null as explained, w.error from taskq.why(:id) w;
select w.reason from taskq.tasks t, taskq.why(t.id) w order by t.id using operator(pg_catalog.<), w.rank using operator(pg_catalog.<);
select f.queue, f.task_type, f.error, f.count, f.attempts, f.dead, f.sample_error from taskq.failures f;
select f.queue, f.error, f.dead from taskq._failures(null, 10) f;
select o.queue, o.ready, o.running, o.later, o.blocked, o.dead, o.note from taskq.overview o order by o.queue using operator(pg_catalog.<);
-- (workers of tests before this one may be gone meanwhile)
select d.queue, d.severity, d.finding from taskq.diagnose('default') d where d.finding operator(pg_catalog.<>) 'claimers_fewer';
select d.finding from taskq.diagnose('none') d;
select pg_catalog.count(*) operator(pg_catalog.>) 0 as found from taskq.diagnose() d;
select m.queue, m.task_type, m.ready_tasks, m.scheduled_tasks, m.running_tasks, m.blocked_tasks, m.dead_letters from taskq._metrics_tasks() m
 where m.task_type operator(pg_catalog.=) any ('{a,late,m}') order by m.task_type using operator(pg_catalog.<);
select m.queue, m.oldest_ready_age_seconds operator(pg_catalog.>=) 0 as waits, m.paused from taskq._metrics_queues() m;
select m.kind, m.queue, m.open, m.acknowledged from taskq._metrics_alerts() m;
select m.duty, m.failing from taskq._metrics_duties() m;
select m.version is not null as version, m.keeper_running, m.counts_exact from taskq._metrics_database() m;
select l.line from pg_catalog.regexp_split_to_table(taskq.metrics(), E'\n') l(line)
 where l.line operator(pg_catalog.~) '^taskq_(ready|scheduled|dead).*"(a|late|m)"' order by l.line using operator(pg_catalog.<);
-- the board: its headings, and what failed
select m.found[1] as text from taskq.dashboard() b(page), pg_catalog.regexp_matches(b.page,
  '(?:<h2[^>]*|data-label="(?:Type|Queue|Its error|To bring them back)"><[^>]+)>([^<]+)', 'g') m(found);
select c.ready, c.scheduled, c.running, c.blocked from taskq._count_tasks('m', taskq._view_time()) c;
select f.queue, f.task_type, f.ready, f.scheduled, f.running, f.blocked from taskq._figures() f
 where f.task_type operator(pg_catalog.=) any ('{a,late,m}') order by f.task_type using operator(pg_catalog.<);
select pg_catalog.count(*) as kept from taskq._figures_kept() k;
select w.worker, w.queues, w.session_lives from taskq._workers_seen() w where w.worker operator(pg_catalog.=) 'w';
select taskq._displayed_state('waiting', 'infinity', taskq._view_time()) as state, taskq._local_time('2001-01-01T00:00:00Z', 'Europe/Berlin') as local,
       taskq._last_error('[{"error": "e"}]') as error;
select taskq._default_lease() as lease, taskq._default_retention() as retention, taskq._default_dead_letters_limit() as dead_letters,
       taskq._default_oldest_ready_limit() as oldest_ready, taskq._default_expired_leases_limit() as expired_leases, taskq._default_unclaimed_limit() as unclaimed;
select taskq._claimable(array['m']) as some, taskq._claimable(array['none']) as none;
select r.redriven, r.skipped from taskq.redrive(ids => array[:id]) r;
select c.id, c.token from taskq.claim(1, array['default'], 'w') c \gset
select taskq.complete(:id, :token, '{"r": 1}');
select pg_catalog.count(*) from taskq.claim(2, array['m']) c, taskq.complete_many(array[c.id], array[c.token], array['1'::pg_catalog.jsonb]) m;
select taskq.enqueue('f', queue => 'f') operator(pg_catalog.>) 0 as enqueued;
select m.state from taskq.claim(1, array['f']) c, taskq.fail_many(array[c.id], array[c.token], array['y']) m;
select taskq.once('a', 'b', '1 hour') as new;
select taskq.once('a', 'b') as new;
select taskq.configure_type('a', '{"lease": "1 min", "priority": 3, "queue": "default", "backoff_factor": 1.5}') operator(pg_catalog.->>) 'priority' as priority;
select taskq.configure_queue('q', '{"lease": "1 min", "max_running": 2, "rate": "5/minute", "retention": "1 day"}') operator(pg_catalog.->>) 'rate' as rate;
select taskq.enqueue('limited', queue => 'q') operator(pg_catalog.>) 0 as enqueued;
select taskq.complete(c.id, c.token) from taskq.claim(5, array['q']) c;
select taskq.pause('q'), taskq.resume('q');
select taskq.schedule('s', '30 2 * * *', 'a', '{"s": 1}', 'Europe/Berlin');
select s.name, s.cron, s.next_run_local is not null as next from taskq.schedules s;
select taskq.unschedule('s');
call taskq.wait(array['none'], '0.1 s');
call taskq.maintain();
select taskq._run_duty('recover') as recovered;
select test.code('select taskq._run_duty(''none'')');
select d.duty, d.error from taskq.duties d order by d.duty using operator(pg_catalog.<);
select pg_catalog.count(*) operator(pg_catalog.>) 5 as checks from taskq.health() h;
select a.kind from taskq.alerts a;
select test.code('select taskq.acknowledge(0)');
select test.code('select taskq.drill()');
select q.queue, q.paused_at is null as open, q.max_running from taskq.queues q order by q.queue using operator(pg_catalog.<);
select t.task_type, t.priority, t.lease from taskq.task_types t order by t.task_type using operator(pg_catalog.<);
select pg_catalog.count(*) operator(pg_catalog.>=) 0 as history from taskq.history h;
select f.task_type, f.queue, f.state, f.attempt, f.result from taskq.finished f order by f.id using operator(pg_catalog.<);
select taskq.cancel(t.id, 'no') from taskq.tasks t where t.task_type operator(pg_catalog.=) 'late';
select taskq.purge('ready'), taskq.purge('scheduled'), taskq.purge('dead'), taskq.purge('succeeded'), taskq.purge('cancelled');
select pg_catalog.count(*) as tasks from taskq.tasks t;
