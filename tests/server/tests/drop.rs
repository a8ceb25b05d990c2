//! DROP EXTENSION after a long life: without CASCADE, and nothing of it stays behind.

use postgres::Client;
use std::collections::BTreeSet;
use taskq_server_tests::{Server, Session, eventually, fill};

const ROLES: [&str; 4] = ["producer", "worker", "operator", "reader"];

/// What the catalogs have: each row by its oid, and how many there are where rows have none. (Statistics come and go.)
fn catalogs(client: &mut Client) -> BTreeSet<String> {
    let queries: Vec<String> = client.column(
        "select format(case when exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'oid')
                            then 'select ''%1$s '' || oid from pg_catalog.%1$I'
                            else 'select ''%1$s: '' || count(*) || '' rows'' from pg_catalog.%1$I' end, c.relname)
           from pg_class c
          where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r' and c.relname !~ '^pg_statistic'",
        &[],
    );
    queries.iter().flat_map(|query| client.column::<String>(query, &[])).collect()
}

/// The rows of catalogs that are not as they were before.
fn changed(client: &mut Client, before: &BTreeSet<String>) -> Vec<String> {
    let now = catalogs(client);
    let added = now.difference(before).map(|row| format!("+ {row}"));
    let missing = before.difference(&now).map(|row| format!("- {row}"));
    added.chain(missing).collect()
}

fn keepers(client: &mut Client) -> usize {
    client.column::<i32>("select pid from pg_stat_activity where backend_type = 'taskq keeper'", &[]).len()
}

/// Everything that makes something: tasks of all kinds, days, an archive of days, grants, alerts, a drill, a keeper.
fn live(client: &mut Client) {
    client.run("create extension taskq");
    for role in ROLES {
        client.run(&format!("select taskq.grant_{role}('a_{role}')"));
    }
    fill(client);
    // Days come, and go to the archive.
    for clock in ["+ 40 days", "+ 80 days"] {
        for statement in [
            &format!("set taskq.test_clock = '{clock}'"),
            "select taskq.enqueue('t') from generate_series(1, 20)",
            "select taskq.complete(c.id, c.token) from taskq.claim(20, array['default']) c",
            "call taskq.maintain()",
            "reset taskq.test_clock",
        ] {
            client.run(statement);
        }
    }
    client.run("call taskq.wait(array['nothing'], '0.1 s')");
    client.run("alter database long reset taskq.keeper");
    // (It is refused without a keeper, and waits for a person, who does not come.)
    eventually("there is a keeper that plays a drill", 60, || {
        client.simple_query("select * from taskq.drill(timeout => '2 s')").is_ok()
    });
    client.run("select taskq.acknowledge(id) from taskq.alert where cleared_at is null");
    for (what, sql) in [
        ("days", "select count(*) > 10 from pg_inherits where inhparent = 'taskq.done'::regclass"),
        (
            "days in the archive",
            "select count(*) > 1 from pg_inherits where inhparent = 'taskq.archive_day'::regclass",
        ),
        ("an alert", "select count(*) > 0 from taskq.alert"),
        ("a schedule", "select count(*) > 0 from taskq.schedule"),
    ] {
        assert!(client.value::<bool>(sql, &[]), "there are {what}");
    }
}

#[test]
fn a_dropped_extension_leaves_its_schema_and_nothing_else() {
    let server = Server::start("drop", &[]);
    let database = server.empty_database("long");
    let mut client = database.connect();
    for role in ROLES {
        client.run(&format!("create role a_{role}"));
    }
    let before = catalogs(&mut client);
    for _ in 0..2 {
        client.run("alter database long set taskq.keeper = off");
        live(&mut client);
        client.run("drop extension taskq");
        eventually("the keeper leaves", 30, || keepers(&mut client) == 0);
        let held = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())";
        assert_eq!(client.value::<i64>(held, &[]), 0);
        // The schema stays, as with any extension, with its comment and who may use it.
        let others = |row: &String| {
            let catalog = row[2..].split([' ', ':']).next().expect("a catalog");
            !["pg_namespace", "pg_description", "pg_init_privs", "pg_shdepend"].contains(&catalog)
        };
        let left: Vec<String> = changed(&mut client, &before).into_iter().filter(others).collect();
        assert_eq!(left, [""; 0]);
        // (Without CASCADE, too.)
        client.run("drop schema taskq");
        assert_eq!(changed(&mut client, &before), [""; 0]);
    }
    // Nothing depends on the roles.
    for role in ROLES {
        client.run(&format!("drop role a_{role}"));
    }
    client.run("create extension taskq");
    eventually("there is a keeper", 60, || client.healthy("keeper running"));
    assert_eq!(client.value::<i64>("select taskq.enqueue('t')", &[]), 1);
}
