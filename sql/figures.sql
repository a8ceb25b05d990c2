-- What the shared memory knows: figures of every queue and task type, and the workers seen. It is
-- kept by the verbs as their transactions commit (src/figures.rs). Without preloading there is none,
-- and these functions return no rows.

create function taskq._figures()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint,
                 enqueued bigint, started bigint, succeeded bigint, failed bigint, retried bigint, dead bigint,
                 expired bigint, cancelled bigint)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures';
comment on function taskq._figures() is
  'Of each queue and task type: how many tasks wait and run now, and what has happened since the server started.';

create function taskq._figures_for_metrics()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint,
                 enqueued bigint, started bigint, succeeded bigint, failed bigint, retried bigint, dead bigint,
                 expired bigint, cancelled bigint, made_at timestamptz, bounds double precision[],
                 waiting_buckets bigint[], waiting_count bigint, waiting_sum double precision,
                 run_buckets bigint[], run_count bigint, run_sum double precision,
                 total_buckets bigint[], total_count bigint, total_sum double precision)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures_for_metrics';
comment on function taskq._figures_for_metrics() is
  'As _figures, with the moment at which each pair was first seen, and since then how many of the durations (waiting, run, and from enqueue to complete) were not longer than each of the bounds, how many there were, and their sum in seconds.';

create function taskq._figures_state()
  returns table (counted_at timestamptz, exact boolean)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures_state';
comment on function taskq._figures_state() is
  'When the tasks were last counted for _figures, and whether the figures have been exact since. No row without shared memory or before the first count.';

-- The keeper moves what has become due from scheduled to ready: without one the figures grow old.
create function taskq._figures_kept()
  returns table (counted_at timestamptz, exact boolean)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_figures_kept';
comment on function taskq._figures_kept() is
  'As _figures_state; no row if this database has no keeper either. Then the figures are not to be shown.';

create function taskq._clock_jump()
  returns table (at timestamptz, seconds double precision)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_clock_jump';
comment on function taskq._clock_jump() is
  'When the keeper last found that the clock had jumped by more than 5 seconds, and by how many (negative: back). No row if it did not.';

create function taskq._take_figures()
  returns table (queue text, task_type text, ready bigint, scheduled bigint, running bigint, blocked bigint,
                 enqueued bigint, started bigint, succeeded bigint, failed bigint, retried bigint, dead bigint,
                 expired bigint, cancelled bigint,
                 waiting_p50 double precision, waiting_p95 double precision,
                 run_p50 double precision, run_p95 double precision,
                 total_p50 double precision, total_p95 double precision)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_take_figures';
comment on function taskq._take_figures() is
  'As _figures, but what has happened since the last call that was committed, with the median and 95th percentile of the seconds waiting, running, and from enqueue to complete. For the sample duty.';

create function taskq._take_claims()
  returns table (claims bigint, claim_p50 double precision, claim_p95 double precision)
  language c volatile security definer rows 1 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_take_claims';
comment on function taskq._take_claims() is
  'How many calls of claim there were since this was called last, and the median and 95th percentile of the seconds that they took. No row without shared memory. For the sample duty.';

create function taskq._workers_seen()
  returns table (worker text, queues text[], first_seen_at timestamptz, seen_at timestamptz,
                 claimed_at timestamptz, claims bigint, claimed bigint, session_lives boolean,
                 calls_in_session bigint, waits boolean)
  language c volatile security definer rows 50 set search_path = pg_catalog, pg_temp
  as 'MODULE_PATHNAME', 'taskq_workers_seen';
comment on function taskq._workers_seen() is
  'The workers that called claim or wait lately: for which queues (NULL: all), when first and last, when one last got a task, how many claims, and how many tasks; whether the session that it last called from is there, how often it has called from that, and whether that sleeps in wait. At most 512 workers, the ones not seen for longest forgotten first.';

create function taskq._note_redriven(queue text, task_type text, run_at timestamptz, enqueued_at timestamptz) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_note_redriven';
comment on function taskq._note_redriven(text, text, timestamptz, timestamptz) is
  'Notes for the figures that a dead letter waits again. What the verbs in Rust do is noted there.';

create function taskq._note_gone(queue text, task_type text, run_at timestamptz, enqueued_at timestamptz) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_note_gone';
comment on function taskq._note_gone(text, text, timestamptz, timestamptz) is
  'Notes for the figures that a waiting task was purged.';

create function taskq._note_opened(queue text) returns void
  language c volatile
  as 'MODULE_PATHNAME', 'taskq_note_opened';
comment on function taskq._note_opened(text) is
  'Notes that a queue may give tasks again, so that those who wait are told.';
