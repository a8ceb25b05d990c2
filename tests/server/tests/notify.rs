//! A notify queue that takes no more costs a line of warning in the log, never a producer's commit.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::fs;
use std::time::Duration;
use taskq_server_tests::{Server, Session, eventually, signal, signals, stop_asleep};

/// Waits until the keeper has noted that its round failed so.
fn fails_with(client: &mut Client, code: &str) {
    let error = "select error from taskq.duties where duty = 'wake'";
    eventually("the keeper's round fails", 60, || {
        client.run("select taskq.enqueue('t', queue => 'meanwhile')");
        client.value::<Option<String>>(error, &[]).is_some_and(|error| error.contains(code))
    });
}

/// Producers, workers and the other duties go on; then, once it is mended, everything is told of.
fn nobody_else_is_harmed(server: &Server, client: &mut Client, code: &str, mend: impl FnOnce()) {
    let keepers = "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()";
    let keeper: i32 = client.value(keepers, &[]);
    fails_with(client, code);
    for n in 0..20 {
        client.run(&format!("begin; select taskq.enqueue('t', queue => 'q{n}'); commit"));
    }
    let ids = client.claim(10);
    assert_eq!(ids.len(), 10);
    for (id, token) in ids {
        client.complete(id, token).expect("complete");
    }
    let lost: i64 = client.value("select id from taskq.claim(1, lease => '0.2 s')", &[]);
    eventually("a lease that is over is taken back", 60, || {
        client.value::<String>("select state from taskq.status($1)", &[&lost]) == "ready"
    });
    assert!(!client.healthy("duty wake"), "health() tells of it");
    let warning = format!("taskq duty wake failed with SQLSTATE {code}");
    let log = server.log();
    assert_eq!(log.matches(&warning).count(), 1, "one line a minute");
    assert!(log.lines().any(|line| line.contains(" taskq keeper LOG:") && line.contains(&warning)));

    // (Else it might tell of them just before somebody listens.)
    let process = u32::try_from(keeper).expect("a process id");
    stop_asleep(client, process);
    let mut listener = server.connect("app");
    mend();
    listener.run("listen taskq_ready");
    signal(process, signals::SIGCONT);
    client.run("select taskq.enqueue('t', queue => 'after')");
    let mut told = Vec::new();
    eventually("what could not be told is told", 60, || {
        let mut messages = listener.notifications();
        let mut messages = messages.timeout_iter(Duration::from_secs(1));
        while let Ok(Some(message)) = messages.next() {
            told.push(message.payload().to_owned());
        }
        ["after", "q19"].iter().all(|queue| told.iter().any(|told| told == queue))
    });
    let error = "select error is null from taskq.duties where duty = 'wake'";
    eventually("the failure is over", 60, || client.value(error, &[]));
    assert_eq!(client.value::<i32>(keepers, &[]), keeper, "the keeper lived on");
}

fn app(server: &Server) -> Client {
    let mut client = server.database("app").connect();
    eventually("the keeper is at work", 60, || {
        client.value("select finished_at is not null from taskq.duties where duty = 'wake'", &[])
    });
    client
}

/// The queue cannot be written: its folder is gone, as it would be with a broken or full disk.
#[test]
fn a_notify_queue_that_cannot_be_written_costs_a_warning_and_no_commit() {
    let server = Server::start("notify_disk", &[]);
    let mut client = app(&server);
    let (folder, away) = (server.data().join("pg_notify"), server.data().join("pg_notify.away"));
    fs::rename(&folder, &away).expect("rename");
    // What fits into memory is still taken: fill that.
    let mut other = server.connect("app");
    let mut code = String::new();
    for bytes in [7900, 1000, 100, 1] {
        eventually("it takes no more", 60, || {
            let notify = "select pg_notify('other', repeat('x', $1) || n) from generate_series(1, 50) n";
            match other.execute(notify, &[&bytes]) {
                Ok(_) => false,
                Err(error) => {
                    code = error.code().expect("an answer of the server").code().to_owned();
                    true
                }
            }
        });
    }
    nobody_else_is_harmed(&server, &mut client, &code, || fs::rename(&away, &folder).expect("rename"));
}

/// The queue is full, because a session that listens stays in its transaction. (Before PostgreSQL 17 it has
/// 8 GB, which no test fills.)
#[test]
fn a_full_notify_queue_costs_a_warning_and_no_commit() {
    let server = Server::start("notify_full", &[]);
    let small = "select count(*) = 1 from pg_settings where name = 'max_notify_queue_pages'";
    if !server.connect("postgres").value::<bool>(small, &[]) {
        let version: String = server.connect("postgres").value("show server_version_num", &[]);
        assert!(version.parse::<u32>().expect("a number") < 170_000, "{version}");
        return;
    }
    server.connect("postgres").run("alter system set max_notify_queue_pages = 64");
    server.restart();
    let mut client = app(&server);
    let mut deaf = server.connect("app");
    deaf.run("listen other");
    deaf.run("begin; select 1");
    let mut other = server.connect("app");
    for bytes in [7900, 1000, 100, 1] {
        eventually("it takes no more", 60, || {
            let notify = "select pg_notify('other', repeat('x', $1) || n) from generate_series(1, 50) n";
            match other.execute(notify, &[&bytes]) {
                Ok(_) => false,
                Err(error) => {
                    assert_eq!(error.code().expect("an answer of the server").code(), "54000");
                    true
                }
            }
        });
    }
    nobody_else_is_harmed(&server, &mut client, "54000", || deaf.run("commit"));
}
