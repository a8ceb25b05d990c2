//! Settings that sessions keep in memory: a change counts for everybody from its commit on, and
//! never without one.

use postgres::Client;
use taskq_server_tests::{Database, Session, Shared};

static SERVER: Shared = Shared::new("settings", &["taskq.keeper = off", "max_prepared_transactions = 5"]);

/// A session that knows the settings as they are now, and one to change them.
fn two_sessions<'a>(name: &'a str) -> (Database<'a>, Client, Client) {
    let database = SERVER.database(name);
    let mut worker = database.connect();
    worker.run("select taskq.enqueue('t') from generate_series(1, 100)");
    assert_eq!(worker.claim(1).len(), 1);
    let operator = database.connect();
    (database, worker, operator)
}

/// The queue to which a new task of the type goes.
fn routed(client: &mut Client) -> String {
    let id: i64 = client.value("select taskq.enqueue('t')", &[]);
    client.value("select queue from taskq.status($1)", &[&id])
}

#[test]
fn a_pause_counts_from_its_commit_on() {
    let (_database, mut worker, mut operator) = two_sessions("pause");
    for _ in 0..20 {
        operator.run("begin; select taskq.pause('default')");
        assert_eq!(worker.claim(1).len(), 1, "not committed");
        assert_eq!(operator.claim(1).len(), 0, "its own session sees it");
        operator.run("rollback");
        assert_eq!(operator.claim(1).len(), 1, "rolled back");
        operator.run("select taskq.pause('default')");
        assert_eq!(worker.claim(1).len(), 0, "committed");
        operator.run("select taskq.resume('default')");
        assert_eq!(worker.claim(1).len(), 1, "resumed");
    }
}

#[test]
fn a_savepoint_takes_a_setting_back() {
    let (_database, _, mut operator) = two_sessions("savepoint");
    operator.run("begin; savepoint a; select taskq.configure_type('t', '{\"queue\": \"other\"}')");
    assert_eq!(routed(&mut operator), "other");
    operator.run("rollback to savepoint a");
    assert_eq!(routed(&mut operator), "default");
    operator.run("commit");
    assert_eq!(routed(&mut operator), "default");
}

#[test]
fn an_old_snapshot_keeps_its_settings_and_leaves_none_behind() {
    let (_database, mut worker, mut operator) = two_sessions("snapshot");
    worker.run("begin isolation level repeatable read; select 1");
    operator.run("select taskq.configure_type('t', '{\"queue\": \"other\"}')");
    assert_eq!(routed(&mut worker), "default", "the snapshot is older than the setting");
    worker.run("commit");
    assert_eq!(routed(&mut worker), "other", "the next transaction sees it");
}

#[test]
fn a_prepared_change_counts_when_it_is_committed() {
    let (_database, mut worker, mut operator) = two_sessions("prepared");
    operator.run("begin; select taskq.pause('default'); prepare transaction 'pause'");
    assert_eq!(worker.claim(1).len(), 1);
    assert_eq!(operator.claim(1).len(), 1);
    operator.run("commit prepared 'pause'");
    assert_eq!(worker.claim(1).len(), 0);
    assert_eq!(operator.claim(1).len(), 0);
}

#[test]
fn a_change_by_hand_counts_too() {
    let (_database, mut worker, mut operator) = two_sessions("by_hand");
    operator.run("insert into taskq.task_type (name, queue, updated_at) values ('t', 'one', now())");
    assert_eq!(routed(&mut worker), "one");
    operator.run("update taskq.task_type set queue = 'two'");
    assert_eq!(routed(&mut worker), "two");
    operator.run("truncate taskq.task_type");
    assert_eq!(routed(&mut worker), "default");
    operator.run(
        "copy taskq.task_type (name, queue, updated_at) from program 'echo t,three,now' with (format csv)",
    );
    assert_eq!(routed(&mut worker), "three");
    operator.run("delete from taskq.task_type");
    assert_eq!(routed(&mut worker), "default");
}

#[test]
fn a_session_outlives_the_extension() {
    let (_database, mut worker, mut operator) = two_sessions("recreated");
    operator.run("select taskq.configure_type('t', '{\"queue\": \"old\"}')");
    assert_eq!(routed(&mut worker), "old");
    operator.run("drop extension taskq; create extension taskq");
    assert_eq!(routed(&mut worker), "default");
    operator.run("select taskq.configure_type('t', '{\"queue\": \"new\"}')");
    assert_eq!(routed(&mut worker), "new");
}

#[test]
fn a_lease_is_that_of_the_type_before_that_of_the_queue() {
    let (_database, mut worker, mut operator) = two_sessions("lease");
    let mut check = |expected: i32, what: &str| {
        let id = worker.claim(1)[0].0;
        let seconds: i32 = worker.value(
            "select round(extract(epoch from lease_expires_at - claimed_at))::int4 from taskq.task where id = $1",
            &[&id],
        );
        assert_eq!(seconds, expected, "{what}");
    };
    check(300, "the default");
    operator.run("select taskq.configure_queue('default', '{\"lease\": \"20 s\"}')");
    check(20, "the queue's");
    operator.run("select taskq.configure_type('t', '{\"lease\": \"10 s\"}')");
    check(10, "the type's");
    operator.run("select taskq.configure_type('t', '{\"lease\": null}')");
    check(20, "the queue's again");
}
