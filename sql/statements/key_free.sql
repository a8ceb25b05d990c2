-- A task lets go of its key: the key is free, or stays until the time for which it is kept. A key
-- that it has let go of before is left alone: a producer may just be taking it.
-- $1 task_type   $2 key   $3 id   $4 now
with freed as (
  delete from taskq.unique_key k
   where k.task_type = $1 and k.key = $2 and k.task_id = $3 and not k.let_go and (k.kept_until is null or k.kept_until <= $4)
)
update taskq.unique_key k
   set let_go = true
 where k.task_type = $1 and k.key = $2 and k.task_id = $3 and not k.let_go and k.kept_until > $4
