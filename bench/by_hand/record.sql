-- After a run: counts what it did, refuses a run in which that is not right, and keeps the result.
-- :number of scripts done, :tps of them; each is the life of a :batch of tasks
with counted as (
  select (select count(*) from :side.done where state = 'succeeded') as done,
         (select count(*) from :side.task) as unfinished,
         (select count(*) from :side.task where state = 'running') as running,
         (select count(*) from :side.task where run_at > now()) as later
)
insert into bench.run (title, sync, clients, pair, side, rate, wal)
select :'title', :'sync', :clients, :pair, :'side', :tps * c.done / :number,
       pg_wal_lsn_diff(:'after', :'before') / c.done
  from counted c
 -- nothing is lost, no claim is left over, and (nearly) every claim got a full batch
 where c.done + c.unfinished - c.later = :due + :running + :number * :batch
   and c.running = :running
   and c.done >= 0.95 * :number * :batch and c.done > 0
returning 1 as recorded \gset
\if :{?recorded}
\else
  \echo bench: :side lost tasks or did not process them
  select (select count(*) from :side.done) as done, state, run_at > now() as later, count(*) as tasks,
         :number * :batch as expected
    from :side.task group by 2, 3;
  do $$ begin raise 'the counts are wrong'; end $$;
\endif
