//! ALTER EXTENSION UPDATE: a database of each frozen version, brought to this one, is as a new one.

use postgres::{Client, Statement};
use std::collections::BTreeSet;
use std::path::Path;
use taskq_server_tests::{Database, Server, Session, Shared, eventually, sqlstate};

static SERVER: Shared = Shared::new("update", &[]);
const OLD: &str = "0.1.0";

/// Roles with each part, as the dump of the old database names them.
const ROLES: &[&str] = &["taskq_web", "taskq_worker", "taskq_dba", "taskq_eye"];

/// What the catalogs say of everything in the schema and in the extension, a line for each fact.
const CATALOG: &[&str] = &[
    // functions, and how they look to one who calls them
    "select 'function ' || p.oid::regprocedure || ': ' || pg_get_functiondef(p.oid)
       from pg_proc p where p.pronamespace = 'taskq'::regnamespace",
    // (the order of an ACL is that of the grants)
    "select 'right on ' || pg_describe_object(o.classid, o.objid, 0) || ': ' ||
            (select coalesce(string_agg(format('%s to %s by %s', a.privilege_type,
                             coalesce(nullif(a.grantee, 0)::regrole::text, 'public'), a.grantor::regrole), ', '
                             order by a.privilege_type, a.grantee::regrole::text collate \"C\"), 'none') from aclexplode(o.acl) a)
       from (select 'pg_proc'::regclass as classid, p.oid as objid, p.proacl as acl from pg_proc p where p.pronamespace = 'taskq'::regnamespace
             union all select 'pg_class'::regclass, c.oid, c.relacl from pg_class c
                        where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and c.relname !~ '_[0-9]{8}$'
             union all select 'pg_type'::regclass, t.oid, t.typacl from pg_type t
                        where t.typnamespace = 'taskq'::regnamespace and t.typcategory <> 'A' and t.typname !~ '_[0-9]{8}$'
             union all select 'pg_namespace'::regclass, n.oid, n.nspacl from pg_namespace n where n.nspname = 'taskq') o",
    // what pg_dump takes for rights that the extension itself gives
    "select 'initial right on ' || pg_describe_object(i.classoid, i.objoid, i.objsubid) || ': ' ||
            (select string_agg(format('%s to %s', a.privilege_type, coalesce(nullif(a.grantee, 0)::regrole::text, 'public')), ', '
                               order by a.privilege_type, a.grantee::regrole::text collate \"C\") from aclexplode(i.initprivs) a)
       from pg_init_privs i where i.privtype = 'e'",
    "select 'table ' || c.oid::regclass || ' ' || c.relkind::text || ' ' || coalesce(c.reloptions::text, '') || ' ' || c.relpersistence::text
       from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v', 'S', 'm') and c.relname !~ '_[0-9]{8}$'",
    // with their numbers: the library knows the columns of taskq.task by them. New columns stand last.
    "select 'column ' || a.attrelid::regclass || '.' || a.attname || ' ' || a.attnum || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' '
            || a.attstorage::text || ' ' || coalesce(a.attcollation::regcollation::text, '') || ' '
            || coalesce((select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d where d.adrelid = a.attrelid and d.adnum = a.attnum), '')
       from pg_attribute a join pg_class c on c.oid = a.attrelid
      where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'v') and c.relname !~ '_[0-9]{8}$'
        and a.attnum > 0 and not a.attisdropped",
    "select 'constraint ' || c.conrelid::regclass || '.' || c.conname || ' ' || pg_get_constraintdef(c.oid)
       from pg_constraint c join pg_class r on r.oid = c.conrelid
      where c.connamespace = 'taskq'::regnamespace and r.relname !~ '_[0-9]{8}$'",
    "select 'index ' || i.indexrelid::regclass || ' ' || i.indisvalid || ' ' || pg_get_indexdef(i.indexrelid)
       from pg_index i join pg_class c on c.oid = i.indrelid
      where c.relnamespace = 'taskq'::regnamespace and c.relname !~ '_[0-9]{8}$'",
    "select 'trigger ' || pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
      where c.relnamespace = 'taskq'::regnamespace and not t.tgisinternal and c.relname !~ '_[0-9]{8}$'",
    "select 'sequence ' || s.seqrelid::regclass || ' ' || row(s.seqtypid, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)
       from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = 'taskq'::regnamespace",
    "select 'view ' || c.oid::regclass || ' ' || pg_get_viewdef(c.oid) from pg_class c
      where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v'",
    "select 'comment on ' || pg_describe_object(d.classoid, d.objoid, 0) ||
            coalesce((select '.' || a.attname from pg_attribute a
                       where d.classoid = 'pg_class'::regclass and a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0), '')
            || ': ' || d.description
       from pg_description d
      where d.objoid in (select p.oid from pg_proc p where p.pronamespace = 'taskq'::regnamespace
                         union all select c.oid from pg_class c where c.relnamespace = 'taskq'::regnamespace and c.relname !~ '_[0-9]{8}$'
                         union all select n.oid from pg_namespace n where n.nspname = 'taskq')",
    "select 'member ' || pg_describe_object(d.classid, d.objid, d.objsubid) from pg_depend d join pg_extension e on e.oid = d.refobjid
      where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e' and e.extname = 'taskq'
        and pg_describe_object(d.classid, d.objid, d.objsubid) !~ '_[0-9]{8}$'",
    "select 'dumped ' || c.table::regclass || ' ' || c.condition from pg_extension e,
            unnest(e.extconfig, e.extcondition) c(\"table\", condition)
      where e.extname = 'taskq' and c.table::regclass::text !~ '_[0-9]{8}$'",
    "select 'extension ' || e.extversion || ' ' || e.extnamespace::regnamespace || ' ' || e.extrelocatable from pg_extension e where e.extname = 'taskq'",
    "select 'of another owner: ' || pg_describe_object(m.classid, m.objid, 0)
       from (select 'pg_proc'::regclass as classid, p.oid as objid, p.proowner as owner from pg_proc p
             union all select 'pg_class'::regclass, c.oid, c.relowner from pg_class c
             union all select 'pg_type'::regclass, t.oid, t.typowner from pg_type t) m
       join pg_depend d on d.classid = m.classid and d.objid = m.objid and d.deptype = 'e' and d.refclassid = 'pg_extension'::regclass
       join pg_extension e on e.oid = d.refobjid
      where e.extname = 'taskq' and m.owner <> e.extowner",
    // rows that an installation brings
    "select 'duty ' || d.name || ' ' || d.every from taskq.duty d",
];

/// The keepers of this database.
const KEEPERS: &str = "select count(*) from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()";

fn catalog(client: &mut Client) -> BTreeSet<String> {
    CATALOG.iter().flat_map(|query| client.column::<String>(query, &[])).collect()
}

fn program(server: &Server, name: &str, arguments: &[&str]) -> String {
    let output = server.program(name).args(arguments).output().expect(name);
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An empty database without a keeper, and the roles that the dump names.
fn empty(name: &str) -> Database<'static> {
    let mut postgres = SERVER.connect("postgres");
    for role in ROLES {
        postgres.run(&format!(
            "do $$ begin create role {role}; exception when duplicate_object or unique_violation then null; end $$"
        ));
    }
    let database = SERVER.empty_database(name);
    postgres.run(&format!("alter database {name} set taskq.keeper = off"));
    database
}

/// What pg_dump made of a database of the old version.
fn dump() -> String {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/taskq-{OLD}.dump.sql"));
    std::fs::read_to_string(dump).expect("the dump")
}

fn restore(dump: &str, name: &str) {
    let file = SERVER.data().with_file_name(format!("{name}.sql"));
    std::fs::write(&file, dump).expect("a file");
    let file = file.to_str().expect("a path");
    program(&SERVER, "psql", &["-q", "-X", "-v", "ON_ERROR_STOP=1", "-d", name, "-f", file]);
}

/// A database of the old version with tasks in every state, without a keeper. Its leases live on.
fn old(name: &str) -> Database<'static> {
    let database = empty(name);
    let mut client = database.connect();
    client.run(&format!("create extension taskq version '{OLD}'"));
    // The schema is there already.
    restore(&dump().replace("CREATE SCHEMA taskq;", ""), name);
    client
        .run("update taskq.task set lease_expires_at = clock_timestamp() + '1 day' where state = 'running'");
    database
}

/// A new database with the same grants.
fn fresh(name: &str) -> Database<'static> {
    let database = empty(name);
    database.connect().run(
        "create extension taskq;
         select taskq.grant_producer('taskq_web'), taskq.grant_worker('taskq_worker'),
                taskq.grant_operator('taskq_dba'), taskq.grant_reader('taskq_eye')",
    );
    database
}

/// What the users of taskq have put into it.
const CONTENT: &str = "select 'task ' || t.id || t.state || t.token || t.payload from taskq.task t
               union all select 'dead ' || d.id || d.payload from taskq.dead_letter d
               union all select 'done ' || f.id || f.state from taskq.done f
               union all select 'archive ' || a.id from taskq.archive a
               union all select 'key ' || k.task_type || k.key from taskq.unique_key k
               union all select 'schedule ' || s.name || s.cron from taskq.schedule s
               union all select 'grant ' || g.part || g.role from taskq.granted_part g order by 1";

fn assert_alike(updated: &mut Client, fresh: &mut Client) {
    let (updated, fresh) = (catalog(updated), catalog(fresh));
    assert!(fresh.len() > 500, "{}", fresh.len());
    let missing: Vec<_> = fresh.difference(&updated).collect();
    let added: Vec<_> = updated.difference(&fresh).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "the updated database lacks\n{}\nand has\n{}\n(see tools/upgrade.py)",
        missing.iter().map(|line| format!("  {line}\n")).collect::<String>(),
        added.iter().map(|line| format!("  {line}\n")).collect::<String>()
    );
}

#[test]
fn an_updated_database_is_as_a_new_one() {
    let updated = old("catalogs");
    let mut client = updated.connect();
    client.run("alter extension taskq update");
    assert_alike(&mut client, &mut fresh("fresh").connect());
}

/// Any superuser may update; what the update makes belongs to the owner of the extension as all the rest, in whose name
/// the keeper works and the definer functions run. That one need not be a superuser any more.
#[test]
fn another_superuser_may_update() {
    let updated = old("handed_over");
    let mut client = updated.connect();
    client.run("create role deputy superuser; alter default privileges for role deputy grant execute on functions to taskq_web");
    client.run("set role deputy; alter extension taskq update; reset role");
    assert_alike(&mut client, &mut fresh("beside_handed_over").connect());
    client.run("drop owned by deputy; drop role deputy");
}

/// A dump names no version: it is restored into the newest one, and has what it had there. The rights on what was added
/// since are not in it; `health()` says how to give them.
#[test]
fn g16_a_dump_of_an_old_version_is_restored_into_this_one() {
    let before: Vec<String> = old("source").connect().column(CONTENT, &[]);
    let restored = empty("restored");
    restore(&dump(), "restored");
    let mut client = restored.connect();
    assert_eq!(client.column::<String>(CONTENT, &[]), before);
    assert!(!client.healthy("rights"));
    let advice: String = client.value("select advice from taskq.health() where \"check\" = 'rights'", &[]);
    client.run(advice.split_once(": ").expect("calls").1);
    assert!(client.healthy("rights"));
    // What only an older version had may have come along: nothing has.
    assert_alike(&mut client, &mut fresh("beside_it").connect());
    client.run("select taskq.enqueue('t'); select * from taskq.claim()");
    client.run("call taskq.maintain()");
}

#[test]
fn leases_keys_and_states_outlive_an_update() {
    let database = old("live");
    let mut client = database.connect();
    let before: Vec<String> = client.column(CONTENT, &[]);
    assert!(before.len() > 45, "{before:#?}");
    client.run("alter extension taskq update");
    assert_eq!(client.column::<String>(CONTENT, &[]), before);
    let token: i64 = client.value("select token from taskq.task where id = 4", &[]);
    assert_eq!(sqlstate(client.complete(4, token + 1)), "TQ001");
    client.complete(4, token).expect("the old token");
    let token: i64 = client.value("select token from taskq.task where id = 6", &[]);
    let state: String =
        client.value("select f.state from taskq.fail(6, $1, 'no', retry => false) f", &[&token]);
    assert_eq!(state, "dead");
    let token: i64 = client.value("select token from taskq.task where id = 2", &[]);
    assert!(client.value::<bool>("select cancel_requested from taskq.extend(2, $1, '1 hour')", &[&token]));
    assert_eq!(client.value::<i64>("select taskq.enqueue('kept', unique_key => 'lease 3')", &[]), 5);
    assert!(!client.value::<bool>("select taskq.once('welcome', 'seen')", &[]));
    assert_eq!(client.value::<i64>("select redriven from taskq.redrive('mail')", &[]), 3);
    // The keeper works on it: it takes back what ended, and nothing else.
    client.run("update taskq.task set lease_expires_at = clock_timestamp() where id = 7");
    assert_eq!(client.value::<i64>(KEEPERS, &[]), 0);
    client.run("alter database live reset taskq.keeper");
    eventually("the keeper has taken back what ended", 60, || {
        client.value("select count(*) = 1 from taskq.tasks where id = 7 and state = 'ready'", &[])
    });
    let running: i64 =
        client.value("select count(*) from taskq.task where queue = 'leases' and state = 'running'", &[]);
    assert_eq!(running, 9);
}

/// A worker's connection, with statements that it has prepared.
struct Worker {
    client: Client,
    claim: Statement,
    extend: Statement,
    complete: Statement,
}

impl Worker {
    fn new(database: &Database) -> Worker {
        let mut client = database.connect();
        let claim = client.prepare("select id, token from taskq.claim(1, array['live'], lease => '1 day')");
        let extend = client.prepare("select cancel_requested from taskq.extend($1, $2, '2 days')");
        let complete = client.prepare("select taskq.complete($1, $2)");
        Worker {
            claim: claim.expect("claim"),
            extend: extend.expect("extend"),
            complete: complete.expect("complete"),
            client,
        }
    }

    fn claim(&mut self) -> (i64, i64) {
        let row = self.client.query_one(&self.claim, &[]).expect("claim");
        (row.get(0), row.get(1))
    }

    fn extend(&mut self, (id, token): (i64, i64)) {
        let row = self.client.query_one(&self.extend, &[&id, &token]).expect("extend");
        assert!(!row.get::<_, bool>(0));
    }

    fn complete(&mut self, (id, token): (i64, i64)) -> Result<(), postgres::Error> {
        self.client.query(&self.complete, &[&id, &token]).map(|_| ())
    }

    /// Every verb of a worker, once. `stale` is what a second complete is told.
    fn round(&mut self, stale: &str) {
        self.client.run("select taskq.enqueue('t', queue => 'live') from generate_series(1, 4)");
        let task = self.claim();
        self.extend(task);
        self.complete(task).expect("complete");
        assert_eq!(sqlstate(self.complete(task)), stale);
        for end in [
            "taskq.fail(c.id, c.token, 'x', '1 day')",
            "taskq.fail(c.id, c.token, 'x', retry => false)",
            "taskq.release(c.id, c.token, '1 day')",
        ] {
            let ended = format!("select count(*) from taskq.claim(1, array['live']) c, {end}");
            assert_eq!(self.client.value::<i64>(&ended, &[]), 1, "{end}");
        }
        self.client.run("select s.* from taskq.status(1) s; select count(*) from taskq.tasks");
    }
}

/// Workers stay connected: their sessions have plans, prepared statements, and what the library remembers of the tables
/// as they were. Two are in the middle of a transaction, which the update does not wait for.
#[test]
fn workers_go_on_in_their_sessions_after_an_update() {
    let database = old("sessions");
    let mut client = database.connect();
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::new(&database)).collect();
    // Often enough for plans that do not depend on the arguments. (The new library has the same verbs, but looks for the
    // reason in a function that is not there yet.)
    for worker in &mut workers {
        (0..7).for_each(|_| worker.round("42883"));
    }
    client.run("select taskq.enqueue('t', queue => 'live') from generate_series(1, 4)");
    let held: Vec<(i64, i64)> = workers.iter_mut().map(Worker::claim).collect();
    client.run("select taskq.enqueue('t', queue => 'short lease')");
    let short = "select id, token from taskq.claim(1, array['short lease'], lease => '0.5 s')";
    let lost = workers[0].client.query_one(short, &[]).expect("claim");
    let lost: (i64, i64) = (lost.get(0), lost.get(1));
    workers[0].client.run("begin");
    workers[0].extend(held[0]);
    workers[1].client.run("begin");
    workers[1].complete(held[1]).expect("complete");
    // A setting of the session, and one of taskq's that holds from then on as well.
    workers[2].client.run("set taskq.max_payload_bytes = '2kB'; set plan_cache_mode = force_generic_plan");

    let stored = "select count(*) from taskq.task where state = 'running' and queue = 'live'";
    assert_eq!(client.value::<i64>(stored, &[]), 3);
    client.run("set lock_timeout = '20 s'; alter extension taskq update");
    assert_eq!(client.value::<i64>(stored, &[]), 3);

    // The lease that was prolonged before is the same one, in the same transaction and after it.
    workers[0].extend(held[0]);
    workers[0].client.run("commit");
    workers[1].client.run("commit");
    let ends = "select lease_expires_at > clock_timestamp() + '47 hours' from taskq.task where id = $1";
    assert!(client.value::<bool>(ends, &[&held[0].0]));
    assert_eq!(sqlstate(workers[1].complete(held[1])), "TQ001");
    workers[2].extend(held[2]);
    for at in [0, 2] {
        workers[at].complete(held[at]).expect("complete");
        assert_eq!(sqlstate(workers[at].complete(held[at])), "TQ001");
        let (id, token) = held[at];
        assert_eq!(
            sqlstate(workers[at].client.query("select * from taskq.extend($1, $2)", &[&id, &token])),
            "TQ001"
        );
    }
    let succeeded = "select count(*) from taskq.done where id = any ($1) and state = 'succeeded'";
    let ids: Vec<i64> = held.iter().map(|(id, _)| *id).collect();
    assert_eq!(client.value::<i64>(succeeded, &[&ids]), 3);
    for worker in &mut workers {
        (0..7).for_each(|_| worker.round("TQ001"));
    }
    let large = "select taskq.enqueue('t', to_jsonb(repeat('x', 4000)))";
    assert_eq!(sqlstate(workers[2].client.query(large, &[])), "54000");
    workers[0].client.run(large);
    // The short lease is over: another session takes the task back by its claim.
    let mut again = None;
    eventually("the lease that is over is taken back", 30, || {
        let sql = "select id, token from taskq.claim(1, array['short lease'])";
        again = workers[2].client.query_opt(sql, &[]).expect("claim").map(|row| (row.get(0), row.get(1)));
        again.is_some()
    });
    let again: (i64, i64) = again.expect("a task");
    assert!(again.0 == lost.0 && again.1 > lost.1, "{again:?} after {lost:?}");
    assert_eq!(sqlstate(workers[0].complete(lost)), "TQ001");
    workers[2].complete(again).expect("complete");
}

/// A keeper does not touch the tables of another version, and is at work when the update is over.
#[test]
fn a_keeper_comes_with_the_update() {
    let database = old("kept");
    let mut client = database.connect();
    let untouched = "select sum(t.token + t.attempt)::text from taskq.task t";
    client.run("update taskq.task set lease_expires_at = clock_timestamp() where id in (7, 8)");
    let before: String = client.value(untouched, &[]);
    client.run("alter database kept reset taskq.keeper; select taskq._start_keeper()");
    // One that is started later, for another database, has long done its work.
    let mut other = SERVER.database("beside").connect();
    other.run("select taskq.enqueue('t'); select * from taskq.claim(lease => '1 s')");
    eventually("the other keeper works", 60, || {
        other.value("select count(*) = 1 from taskq.tasks where state = 'ready'", &[])
    });
    eventually("no keeper stays here", 30, || client.value::<i64>(KEEPERS, &[]) == 0);
    assert_eq!(client.value::<String>(untouched, &[]), before);
    let problem: String =
        client.value("select advice from taskq.health() where \"check\" = 'library version'", &[]);
    assert!(problem.starts_with("Run ALTER EXTENSION taskq UPDATE"), "{problem}");
    client.run("alter extension taskq update");
    eventually("the keeper has taken back what ended", 60, || {
        client.value("select count(*) = 2 from taskq.tasks where id in (7, 8) and state = 'ready'", &[])
    });
}

/// Rights are those of a new database with the same grants (the first test); here they are used, and
/// pg_dump takes them along, also for functions that had to be made anew.
#[test]
fn grants_outlive_an_update_and_a_dump_of_it() {
    let database = old("grants");
    let mut client = database.connect();
    // As the script does when arguments have changed: it comes without rights.
    client.run("create table public.definition as select pg_get_functiondef('taskq.once'::regproc) as text");
    client.run("alter extension taskq drop function taskq.once(text, text, interval); drop function taskq.once(text, text, interval)");
    let definition: String = client.value("select text from public.definition", &[]);
    client.run(&definition);
    client.run("alter extension taskq add function taskq.once(text, text, interval)");
    client.run("revoke all on function taskq.once(text, text, interval) from public");
    client.run("alter extension taskq update");
    let may = "select has_function_privilege('taskq_worker', 'taskq.once(text, text, interval)', 'execute')
                  and has_function_privilege('taskq_web', 'taskq.enqueue_many(jsonb)', 'execute')
                  and not has_function_privilege('taskq_web', 'taskq.once(text, text, interval)', 'execute')";
    assert!(client.value::<bool>(may, &[]));
    client.run("set role taskq_web; select taskq.enqueue('t'); reset role");
    client.run("set role taskq_worker; select taskq.once('s', 'k'); reset role");
    let file = SERVER.data().with_file_name("grants.dump");
    let file = file.to_str().expect("a path");
    program(&SERVER, "pg_dump", &["-Fc", "-d", "grants", "-f", file]);
    let copy = SERVER.empty_database("grants_copy");
    SERVER.connect("postgres").run("alter database grants_copy set taskq.keeper = off");
    program(&SERVER, "pg_restore", &["--exit-on-error", "--single-transaction", "-d", "grants_copy", file]);
    assert!(copy.connect().value::<bool>(may, &[]));
}

/// The library may be newer than the objects of a database: every C function that any version
/// declares is in it. (CREATE FUNCTION looks for them.)
#[test]
fn every_frozen_version_still_installs() {
    let database = SERVER.empty_database("frozen");
    let mut client = database.connect();
    let versions: Vec<String> = client.column(
        "select v.version from pg_available_extension_versions v where v.name = 'taskq' order by 1",
        &[],
    );
    assert!(versions.iter().any(|version| version == OLD), "{versions:?}");
    for version in versions {
        client.run(&format!("create extension taskq version '{version}'; alter extension taskq update; drop extension taskq; drop schema taskq"));
    }
}
