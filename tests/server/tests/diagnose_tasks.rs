//! What diagnose says of tasks that fail, are retried, got slower, are stuck, or come in greater numbers.

use taskq_server_tests::{Arrival, Life, Run, Session, Shared, USUAL};

static SERVER: Shared = Shared::new("diagnose_tasks", &[]);

fn life(name: &str) -> Life<'static> {
    let mut life = Life::begin(&SERVER, name);
    life.start_worker("w1", "'{q}'");
    life.start_worker("w2", "'{q}'");
    life
}

#[test]
fn a_service_fails_and_its_error_is_named_with_numbers_folded() {
    let mut life = life("fails");
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q'", number: 1 });
    // One in thirty fails at all times.
    life.handler = Box::new(|task| if task.id % 30 == 0 { Run::fails(1.0, "odd") } else { Run::takes(1.0) });
    life.ticks(USUAL);
    life.expect_nothing();
    life.handler = Box::new(|task| match task.task_type.as_str() {
        "a" => Run::fails(0.2, &format!("mail server: HTTP 503 for message {}", task.id)),
        _ => Run::takes(1.0),
    });
    let words = [
        "type \"a\" fail",
        "% of the runs in the last 2 min failed (usually",
        "commonest error: \"mail server: HTTP 503 for message #\"",
        "times from",
        "taskq.redrive(queue => 'q', task_type => 'a')",
    ];
    let found = life.expect_first("type_fails", 6, &words);
    assert!(!found.cause.contains("\"b\""));
    let sample: i64 =
        life.client.value("select (facts ->> 'sample_id')::bigint from taskq.diagnose('q') limit 1", &[]);
    let error: String = life.client.value("select last_error from taskq.status($1)", &[&sample]);
    assert_eq!(error, format!("mail server: HTTP 503 for message {sample}"));
}

#[test]
fn tasks_that_always_fail_and_come_back_at_once_are_a_storm() {
    let mut life = life("storm");
    life.client.run(
        "select taskq.configure_type('a', '{\"backoff_base\": \"0 s\", \"jitter\": 0, \"max_retries\": 100000}')",
    );
    // Half of the runs fail, as ever: that is the usual, and no alarm by itself.
    life.handler =
        Box::new(|task| if task.id % 2 == 0 { Run::fails(1.0, "try 17 failed") } else { Run::takes(1.0) });
    life.arrivals[0].number = 2;
    life.ticks(5);
    // What fails always is tried again and again.
    life.expect_first("type_fails", 6, &["try # failed"]);
    life.ticks(USUAL);
    life.expect_first(
        "retry_storm",
        2,
        &[
            "retries that fail again",
            "\"try # failed\"",
            "\"backoff_base\": \"00:01:00\"",
            "taskq.pause('q')",
        ],
    );
}

#[test]
fn a_type_that_got_slower_is_named_with_its_factor() {
    let mut life = life("slower");
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q'", number: 1 });
    life.ticks(USUAL);
    life.expect_nothing();
    life.handler = Box::new(|task| Run::takes(if task.task_type == "a" { 8.0 } else { 1.0 }));
    life.expect_first(
        "tasks_slower",
        12,
        &["tasks of type \"a\" take", "times as long as usual", "usually 1", "order by running_for"],
    );
}

#[test]
fn a_type_that_is_so_slow_that_none_finishes_is_named_too() {
    let mut life = life("standstill");
    life.ticks(USUAL);
    life.handler = Box::new(|_| Run::hangs());
    life.expect_first("tasks_slower", 12, &["type \"a\" take", "2 running", "usually 1"]);
}

#[test]
fn single_tasks_that_are_stuck_are_named_with_their_workers() {
    let mut life = life("stuck");
    life.start_worker("w3", "'{q}'");
    life.ticks(USUAL);
    life.expect_nothing();
    let mut left = 1;
    life.handler = Box::new(move |_| {
        left -= 1;
        if left == 0 { Run::hangs() } else { Run::takes(1.0) }
    });
    let found = life.expect_first(
        "tasks_stuck",
        12,
        &["1 task of type \"a\" run", "such tasks usually take", "force => true"],
    );
    let (id, worker): (i64, String) = {
        let row = life
            .client
            .query_one("select id, worker from taskq.running order by claimed_at limit 1", &[])
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert!(found.evidence.contains(&format!("task {id} at worker {worker},")), "{}", found.evidence);
    assert!(found.advice.contains(&format!("taskq.cancel({id}")));
}

#[test]
fn a_surge_is_named_with_its_type() {
    let mut life = life("surge");
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q'", number: 1 });
    life.ticks(USUAL);
    life.expect_nothing();
    life.arrivals[1].number = 40;
    life.expect_first(
        "arrivals_rose",
        12,
        &["most of type \"b\"", "arrived in the last 2 min, usually", "taskq.estimate('b', 'q')"],
    );
    // A surge that the workers keep up with is none.
}

#[test]
fn more_arrivals_that_the_workers_keep_up_with_are_no_fault() {
    let mut life = life("more");
    life.ticks(USUAL);
    life.arrivals[0].number = 15;
    for _ in 0..14 {
        life.tick();
        life.expect_nothing();
    }
}
