-- The results as a Markdown table.
select '| case | synchronous_commit | clients | by hand, tasks/s | taskq, tasks/s | ratio (least to most) | WAL by hand, bytes/task | WAL taskq, bytes/task |'
union all
select '|---|---|--:|--:|--:|--:|--:|--:|';
select format('| %s | %s | %s | %s | %s | **%s** (%s to %s) | %s | %s |', title, sync, clients,
              to_char(percentile_cont(0.5) within group (order by plain), 'FM999,999,999'),
              to_char(percentile_cont(0.5) within group (order by taskq), 'FM999,999,999'),
              to_char(percentile_cont(0.5) within group (order by ratio), 'FM990.00'),
              to_char(min(ratio), 'FM990.00'), to_char(max(ratio), 'FM990.00'),
              to_char(percentile_cont(0.5) within group (order by plain_wal), 'FM999,999,999'),
              to_char(percentile_cont(0.5) within group (order by taskq_wal), 'FM999,999,999'))
  from bench.pair
 group by title, sync, clients
 order by min(at);
