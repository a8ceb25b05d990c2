//! Alerts that need other sessions, slots and prepared transactions, and the keeper's pace.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::time::Duration;
use taskq_server_tests::{Database, Session, Shared, eventually};

static SERVER: Shared = Shared::new(
    "alerts",
    &[
        "wal_level = logical",
        "max_prepared_transactions = 5",
        "taskq.vacuum_held_limit = '1 s'",
        "autovacuum = off",
    ],
);

/// Writes a transaction, so that there is something to be held back, and a round of the alert duty.
fn round(client: &mut Client) -> i64 {
    client.run("select pg_current_xact_id()");
    client.value("select taskq._run_duty('alert')", &[])
}

/// A database with a setting that its keeper has from the start.
fn database(name: &str, setting: &str) -> Database<'static> {
    let database = SERVER.empty_database(name);
    SERVER.connect("postgres").run(&format!("alter database {name} set {setting}"));
    database.connect().run("create extension taskq");
    database
}

fn state(client: &mut Client, kind: &str, detail: &str) -> Option<String> {
    let alerts = "select state from taskq.alerts where kind = $1 and detail like $2 order by id desc limit 1";
    client.query_opt(alerts, &[&kind, &detail]).unwrap().map(|row| row.get(0))
}

/// One test for all, one after the other: each of them would hold back the others' database, too.
#[test]
fn the_alert_about_vacuum_names_who_holds_it_back() {
    let database = database("vacuum", "taskq.keeper = off");
    let (mut client, mut holder) = (database.connect(), database.connect());
    let expect = |client: &mut Client, detail: &str, advice: &str| {
        eventually(&format!("held back by {detail}"), 60, || {
            round(client);
            state(client, "vacuum_held", detail).as_deref() == Some("open")
        });
        let row = client
            .query_one(
                "select ok, value, advice from taskq.health() where \"check\" = 'vacuum held back'",
                &[],
            )
            .unwrap();
        assert!(!row.get::<_, bool>(0));
        let value = row.get::<_, String>(1);
        assert!(detail.split('%').all(|part| value.contains(part)), "{value}");
        assert!(row.get::<_, String>(2).contains(advice), "{}", row.get::<_, String>(2));
    };
    let is_over = |client: &mut Client, detail: &str| {
        eventually("it is over", 60, || {
            round(client);
            state(client, "vacuum_held", detail).as_deref() == Some("cleared")
        });
        assert!(
            client.value::<bool>("select ok from taskq.health() where \"check\" = 'vacuum held back'", &[])
        );
    };

    // A session that looks at an old snapshot, and one that only waits after it has written.
    holder.run("set application_name = 'report'; begin isolation level repeatable read; select 'secret'");
    expect(&mut client, "session %, report)", "pg_terminate_backend");
    // It really is held back: what was deleted since is still there.
    client.run("create table probe (); insert into probe default values; delete from probe");
    client.run("vacuum probe");
    assert_eq!(client.value::<i64>("select pg_relation_size('probe')", &[]), 8192);
    holder.run("commit");
    is_over(&mut client, "session %, report)");
    client.run("vacuum probe");
    assert_eq!(client.value::<i64>("select pg_relation_size('probe')", &[]), 0);
    holder.run("set application_name = 'writer'; begin; select pg_current_xact_id()");
    expect(&mut client, "session %, writer)", "pg_terminate_backend");
    holder.run("rollback");
    is_over(&mut client, "session %, writer)");

    // A transaction of another database, once it has written.
    let mut elsewhere = SERVER.connect("postgres");
    elsewhere.run("set application_name = 'else'; begin isolation level repeatable read; select 1");
    let here = "select count(*) from taskq._vacuum_holders() where who like '%, else)'";
    assert_eq!(client.value::<i64>(here, &[]), 0);
    elsewhere.run("select pg_current_xact_id()");
    expect(&mut client, "session %, postgres, else)", "pg_terminate_backend");
    elsewhere.run("rollback");
    is_over(&mut client, "session %, postgres, else)");

    // A prepared transaction.
    holder.run("begin; select pg_current_xact_id(); prepare transaction 'half'");
    expect(&mut client, "prepared transaction 'half' %", "ROLLBACK PREPARED 'half'");
    holder.run("rollback prepared 'half'");
    is_over(&mut client, "prepared transaction 'half' %");

    // A slot, of which only the transaction is known: the duty has noted when that was the next one.
    client.run("select pg_create_logical_replication_slot('forgotten', 'pgoutput')");
    expect(&mut client, "replication slot forgotten", "pg_drop_replication_slot('forgotten')");
    client.run("select pg_drop_replication_slot('forgotten')");
    is_over(&mut client, "replication slot forgotten");

    // Nothing else was found, nothing told too much.
    assert_eq!(client.value::<i64>("select count(*) from taskq.alerts where state <> 'cleared'", &[]), 0);
    let secrets = "select count(*) from taskq.alerts where detail ~ 'secret|select'";
    assert_eq!(client.value::<i64>(secrets, &[]), 0);
    assert!(!SERVER.log().contains("pg_terminate_backend"));
}

#[test]
fn the_keeper_looks_at_everything_every_ten_seconds_and_says_what_is_wrong() {
    // The other test holds back the vacuum of this database, too.
    let database = database("pace", "taskq.vacuum_held_limit = '1 h'");
    let (mut listener, mut client) = (database.connect(), database.connect());
    listener.run("listen taskq_alert");
    client.run("select taskq.configure_queue('mail', '{\"oldest_ready_limit\": \"1 s\"}')");
    client.run("select taskq.enqueue('t', queue => 'mail')");
    let heard = listener.notifications().timeout_iter(Duration::from_secs(60)).next();
    let heard = heard.expect("listen").expect("an alert").payload().to_owned();
    for part in ["\"kind\": \"oldest_ready\"", "\"queue\": \"mail\"", "\"state\": \"raised\"", "\"limit\": 1"]
    {
        assert!(heard.contains(part), "{heard}");
    }
    let log = SERVER.log();
    assert!(
        log.contains("taskq alert 1 raised: oldest_ready in queue \"mail\" is "),
        "the alert is in the log"
    );
    // It does not look more often, and not never.
    eventually("it looks again", 60, || client.value("select count(*) >= 3 from taskq.horizon", &[]));
    let gap = "select extract(epoch from min(gap))::float8 from (select at - lag(at) over (order by at) as gap from taskq.horizon) x";
    let gap: f64 = client.value(gap, &[]);
    assert!(gap >= 10.0, "{gap} s between two looks at everything");
    // Anybody else gets everything at once.
    client.run("select taskq.configure_queue('mail', '{\"oldest_ready_limit\": null}')");
    let cleared: i64 = client.value("select taskq._duty_alert()", &[]);
    let gone = "select count(*) from taskq.alerts where state = 'cleared'";
    assert!(cleared == 1 || client.value::<i64>(gone, &[]) == 1);
    assert_eq!(client.value::<i64>(gone, &[]), 1);
}
