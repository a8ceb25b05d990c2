//! A standby: reads are answered, writes are refused, nothing of ours is at work. After promotion
//! the keeper is, and nothing that was acknowledged is lost.

use postgres::Client;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use taskq_server_tests::{Server, Session, Stop, eventually, pause, sqlstate};

const OURS: &str = "select count(*) from pg_stat_activity where backend_type like 'taskq%'";

fn wait_until_replayed(primary: &mut Client, standby: &mut Client) {
    let at: String = primary.value("select pg_current_wal_flush_lsn()::text", &[]);
    eventually("the standby has it all", 30, || {
        standby.value("select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", &[&at])
    });
}

#[test]
fn a_standby_answers_reads_does_nothing_and_recovers_leases_once_promoted() {
    let primary = Server::start("primary", &[]);
    let database = primary.database("app");
    let mut client = database.connect();
    client.run("select taskq.enqueue('t', '{\"n\": 1}'); select taskq.enqueue('t', queue => 'other')");
    let standby = primary.standby("standby", &[]);
    let mut reader = standby.connect("app");
    // What is committed from now on arrives by replication.
    client.run("select taskq.enqueue('t', delay => '1 hour')");
    let id: i64 = client.value("select id from taskq.claim(1, array['other'], lease => '1 s')", &[]);
    // The primary's keeper must not be the one that recovers it.
    let keeper = "select pid from pg_stat_activity where backend_type = 'taskq keeper'";
    client.run("alter database app set taskq.keeper = off");
    eventually("the keeper leaves", 10, || client.column::<i32>(keeper, &[]).is_empty());
    let recovered: i64 = client.value("select count(*) from taskq.task where errors <> '[]'", &[]);
    client.run("alter database app reset taskq.keeper");
    wait_until_replayed(&mut client, &mut reader);
    primary.kill();

    // Reads.
    let mut reads: Vec<String> = reader.column(
        "select 'select * from ' || c.oid::regclass from pg_class c
          where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'v'",
        &[],
    );
    assert!(reads.len() > 5, "{reads:?}");
    reads.extend(["select * from taskq.health()", "select * from taskq.status(1)"].map(String::from));
    for sql in &reads {
        reader.query(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    let ready: i64 = reader.value("select ready from taskq.queues where queue = 'default'", &[]);
    assert_eq!(ready, 1);
    assert!(!reader.healthy("keeper running"));
    // Writes.
    for sql in [
        "select taskq.enqueue('t')",
        "select * from taskq.enqueue_many('[{\"task_type\": \"t\"}]')",
        "select * from taskq.claim(1)",
        "select taskq.complete(1, 1)",
        "select * from taskq.fail(1, 1)",
        "select * from taskq.extend(1, 1)",
        "select taskq.release(1, 1)",
        "select taskq.cancel(1)",
        "select taskq.once('s', 'k')",
        "select taskq.pause('default')",
        "call taskq.maintain()",
    ] {
        assert_eq!(sqlstate(reader.simple_query(sql)), "25006", "{sql}");
    }
    // Nothing is at work, and nothing complains.
    pause(3.0);
    assert_eq!(reader.value::<i64>(OURS, &[]), 0);
    let log = standby.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" taskq ")).collect();
    assert_eq!(lines, [""; 0]);

    standby.promote();
    eventually("the standby has a keeper", 5, || reader.column::<i32>(keeper, &[]).len() == 1);
    assert_eq!(recovered, 0);
    eventually("the expired lease is taken back", 10, || {
        reader.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
    let (id, token) = reader.claim(1)[0];
    reader.complete(id, token).expect("complete");
}

/// Enqueues until the server is gone; returns what was acknowledged.
fn produce(server: &Server, stop: &AtomicBool) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    let Ok(mut client) = server.try_connect("app") else { return acknowledged };
    while !stop.load(Ordering::Relaxed) {
        match client.query_one("select taskq.enqueue('t')", &[]) {
            Ok(row) => acknowledged.push(row.get(0)),
            Err(_) => break,
        }
    }
    acknowledged
}

/// Ten tasks run on the primary when it is lost: the new one takes each of them back, once.
fn tasks_of_the_lost_primary(synchronous: bool) {
    let name = if synchronous { "ten_sync" } else { "ten_async" };
    let primary = Server::start(name, &[]);
    let database = primary.database("app");
    let mut client = database.connect();
    let standby = primary.standby(&format!("{name}_s"), &["synchronous_standby_names = ''"]);
    let kind = if synchronous { "sync" } else { "async" };
    if synchronous {
        client.run("alter system set synchronous_standby_names = 'standby'");
        client.run("select pg_reload_conf()");
    }
    eventually("the standby follows", 30, || {
        let follows =
            "select exists (select from pg_stat_replication where sync_state = $1 and state = 'streaming')";
        client.value(follows, &[&kind])
    });
    client.run("select taskq.enqueue('t') from generate_series(1, 12)");
    // The primary must not be the one that takes them back.
    let rows = client.query("select id, token from taskq.claim(10, lease => '6 s')", &[]).expect("claim");
    let ends: String =
        client.value("select min(lease_expires_at)::text from taskq.task where state = 'running'", &[]);
    let claimed: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if !synchronous {
        // What the standby has not got yet when the primary is lost, is lost. (It has it here.)
        wait_until_replayed(&mut client, &mut standby.connect("app"));
    }
    primary.kill();
    standby.promote();
    let mut client = standby.connect("app");
    let keepers = "select count(*) from pg_stat_activity where backend_type = 'taskq keeper'";
    eventually("the new primary has a keeper", 10, || client.value::<i64>(keepers, &[]) == 1);
    let running = "select count(*) from taskq.task where state = 'running'";
    eventually("all are taken back", 40, || client.value::<i64>(running, &[]) == 0);
    let once = "select count(*) from taskq.task
                     where id = any($1) and attempt = 1 and jsonb_array_length(errors) = 1 and errors -> 0 ->> 'error' = 'lease expired'
                       and (errors -> 0 ->> 'at')::timestamptz >= $2::text::timestamptz";
    let ids: Vec<i64> = claimed.iter().map(|(id, _)| *id).collect();
    assert_eq!(client.value::<i64>(once, &[&ids, &ends]), 10, "each once, and not before its lease was over");
    // The workers of the lost primary are told so, and all tasks are done by others, once.
    let (id, token) = claimed[0];
    assert_eq!(sqlstate(client.complete(id, token)), "TQ001");
    let again = client.claim(100);
    assert_eq!(again.len(), 12);
    for (id, token) in again {
        client.complete(id, token).expect("complete");
    }
    assert_eq!(client.value::<i64>("select count(distinct id) from taskq.done", &[]), 12);
    assert_eq!(client.value::<i64>("select count(*) from taskq.done", &[]), 12);
}

#[test]
fn f03_what_ran_on_the_lost_primary_is_taken_back_once_by_a_synchronous_standby() {
    tasks_of_the_lost_primary(true);
}

#[test]
fn f03_what_ran_on_the_lost_primary_is_taken_back_once_by_an_asynchronous_standby() {
    tasks_of_the_lost_primary(false);
}

/// A standby with hot_standby_feedback asks its primary to keep what a query there still sees.
#[test]
fn a_standby_that_holds_back_vacuum_is_named() {
    let primary = Server::start("feedback", &["taskq.vacuum_held_limit = '1 s'", "wal_keep_size = '64MB'"]);
    let database = primary.empty_database("app");
    // The rounds of the duty are this test's.
    primary.connect("postgres").run("alter database app set taskq.keeper = off");
    let mut client = database.connect();
    client.run("create extension taskq");
    let feedback = ["hot_standby_feedback = on", "wal_receiver_status_interval = '1 s'"];
    let standby = primary.standby("feedback_s", &feedback);
    let mut reader = standby.connect("app");
    let held = |client: &mut Client, detail: &str, state: &str| {
        eventually(&format!("{detail} {state}"), 60, || {
            client.run("select pg_current_xact_id()");
            client.run("select taskq._run_duty('alert')");
            let alert = "select state from taskq.alerts where kind = 'vacuum_held' and detail = $1 order by id desc limit 1";
            let row = client.query_opt(alert, &[&detail]).expect("alerts");
            row.is_some_and(|row| row.get::<_, String>(0) == state)
        });
        let health =
            "select ok, value, coalesce(advice, '') from taskq.health() where \"check\" = 'vacuum held back'";
        let row = client.query_one(health, &[]).expect("health");
        (row.get::<_, bool>(0), row.get::<_, Option<String>>(1).unwrap_or_default(), row.get::<_, String>(2))
    };
    let dead = "create table if not exists probe (); insert into probe default values; delete from probe";
    let kept = |client: &mut Client| {
        client.run("vacuum probe");
        client.value::<i64>("select pg_relation_size('probe')", &[]) > 0
    };

    reader.run("begin isolation level repeatable read; select count(*) from taskq.tasks");
    let (ok, value, advice) = held(&mut client, "standby standby", "open");
    assert!(!ok && value.contains("standby standby") && advice.contains("hot_standby_feedback"), "{advice}");
    // (There is no keeper here, and that is found, too.)
    let first = "select concat_ws('; ', finding, cause, advice) from taskq.diagnose() where finding not like 'keeper%' order by rank limit 1";
    let found: String = client.value(first, &[]);
    assert!(found.starts_with("vacuum_held; vacuum is held back by standby standby"), "{found}");
    assert!(found.contains("hot_standby_feedback"), "{found}");
    client.run(dead);
    assert!(kept(&mut client), "it really is held back");
    reader.run("commit");
    let (ok, ..) = held(&mut client, "standby standby", "cleared");
    assert!(ok);
    eventually("vacuum works again", 30, || !kept(&mut client));

    // With a slot it is the slot that holds it back, also while the standby is away.
    client.run("select pg_create_physical_replication_slot('second')");
    reader.run("alter system set primary_slot_name = 'second'");
    reader.run("select pg_reload_conf()");
    let active = "select active from pg_replication_slots where slot_name = 'second'";
    eventually("the standby uses its slot", 60, || client.value(active, &[]));
    reader.run("begin isolation level repeatable read; select count(*) from taskq.tasks");
    let (ok, value, advice) = held(&mut client, "replication slot second", "open");
    assert!(!ok && value.contains("replication slot second"), "{value}");
    assert!(advice.contains("pg_drop_replication_slot('second')"), "{advice}");
    standby.kill();
    let (ok, value, _) = held(&mut client, "replication slot second", "open");
    assert!(!ok && value.contains("replication slot second"), "{value}");
    eventually("the slot is free", 60, || !client.value::<bool>(active, &[]));
    client.run("select pg_drop_replication_slot('second')");
    assert!(held(&mut client, "replication slot second", "cleared").0);
}

#[test]
fn f03_with_a_synchronous_standby_nothing_that_was_acknowledged_is_lost() {
    let primary = Server::start("sync", &["synchronous_commit = on"]);
    let database = primary.database("app");
    let standby = primary.standby("sync_standby", &["synchronous_standby_names = ''"]);
    let mut client = database.connect();
    client.run("alter system set synchronous_standby_names = 'standby'");
    client.run("select pg_reload_conf()");
    eventually("the standby is synchronous", 30, || {
        client.value("select exists (select from pg_stat_replication where sync_state = 'sync')", &[])
    });
    let stop = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::new());
    let completed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let ids = produce(&primary, &stop);
                acknowledged.lock().expect("lock").extend(ids);
            });
        }
        scope.spawn(|| {
            let mut worker = primary.connect("app");
            let claim = "select id, token from taskq.claim(2, lease => '1 s')";
            while let Ok(rows) = worker.query(claim, &[]) {
                // Every other task is forgotten.
                if let Some(row) = rows.first() {
                    let (id, token): (i64, i64) = (row.get(0), row.get(1));
                    if worker.complete(id, token).is_ok() {
                        completed.lock().expect("lock").push(id);
                    }
                }
            }
        });
        eventually("the load runs", 60, || {
            client.value::<bool>("select count(*) > 100 from taskq.finished", &[])
        });
        primary.kill();
        stop.store(true, Ordering::Relaxed);
    });
    standby.promote();
    let mut client = standby.connect("app");
    let acknowledged = acknowledged.into_inner().expect("lock");
    let completed = completed.into_inner().expect("lock");
    assert!(acknowledged.len() > 100 && completed.len() > 100);
    let lost = "select count(*) from unnest($1::bigint[]) a where not exists (select from taskq.status(a))";
    assert_eq!(client.value::<i64>(lost, &[&acknowledged]), 0);
    let undone =
        "select count(*) from unnest($1::bigint[]) a, taskq.status(a) s where s.state <> 'succeeded'";
    assert_eq!(client.value::<i64>(undone, &[&completed]), 0);
    // The leases of the lost worker are over, and no client claims.
    eventually("all leases are taken back", 20, || {
        client.value("select not exists (select from taskq.running)", &[])
    });
    standby.stop(Stop::Fast);
}
