//! A task whose lease is over is taken back soon, although nothing but a hint says when to look.
//!
//! The duty's own interval is set to an hour, so that what happens here comes from the hint alone.

use postgres::Client;
use taskq_server_tests::{Database, Server, Session, Shared, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("hint", &["max_prepared_transactions = 10"]);

/// Seconds within which a lease that is over must have been found; two, but the machine may be busy.
const SOON: u64 = 5;

/// A database whose keeper goes by the hint, and a client.
fn set_up(name: &str) -> (Database<'static>, Client) {
    let database = SERVER.empty_database(name);
    let mut client = database.connect();
    client.run("create extension taskq; update taskq.duty set every = '1 hour' where name = 'recover'");
    searched(&mut client);
    (database, client)
}

/// Has the keeper search now: a lease of another task has just ended, and it is taken back.
fn searched(client: &mut Client) {
    client.run("select taskq.enqueue('decoy', queue => 'decoy', max_retries => 1000000)");
    let id: i64 = client.value("select id from taskq.claim(1, array['decoy'], lease => '0.1 s')", &[]);
    waits_within(client, id, 30);
    client.run("select taskq.purge('ready', 'decoy')");
}

fn waits_within(client: &mut Client, id: i64, seconds: u64) {
    let again = "select state = 'waiting' and errors -> 0 ->> 'error' = 'lease expired' from taskq.task where id = $1";
    eventually("the task waits again", seconds, || client.value::<Option<bool>>(again, &[&id]) == Some(true));
}

fn claim(client: &mut Client, lease: &str) -> (i64, i64) {
    let row = client
        .query_one(&format!("select id, token from taskq.claim(1, array['q'], lease => '{lease}')"), &[])
        .expect("claim");
    (row.get(0), row.get(1))
}

fn is_over(client: &mut Client, id: i64) {
    eventually("the lease is over", 30, || {
        // (without one it has been taken back already)
        client.value(
            "select coalesce(lease_expires_at < clock_timestamp(), true) from taskq.task where id = $1",
            &[&id],
        )
    });
}

#[test]
fn many_leases_that_end_are_taken_back_soon_beside_many_waiting_tasks() {
    let (_database, mut client) = set_up("many");
    client.run("select count(*) from taskq.enqueue_many((select jsonb_agg('{\"task_type\": \"t\", \"queue\": \"q\"}'::jsonb) from generate_series(1, 20000)))");
    let claimed: i64 =
        client.value("select count(*) from taskq.claim(200, array['q'], lease => '1.5 s')", &[]);
    assert_eq!(claimed, 200);
    let running = "select count(*) from taskq.task where state = 'running'";
    assert_eq!(client.value::<i64>(running, &[]), 200);
    eventually("the leases are over", 30, || {
        client.value("select count(*) = 0 from taskq.task where lease_expires_at > clock_timestamp()", &[])
    });
    eventually("all wait again", SOON, || client.value::<i64>(running, &[]) == 0);
    let failed: i64 =
        client.value("select count(*) from taskq.task where errors -> 0 ->> 'error' = 'lease expired'", &[]);
    assert_eq!(failed, 200);
}

#[test]
fn leases_of_different_lengths_are_each_taken_back_in_time() {
    let (_database, mut client) = set_up("lengths");
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 5)");
    let ids: Vec<i64> = ["1 hour", "2.5 s", "0.3 s", "1.5 s", "20 s"]
        .iter()
        .map(|lease| claim(&mut client, lease).0)
        .collect();
    for at in [2, 3, 1] {
        is_over(&mut client, ids[at]);
        waits_within(&mut client, ids[at], SOON);
    }
    let running: Vec<i64> =
        client.column("select id from taskq.task where state = 'running' order by id", &[]);
    assert_eq!(running, [ids[0], ids[4]], "the others are left alone");
    // A heartbeat can shorten a lease, too.
    let token: i64 = client.value("select token from taskq.task where id = $1", &[&ids[0]]);
    client.query("select * from taskq.extend($1, $2, '0.3 s')", &[&ids[0], &token]).expect("extend");
    waits_within(&mut client, ids[0], SOON);
}

