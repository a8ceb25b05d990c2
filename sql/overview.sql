-- overview: one screen for psql's \watch. Those that have something to do, or something wrong, come first.

create view taskq.overview as
  with clock as materialized (
    select taskq._view_time() as at
  ), lately as materialized (
    select s.queue, pg_catalog.sum(s.enqueued) as enqueued, pg_catalog.sum(s.succeeded) as succeeded, pg_catalog.sum(s.failed) as failed,
           pg_catalog.sum(s.started) as started, pg_catalog.max(s.waiting_p95) as waiting, pg_catalog.max(s.run_p50) as run, pg_catalog.max(s.claimers) as claimers,
           -- a sample has a row for each type; its time counts once
           greatest(60, pg_catalog.sum(s.seconds) filter (where s.is_first)) as seconds
      from clock
      join (select x.*, pg_catalog.row_number() over (partition by x.at, x.queue order by x.task_type) operator(pg_catalog.=) 1 as is_first
              from taskq.sample x, clock c
             where x.at operator(pg_catalog.>) (c.at operator(pg_catalog.-) '1 minute'::interval) and x.at operator(pg_catalog.<=) c.at) s on true
     group by s.queue
  )
  select q.queue, q.ready,
         pg_catalog.date_trunc('second', q.oldest_ready_age) as oldest,
         q.running, q.scheduled as later, q.blocked, q.dead,
         pg_catalog.round((l.enqueued operator(pg_catalog./) l.seconds)::numeric, 1) as in_s,
         pg_catalog.round((l.succeeded operator(pg_catalog./) l.seconds)::numeric, 1) as done_s,
         pg_catalog.round((100 operator(pg_catalog.*) l.failed operator(pg_catalog./) nullif(l.succeeded operator(pg_catalog.+) l.failed, 0))::numeric) as fail_pct,
         pg_catalog.round(l.waiting::numeric, 1) as wait_s,
         pg_catalog.round(l.run::numeric, 2) as run_s,
         l.claimers as workers,
         case when q.ready operator(pg_catalog.>) 0 and l.started operator(pg_catalog.>) l.enqueued
              then pg_catalog.date_trunc('second', pg_catalog.make_interval(secs => (q.ready operator(pg_catalog.*) l.seconds operator(pg_catalog./) (l.started operator(pg_catalog.-) l.enqueued))::double precision)) end as empty_in,
         pg_catalog.concat_ws(', ', case when q.paused_at is not null then 'paused' end,
                              case when q.max_running is not null and q.running operator(pg_catalog.>=) q.max_running then 'limit full' end,
                              a.kinds) as note
    from taskq.queues q
    left join lately l on l.queue operator(pg_catalog.=) q.queue
    left join lateral (
      select pg_catalog.string_agg('alert '::text operator(pg_catalog.||) x.kind, ', ' order by x.kind) as kinds
        from taskq.alert x where x.queue operator(pg_catalog.=) q.queue and x.cleared_at is null and x.acknowledged_at is null) a on true
   order by q.oldest_ready_age desc nulls last, q.dead desc, q.queue;
comment on view taskq.overview is 'One screen for psql: each queue, how it stands and what it did in the last minute. Use it with \watch; for what is wrong and why see diagnose.';
comment on column taskq.overview.queue is 'The queue.';
comment on column taskq.overview.ready is 'Tasks that are due and wait for a worker.';
comment on column taskq.overview.oldest is 'How long its oldest ready task has been due.';
comment on column taskq.overview.later is 'Tasks that are due later, retries included.';
comment on column taskq.overview.running is 'Tasks that a worker holds.';
comment on column taskq.overview.blocked is 'Tasks that are due and were put aside, because another one of their group runs.';
comment on column taskq.overview.dead is 'Dead letters.';
comment on column taskq.overview.in_s is 'Tasks that arrived, a second, in the last minute.';
comment on column taskq.overview.done_s is 'Tasks that succeeded, a second.';
comment on column taskq.overview.fail_pct is 'How many of a hundred runs failed.';
comment on column taskq.overview.wait_s is 'Seconds that tasks waited from due to claimed, the 95th percentile.';
comment on column taskq.overview.run_s is 'Seconds that they ran, the median (of the slowest type).';
comment on column taskq.overview.workers is 'Workers that asked for its tasks.';
comment on column taskq.overview.empty_in is 'When nothing is ready any more, if it goes on like that; empty: never.';
comment on column taskq.overview.note is 'paused, limit full, and alerts that nobody has acknowledged.';
