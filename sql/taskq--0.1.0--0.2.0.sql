-- The upgrade from 0.1.0 to 0.2.0. Made by tools/upgrade.py; what is written by hand is in
-- sql/upgrades/0.1.0--0.2.0.sql, and stands first.

create or replace function taskq._grant_again() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
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

revoke all on function taskq._grant_again() from public;

-- Roles keep the parts they were granted, and get what was added to them.
select taskq._grant_again();

-- The keeper of the old version has left when its library went.
select taskq._start_keeper();
