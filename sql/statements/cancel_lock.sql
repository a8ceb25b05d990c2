-- Locks one unfinished task to cancel it.
-- $1 id
select t.state = 'running', t.run_at = 'infinity' from taskq.task t where t.id = $1 for no key update
