//! Nothing to do costs nothing: no transaction ids, no WAL, no log lines, no processor time.

use postgres::Client;
use taskq_server_tests::{Server, Session, eventually, pause, watch_idle, watch_signalled};

/// Claims nothing and says whether the transaction got an id.
fn takes_an_id(client: &mut Client, claim: &str) -> bool {
    client.run("begin");
    assert!(client.query(claim, &[]).expect("claim").is_empty(), "{claim} returned something");
    let id = client.value::<bool>("select pg_current_xact_id_if_assigned() is not null", &[]);
    client.run("commit");
    id
}

#[test]
fn a_claim_that_finds_nothing_takes_no_transaction_id() {
    let server = Server::start("idle", &["taskq.keeper = off", "autovacuum = off"]);
    let database = server.database("idle");
    let mut client = database.connect();
    let claims = [
        "select * from taskq.claim(1)",
        "select * from taskq.claim(100, array['a', 'b'], 'w', '1 minute')",
        "select * from taskq.claim(0)",
    ];
    for claim in claims {
        assert!(!takes_an_id(&mut client, claim), "{claim} of an empty queue");
    }
    client.run("select taskq.enqueue('t', queue => 'a', delay => '1 hour')");
    client.run("select taskq.enqueue('t', queue => 'b'); select * from taskq.claim(1, array['b'])");
    client.run("select taskq.enqueue('t', queue => 'c'); select taskq.pause('c')");
    for claim in claims {
        assert!(!takes_an_id(&mut client, claim), "{claim} beside scheduled, running and paused tasks");
    }
    // 100 polls use up no ids and write no WAL.
    let used = "select pg_snapshot_xmax(pg_current_snapshot())::text";
    let before: String = client.value(used, &[]);
    for _ in 0..100 {
        assert_eq!(client.claim(10), []);
    }
    assert_eq!(client.value::<String>(used, &[]), before, "the next transaction id");
    // The probe can fail: a claim that finds something takes one.
    client.run("select taskq.resume('c')");
    client.claim(1);
    assert_ne!(client.value::<String>(used, &[]), before);
}

#[test]
fn g11_an_idle_keeper_writes_and_logs_next_to_nothing_and_does_not_spin() {
    let server = Server::start("quiet", &["autovacuum = off", "checkpoint_timeout = '1 h'"]);
    let database = server.database("quiet");
    let mut client = database.connect();
    let keepers =
        "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'quiet'";
    eventually("there is a keeper", 30, || client.column::<i32>(keepers, &[]).len() == 1);
    let keeper: i32 = client.value(keepers, &[]);
    // The first rounds make what is not there yet.
    client.run("call taskq.maintain()");
    eventually("all duties are done", 60, || {
        client.value("select bool_and(finished_at is not null) from taskq.duties", &[])
    });
    client.run("checkpoint");
    pause(2.0);
    let launcher: i32 =
        client.value("select pid from pg_stat_activity where backend_type = 'taskq launcher'", &[]);
    let log = server.log();
    let wal: String = client.value("select pg_current_wal_lsn()::text", &[]);
    let duty = "select max(finished_at)::text from taskq.duties";
    let before: String = client.value(duty, &[]);
    assert_eq!(watch_idle(&[keeper, launcher], 22.0), [""; 0]);
    // It has been at work all the time ...
    assert_ne!(client.value::<String>(duty, &[]), before);
    assert_eq!(client.value::<i32>(keepers, &[]), keeper);
    // ... and notes that every ten seconds. A first change after a checkpoint writes a whole page,
    // hence the limit is no smaller: three rounds of three rows.
    let written: i64 =
        client.value("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::bigint", &[&wal]);
    assert!(written < 60_000, "{written} bytes of WAL in 22 idle seconds");
    let new = server.log()[log.len()..].to_owned();
    assert_eq!(new, "", "log lines of an idle keeper");
    // Signals neither end them nor make them talk.
    assert_eq!(watch_signalled(&[keeper, launcher], 1000), [""; 0]);
    assert_eq!(client.value::<i32>(keepers, &[]), keeper);
    assert_eq!(server.log(), log, "log lines after many SIGHUPs");
    // And it still works.
    client.run("select taskq.enqueue('t')");
    let id: i64 = client.value("select id from taskq.claim(1, lease => '0.2 s')", &[]);
    eventually("the expired lease is taken back", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
}

#[test]
fn a_changed_setting_reaches_the_keeper_without_a_restart() {
    let server = Server::start("reload", &["taskq.keeper_interval = '60 s'"]);
    let database = server.database("reload");
    let mut client = database.connect();
    eventually("there is a keeper", 30, || {
        client.value("select count(*) = 1 from pg_stat_activity where backend_type = 'taskq keeper'", &[])
    });
    pause(1.0);
    client.run("select taskq.enqueue('t')");
    let id: i64 = client.value("select id from taskq.claim(1, lease => '0.2 s')", &[]);
    pause(1.0);
    client.run("alter system set taskq.keeper_interval = '100 ms'");
    client.run("select pg_reload_conf()");
    eventually("the expired lease is taken back", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
}
