//! What diagnose says of workers that vanish, die, are too few, or are not let to work. Each fault is a real one: sessions
//! of workers end, their tasks stay, the queue's clock alone is ours (see `Life`).

use taskq_server_tests::{Arrival, Life, Run, Session, Shared, USUAL};

static SERVER: Shared = Shared::new("diagnose_workers", &[]);

/// Three workers, 4 tasks in 10 seconds, each of which takes one.
fn life(name: &str) -> Life<'static> {
    let mut life = Life::begin(&SERVER, name);
    for worker in ["w1", "w2", "w3"] {
        life.start_worker(worker, "'{q}'");
    }
    life
}

#[test]
fn all_workers_die_and_nobody_claims() {
    let mut life = life("all_die");
    life.ticks(USUAL);
    life.expect_nothing();
    for worker in ["w1", "w2", "w3"] {
        life.kill_worker(worker);
    }
    let found =
        life.expect_first("nobody_claims", 3, &["\"q\"", "worker w1 was last seen at", "worker w3", "ready"]);
    assert_eq!(found.severity, "critical");
    // When they are back, all is well.
    life.start_worker("w4", "'{q}'");
    life.start_worker("w5", "'{q}'");
    life.start_worker("w6", "'{q}'");
    life.ticks(3);
    life.expect_nothing();
}

#[test]
fn one_worker_of_three_dies_in_the_middle_of_a_task() {
    let mut life = life("one_dies");
    life.ticks(USUAL);
    // It dies with a task in hand.
    life.handler = Box::new(|_| Run::takes(15.0));
    life.ticks(1);
    life.kill_worker("w2");
    life.expect_first(
        "claimers_fewer",
        3,
        &["2 workers ask, usually 3", "worker w2 was last seen at", "holds task"],
    );
}

#[test]
fn workers_that_are_killed_again_and_again_let_leases_end() {
    let mut life = life("leases");
    life.ticks(USUAL);
    life.expect_nothing();
    life.heartbeat = false;
    life.lease = "20 s";
    // The handler crashes its worker; a supervisor starts it again under the same name.
    for _ in 0..8 {
        life.handler = Box::new(|task| if task.id % 3 == 0 { Run::hangs() } else { Run::takes(1.0) });
        life.ticks(1);
        for worker in ["w1", "w2", "w3"] {
            life.kill_worker(worker);
            life.start_worker(worker, "'{q}'");
        }
    }
    life.expect_first("leases_expire", 1, &["leases ended in the last", "type \"a\"", "w1 (", "extend"]);
}

#[test]
fn a_pause_is_named_with_who_did_it() {
    let mut life = life("pause");
    life.ticks(USUAL);
    life.client.run("select taskq.pause('q')");
    life.expect_first(
        "paused",
        2,
        &["\"q\" is paused", "by postgres", "taskq.resume('q')", "3 workers are idle"],
    );
    life.client.run("select taskq.resume('q')");
    life.ticks(2);
    life.expect_nothing();
}

#[test]
fn a_limit_holds_back_although_workers_are_idle() {
    let mut life = life("limited");
    life.handler = Box::new(|_| Run::takes(4.0));
    life.ticks(USUAL);
    life.expect_nothing();
    life.client.run("select taskq.configure_queue('q', '{\"max_running\": 1}')");
    life.expect_first(
        "limit_holds",
        12,
        &["limit of queue \"q\"", "max_running is 1", "taken by task", "idle", "\"max_running\": 2"],
    );
}

#[test]
fn a_rate_holds_back_although_workers_are_idle() {
    let mut life = life("rate");
    life.ticks(USUAL);
    life.client.run("select taskq.configure_queue('q', '{\"rate\": \"6/minute\", \"burst\": 1}')");
    life.expect_first(
        "rate_holds",
        12,
        &["rate of queue \"q\"", "6/minute may begin", "the next one", "idle"],
    );
}

#[test]
fn too_few_workers_from_the_start_do_not_keep_up() {
    let mut life = life("too_few");
    life.handler = Box::new(|_| Run::takes(9.0));
    life.expect_first("falling_behind", 30, &["do not keep up", "a second arrive", "Start more workers"]);
}

#[test]
fn steady_load_for_hours_raises_no_alarm() {
    let mut life = life("steady");
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q', priority => 5", number: 2 });
    life.arrivals.push(Arrival { enqueue: "'c', queue => 'r', group_key => 'g' || n % 2", number: 2 });
    life.start_worker("w4", "null");
    // One of fifty fails once, tasks take from 0.3 to 2.5 seconds, some more arrive now and then.
    let mut run = 0_u32;
    life.handler = Box::new(move |_| {
        run += 1;
        let seconds = 0.3 + f64::from(run * 7919 % 100) * 0.022;
        if run.is_multiple_of(50) { Run::fails(seconds, "connection reset") } else { Run::takes(seconds) }
    });
    for tick in 0..180_usize {
        life.arrivals[0].number = 3 + tick * 7919 % 3;
        life.tick();
        life.expect_nothing();
    }
}
