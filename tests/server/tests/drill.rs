//! The drill: a task that fails goes the whole way, a person is told or is not, and nothing is left.

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, NoTls};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use taskq_server_tests::{Database, Server, Session, Shared, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("drill", &[]);

const STEPS: [&str; 13] = [
    "queue ready",
    "enqueued",
    "claimed",
    "failed",
    "retried",
    "dead letter",
    "alert raised",
    "a person was told",
    "redriven",
    "claimed again",
    "completed",
    "alert cleared",
    "cleaned up",
];

struct Step {
    step: String,
    ok: bool,
    took: Option<f64>,
    detail: String,
}

fn drill(client: &mut Client, arguments: &str) -> Vec<Step> {
    let sql = format!(
        "select step, ok, extract(epoch from took)::double precision, detail from taskq.drill({arguments})"
    );
    let rows = client.query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.iter()
        .map(|row| Step { step: row.get(0), ok: row.get(1), took: row.get(2), detail: row.get(3) })
        .collect()
}

/// A database whose keeper is at work.
fn with_keeper<'a>(server: &'a Server, name: &str) -> Database<'a> {
    let database = server.database(name);
    let mut client = database.connect();
    wait_for_keeper(&mut client);
    database
}

fn wait_for_keeper(client: &mut Client) {
    let lively = "select finished_at > clock_timestamp() - interval '15 s' and exists (
                    select from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database())
                    from taskq.duty where name = 'alert'";
    eventually("the keeper is at work", 60, || client.value::<Option<bool>>(lively, &[]) == Some(true));
}

/// Waits for the alert of a drill and returns its id.
fn alert(client: &mut Client) -> i64 {
    let mut found = Vec::new();
    eventually("the alert is raised", 60, || {
        found = client.column("select id from taskq.alert where cleared_at is null", &[]);
        !found.is_empty()
    });
    found[0]
}

/// Nothing tells of the last drill but its own rows and its alert, which is over.
fn assert_nothing_is_left(client: &mut Client) {
    let left: String = client.value(
        "select concat_ws(', ', (select 'task' from taskq.task limit 1), (select 'dead' from taskq.dead_letter limit 1),
                (select 'done' from taskq.done limit 1), (select 'archive' from taskq.archive limit 1),
                (select 'key' from taskq.unique_key limit 1), (select 'queue' from taskq.queue limit 1),
                (select 'type' from taskq.task_type limit 1),
                (select 'figure' from taskq._figures() f where f.task_type = 'taskq.drill' limit 1),
                (select 'worker' from taskq._workers_seen() w where w.worker = 'taskq.drill' limit 1))",
        &[],
    );
    assert_eq!(left, "");
    eventually("the alert is cleared", 60, || {
        client.value("select bool_and(cleared_at is not null) from taskq.alert", &[])
    });
}

fn assert_all_held(steps: &[Step]) {
    for step in steps {
        assert!(step.ok, "{}: {}", step.step, step.detail);
        assert!(step.took.is_some_and(|took| (0.0..60.0).contains(&took)), "{}", step.step);
    }
    assert_eq!(steps.iter().map(|step| step.step.as_str()).collect::<Vec<_>>(), STEPS);
}

