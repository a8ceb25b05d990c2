//! A server that does not preload taskq: the verbs work, and the duties can be done by hand.

use taskq_server_tests::{Server, Session, pause, sqlstate};

#[test]
fn without_preloading_the_verbs_work_and_maintain_does_the_duties() {
    let server = Server::start_without_preloading("plain", &[]);
    let database = server.database("plain");
    let mut client = database.connect();

    client.run("select taskq.configure_type('t', '{\"max_retries\": 1}')");
    client.run("select taskq.enqueue('t', '{\"n\": 1}'), taskq.enqueue('t', '{\"n\": 2}', max_retries => 0)");
    let tasks = client.claim(5);
    assert_eq!(tasks.len(), 2);
    let (id, token) = tasks[0];
    client
        .query("select * from taskq.extend($1, $2, '1 minute', '{\"half\": true}')", &[&id, &token])
        .expect("extend");
    let failed: String = client.value("select state from taskq.fail($1, $2, 'oops', '0 s')", &[&id, &token]);
    assert_eq!(failed, "ready");
    let (id, token) = client.claim(1)[0];
    client.complete(id, token).expect("complete");
    assert_eq!(sqlstate(client.complete(id, token)), "TQ001");
    let (_, token) = tasks[1];
    client.query("select * from taskq.release($1, $2)", &[&tasks[1].0, &token]).expect("release");

    let missing: Vec<String> = client
        .column("select \"check\" || ': ' || coalesce(advice, '') from taskq.health() where not ok", &[]);
    for (check, advice) in
        [("library preloaded", "shared_preload_libraries"), ("keeper running", "taskq.maintain()")]
    {
        assert!(
            missing.iter().any(|line| line.starts_with(check) && line.contains(advice)),
            "{check} and {advice} in {missing:?}"
        );
    }
    assert_eq!(
        client.value::<i64>("select count(*) from pg_stat_activity where backend_type like 'taskq%'", &[]),
        0
    );

    // What explains and diagnoses works from the tables alone.
    let reasons = client.column::<String>("select reason from taskq.why($1)", &[&tasks[1].0]);
    assert_eq!(reasons, ["next"]);
    let found = client.column::<String>("select finding from taskq.diagnose()", &[]);
    assert_eq!(found, ["keeper_off"]);
    client.run("call taskq.maintain()");
    let found = client.column::<String>("select finding from taskq.diagnose()", &[]);
    assert_eq!(found, ["nothing_found"]);
    assert_eq!(client.value::<i64>("select count(*) from taskq.failures where error = 'oops'", &[]), 1);

    // A lease that is over: maintain takes the task back; one without retries is dead, and alerts.
    client.run("select taskq.configure_queue('default', '{\"dead_letters_limit\": 0}')");
    let again: i64 = client.value("select taskq.enqueue('t')", &[]);
    assert_eq!(
        client.column::<i64>("select id from taskq.claim(5, lease => '0.2 s')", &[]),
        [tasks[1].0, again]
    );
    pause(0.5);
    client.run("call taskq.maintain()");
    let state = "select state from taskq.status($1)";
    assert_eq!(client.value::<String>(state, &[&again]), "ready");
    assert_eq!(client.value::<String>(state, &[&tasks[1].0]), "dead");
    assert_eq!(
        client.column::<String>("select queue from taskq.alerts where state = 'open'", &[]),
        ["default"]
    );
    assert_eq!(sqlstate(client.batch_execute("begin; call taskq.maintain()")), "2D000");
    client.run("rollback");
    let late: Vec<String> = client.column("select duty from taskq.duties where finished_at is null", &[]);
    assert_eq!(late, [""; 0], "duties that maintain left out");
    // The extension goes and comes like any other.
    client.run("drop extension taskq; create extension taskq");
    assert_eq!(client.claim(1), []);
}
