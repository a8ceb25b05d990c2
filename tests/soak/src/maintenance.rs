//! The long form of case I01: archiving and purging, by several at once and beside work, meet no deadlock and lose no task.

use crate::judge::Found;
use postgres::Client;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;
use taskq_server_tests::{Database, Server, Session, eventually, pause};

const CLIENTS: usize = 8;
const TASKS: i64 = 50_000;

/// Finished tasks, younger ones first in the table, so that a scan and an index find them in different orders.
const FINISHED: &str = "
    insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
                            finished_at, worker, payload)
    select -n, case when n % 20 = 0 then 'rare' else 'short' end, case when n % 3 = 0 then 'third' else 't' end, 'succeeded', 0, 1, 3,
           now(), now(), now(), now() - make_interval(secs => n % 5000), 'w', '{}'
      from generate_series(1, $1::bigint) n";

/// Purges by different filters, which find the same rows.
const PURGES: [&str; 2] = [
    "select taskq.purge('succeeded', task_type => 'third', older_than => '10 minutes')",
    "select taskq.purge('succeeded', 'rare', older_than => '30 minutes')",
];

const LEFT: &str =
    "select count(*) from (select id from taskq.done union all select id from taskq.archive) f";

/// So many rounds of 50,000 finished tasks, while clients go on completing others.
pub fn at_once(rounds: i64) -> (String, Found) {
    // A circle is looked for at once, also where somebody would give up soon.
    let server = Server::start("soak_i01", &["log_min_messages = 'warning'", "deadlock_timeout = '5 ms'"]);
    let database = server.empty_database("i01");
    let mut client = database.connect();
    client.run("create extension taskq");
    client.run("select taskq.configure_queue('short', '{\"retention\": \"0.5 s\"}')");
    let (stop, completed, purged) = (AtomicBool::new(false), AtomicI64::new(0), AtomicI64::new(0));
    let begin = Instant::now();
    let mut found = Found::new();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| again(&database, &stop, &completed, work));
        }
        for sql in PURGES {
            let (database, stop, purged) = (&database, &stop, &purged);
            scope.spawn(move || again(database, stop, purged, |client| client.value(sql, &[])));
        }
        for _ in 0..2 {
            scope.spawn(|| again(&database, &stop, &AtomicI64::new(0), archive));
        }
        let all_rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..rounds {
                client.execute(FINISHED, &[&TASKS]).expect("finished tasks");
                eventually("the archive has it all", 120, || {
                    client.value("select count(*) = 0 from taskq.done where id < 0 and queue = 'short'", &[])
                });
                // The next round has the same ids.
                eventually("all that was archived is purged", 120, || {
                    purged.fetch_add(
                        client.value("select taskq.purge('succeeded', older_than => '0')", &[]),
                        Relaxed,
                    );
                    client.value::<i64>(&format!("{LEFT} where id < 0"), &[]) == 0
                });
            }
        }));
        stop.store(true, Relaxed);
        if all_rounds.is_err() {
            found.push("a round broke off".to_owned());
        }
    });
    let telling = ["deadlock detected", "40P01", "panicked at"];
    let log = server.log();
    let lines = log.lines().filter(|line| telling.iter().any(|words| line.contains(words)));
    found.extend(lines.map(str::to_owned));
    // With its end a session has counted all of its own.
    let alone = "select count(*) = 1 from pg_stat_activity where backend_type = 'client backend'";
    eventually("the other sessions are gone", 30, || client.value(alone, &[]));
    let deadlocks: i64 =
        client.value("select deadlocks from pg_stat_database where datname = current_database()", &[]);
    if deadlocks > 0 {
        found.push(format!("{deadlocks} deadlocks"));
    }
    let left: i64 = client.value(LEFT, &[]);
    let (completed, purged) = (completed.into_inner(), purged.into_inner());
    if left + purged != rounds * TASKS + completed {
        found.push(format!(
            "{} tasks had finished, {purged} were purged, {left} are left",
            rounds * TASKS + completed
        ));
    }
    let said = format!(
        "{rounds} rounds of {TASKS} tasks archived and purged in {} s, beside {completed} tasks completed",
        begin.elapsed().as_secs()
    );
    (said, found)
}

/// Does something again and again until told to stop, and adds up what it says.
fn again(database: &Database, stop: &AtomicBool, sum: &AtomicI64, mut act: impl FnMut(&mut Client) -> i64) {
    let mut client = database.connect();
    while !stop.load(Relaxed) {
        sum.fetch_add(act(&mut client), Relaxed);
    }
}

fn archive(client: &mut Client) -> i64 {
    client.value("select taskq._duty_archive()", &[])
}

/// A client that is not always busy: the machine has other work.
fn work(client: &mut Client) -> i64 {
    pause(0.05);
    client.run("select taskq.enqueue('t', queue => 'short') from generate_series(1, 5)");
    client.value(
        "with c as materialized (select array_agg(c.id) as ids, array_agg(c.token) as tokens from taskq.claim(5) c)
         select count(*) from c, taskq.complete_many(c.ids, c.tokens) where c.ids is not null",
        &[],
    )
}
