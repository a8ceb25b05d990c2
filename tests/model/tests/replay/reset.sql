-- Before the first history: a function that empties the database for the next one.
create schema test;

-- By the verbs where these keep count of what is there.
create function test.reset() returns void language plpgsql as $$
begin
  perform taskq.cancel(t.id, force => true) from taskq.task t order by t.id;
  delete from taskq.done;
  delete from taskq.dead_letter;
  delete from taskq.unique_key;
  delete from taskq.once_key;
  delete from taskq.group_turn;
  delete from taskq.parked;
  delete from taskq.queue;
  delete from taskq.schedule;
  delete from taskq.task_type;
  insert into taskq.task_type (name, jitter, updated_at) values ('mail', 0, taskq._now()), ('report', 0, taskq._now());
  perform setval('taskq.task_id_seq', 1, false);
end
$$;

create function test.headers(headers jsonb, beginning bigint) returns text language sql stable
  return case when headers.headers is null then null
              when jsonb_typeof(headers.headers) = 'number' then headers.headers::text
              else format('%s at %s', headers.headers ->> 'schedule',
                          extract(epoch from (headers.headers ->> 'scheduled_at')::timestamptz)::bigint - headers.beginning) end;

create function test.errors(errors jsonb, beginning bigint) returns text language sql stable
  return (select string_agg(format('%s at %s by %s: %s', e.value ->> 'attempt',
                                   extract(epoch from (e.value ->> 'at')::timestamptz)::bigint - errors.beginning,
                                   e.value ->> 'worker', e.value ->> 'error'), '; ' order by e.ordinality)
            from jsonb_array_elements(errors.errors) with ordinality e);
