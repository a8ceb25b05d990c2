-- A task that is due now or in 0.2 to 0.5 seconds; the payload says which. Of many queues, so that each is
-- quiet: further messages about one queue come every 100 ms only.
\set later random(0, 1)
\set wait random(200, 500)
\set queue random(1, 200)
select taskq.enqueue('wakeup', to_jsonb(:later * :wait / 1000.0), 'wakeup' || :queue, delay => make_interval(secs => :later * :wait / 1000.0));
