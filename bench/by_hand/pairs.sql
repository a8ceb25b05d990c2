-- Progress: the pairs of one series. :title :sync :clients
\pset format aligned
\pset tuples_only off
\pset footer off
select pair, round(plain) as plain, round(taskq) as taskq, round(ratio::numeric, 2) as ratio,
       round(plain_wal) as plain_wal, round(taskq_wal) as taskq_wal
  from bench.pair where title = :'title' and sync = :'sync' and clients = :clients order by pair;
