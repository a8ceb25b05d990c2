-- Rights: everything is closed to PUBLIC; a part is opened to a role by one call.

-- What each part may use.
create function taskq._parts()
  returns table (part text, kind text, object text)
  language sql immutable rows 60 set search_path = pg_catalog, pg_temp as $$
  values
    ('producer', 'function', 'taskq.enqueue'),
    ('producer', 'function', 'taskq.enqueue_many'),
    ('producer', 'function', 'taskq.status'),
    ('producer', 'function', 'taskq.estimate'),
    ('producer', 'function', 'taskq.cancel'),
    ('worker',   'function', 'taskq.claim'),
    ('worker',   'procedure', 'taskq.wait'),
    ('worker',   'function', 'taskq._claimable'),
    ('worker',   'function', 'taskq.extend'),
    ('worker',   'function', 'taskq.release'),
    ('worker',   'function', 'taskq.complete'),
    ('worker',   'function', 'taskq.complete_many'),
    ('worker',   'function', 'taskq.fail'),
    ('worker',   'function', 'taskq.fail_many'),
    ('worker',   'function', 'taskq.once'),
    ('worker',   'function', 'taskq.status'),
    ('worker',   'function', 'taskq.estimate'),
    ('operator', 'function', 'taskq.configure_queue'),
    ('operator', 'function', 'taskq.configure_type'),
    ('operator', 'function', 'taskq.pause'),
    ('operator', 'function', 'taskq.resume'),
    ('operator', 'function', 'taskq.cancel'),
    ('operator', 'function', 'taskq.redrive'),
    ('operator', 'function', 'taskq.purge'),
    ('operator', 'function', 'taskq.acknowledge'),
    ('operator', 'function', 'taskq.drill'),
    ('operator', 'function', 'taskq.schedule'),
    ('operator', 'function', 'taskq.unschedule'),
    ('operator', 'procedure', 'taskq.maintain'),
    ('operator', 'function', 'taskq._run_duty'),
    ('operator', 'part',     'reader'),
    ('reader',   'function', 'taskq.status'),
    ('reader',   'function', 'taskq.estimate'),
    ('reader',   'function', 'taskq.health'),
    ('reader',   'function', 'taskq.why'),
    ('reader',   'function', 'taskq.diagnose'),
    ('reader',   'function', 'taskq.metrics'),
    ('reader',   'function', 'taskq.dashboard'),
    ('reader',   'view',     'taskq.queues'),
    ('reader',   'view',     'taskq.task_types'),
    ('reader',   'view',     'taskq.tasks'),
    ('reader',   'view',     'taskq.running'),
    ('reader',   'view',     'taskq.finished'),
    ('reader',   'view',     'taskq.dead_letters'),
    ('reader',   'view',     'taskq.workers'),
    ('reader',   'view',     'taskq.history'),
    ('reader',   'view',     'taskq.alerts'),
    ('reader',   'view',     'taskq.duties'),
    ('reader',   'view',     'taskq.schedules'),
    ('reader',   'view',     'taskq.failures'),
    ('reader',   'view',     'taskq.overview'),
    -- the exporter's queries
    ('reader',   'function', 'taskq._metrics_tasks'),
    ('reader',   'function', 'taskq._metrics_queues'),
    ('reader',   'function', 'taskq._metrics_alerts'),
    ('reader',   'function', 'taskq._metrics_duties'),
    ('reader',   'function', 'taskq._metrics_database'),
    -- functions in a view are called with the rights of the one who looks
    ('reader',   'function', 'taskq._view_time'),
    ('reader',   'function', 'taskq._count_tasks'),
    ('reader',   'function', 'taskq._figures'),
    ('reader',   'function', 'taskq._figures_kept'),
    ('reader',   'function', 'taskq._workers_seen'),
    ('reader',   'function', 'taskq._displayed_state'),
    ('reader',   'function', 'taskq._local_time'),
    ('reader',   'function', 'taskq._last_error'),
    ('reader',   'function', 'taskq._failures'),
    ('reader',   'function', 'taskq._default_lease'),
    ('reader',   'function', 'taskq._default_retention'),
    ('reader',   'function', 'taskq._default_dead_letters_limit'),
    ('reader',   'function', 'taskq._default_oldest_ready_limit'),
    ('reader',   'function', 'taskq._default_expired_leases_limit'),
    ('reader',   'function', 'taskq._default_unclaimed_limit')
