-- Alerts: a NOTIFY on taskq_alert, a row in alert, a line in the server log; once when a figure
-- goes over its limit, once when it is back.

-- One round of the alert duty. Returns how many alerts were raised or cleared.
-- Writes: alert. Notifies: taskq_alert.
create function taskq._duty_alert() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := taskq._now();
  v_alert  taskq.alert;
  v_count  bigint := 0;
  v_queue  record;
begin
  -- Dead letters count until they are redriven, purged or acknowledged.
  for v_queue in
    select n.queue, coalesce(d.dead, 0) as dead, coalesce(q.dead_letters_limit, 3) as dead_limit
      from (select x.queue from taskq.dead_letter x group by x.queue
            union select a.queue from taskq.alert a where a.kind = 'dead_letters' and a.cleared_at is null) n
      left join taskq.queue q on q.name = n.queue
      left join (select x.queue, count(*) as dead from taskq.dead_letter x
                  where x.acknowledged_at is null group by x.queue) d on d.queue = n.queue
     order by n.queue
  loop
    if v_queue.dead > v_queue.dead_limit then
      insert into taskq.alert (kind, queue, value, alert_limit, raised_at)
      select 'dead_letters', v_queue.queue, v_queue.dead, v_queue.dead_limit, v_now
       where not exists (select from taskq.alert a
                          where a.kind = 'dead_letters' and a.queue = v_queue.queue and a.cleared_at is null)
      returning * into v_alert;
      if found then
        perform taskq._announce(v_alert, 'raised', v_queue.dead, v_now);
        v_count := v_count + 1;
      end if;
    else
      update taskq.alert a set cleared_at = v_now
       where a.kind = 'dead_letters' and a.queue = v_queue.queue and a.cleared_at is null
      returning * into v_alert;
      if found then
        perform taskq._announce(v_alert, 'cleared', v_queue.dead, v_now);
        v_count := v_count + 1;
      end if;
    end if;
  end loop;
  return v_count;
end
$$;
comment on function taskq._duty_alert() is
  'One round of the alert duty: raises and clears alerts.';

-- Tells the world about an alert. The payload has names, ids and counts only, and stays below
-- 1,000 bytes, because a queue's name has 63 at most.
create function taskq._announce(alert taskq.alert, state text, value bigint, at timestamptz) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_notify('taskq_alert', jsonb_build_object(
    'alert_id', (_announce.alert).id, 'kind', (_announce.alert).kind, 'queue', (_announce.alert).queue,
    'state', _announce.state, 'value', _announce.value, 'limit', (_announce.alert).alert_limit,
    'at', _announce.at)::text);
  perform taskq._log(format('taskq alert %s %s: %s in queue "%s" is %s (limit %s)', (_announce.alert).id, _announce.state,
    (_announce.alert).kind, (_announce.alert).queue, _announce.value, (_announce.alert).alert_limit));
end
$$;
comment on function taskq._announce(taskq.alert, text, bigint, timestamptz) is
  'Sends an alert by NOTIFY taskq_alert and to the server log.';

-- acknowledge: a person has seen an alert. Its dead letters do not count any more, so the alert
-- clears, and a new one is raised only when others exceed the limit again.
-- Errors: 22023 if there is no such alert.
-- Writes: alert, dead_letter.
create function taskq.acknowledge(alert_id bigint) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := taskq._now();
  v_alert taskq.alert;
begin
  select a.* into v_alert from taskq.alert a where a.id = acknowledge.alert_id for update;
  if not found then
    perform taskq._refuse('22023', 'there is no such alert', 'See taskq.alerts for the ids.');
  end if;
  if v_alert.acknowledged_at is not null then
    return;
  end if;
  update taskq.alert a set acknowledged_at = v_now, acknowledged_by = session_user where a.id = v_alert.id;
  if v_alert.cleared_at is null then
    update taskq.dead_letter d set acknowledged_at = v_now
     where d.queue = v_alert.queue and d.acknowledged_at is null;
  end if;
end
$$;
comment on function taskq.acknowledge is
  'Notes that a person has seen an alert. What it counted does not count any more.';
