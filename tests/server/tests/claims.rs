//! Claims of many sessions at once: no task is held twice, none is forgotten.

use postgres::Client;
use std::collections::HashSet;
use std::thread;
use taskq_server_tests::{Database, Random, Session, Shared, pause, sqlstate};

static SERVER: Shared = Shared::new("claims", &["taskq.keeper = off"]);

fn enqueue(client: &mut Client, count: i32) {
    client.value::<i64>("select count(taskq.enqueue('t')) from generate_series(1, $1)", &[&count]);
}

/// Runs the same in 16 sessions at once and collects what they return.
fn in_sixteen_sessions<T: Send>(database: &Database, work: impl Fn(u64, Client) -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..16).map(|number| scope.spawn(move || work(number, database.connect()))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a worker failed")).collect()
    })
}

#[test]
fn a04_claims_of_16_sessions_never_overlap_and_miss_none() {
    let database = SERVER.database("overlap");
    enqueue(&mut database.connect(), 1000);
    let claimed = in_sixteen_sessions(&database, |_, mut client| {
        let mut mine = Vec::new();
        loop {
            let tasks = client.claim(7);
            if tasks.is_empty() {
                return mine;
            }
            mine.extend(tasks.into_iter().map(|(id, _)| id));
        }
    });
    assert_eq!(claimed.len(), 1000, "claims returned");
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 1000, "different tasks among them");
    let mut client = database.connect();
    assert_eq!(
        client.value::<i64>("select sum(attempt)::bigint from taskq.task where state = 'running'", &[]),
        1000
    );
}

#[test]
fn every_task_is_finished_once_by_16_sessions_that_claim_and_complete() {
    let database = SERVER.database("finish");
    enqueue(&mut database.connect(), 1000);
    let finished = in_sixteen_sessions(&database, |_, mut client| {
        let mut mine = Vec::new();
        loop {
            let (ids, tokens): (Vec<i64>, Vec<i64>) = client.claim(7).into_iter().unzip();
            if ids.is_empty() {
                return mine;
            }
            mine.extend(client.column::<i64>("select taskq.complete_many($1, $2)", &[&ids, &tokens]));
        }
    });
    assert_all_finished_once(&mut database.connect(), finished, 1000);
}

#[test]
fn every_task_is_finished_once_although_some_claims_roll_back() {
    let database = SERVER.database("rollback");
    enqueue(&mut database.connect(), 1000);
    let seed = Random::seed();
    let finished = in_sixteen_sessions(&database, |number, mut client| {
        let mut random = Random::new(seed + number);
        let mut mine = Vec::new();
        loop {
            let mut transaction = client.transaction().expect("begin");
            let rows = transaction.query("select id, token from taskq.claim(7)", &[]).expect("claim");
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let tokens: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
            if random.one_in(4) {
                transaction.rollback().expect("rollback");
                continue;
            }
            transaction.commit().expect("commit");
            if ids.is_empty() {
                // What others hold may come back when they roll back.
                if client.value::<i64>("select count(*) from taskq.task", &[]) == 0 {
                    return mine;
                }
                pause(0.01);
                continue;
            }
            mine.extend(client.column::<i64>("select taskq.complete_many($1, $2)", &[&ids, &tokens]));
        }
    });
    // A claim that was rolled back has spent no attempt.
    assert_all_finished_once(&mut database.connect(), finished, 1000);
}

fn assert_all_finished_once(client: &mut Client, finished: Vec<i64>, count: usize) {
    assert_eq!(finished.len(), count, "complete_many answered");
    assert_eq!(finished.iter().collect::<HashSet<_>>().len(), count, "different tasks among them");
    let done: i64 = client.value("select count(distinct id) from taskq.done", &[]);
    let rows: i64 =
        client.value("select count(*) from taskq.done where attempt = 1 and state = 'succeeded'", &[]);
    assert_eq!((done, rows), (count as i64, count as i64));
    assert_eq!(client.value::<i64>("select count(*) from taskq.task", &[]), 0);
}

#[test]
fn a06_a_claim_rolled_back_to_a_savepoint_gives_the_tasks_back_at_once() {
    let database = SERVER.database("savepoint");
    let (mut one, mut two) = (database.connect(), database.connect());
    enqueue(&mut one, 2);
    one.run("begin; savepoint a");
    let first = one.claim(2);
    one.run("select taskq.enqueue('ghost')");
    one.run("rollback to a");
    let second = two.claim(2);
    one.run("commit");
    let ids = |claimed: &[(i64, i64)]| claimed.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(two.column::<i32>("select attempt from taskq.task", &[]), [1, 1]);
}

