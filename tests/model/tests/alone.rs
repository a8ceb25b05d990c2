//! A million histories of the machine alone.
//!
//! MODEL_SEED and MODEL_CASES change the seed and the number; a failure prints the shortest history that shows it.

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::thread;
use taskq_model::histories::{self, End, History};
use taskq_model::invariants::Watch;
use taskq_model::machine::Machine;
use taskq_model::sql;

const THREADS: u64 = 4;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn run(history: &History) -> Result<(), TestCaseError> {
    let (mut machine, mut watch) = (Machine::default(), Watch::default());
    for turn in history {
        let before = (turn.end != End::Commit).then(|| (machine.clone(), watch.clone()));
        for verb in &turn.verbs {
            let verb = histories::resolved(verb, &machine);
            watch.ask(&mut machine, &verb).map_err(TestCaseError::fail)?;
        }
        if let Some(before) = before {
            watch = before.1;
            machine = Machine { now: machine.now, ..before.0 };
        }
    }
    watch.drain(&mut machine).map_err(TestCaseError::fail)
}

#[test]
fn a_million_histories_hold_the_invariants() {
    let (seed, cases) = (variable("MODEL_SEED", 1), variable("MODEL_CASES", 1_000_000));
    println!("MODEL_SEED={seed} MODEL_CASES={cases}");
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let cases = (cases / THREADS + u64::from(thread < cases % THREADS)) as u32;
                let config = Config { cases, failure_persistence: None, ..Config::default() };
                let mut runner = TestRunner::new_with_rng(config, histories::random(seed, thread));
                if let Err(TestError::Fail(why, history)) =
                    runner.run(&histories::history(), |history| run(&history))
                {
                    panic!("{why}, after\n{}", sql::script(&history));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("the invariants hold");
    }
}
