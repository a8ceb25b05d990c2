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
    assert!(!reader.value::<bool>("select ok from taskq.health() where \"check\" = 'keeper running'", &[]));
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
