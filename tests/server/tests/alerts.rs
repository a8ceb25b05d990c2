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

/// NOTIFY takes 8,000 bytes. What taskq sends stays below 1,000, whatever the names, and no payload or error
/// text is in it, so that no limit of theirs comes from there.
#[test]
fn e01_notifications_are_short_whatever_names_payloads_and_errors_there_are() {
    // The other tests hold back the vacuum of this database, too.
    let database = database("short", "taskq.vacuum_held_limit = '1 h'");
    let (mut listener, mut client) = (database.connect(), database.connect());
    listener.run("listen taskq_ready; listen taskq_alert");
    // The characters that take most room in JSON.
    let queues = ["q".repeat(63), "\"".repeat(63), "\\".repeat(63), "é".repeat(31), "🦀".repeat(15)];
    for queue in &queues {
        let limits = "{\"dead_letters_limit\": 0, \"oldest_ready_limit\": \"1 s\", \"unclaimed_limit\": \"1 s\", \"expired_leases_limit\": 0}";
        client
            .execute("select taskq.configure_queue($1, $2::text::jsonb)", &[queue, &limits])
            .expect("configure");
        let enqueue = "select taskq.enqueue(queue => $1, task_type => $1, unique_key => repeat('k', 512), payload => to_jsonb(repeat('x', 1048000)))";
        let id: i64 = client.value(enqueue, &[queue]);
        let fail = "select f.state from taskq.claim(1, array[$1]) c, taskq.fail(c.id, c.token, repeat('long error ', 1000), retry => false) f where c.id = $2";
        assert_eq!(client.value::<String>(fail, &[queue, &id]), "dead");
        client.execute(enqueue, &[queue]).expect("enqueue");
    }
    // Each queue is told of, and raises all that a queue can raise without the samples of ten minutes.
    let mut told: Vec<(String, String)> = Vec::new();
    eventually("all was told", 60, || {
        let mut messages = listener.notifications();
        let mut messages = messages.timeout_iter(Duration::from_secs(1));
        while let Some(message) = messages.next().expect("listen") {
            assert!(message.payload().len() < 1000, "{}", message.payload());
            told.push((message.channel().to_owned(), message.payload().to_owned()));
        }
        let alert =
            |kind: &str| told.iter().filter(|(_, payload)| payload.contains(kind)).count() >= queues.len();
        let ready = |queue: &String| told.contains(&("taskq_ready".to_owned(), queue.clone()));
        alert("dead_letters") && alert("oldest_ready") && alert("unclaimed") && queues.iter().all(ready)
    });
    let longest = told.iter().map(|(_, payload)| payload.len()).max();
    assert!(longest > Some(250), "{longest:?}: the longest names were told of");
    assert!(told.iter().all(|(_, payload)| !payload.contains("long error") && !payload.contains("kk")));
}

/// A session that sends faster than its client reads hangs in its own transaction, and so holds back vacuum.
#[test]
fn e03_a_listener_that_is_stuck_is_named() {
    let database = database("stuck", "taskq.keeper = off");
    let (mut client, mut deaf) = (database.connect(), database.connect());
    let pid = deaf.pid();
    deaf.run("set application_name = 'deaf'; listen taskq_ready");
    // Not from taskq, which is never that loud.
    eventually("it is stuck", 60, || {
        client.run("select pg_notify('taskq_ready', repeat('x', 7900) || n) from generate_series(1, 1000) n");
        client.value::<bool>(
            "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'ClientWrite' and backend_xmin is not null)",
            &[&pid],
        )
    });
    eventually("it is named", 60, || {
        round(&mut client);
        state(&mut client, "vacuum_held", "session %, deaf)").as_deref() == Some("open")
    });
    let advice: String =
        client.value("select advice from taskq.health() where \"check\" = 'vacuum held back'", &[]);
    assert!(advice.contains(&format!("pg_terminate_backend({pid})")), "{advice}");
    // Producers go on meanwhile, and the advice helps.
    client.run("select taskq.enqueue('t'); select taskq._wake()");
    client.run(&format!("select pg_terminate_backend({pid})"));
    drop(deaf);
    eventually("it is over", 60, || {
        round(&mut client);
        state(&mut client, "vacuum_held", "session %, deaf)").as_deref() == Some("cleared")
    });
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
        assert!(client.healthy("vacuum held back"));
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
