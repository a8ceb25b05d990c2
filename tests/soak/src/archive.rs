//! The long form of case G20: a broken archive stops no work, shows in health(), and fills no log.

use crate::judge::Found;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Server, Session, eventually, pause};

/// First the archive's table is gone, for seven tenths of the time; then the whole duty fails.
const BREAKS: [(&str, &str, &str, f64); 2] = [
    ("alter table taskq.archive rename to gone", "alter table taskq.gone rename to archive", "archive", 0.7),
    (
        "alter function taskq._archive_step(text, timestamptz) rename to gone",
        "alter function taskq.gone(text, timestamptz) rename to _archive_step",
        "duty archive",
        0.3,
    ),
];

/// Breaks the archive for so long.
pub fn broken(time: Duration) -> (String, Found) {
    let server = Server::start("soak_g20", &["log_min_messages = 'warning'"]);
    let database = server.database("g20");
    let mut client = database.connect();
    client.run("select taskq.configure_queue('short', '{\"retention\": \"0.1 s\"}')");
    let (stop, completed) = (AtomicBool::new(false), AtomicI64::new(0));
    let mut found = Found::new();
    thread::scope(|scope| {
        scope.spawn(|| work(&database, &stop, &completed));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (breaks, mends, check, share) in BREAKS {
                eventually("it was well before", 150, || client.healthy(check));
                client.run(breaks);
                let begin = Instant::now();
                let mut told = false;
                while begin.elapsed() < time.mul_f64(share) {
                    let before = completed.load(Relaxed);
                    eventually("work goes on", 60, || completed.load(Relaxed) > before + 20);
                    told |= !client.healthy(check);
                    pause(1.0);
                }
                // (The duty does a round a minute.)
                if !told && begin.elapsed() > Duration::from_secs(100) {
                    found.push(format!("health() did not tell of {breaks}"));
                }
                client.run(mends);
                eventually("it is well again", 150, || client.healthy(check));
            }
        }));
        stop.store(true, Relaxed);
        if outcome.is_err() {
            found.push("the run broke off".to_owned());
        }
    });
    let done = completed.load(Relaxed);
    eventually("the archive has caught up", 300, || {
        client.value::<i64>("select count(*) from taskq.archive", &[]) == done
    });
    let minutes = time.as_secs().div_ceil(60) as usize;
    let lines = server.log().lines().filter(|line| line.contains("archive")).count();
    if lines > 2 * minutes + 4 {
        found.push(format!("{lines} lines in the server's log in {minutes} minutes"));
    }
    let said = format!(
        "the archive broken for {} s: {done} tasks completed meanwhile, {lines} lines in the server's log",
        time.as_secs()
    );
    (said, found)
}

fn work(database: &Database, stop: &AtomicBool, completed: &AtomicI64) {
    let mut client = database.connect();
    while !stop.load(Relaxed) {
        client.run("select taskq.enqueue('t', queue => 'short')");
        for (id, token) in client.claim(10) {
            client.complete(id, token).expect("complete");
            completed.fetch_add(1, Relaxed);
        }
        pause(0.03);
    }
}