#[test]
fn b03_of_complete_and_fail_with_the_same_token_exactly_one_wins() {
    let database = SERVER.database("double");
    let mut client = database.connect();
    const ROUNDS: usize = 1000;
    enqueue(&mut client, ROUNDS as i32);
    let tasks = client.claim(ROUNDS as i32);
    assert_eq!(tasks.len(), ROUNDS);
    let barrier = std::sync::Barrier::new(2);
    let race = |statement: &'static str| {
        let (tasks, barrier, database) = (&tasks, &barrier, &database);
        move || -> Vec<bool> {
            let mut client = database.connect();
            let statement = client.prepare(statement).expect("prepare");
            tasks
                .iter()
                .map(|(id, token)| {
                    barrier.wait();
                    match client.execute(&statement, &[id, token]) {
                        Ok(_) => true,
                        Err(error) => {
                            assert_eq!(sqlstate::<()>(Err(error)), "TQ001");
                            false
                        }
                    }
                })
                .collect()
        }
    };
    let (completed, failed) = thread::scope(|scope| {
        let complete = scope.spawn(race("select taskq.complete($1, $2)"));
        let fail = scope.spawn(race("select * from taskq.fail($1, $2)"));
        (complete.join().expect("complete"), fail.join().expect("fail"))
    });
    for (round, (completed, failed)) in completed.iter().zip(&failed).enumerate() {
        assert!(completed != failed, "round {round}: complete {completed}, fail {failed}");
    }
    let won = completed.iter().filter(|won| **won).count() as i64;
    assert_eq!(client.value::<i64>("select count(*) from taskq.done", &[]), won);
    assert_eq!(
        client.value::<i64>("select count(*) from taskq.task where state = 'waiting'", &[]),
        ROUNDS as i64 - won
    );
}

#[test]
fn b01_a_worker_whose_lease_was_taken_back_changes_nothing() {
    let database = SERVER.database("stale");
    let (mut one, mut two) = (database.connect(), database.connect());
    // A claim takes the task back itself (no keeper runs here), or a round of the duties did so before it.
    for maintain in [false, true] {
        late_complete(&mut one, &mut two, maintain);
    }
}

fn late_complete(one: &mut Client, two: &mut Client, maintain: bool) {
    enqueue(one, 1);
    let (id, old) = {
        let row =
            one.query_one("select id, token from taskq.claim(1, lease => '0.5 s')", &[]).expect("claim");
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    pause(1.0);
    if maintain {
        two.run("call taskq.maintain()");
        // Nobody else has it yet, and its token is still the old one.
        assert_changes_nothing(one, two, id, old);
    }
    let (again, new) = two.claim(1)[0];
    assert_eq!(again, id);
    assert!(new > old, "token {new} after {old}");
    assert_changes_nothing(one, two, id, old);
    two.complete(id, new).expect("the holder completes");
    let done = two.column::<i32>("select attempt from taskq.done where id = $1", &[&id]);
    assert_eq!(done, [2], "one row, of the second run");
}

fn assert_changes_nothing(one: &mut Client, two: &mut Client, id: i64, old: i64) {
    let row = "select t::text from taskq.task t";
    let before: String = two.value(row, &[]);
    assert_eq!(sqlstate(one.complete(id, old)), "TQ001");
    for verb in [
        "select * from taskq.fail($1, $2, 'late')",
        "select * from taskq.extend($1, $2, '1 hour', '{}')",
        "select taskq.release($1, $2)",
    ] {
        assert_eq!(sqlstate(one.execute(verb, &[&id, &old])), "TQ001", "{verb}");
    }
    assert_eq!(one.column::<i64>("select taskq.complete_many($1, $2)", &[&vec![id], &vec![old]]), [0_i64; 0]);
    assert_eq!(
        one.column::<i64>("select id from taskq.fail_many($1, $2)", &[&vec![id], &vec![old]]),
        [0_i64; 0]
    );
    assert_eq!(two.value::<String>(row, &[]), before);
}

#[test]
fn a08_the_clock_of_a_verb_is_that_of_the_call() {
    let database = SERVER.database("clock");
    let (mut one, mut two) = (database.connect(), database.connect());
    // in a statement that was prepared earlier
    one.run("prepare e as select taskq.enqueue('t'); execute e; select pg_sleep(1.1); execute e");
    let apart = "select extract(epoch from max(run_at) - min(run_at))::float8 from taskq.task";
    assert!(one.value::<f64>(apart, &[]) >= 1.1);
    // in a transaction that is old already: the lease is not born expired
    one.run("begin; select now(); select pg_sleep(1.5)");
    let left: f64 = one.value(
        "select extract(epoch from lease_expires_at - clock_timestamp())::float8 from taskq.claim(1, lease => '1 s')",
        &[],
    );
    let since: f64 = one.value(
        "select extract(epoch from claimed_at - now())::float8 from taskq.task where state = 'running'",
        &[],
    );
    assert!(since >= 1.5, "claimed {since} s after the transaction began");
    // The answer took its time; less than the whole lease it was not.
    assert!(left <= 1.0);
    let length: f64 = one.value(
        "select extract(epoch from lease_expires_at - claimed_at)::float8 from taskq.task where state = 'running'",
        &[],
    );
    assert_eq!(length, 1.0);
    one.run("commit");
    // and one in the same transaction sees time go by
    two.run("begin; select taskq.enqueue('u'); select pg_sleep(0.2); select taskq.enqueue('u'); commit");
    let apart: f64 = two.value(
        "select extract(epoch from max(enqueued_at) - min(enqueued_at))::float8 from taskq.task where task_type = 'u'",
        &[],
    );
    assert!(apart >= 0.2);
}
