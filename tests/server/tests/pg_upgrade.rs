//! pg_upgrade to a newer PostgreSQL, whose programs TASKQ_TEST_NEWER names: everything is there
//! afterwards, leases included, and goes on. `tests/run.sh` runs it in the stage `pg_upgrade`.

use std::path::PathBuf;
use taskq_server_tests::{Server, Session, Stop, eventually, everything, fill, sqlstate};

#[test]
#[ignore = "needs a second server: stage pg_upgrade"]
fn a_database_with_tasks_in_every_state_goes_on_under_a_newer_postgresql() {
    let newer = PathBuf::from(std::env::var_os("TASKQ_TEST_NEWER").expect("TASKQ_TEST_NEWER"));
    let old = Server::start("older", &[]);
    old.connect("postgres").run("create role taskq_web; create role taskq_worker");
    let database = old.empty_database("app");
    old.connect("postgres").run("alter database app set taskq.keeper = off");
    let mut client = database.connect();
    client.run("create extension taskq; select taskq.grant_producer('taskq_web'), taskq.grant_worker('taskq_worker')");
    fill(&mut client);
    let before = everything(&mut client);
    assert!(before.len() > 40, "{before:#?}");
    let version: i32 = client.value("select current_setting('server_version_num')::int / 10000", &[]);
    let tokens: Vec<i64> =
        client.column("select token from taskq.task where state = 'running' order by id", &[]);
    drop(client);
    old.stop(Stop::Fast);

    let new = old.upgraded("newer", &newer);
    let mut client = new.connect("app");
    let now: i32 = client.value("select current_setting('server_version_num')::int / 10000", &[]);
    assert!(now > version, "{now} after {version}");
    let after = everything(&mut client);
    let missing: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
    let added: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:#?}, added {added:#?}");

    client.run("alter database app reset taskq.keeper");

    // The leases hold, for their tokens and no others.
    let (id, token) = (4_i64, tokens[3]);
    assert_eq!(sqlstate(client.complete(id, token + 1)), "TQ001");
    client.complete(id, token).expect("the old token");
    assert_eq!(client.value::<String>("select state from taskq.status($1)", &[&id]), "succeeded");
    // Keys, groups and limits are as they were.
    assert!(!client.value::<bool>("select taskq.once('welcome', 'seen')", &[]));
    assert_eq!(client.value::<i64>("select taskq.enqueue('kept', unique_key => 'lease 3')", &[]), 5);
    assert_eq!(
        client.value::<i64>("select count(*) from taskq.claim(5, array['limited', 'groups', 'held'])", &[]),
        0
    );
    client.run("select taskq.complete(t.id, t.token) from taskq.task t where t.queue in ('limited', 'groups') and t.state = 'running'");
    assert_eq!(client.value::<i64>("select count(*) from taskq.claim(5, array['limited'])", &[]), 2);
    assert_eq!(client.value::<i64>("select count(*) from taskq.claim(5, array['groups'])", &[]), 1);
    // Rights too.
    client.run("set role taskq_web; select taskq.enqueue('t'); reset role");
    // A keeper is at work, has counted, and takes back the leases that end.
    eventually("the keeper is there", 60, || {
        client.value("select bool_and(ok) from taskq.health() where \"check\" in ('keeper running', 'library version')", &[])
    });
    eventually("the figures are those of the tables", 60, || {
        client.value(
            "select bool_and(q.exact and q.running = (select count(*) from taskq.task t where t.queue = q.queue and t.state = 'running'))
               from taskq.queues q",
            &[],
        )
    });
    client.run("update taskq.task set lease_expires_at = clock_timestamp() where id = 5");
    eventually("the keeper has taken back what ended", 60, || {
        client.value("select count(*) = 1 from taskq.tasks where id = 5 and state = 'ready' and last_error = 'lease expired'", &[])
    });
    assert_eq!(
        client.value::<i64>(
            "select count(*) from taskq.task where state = 'running' and queue = 'leases'",
            &[]
        ),
        10
    );
    assert_eq!(client.value::<i64>("select redriven from taskq.redrive('mail')", &[]), 3);
}
