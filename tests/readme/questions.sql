-- The office of "the operator's twelve questions" in README.md: the mail server fails, the reports are paused, one
-- worker takes long.
create extension taskq;
select taskq.configure_type('mail.invoice', '{"queue": "mail", "max_retries": 0}');
select taskq.configure_type('mail.welcome', '{"queue": "mail", "backoff_base": "1 hour", "jitter": 0}');
select taskq.enqueue('mail.welcome', '{"customer": 1}', queue => 'mail');
select taskq.complete(id, token) from taskq.claim(worker => 'w1');
select taskq.enqueue('mail.invoice') from generate_series(2, 7);
select taskq.enqueue('mail.welcome', '{"customer": 8}');
select taskq.fail(id, token, format('mail server: HTTP 503 for message %s', id)) from taskq.claim(7, worker => 'w1');
select taskq.enqueue('film.cut', queue => 'films');
select id from taskq.claim(1, '{films}', worker => 'w2', lease => '1 hour');
select taskq.enqueue('report.daily', queue => 'reports') from generate_series(1, 2);
select taskq.pause('reports');
-- until the keeper has taken samples of all this
do $$
begin
  for attempt in 1..600 loop
    exit when exists (select from taskq.history h where h.failed > 0) and exists (select from taskq.alerts);
    perform pg_sleep(0.1);
    commit;
  end loop;
end
$$;
