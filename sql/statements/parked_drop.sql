-- One locked task is not parked any more; it has a place already. (Not in the statement that locked it: that
-- would not see what a claim has parked while it waited.)
-- $1 id
delete from taskq.parked p where p.id = $1
