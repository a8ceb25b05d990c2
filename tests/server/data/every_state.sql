-- Tasks in every state, in a new database: with keys, groups, limits, schedules, settings, an alert,
-- an archived task, and leases that live on. Run without a keeper, statement by statement.
select taskq.configure_queue('limited', '{"max_running": 2, "rate": "100/minute"}');
select taskq.configure_queue('mail', '{"lease": "2 minutes", "dead_letters_limit": 1}');
select taskq.configure_queue('brief', '{"retention": "0 s"}');
select taskq.configure_queue('short', '{"retention": "1 s"}');
select taskq.configure_queue('held', '{}');
select taskq.pause('held');
select taskq.configure_type('mail.welcome', '{"queue": "mail", "backoff_base": "1 s", "max_retries": 2}');
select taskq.schedule('nightly', '0 3 * * *', 'report.daily', '{"of": "yesterday"}', 'Europe/Berlin');
select taskq.once('welcome', 'seen', '30 days');
select taskq.enqueue('lost', queue => 'leases');
select taskq.enqueue('asked', queue => 'leases');
select taskq.enqueue('kept', jsonb_build_object('n', n), queue => 'leases', unique_key => 'lease ' || n, headers => '{"h": 1}')
  from generate_series(1, 10) n;
select id, token from taskq.claim(12, array['leases'], 'w1', '1 day') order by id;
select taskq.cancel(2, 'asked to stop');
select taskq.extend(3, (select t.token from taskq.task t where t.id = 3), '2 days', '{"half": true}');
select taskq.enqueue('limited', jsonb_build_object('n', n), queue => 'limited') from generate_series(1, 5) n;
select id, token from taskq.claim(5, array['limited'], 'w2', '1 day') order by id;
select taskq.enqueue('grouped', jsonb_build_object('n', n), queue => 'groups', group_key => 'customer 1') from generate_series(1, 3) n;
select id, token from taskq.claim(3, array['groups'], 'w3', '1 day');
select taskq.enqueue('mail.welcome', jsonb_build_object('n', n), unique_key => 'k' || n, priority => n) from generate_series(1, 8) n;
select f.state from taskq.claim(3, array['mail']) c, taskq.fail(c.id, c.token, '550 no such mailbox', retry => false) f;
select f.state from taskq.claim(1, array['mail']) c, taskq.fail(c.id, c.token, 'timeout', '1 day') f;
select taskq.complete(c.id, c.token, '{"sent": true}') from taskq.claim(2, array['mail']) c;
select taskq.enqueue('later', delay => '1 day', queue => 'later', unique_key => 'l', unique_until => 'started') from generate_series(1, 2);
select taskq.cancel(taskq.enqueue('later', queue => 'later'), 'no need');
select taskq.enqueue('held', queue => 'held') from generate_series(1, 2);
select taskq.enqueue('brief', queue => 'short') from generate_series(1, 3);
select taskq.complete(c.id, c.token) from taskq.claim(3, array['short']) c;
call taskq.maintain();
select pg_sleep(1.5);
call taskq.maintain();
