//! Samples and counts as the keeper takes them, from shared memory.

use postgres::Client;
use taskq_server_tests::{Session, Shared, eventually, pause};

static SERVER: Shared =
    Shared::new("samples", &["taskq.sample_interval = '1 s'", "taskq.keeper_interval = '100 ms'"]);

/// What all samples of a queue together say has happened.
fn happened(client: &mut Client, queue: &str) -> String {
    client.value(
        "select concat_ws(' ', sum(enqueued), sum(started), sum(succeeded), sum(failed), sum(retried), sum(dead), sum(cancelled))
           from taskq.history where queue = $1",
        &[&queue],
    )
}

#[test]
fn every_commit_is_in_one_sample_and_nothing_else() {
    let database = SERVER.database("happened");
    let mut client = database.connect();
    eventually("the keeper has counted", 30, || {
        client.value("select exists (select from taskq._figures_kept())", &[])
    });
    client.run("select taskq.enqueue('a', queue => 'q') from generate_series(1, 30)");
    client.run("select taskq.enqueue('b', queue => 'q', delay => '1 h') from generate_series(1, 4)");
    client.run("begin; select taskq.enqueue('a', queue => 'q') from generate_series(1, 100); rollback");
    for _ in 0..5 {
        client.run("select taskq.complete(id, token) from taskq.claim(4, '{q}', 'w1')");
        pause(0.5);
    }
    client.run("select taskq.fail(id, token, 'x') from taskq.claim(3, '{q}', 'w2')");
    client.run("select taskq.fail(id, token, 'x', retry => false) from taskq.claim(1, '{q}', 'w2')");
    client.run("select count(*) from taskq.claim(2, '{q}', 'w2')");
    client.run("select taskq.cancel(max(id)) from taskq.task where task_type = 'b'");
    eventually("all of it is in samples", 30, || happened(&mut client, "q") == "34 26 20 4 3 1 1");
    eventually("more samples", 60, || {
        client.value("select count(distinct at) >= 4 from taskq.history where queue = 'q'", &[])
    });
    assert_eq!(happened(&mut client, "q"), "34 26 20 4 3 1 1", "nothing comes twice");

    // The last one has what is there, and so has the view, with counts from shared memory.
    let there: Vec<String> = client.column(
        "select concat_ws(' ', task_type, ready, scheduled, running) from taskq.history
          where queue = 'q' and at = (select max(at) from taskq.history) order by task_type",
        &[],
    );
    assert_eq!(there, ["a 4 3 2", "b 0 3 0"]);
    let queues: String = client.value(
        "select concat_ws(' ', ready, scheduled, running, exact, counted_at < now() - interval '1 s')
           from taskq.queues where queue = 'q'",
        &[],
    );
    assert_eq!(queues, "4 6 2 t t");
    // The medians are those of the tasks: they ran for hardly any time.
    assert!(client.value::<bool>(
        "select bool_and(run_p50 between 0 and 2) and bool_and(waiting_p95 between 0 and 300) and count(run_p50) > 0
                and bool_and((run_p50 is null) = (succeeded = 0)) and bool_and((waiting_p50 is null) = (started = 0))
           from taskq.history where queue = 'q'",
        &[],
    ));
    assert_eq!(
        client.column::<String>(
            "select format('%s %s', worker, claimed) from taskq.workers order by worker",
            &[]
        ),
        ["w1 20", "w2 6"]
    );
    assert!(
        client
            .value::<bool>("select max(claimers) between 1 and 2 from taskq.history where queue = 'q'", &[])
    );
}

#[test]
fn a_worker_that_names_more_queues_than_are_remembered_counts_as_there_in_each() {
    let database = SERVER.database("many_queues");
    let mut client = database.connect();
    client
        .run("select from taskq.claim(1, array(select format('q%s', n) from generate_series(1, 20) n), 'w')");
    let queues = "select queues is null from taskq.workers where worker = 'w'";
    assert!(client.value::<bool>(queues, &[]));
    client.run("select taskq.enqueue('t', queue => 'q20')");
    let unclaimed =
        "select exists (select from taskq.tasks t, taskq.why(t.id) w where w.reason = 'unclaimed')";
    assert!(!client.value::<bool>(unclaimed, &[]));
}

#[test]
fn without_a_keeper_the_tables_are_counted() {
    let database = SERVER.database("by_hand");
    let mut client = database.connect();
    eventually("the keeper has counted", 30, || {
        client.value("select exists (select from taskq._figures_kept())", &[])
    });
    client.run("alter database by_hand set taskq.keeper = off");
    eventually("the keeper has left", 30, || {
        !client.value::<bool>("select exists (select from taskq._figures_kept())", &[])
    });
    client.run("call taskq.maintain()");
    client.run("select taskq.enqueue('a', queue => 'q', delay => '0.5 s') from generate_series(1, 3)");
    eventually("the clock alone makes them ready", 30, || {
        client.value("select ready = 3 and scheduled = 0 and exact from taskq.queues where queue = 'q'", &[])
    });
    pause(1.0);
    client.run("call taskq.maintain()");
    assert_eq!(client.value::<i64>("select max(ready) from taskq.history where queue = 'q'", &[]), 3);
    assert_eq!(
        client.value::<i64>("select sum(enqueued)::bigint from taskq.history where queue = 'q'", &[]),
        3
    );
}
