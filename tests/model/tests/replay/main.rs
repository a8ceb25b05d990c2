//! Ten thousand histories, played on a real server and on the machine, which must agree: on every answer, and after
//! each transaction on every row.
//!
//! MODEL_SEED and MODEL_CASES change the seed and the number. A failure prints the shortest history that shows it, as
//! a script for psql, and what differed.

mod answers;
mod player;
mod rows;

use player::Player;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::thread;
use taskq_model::{histories, sql};
use taskq_server_tests::{Server, Session};

const THREADS: u64 = 3;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn ten_thousand_histories_go_as_the_machine_says() {
    let (seed, cases) = (variable("MODEL_SEED", 1), variable("MODEL_CASES", 10_000));
    println!("MODEL_SEED={seed} MODEL_CASES={cases}");
    let settings = ["synchronous_commit = off", "jit = off", "log_min_messages = fatal"];
    let server = Server::start("model", &settings);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || {
                let name = format!("model{thread}");
                // Its keeper would do some of the things that the histories do.
                server.empty_database(&name);
                server.connect("postgres").run(&format!("alter database {name} set taskq.keeper = off"));
                server.connect(&name).run("create extension taskq");
                let player = std::cell::RefCell::new(Player::new(server.connect(&name)));
                let cases = (cases / THREADS + u64::from(thread < cases % THREADS)) as u32;
                let config =
                    Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
                let mut runner = TestRunner::new_with_rng(config, histories::random(seed, thread));
                let outcome = runner.run(&histories::history(), |history| {
                    player.borrow_mut().play(&history).map_err(TestCaseError::fail)
                });
                match outcome {
                    Ok(()) => {}
                    Err(TestError::Fail(why, history)) => {
                        let _ = player.borrow_mut().play(&history);
                        panic!("MODEL_SEED={seed}\n{}\n{why}", sql::script(&history));
                    }
                    Err(TestError::Abort(why)) => panic!("{why}"),
                }
                let player = player.into_inner();
                println!("{} verbs were asked in {cases} histories", player.asked);
            });
        }
    });
}