#[test]
fn a_claim_that_is_committed_after_a_search_is_not_forgotten() {
    let (database, mut client) = set_up("open");
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 2)");
    let mut worker = database.connect();
    // Committed before the lease is over, and after.
    for lease in ["2.5 s", "0.5 s"] {
        worker.run("begin");
        let (id, token) = claim(&mut worker, lease);
        searched(&mut client);
        if lease == "0.5 s" {
            pause(0.6);
            searched(&mut client);
        }
        worker.run("commit");
        is_over(&mut client, id);
        waits_within(&mut client, id, SOON);
        assert_eq!(sqlstate(worker.complete(id, token)), "TQ001");
        client.run(&format!("select taskq.cancel({id})"));
    }
}

#[test]
fn a_search_between_the_announcement_of_a_claim_and_its_end_does_not_lose_it() {
    let server = Server::start("between", &[]);
    let database = server.empty_database("between");
    // A commit that waits for a standby has been announced and written, and cannot be seen yet.
    database.connect().run("alter database between set synchronous_commit = local");
    let mut client = database.connect();
    client.run("create extension taskq; update taskq.duty set every = '1 hour' where name = 'recover'");
    client.run("alter system set synchronous_standby_names = 'nobody'");
    client.run("select pg_reload_conf()");
    let mut worker = database.connect();
    eventually("commits wait for a standby", 30, || {
        worker.value::<String>("show synchronous_standby_names", &[]) == "nobody"
    });
    searched(&mut client);
    client.run("select taskq.enqueue('t', queue => 'q')");
    let pid = worker.pid();
    let waiting = std::thread::spawn(move || {
        worker.run("set synchronous_commit = on");
        claim(&mut worker, "4 s")
    });
    eventually("the commit waits", 30, || {
        client.value(
            "select count(*) = 1 from pg_stat_activity where pid = $1 and wait_event = 'SyncRep'",
            &[&pid],
        )
    });
    searched(&mut client);
    assert_eq!(client.value::<String>("select state from taskq.task where queue = 'q'", &[]), "waiting");
    assert!(client.value::<bool>("select pg_cancel_backend($1)", &[&pid]));
    let (id, _) = waiting.join().expect("a claim");
    assert_eq!(client.value::<String>("select state from taskq.task where id = $1", &[&id]), "running");
    is_over(&mut client, id);
    waits_within(&mut client, id, SOON);
}

#[test]
fn a_prepared_claim_that_is_committed_after_its_lease_is_found() {
    let (database, mut client) = set_up("prepared");
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 2)");
    let mut worker = database.connect();
    for lease in ["0.2 s", "3.5 s"] {
        worker.run("begin");
        let (id, _) = claim(&mut worker, lease);
        worker.run("prepare transaction 'claim'");
        searched(&mut client);
        // The keeper has looked at what is prepared at least twice.
        pause(2.5);
        worker.run("commit prepared 'claim'");
        is_over(&mut client, id);
        waits_within(&mut client, id, SOON);
        client.run(&format!("select taskq.cancel({id})"));
    }
}

#[test]
fn rows_that_others_have_locked_do_not_hide_rows_behind_them() {
    let (database, mut client) = set_up("locked");
    client.run("select count(*) from taskq.enqueue_many((select jsonb_agg('{\"task_type\": \"t\", \"queue\": \"q\"}'::jsonb) from generate_series(1, 1210)))");
    let mut worker = database.connect();
    // More locked rows than a round takes back, and all with leases that end before those of the others.
    worker.run(
        "select * from taskq.claim(1000, lease => '3 s'); select * from taskq.claim(200, lease => '3 s')",
    );
    worker.run("begin; select from taskq.task where state = 'running' for update");
    client.run("select * from taskq.claim(10, lease => '3.1 s')");
    let running = "select count(*) from taskq.task where state = 'running'";
    eventually("the others wait again", SOON + 2, || client.value::<i64>(running, &[]) == 1200);
    worker.run("rollback");
    eventually("all wait again", SOON + 2, || client.value::<i64>(running, &[]) == 0);
}

#[test]
fn a_server_that_starts_again_searches_at_once() {
    let server = Server::start("again", &[]);
    let database = server.empty_database("again");
    let mut client = database.connect();
    client.run("create extension taskq; update taskq.duty set every = '1 hour' where name = 'recover'");
    searched(&mut client);
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 2)");
    let ids = [claim(&mut client, "0.3 s").0, claim(&mut client, "3 s").0];
    drop(client);
    server.restart();
    let mut client = database.connect();
    for id in ids {
        is_over(&mut client, id);
        waits_within(&mut client, id, 30);
    }
}
