-- A worker that waits, and notes how long after its task was due (or enqueued) it had it.
call taskq.wait(null, '1 s');
with got as materialized (
  select c.*, clock_timestamp() as had_at from taskq.claim(1) c
), noted as (
  insert into wakeup.latency
  select case when g.payload = '0' then 'now' else 'later' end,
         1000 * extract(epoch from g.had_at - g.enqueued_at - make_interval(secs => g.payload::text::float8))
    from got g
)
select taskq.complete(g.id, g.token) from got g;
