-- What an operator decides, run as approval_operator: which queue a type of
-- task waits in, what goes first, and how retries are paced. The web application
-- and the workers know only the types.
--
-- The figures are for a demo that lasts a minute: real ones are minutes and
-- hours (the defaults: lease 5 minutes, backoff 30 seconds to 6 hours).

select taskq.configure_type('approval.mail', '{
    "queue": "email", "priority": 10,
    "max_retries": 8, "backoff_base": "0.4 s", "backoff_factor": 2, "backoff_cap": "3 s", "jitter": 0.1,
    "lease": "5 s"}');

select taskq.configure_type('approval.cache', '{
    "queue": "cache", "priority": 5,
    "max_retries": 3, "backoff_base": "0.4 s", "backoff_cap": "3 s",
    "lease": "5 s"}');

select taskq.configure_type('approval.report', '{
    "queue": "reports", "priority": 0,
    "max_retries": 3, "backoff_base": "0.4 s", "backoff_cap": "3 s",
    "lease": "5 s"}');

select taskq.configure_type('approval.yearbook', '{
    "queue": "reports", "priority": -10,
    "max_retries": 3, "backoff_base": "0.4 s", "backoff_cap": "3 s",
    "lease": "3 s"}');

select taskq.configure_type('approval.summary', '{
    "queue": "summary", "priority": 0,
    "max_retries": 3, "backoff_base": "0.4 s", "backoff_cap": "3 s",
    "lease": "5 s"}');

-- The mail server takes eight connections at a time. Tell the operator when more
-- than three e-mails are dead.
select taskq.configure_queue('email', '{"max_running": 8, "dead_letters_limit": 3}');

-- Drawing takes a whole processor: two at a time, and the rest of the machine stays free.
select taskq.configure_queue('reports', '{"max_running": 2}');

-- The start page need not be newer than this, however many approvals come.
select taskq.configure_queue('cache', '{"rate": "5/second", "burst": 5}');
