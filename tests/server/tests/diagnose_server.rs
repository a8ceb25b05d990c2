//! What diagnose says of the keeper, of vacuum, of claims, and of a queue that outgrows its database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use taskq_server_tests::{
    Life, Run, Server, Session, Shared, USUAL, eventually, signal, signals, stop_asleep,
};

static SERVER: Shared = Shared::new(
    "diagnose_server",
    &["wal_level = logical", "max_prepared_transactions = 5", "autovacuum = off"],
);

/// Its keeper is stopped, and what that has open would hold back the vacuum of the others.
static WITH_KEEPER: Shared = Shared::new("diagnose_keeper", &[]);

fn life(name: &str) -> Life<'static> {
    let mut life = Life::begin(&SERVER, name);
    // The others hold back the vacuum of this database, too.
    SERVER.connect("postgres").run(&format!("alter database {name} set taskq.vacuum_held_limit = '1 h'"));
    life.client = life.connect();
    life.start_worker("w1", "'{q}'");
    life.start_worker("w2", "'{q}'");
    life
}

#[test]
fn a_keeper_that_hangs_or_is_off_is_named() {
    let database = WITH_KEEPER.database("keeper");
    let mut client = database.connect();
    let keeper =
        "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'keeper'";
    let finding = "select finding from taskq.diagnose() limit 1";
    eventually("the keeper works", 60, || client.value::<String>(finding, &[]) == "nothing_found");
    let pid: i32 = client.value(keeper, &[]);
    let pid = u32::try_from(pid).unwrap();
    stop_asleep(&mut client, pid);
    eventually("the keeper is late", 90, || client.value::<String>(finding, &[]) == "keeper_late");
    let evidence: String = client.value("select evidence from taskq.diagnose() limit 1", &[]);
    assert!(evidence.contains("alert ("), "{evidence}");
    signal(pid, signals::SIGCONT);
    eventually("it works again", 60, || client.value::<String>(finding, &[]) == "nothing_found");

    client.run("alter database keeper set taskq.keeper = off");
    eventually("it has left", 60, || client.query_opt(keeper, &[]).unwrap().is_none());
    // This session still wants one: that is told at once; others are told when something is late.
    assert_eq!(client.value::<String>(finding, &[]), "keeper_off");
    let mut later = database.connect();
    eventually("what it did is missed", 90, || later.value::<String>(finding, &[]) == "keeper_off");
    let advice: String = later.value("select advice from taskq.diagnose() limit 1", &[]);
    assert!(advice.contains("taskq.maintain()"), "{advice}");
    // Somebody does its work by hand.
    later.run("call taskq.maintain()");
    assert_eq!(later.value::<String>(finding, &[]), "nothing_found");
}

#[test]
fn who_holds_back_vacuum_is_named_with_the_dead_rows() {
    let mut life = life("vacuum");
    SERVER.connect("postgres").run("alter database vacuum set taskq.vacuum_held_limit = '1 s'");
    life.client = life.connect();
    life.ticks(5);
    let mut holder = life.connect();
    let held = |life: &mut Life, words: &[&str]| {
        eventually("vacuum is held back", 60, || {
            life.client.run("select pg_current_xact_id(); select taskq._run_duty('alert')");
            life.diagnose(None)[0].finding == "vacuum_held"
        });
        life.expect_first("vacuum_held", 10, words);
    };
    holder.run("set application_name = 'report'; begin isolation level repeatable read; select 1");
    held(&mut life, &["held back by session", ", report)", "dead and", "pg_terminate_backend"]);
    holder.run("commit");
    holder.run("begin; select pg_current_xact_id(); prepare transaction 'half'");
    held(&mut life, &["prepared transaction 'half'", "ROLLBACK PREPARED"]);
    holder.run("rollback prepared 'half'");
    holder.run("select pg_create_logical_replication_slot('forgotten', 'pgoutput')");
    held(&mut life, &["replication slot forgotten", "pg_drop_replication_slot('forgotten')"]);
    holder.run("select pg_drop_replication_slot('forgotten')");
    eventually("nothing is found", 60, || {
        life.client.run("select pg_current_xact_id(); select taskq._run_duty('alert')");
        life.diagnose(None)[0].finding == "nothing_found"
    });
}