$$;
comment on function taskq._parts() is
  'What grant_producer, grant_worker, grant_operator and grant_reader open.';

-- Opens a part to a role and remembers it for upgrades.
-- Errors: 22023 for a NULL role; 42501 unless called by the owner of the extension.
create function taskq._grant_part(part text, role regrole) returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_object record;
begin
  if _grant_part.role is null then
    perform taskq._refuse('22023', 'role must not be null', 'Name an existing role, as in ''app''::regrole.');
  end if;
  perform taskq._wait_lock('grant');  -- two that change the same rights at once would fail
  execute format('grant usage on schema taskq to %s', _grant_part.role);
  for v_object in select p.kind, p.object from taskq._parts() p where p.part = _grant_part.part loop
    case v_object.kind
      when 'part' then perform taskq._grant_part(v_object.object, _grant_part.role);
      when 'view' then execute format('grant select on %s to %s', v_object.object, _grant_part.role);
      -- names are unique: one function a verb, no overloads
      else execute format('grant execute on %s %s to %s', v_object.kind, v_object.object, _grant_part.role);
    end case;
  end loop;
  insert into taskq.granted_part (part, role)
  select _grant_part.part, r.rolname from pg_roles r where r.oid = _grant_part.role
      on conflict do nothing;
end
$$;
comment on function taskq._grant_part(text, regrole) is
  'Opens one part to a role and notes it in granted_part.';

create function taskq.grant_producer(role regrole) returns void
  language sql volatile set search_path = pg_catalog, pg_temp
  return taskq._grant_part('producer', grant_producer.role);
comment on function taskq.grant_producer is
  'Lets a role enqueue, cancel and ask for the status of tasks and for forecasts.';

create function taskq.grant_worker(role regrole) returns void
  language sql volatile set search_path = pg_catalog, pg_temp
  return taskq._grant_part('worker', grant_worker.role);
comment on function taskq.grant_worker is
  'Lets a role claim tasks and end, extend or release them.';

create function taskq.grant_operator(role regrole) returns void
  language sql volatile set search_path = pg_catalog, pg_temp
  return taskq._grant_part('operator', grant_operator.role);
comment on function taskq.grant_operator is
  'Lets a role configure, pause, schedule, redrive, purge, cancel, acknowledge, drill and maintain, and read what a reader may.';

create function taskq.grant_reader(role regrole) returns void
  language sql volatile set search_path = pg_catalog, pg_temp
  return taskq._grant_part('reader', grant_reader.role);
comment on function taskq.grant_reader is
  'Lets a role read the views, payloads and errors included, and call status, estimate, why, diagnose, health, metrics and dashboard.';

-- Types are open to PUBLIC when they are made, those of tables and views, too. Who may use one can make a table with a column
-- of it, and that would stand in the way of upgrades, of days that go, and of DROP EXTENSION. (pg_dump leaves out the rights on types of tables:
-- so the archive duty does this, too. What a script of the extension does is noted as its initial rights: let that be about
-- its members only.) Returns how many there were.
create function taskq._close_types(members_only boolean) returns bigint
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_type  oid;
  v_count bigint := 0;
begin
  for v_type in
    select t.oid from pg_type t
     where t.typnamespace = 'taskq'::regnamespace and t.typcategory <> 'A'
       and exists (select from aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
                    where a.grantee = 0 or _close_types.members_only and a.grantee <> t.typowner)
       and pg_has_role(current_user, t.typowner, 'usage')
       and (not _close_types.members_only
            or exists (select from pg_depend d
                        where d.deptype = 'e' and d.refclassid = 'pg_extension'::regclass
                          and (d.classid, d.objid) in (('pg_type'::regclass, t.oid), ('pg_class'::regclass, t.typrelid))))
  loop
    execute format('revoke all on type %s from %s', v_type::regtype, taskq._others());
    v_count := v_count + 1;
  end loop;
  return v_count;
end
$$;
comment on function taskq._close_types(boolean) is
  'Closes the types of all tables, views and functions to PUBLIC, and to whom default privileges name.';

