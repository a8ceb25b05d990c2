//! The long form of case G20: a broken archive stops no work, shows in health(), and fills no log.

use crate::judge::Found;
use postgres::Client;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Server, Session, eventually, pause};

struct Break {
    breaks: &'static str,
    mends: &'static str,
    /// Which check of health() tells of it.
    check: &'static str,
    /// Its part of the time.
    share: f64,
}

const BREAKS: [Break; 3] = [
    Break {
        breaks: "alter table taskq.archive rename to gone",
        mends: "alter table taskq.gone rename to archive",
        check: "archive",
        share: 0.4,
    },
    // The owner of the extension, as whom the duties run, has lost a right.
    Break {
        breaks: "alter role keeps nosuperuser; revoke insert on taskq.archive from keeps",
        mends: "alter role keeps superuser; grant insert on taskq.archive to keeps",
        check: "archive",
        share: 0.3,
    },
    // The whole duty fails.
    Break {
        breaks: "alter function taskq._archive_step(text, timestamptz) rename to gone",
        mends: "alter function taskq.gone(text, timestamptz) rename to _archive_step",
        check: "duty archive",
        share: 0.3,
    },
];

/// The duty does a round a minute.
const TOLD_AFTER: Duration = Duration::from_secs(70);

/// Breaks the archive for so long.
pub fn broken(time: Duration) -> (String, Found) {
    let server = Server::start("soak_g20", &["log_min_messages = 'warning'"]);
    let database = server.empty_database("g20");
    let mut client = database.connect();
    client.run(
        "create role keeps superuser in role pg_monitor; set role keeps; create extension taskq; reset role",
    );
    client.run("select taskq.configure_queue('short', '{\"retention\": \"0.1 s\"}')");
    client.run("call taskq.maintain()");
    let (stop, completed) = (AtomicBool::new(false), AtomicI64::new(0));
    let (mut found, mut lines) = (Found::new(), 0);
    thread::scope(|scope| {
        scope.spawn(|| work(&database, &stop, &completed));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for broken in &BREAKS {
                eventually("it was well before", 150, || client.healthy(broken.check));
                let before = log_lines(&server);
                client.run(broken.breaks);
                let begin = Instant::now();
                found.extend(suffer(&mut client, broken, time.mul_f64(broken.share), &completed));
                let minutes = begin.elapsed().as_secs().div_ceil(60) as usize;
                client.run(broken.mends);
                eventually("it is well again", 150, || client.healthy(broken.check));
                let new = log_lines(&server) - before;
                if new > minutes + 1 {
                    found.push(format!(
                        "{new} lines in the server's log in {minutes} minutes of: {}",
                        broken.breaks
                    ));
                }
                lines += new;
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
    let said = format!(
        "the archive broken for {} s: {done} tasks completed meanwhile, {lines} lines in the server's log",
        time.as_secs()
    );
    (said, found)
}

/// While it is broken work goes on, and health() tells of it at every look.
fn suffer(client: &mut Client, broken: &Break, time: Duration, completed: &AtomicI64) -> Found {
    let begin = Instant::now();
    let (mut looks, mut well) = (0, 0);
    while begin.elapsed() < time {
        let before = completed.load(Relaxed);
        eventually("work goes on", 60, || completed.load(Relaxed) > before + 20);
        if begin.elapsed() > TOLD_AFTER {
            looks += 1;
            well += i32::from(client.healthy(broken.check));
        }
        pause(1.0);
    }
    if well == 0 {
        Found::new()
    } else {
        vec![format!("health() did not tell of it {well} of {looks} times: {}", broken.breaks)]
    }
}

/// Lines that tell of failures, of the keeper or of a client.
fn log_lines(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("archive") || line.contains("ERROR:  ")).count()
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