#[test]
fn claims_that_wait_for_a_lock_are_slower_and_its_holder_is_named() {
    let mut life = life("locked");
    life.ticks(USUAL);
    life.expect_nothing();
    // Somebody locks what every claim locks, again and again, as a limit does that is set in an open transaction.
    // Claims that wait are served between two of these; without a pause, so that few find it free. One that has it may
    // just wait for a third: not that one is named.
    let end = Arc::new(AtomicBool::new(false));
    let (mut locker, mut waiter) = (life.connect(), life.connect());
    locker.run("set application_name = 'migration'");
    let ending = end.clone();
    let locking = thread::spawn(move || {
        while !ending.load(Ordering::Relaxed) {
            locker.run("begin; lock table taskq.claim_gate in share mode; select pg_sleep(0.2); commit");
        }
    });
    // Somebody is always waiting for it, while the others only claim now and then.
    let ending = end.clone();
    let waiting = thread::spawn(move || {
        while !ending.load(Ordering::Relaxed) {
            waiter.run("select taskq.claim(1, '{none}', 'waiter')");
        }
    });
    life.expect_first("claims_slower", 36, &["claims take", "ms now", "usually"]);
    // (Just between two of its locks nobody holds one.)
    eventually("its holder is named", 10, || {
        let found = life.diagnose(Some("q")).swap_remove(0);
        found.finding == "claims_slower"
            && found.cause.contains("(postgres, migration, ")
            && found.advice.contains("pg_terminate_backend")
    });
    end.store(true, Ordering::Relaxed);
    locking.join().unwrap();
    waiting.join().unwrap();
}

#[test]
fn who_holds_a_lock_is_named_not_who_waits_before_the_claims() {
    let server = Server::start("chain", &["max_prepared_transactions = 1"]);
    let database = server.database("chain");
    let mut client = database.connect();
    let mut why = || {
        let text: Option<String> =
            client.value("select string_agg(why, '; ') from taskq._claims_held_by()", &[]);
        text.unwrap_or_default()
    };
    assert_eq!(why(), "");
    let mut migration = database.connect();
    let pid = migration.pid();
    migration.run("set application_name = 'migration'; begin; lock table taskq.claim_gate in share mode");
    assert_eq!(
        why(),
        format!(
            "session {pid} (postgres, migration, idle in transaction) holds a lock on a table of taskq that claims wait for"
        )
    );
    migration.run("commit");
    assert_eq!(why(), "");

    let mut open = database.connect();
    let pid = open.pid();
    open.run("set application_name = 'open'; begin; select taskq.claim(1, '{none}', 'open')");
    assert_eq!(why(), "", "claims do not wait for it");
    let migrating =
        thread::spawn(move || migration.run("begin; lock table taskq.claim_gate in share mode; commit"));
    let waiting =
        "select count(*) from pg_locks where not granted and relation = 'taskq.claim_gate'::regclass";
    let mut watcher = database.connect();
    eventually("the migration waits", 30, || watcher.value::<i64>(waiting, &[]) == 1);
    let mut claimer = database.connect();
    let claiming = thread::spawn(move || claimer.run("select taskq.claim(1, '{none}', 'claimer')"));
    eventually("a claim waits behind it", 30, || watcher.value::<i64>(waiting, &[]) == 2);
    assert_eq!(
        why(),
        format!(
            "session {pid} (postgres, open, idle in transaction) holds a lock on a table of taskq that 1 session waits for"
        )
    );
    open.run("commit");
    migrating.join().unwrap();
    claiming.join().unwrap();

    open.run("begin; lock table taskq.claim_gate in share mode; prepare transaction 'it''s'");
    assert_eq!(why(), "prepared transaction 'it''s' holds a lock on a table of taskq that claims wait for");
    let mut claimer = database.connect();
    let claiming = thread::spawn(move || claimer.run("select taskq.claim(1, '{none}', 'claimer')"));
    eventually("a claim waits for it", 30, || watcher.value::<i64>(waiting, &[]) == 1);
    assert_eq!(why(), "prepared transaction 'it''s' holds a lock on a table of taskq that claims wait for");
    open.run("rollback prepared 'it''s'");
    claiming.join().unwrap();
}

#[test]
fn a_queue_that_outgrows_its_database_is_told_so() {
    let mut life = life("outgrow");
    // The handlers take no time to speak of; what takes time is the queue.
    life.handler = Box::new(|_| Run::takes(0.01));
    life.between = 0.2;
    life.arrivals[0].number = 3_000;
    life.expect_first(
        "outgrowing",
        12,
        &["tasks a second arrive", "% of the WAL", "of the transactions", "in the cache", "batches"],
    );
}
