-- Who may do what. Nobody gets a right on taskq's tables; each role gets
-- exactly the functions of its part.

create role approval_web login;       -- the web application: submits
create role approval_worker login;    -- the worker processes
create role approval_operator login;  -- the person on duty
create role approval_listener login;  -- the alert listener

select taskq.grant_producer('approval_web');
select taskq.grant_worker('approval_worker');
select taskq.grant_operator('approval_operator');  -- and what a reader may
select taskq.grant_reader('approval_listener');
-- Only for the drill, in which the listener also plays the person who is told.
grant execute on function taskq.acknowledge(bigint) to approval_listener;

-- The company's own tables.
grant select on all tables in schema public to approval_web, approval_worker, approval_operator;
grant insert on approval, approval_item, approval_task to approval_web;
grant insert on report, sent_mail, cache_refresh, summary to approval_worker;
grant update on partner_summary to approval_worker;
grant update (address) on partner to approval_operator;

-- Only for the comparison with inline work, where the web application does
-- everything itself while the user waits.
grant insert on report, sent_mail, cache_refresh to approval_web;
grant update on partner_summary to approval_web;
