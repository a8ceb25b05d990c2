//! The long form of case G06: whatever ends the keeper, it comes back; a cancel does not end it.

use crate::judge::Found;
use postgres::Client;
use std::time::{Duration, Instant};
use taskq_server_tests::{Server, Session, eventually, signal, signals};

/// The README says 5 seconds; a machine that is busy with other tests gets more.
const BACK_WITHIN: Duration = Duration::from_secs(15);

const KEEPER: &str = "select pid from pg_stat_activity
     where backend_type = 'taskq keeper' and datname = current_database()";

/// Each way so many times. Says how long it took at most, and what was not right.
pub fn restarts(times: u32) -> (String, Found) {
    let server = Server::start("soak_g06", &["log_min_messages = 'warning'"]);
    let database = server.database("g06");
    let mut client = database.connect();
    let mut found = Found::new();
    let mut longest = Duration::ZERO;
    works(&mut client);
    for way in ["pg_terminate_backend", "kill -TERM", "pg_cancel_backend"] {
        for _ in 0..times {
            let pid: i32 = client.value(KEEPER, &[]);
            let begin = Instant::now();
            if way == "kill -TERM" {
                signal(u32::try_from(pid).expect("a process id"), signals::SIGTERM);
            } else {
                let sent: bool = client.value(&format!("select {way}($1)"), &[&pid]);
                assert!(sent, "{way}");
            }
            if way != "pg_cancel_backend" {
                eventually("there is another keeper", 60, || {
                    let now: Vec<i32> = client.column(KEEPER, &[]);
                    now.len() == 1 && now[0] != pid
                });
                longest = longest.max(begin.elapsed());
            }
            works(&mut client);
            if way == "pg_cancel_backend" && client.column::<i32>(KEEPER, &[]) != [pid] {
                found.push("a cancel has ended the keeper".to_owned());
            }
        }
    }
    if longest > BACK_WITHIN {
        found.push(format!("the keeper was back after {longest:?} only"));
    }
    let log = server.log();
    // One for each that was terminated, or whose statement was cancelled.
    let levels = ["WARNING:  ", "ERROR:  ", "FATAL:  "];
    let lines = log.lines().filter(|line| levels.iter().any(|level| line.contains(level))).count();
    if lines > 3 * times as usize {
        found.push(format!("{lines} warnings and errors in the server's log"));
    }
    let said = format!(
        "the keeper ended {} times, cancelled {times} times: back after {longest:.1?} at most",
        2 * times
    );
    (said, found)
}

/// A lease that is over is taken back, which here only the keeper does.
fn works(client: &mut Client) {
    client.run("select taskq.enqueue('t'); select taskq.claim(lease => '50 ms')");
    eventually("the keeper takes the task back", 60, || {
        client.value("select count(*) = 0 from taskq.task where state = 'running'", &[])
    });
    client.run("select taskq.purge('ready')");
}
