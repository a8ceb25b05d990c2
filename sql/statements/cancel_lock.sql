-- Locks one unfinished task to cancel it.
-- $1 id
select t.state = 'running' from taskq.task t where t.id = $1 for no key update