#[test]
fn every_step_holds_if_somebody_listens_and_acknowledges_and_no_worker_gets_the_task() {
    let database = with_keeper(&SERVER, "held");
    let over = AtomicBool::new(false);
    let (steps, stolen, told) = thread::scope(|scope| {
        let person = scope.spawn(|| {
            let mut client = database.connect();
            client.run("listen taskq_alert");
            let mut raised = String::new();
            while !raised.contains("\"state\": \"raised\"") {
                let message =
                    client.notifications().timeout_iter(Duration::from_secs(60)).next().expect("listening");
                raised = message.expect("a notification within a minute").payload().to_owned();
            }
            client.run(&format!("select taskq.acknowledge(('{raised}'::jsonb ->> 'alert_id')::bigint)"));
            raised
        });
        let worker = scope.spawn(|| {
            let (mut client, mut stolen) = (database.connect(), 0);
            while !over.load(Ordering::Relaxed) {
                stolen += client.claim(10).len();
            }
            stolen
        });
        let waiter = scope.spawn(|| {
            // Nor is a worker told of it.
            let mut client = database.connect();
            client.run("listen taskq_ready");
            while !over.load(Ordering::Relaxed) {
                pause(0.05);
            }
            client.notifications().timeout_iter(Duration::from_secs(1)).count().expect("listening")
        });
        pause(0.5);
        let steps = drill(&mut database.connect(), "timeout => '60 s'");
        over.store(true, Ordering::Relaxed);
        assert!(person.join().expect("person").contains("\"queue\": \"taskq.drill\""));
        (steps, worker.join().expect("worker"), waiter.join().expect("waiter"))
    });
    assert_all_held(&steps);
    assert_eq!((stolen, told), (0, 0), "tasks that a worker claimed, and messages on taskq_ready");
    let step = |name: &str| steps.iter().find(|step| step.step == name).expect("the step");
    assert!(step("retried").took.is_some_and(|took| took >= 0.4), "it waited for its backoff");
    assert!(step("retried").detail.contains("attempt 2"), "{}", step("retried").detail);
    assert!(step("a person was told").detail.contains("acknowledged by postgres"));
    let mut client = database.connect();
    assert_nothing_is_left(&mut client);
    let row = client.query_one("select kind, queue, acknowledged_by from taskq.alert", &[]).expect("alert");
    let columns: [String; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(columns, ["dead_letters", "taskq.drill", "postgres"]);
}

#[test]
fn without_anybody_who_acknowledges_only_that_step_does_not_hold() {
    let database = with_keeper(&SERVER, "unheard");
    let mut client = database.connect();
    let steps = drill(&mut client, "'fire', '1 s'");
    assert_eq!(steps.iter().map(|step| step.step.as_str()).collect::<Vec<_>>(), STEPS);
    for step in &steps {
        assert_eq!(step.ok, step.step != "a person was told", "{}: {}", step.step, step.detail);
    }
    let id: i64 = client.value("select id from taskq.alert where queue = 'fire'", &[]);
    let told = &steps[7];
    assert!(
        told.detail.contains(&format!("nobody called taskq.acknowledge({id}) within")),
        "{}",
        told.detail
    );
    assert!(told.took.is_some_and(|took| took >= 1.0));
    assert_nothing_is_left(&mut client);
}

#[test]
fn without_a_keeper_there_is_no_drill() {
    let drill = "select * from taskq.drill()";
    let server = Server::start("drill_off", &["taskq.keeper = off"]);
    let database = server.database("off");
    let answer = database.connect().query(drill, &[]);
    let hint = answer.as_ref().err().and_then(|error| error.as_db_error()).and_then(|error| error.hint());
    assert!(hint.is_some_and(|hint| hint.contains("taskq.health()")), "{answer:?}");
    assert_eq!(sqlstate(answer), "55000");
    let server = Server::start_without_preloading("drill_plain", &[]);
    assert_eq!(sqlstate(server.database("plain").connect().query(drill, &[])), "55000");
}

#[test]
fn one_drill_at_a_time_and_the_keeper_ends_it_for_a_caller_who_is_gone() {
    let database = with_keeper(&SERVER, "cancelled");
    let (mut caller, mut client) = (database.connect(), database.connect());
    let token = caller.cancel_token();
    thread::scope(|scope| {
        let first =
            scope.spawn(|| sqlstate(caller.query("select * from taskq.drill(timeout => '5 s')", &[])));
        eventually("it was taken up", 60, || client.value("select count(*) = 1 from taskq.drill_run", &[]));
        let second = client.query("select * from taskq.drill('other')", &[]);
        assert_eq!(sqlstate(second), "55006");
        alert(&mut client);
        assert_eq!(sqlstate(client.query("select * from taskq.drill()", &[])), "55006");
        token.cancel_query(NoTls).expect("cancel");
        assert_eq!(first.join().expect("the caller"), "57014");
    });
    eventually("the keeper ends it", 60, || {
        client.value("select finished_at is not null from taskq.drill_run", &[])
    });
    // The next one is possible a moment later.
    let mut next = None;
    eventually("the place is free", 30, || {
        next = client.query("select step, ok from taskq.drill(timeout => '1 s')", &[]).ok();
        next.is_some()
    });
    let held = next.expect("steps").iter().filter(|row| row.get(1)).count();
    assert_eq!(held, STEPS.len() - 1);
    assert_nothing_is_left(&mut client);
}

#[test]
fn a_drill_goes_on_with_the_next_keeper() {
    let database = with_keeper(&SERVER, "keeper");
    let mut client = database.connect();
    let steps = thread::scope(|scope| {
        let caller = scope.spawn(|| drill(&mut database.connect(), "timeout => '60 s'"));
        let id = alert(&mut client);
        let keeper = "select pg_terminate_backend(pid, 10000) from pg_stat_activity
                       where backend_type = 'taskq keeper' and datname = current_database()";
        assert!(client.value::<bool>(keeper, &[]));
        client.run(&format!("select taskq.acknowledge({id})"));
        caller.join().expect("the caller")
    });
    assert_all_held(&steps);
    assert_nothing_is_left(&mut client);
    let again = drill(&mut client, "timeout => '1 s'");
    assert_eq!(again.iter().filter(|step| step.ok).count(), STEPS.len() - 1);
    assert_nothing_is_left(&mut client);
}

#[test]
fn a_crash_in_the_middle_of_a_drill_leaves_nothing() {
    let server = Server::start("drill_crash", &[]);
    let database = with_keeper(&server, "crash");
    let mut client = database.connect();
    thread::scope(|scope| {
        let caller = scope
            .spawn(|| database.connect().query("select * from taskq.drill(timeout => '5 s')", &[]).is_err());
        alert(&mut client);
        server.kill();
        assert!(caller.join().expect("the caller"), "its server is gone");
    });
    server.start_again();
    let mut client = database.connect();
    // Nobody may begin another one before.
    let open = "select count(*) from taskq.drill_run where finished_at is null";
    if client.value::<i64>(open, &[]) == 1 {
        assert_eq!(sqlstate(client.query("select * from taskq.drill()", &[])), "55006");
    }
    eventually("the next keeper ends it", 60, || client.value::<i64>(open, &[]) == 0);
    let last = "select count(*) filter (where ok), count(*) from taskq.drill_step";
    let row = client.query_one(last, &[]).expect("steps");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (12, 13));
    let figure = "select count(*) from taskq._figures() f where f.task_type = 'taskq.drill'";
    eventually("the figures are forgotten", 60, || client.value::<i64>(figure, &[]) == 0);
    assert_nothing_is_left(&mut client);
}