-- Roles that lack something of a part that they were granted: as in a database from a dump of an older version.
create function taskq._rights_missing()
  returns table (part text, role name)
  language sql stable rows 10 set search_path = pg_catalog, pg_temp as $$
  select g.part, r.rolname
    from taskq.granted_part g
    join pg_roles r on r.rolname = g.role
   where exists (select from taskq._parts() p
                  where (p.part = g.part or p.part in (select i.object from taskq._parts() i where i.part = g.part and i.kind = 'part'))
                    and case p.kind when 'part' then false
                                    when 'view' then not has_table_privilege(r.oid, to_regclass(p.object)::oid, 'select')
                                    else not has_function_privilege(r.oid, to_regproc(p.object)::oid, 'execute') end)
   order by g.part, r.rolname
$$;
comment on function taskq._rights_missing() is
  'Roles that lack something of a part that they were granted.';

-- For upgrade scripts, before they close what they have made: any superuser may upgrade, and what that one makes is to belong to
-- the owner of the extension, in whose name the keeper works and the definer functions run.
create function taskq._give_to_owner() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_command text;
begin
  for v_command in
    select format('alter %s %s owner to %s', o.type, o.identity, e.extowner::regrole)
      from pg_extension e
      join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
      join (select 'pg_proc'::regclass as classid, p.oid, p.proowner as owner from pg_proc p
            union all select 'pg_class'::regclass, c.oid, c.relowner from pg_class c where c.relkind in ('r', 'p', 'v', 'S')
            -- (Since 18 the types of arrays and of tables' rows are members, too. They follow.)
            union all select 'pg_type'::regclass, t.oid, t.typowner from pg_type t
                       where t.typcategory <> 'A'
                         and not exists (select from pg_class c where c.oid = t.typrelid and c.relkind <> 'c')) m
        on m.classid = d.classid and m.oid = d.objid and m.owner <> e.extowner
     cross join pg_identify_object(d.classid, d.objid, 0) o
     where e.extname = 'taskq'
     order by d.classid, d.objid
  loop
    execute v_command;
  end loop;
end
$$;
comment on function taskq._give_to_owner() is
  'Gives what an upgrade has made to the owner of the extension.';

-- The end of every upgrade script: gives all roles their parts again, with what was added to them and
-- what had to be made anew. Needs a superuser, who alone may upgrade.
create function taskq._grant_again() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform taskq._close_types(members_only => true);
  perform taskq._grant_part(g.part, r.oid::regrole)
     from taskq.granted_part g
     join pg_roles r on r.rolname = g.role
    order by g.part, g.role;
  -- What a script grants, PostgreSQL takes for a part of the extension, which pg_dump leaves out. These
  -- are the grants of this database, and a dump must have them.
  update pg_init_privs i
     set initprivs = array(select a.item
                             from unnest(i.initprivs) with ordinality a(item, ord)
                            where exists (select from aclexplode(array[a.item]) p where p.grantee in (0, p.grantor))
                            order by a.ord)
   where i.privtype = 'e'
     and (i.classoid = 'pg_namespace'::regclass and i.objoid = 'taskq'::regnamespace
          or exists (select from pg_depend d
                      where d.classid = i.classoid and d.objid = i.objoid and d.deptype = 'e'
                        and d.refclassid = 'pg_extension'::regclass
                        and d.refobjid = (select e.oid from pg_extension e where e.extname = 'taskq')))
     and exists (select from aclexplode(i.initprivs) p where p.grantee not in (0, p.grantor));
end
$$;
comment on function taskq._grant_again() is
  'Ends an upgrade: grants every role of granted_part its parts again.';

-- Functions are open to PUBLIC when they are made, and all objects to whom ALTER DEFAULT PRIVILEGES names, so this stands
-- behind all of them.
do $$
declare
  v_what text;
begin
  foreach v_what in array array['schema', 'all functions in schema', 'all procedures in schema', 'all tables in schema', 'all sequences in schema'] loop
    execute pg_catalog.format('revoke all on %s taskq from %s', v_what, taskq._others());
  end loop;
end
$$;

select taskq._close_types(members_only => true);

-- A role that was granted a part before a dump gets it again when the dump is restored; see the
-- README on pg_dump.

select taskq._start_keeper();