#[test]
fn after_a_step_that_does_not_hold_only_cleaning_up_is_tried() {
    let database = with_keeper(&SERVER, "purged");
    let mut client = database.connect();
    let steps = thread::scope(|scope| {
        let caller = scope.spawn(|| drill(&mut database.connect(), "timeout => '60 s'"));
        let id = alert(&mut client);
        client.run(&format!("select taskq.purge('dead', 'taskq.drill'), taskq.acknowledge({id})"));
        caller.join().expect("the caller")
    });
    for (at, step) in steps.iter().enumerate() {
        assert_eq!(step.ok, !(8..12).contains(&at), "{}: {}", step.step, step.detail);
        assert_eq!(step.took.is_none(), (9..12).contains(&at), "{}", step.step);
    }
    assert!(steps[8].detail.contains("is gone"), "{}", steps[8].detail);
    assert!(steps[9].detail.starts_with("not tried: \"redriven\" did not hold"), "{}", steps[9].detail);
    assert_nothing_is_left(&mut client);
}

#[test]
fn what_others_put_into_the_queue_is_not_touched() {
    let database = with_keeper(&SERVER, "foreign");
    let mut client = database.connect();
    let (steps, foreign) = thread::scope(|scope| {
        let caller = scope.spawn(|| drill(&mut database.connect(), "'shared', '60 s'"));
        let id = alert(&mut client);
        let foreign: i64 = client.value("select taskq.enqueue('t', queue => 'shared', priority => 100)", &[]);
        client.run(&format!("select taskq.acknowledge({id})"));
        (caller.join().expect("the caller"), foreign)
    });
    // The drill must not run somebody else's task; the step that met it says so.
    assert!(!steps[9].ok && steps[9].detail.contains("could not be claimed"), "{}", steps[9].detail);
    assert!(steps[12].ok, "{}", steps[12].detail);
    assert_eq!(client.value::<i64>("select count(*) from taskq.task", &[]), 1);
    let row = client.query_one("select id, attempt from taskq.claim()", &[]).expect("a task");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (foreign, 1));
    // And with it the queue cannot be used again.
    assert_eq!(sqlstate(client.query("select * from taskq.drill('shared')", &[])), "22023");
}

#[test]
fn an_operator_may_call_it_and_others_may_not() {
    let database = with_keeper(&SERVER, "rights");
    let mut client = database.connect();
    client.run(
        "create role drill_operator; create role drill_plain; select taskq.grant_operator('drill_operator')",
    );
    client.run("set role drill_plain");
    assert_eq!(sqlstate(client.query("select * from taskq.drill()", &[])), "42501");
    client.run("set role drill_operator");
    let steps = drill(&mut client, "timeout => '1 s'");
    assert_eq!(steps.iter().filter(|step| step.ok).count(), STEPS.len() - 1);
    client.run("reset role");
    client.run("drop owned by drill_operator; drop role drill_operator, drill_plain");
}
