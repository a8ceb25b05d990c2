//! Many sessions, and all that can happen to them. `make soak MINUTES=n` and the stage `soak` of
//! `make test` run it; where servers are made it learns as the server tests do.
//!
//! A run has a server of its own, client processes that call random verbs in random transactions
//! (`client`, `verbs`, `operators`) and tell of each call before and after (`journal`), faults (`fault`), and an
//! observer (`watch`). When the clients have ended it has all tasks done (`run`), and judges what each
//! client was told (`history`, `judge`), what is there (`account`, `after`), and the server's log. Beside the
//! long runs go the long forms of four cases (`keeper`, `archive`, `idle`, `maintenance`).
//!
//!     soak short            some runs with fixed seeds
//!     soak long MINUTES     runs with new seeds for so long
//!     soak seed SEED [s]    one run again, for so many seconds. The choices of each client and of the faults are the same; how
//!                           they meet is not
//!     soak i01 ROUNDS       this case alone
//!     soak judge FOLDER     what was kept of a run that found something, judged again
//!     soak client ...       is what the others start

mod account;
mod after;
mod archive;
mod client;
mod clients;
mod fault;
mod history;
mod idle;
mod journal;
mod judge;
mod keeper;
mod maintenance;
mod operators;
mod run;
mod serverlog;
mod verbs;
mod watch;

use run::{Plan, Report};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use taskq_server_tests::Random;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["client", host, number, generation, seed] => {
            let numbers: Vec<u64> =
                [number, generation, seed].iter().filter_map(|n| n.parse().ok()).collect();
            client(host, numbers[0], numbers[1], numbers[2]);
            ExitCode::SUCCESS
        }
        ["short"] => {
            let plans = (1..=fault::ROUND).map(|seed| plan(seed, 14));
            runs(plans, Duration::MAX, true)
        }
        ["long", minutes] => {
            let minutes: f64 = minutes.parse().expect("a number of minutes");
            long(Duration::from_secs_f64(minutes * 60.0))
        }
        ["i01", rounds] => {
            let rounds = rounds.parse().expect("a number of rounds");
            let case = std::thread::spawn(move || maintenance::at_once(rounds));
            if tell("i01", case.join()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        ["judge", folder] => judge_again(folder),
        ["seed", seed] => seed_again(seed, LONG_RUN),
        ["seed", seed, seconds] => seed_again(seed, seconds.parse().expect("seconds")),
        _ => {
            eprintln!("usage: soak short | long MINUTES | seed SEED | i01 ROUNDS | judge FOLDER");
            ExitCode::FAILURE
        }
    }
}

/// Seconds of a run of the long soak.
const LONG_RUN: u64 = 240;

/// Random runs for so long, and the long forms of cases beside them.
fn long(time: Duration) -> ExitCode {
    let first = Random::seed();
    std::thread::scope(|scope| {
        let cases = [
            ("g06", scope.spawn(|| keeper::restarts(20))),
            ("g11", scope.spawn(idle::quiet)),
            ("g20", scope.spawn(move || archive::broken(time.min(Duration::from_secs(600))))),
        ];
        let mut code = runs((first..).map(|seed| plan(seed, LONG_RUN)), time, true);
        for (name, case) in cases {
            if !tell(name, case.join()) {
                code = ExitCode::FAILURE;
            }
        }
        // (It leaves the machine little time for others.)
        if !tell("i01", std::thread::spawn(|| maintenance::at_once(100)).join()) {
            code = ExitCode::FAILURE;
        }
        code
    })
}

/// How the long form of a case went; whether it went well.
fn tell(name: &str, outcome: std::thread::Result<(String, judge::Found)>) -> bool {
    let (said, found) = outcome.unwrap_or_else(|_| (String::new(), vec!["it broke off".to_owned()]));
    println!("   {} {name} {said}", if found.is_empty() { "[ok]" } else { "[NOT OK]" });
    for what in &found {
        println!("       {what}");
    }
    found.is_empty()
}

fn seed_again(seed: &str, seconds: u64) -> ExitCode {
    runs(std::iter::once(plan(seed.parse().expect("a seed"), seconds)), Duration::MAX, false)
}

fn judge_again(folder: &str) -> ExitCode {
    let found = run::judge_again(folder.as_ref());
    for what in &found {
        println!("   {what}");
    }
    println!("   {} findings", found.len());
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan(seed: u64, seconds: u64) -> Plan {
    Plan { seed, clients: 8, time: Duration::from_secs(seconds), crash_every: Duration::from_secs(4) }
}

/// Calls verbs until it is told to stop, or nobody is there any more who might.
fn client(host: &str, number: u64, generation: u64, seed: u64) {
    let mut config = postgres::Config::new();
    config.host(host).port(5432).user("postgres").dbname("soak").connect_timeout(Duration::from_secs(10));
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        if std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes == 0) {
            std::process::exit(1);
        }
        told.store(true, Relaxed);
    });
    let journal = |event| {
        let mut line = serde_json::to_string(&event).expect("an event");
        line.push('\n');
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(1);
        }
    };
    let seed = seed * 1_000 + number * 50 + generation;
    let mut client = client::Client::new(config, number, generation, seed, Box::new(journal));
    while !stop.load(Relaxed) {
        client.act();
    }
    client.settle();
}

/// Runs one plan after the other, and sums up. If they are to have every kind of fault, none may be missing.
fn runs(plans: impl Iterator<Item = Plan>, time: Duration, every_kind: bool) -> ExitCode {
    let begin = Instant::now();
    let keep = std::env::var_os("TASKQ_SOAK_KEEP").map_or_else(std::env::temp_dir, PathBuf::from);
    let mut sum = Sum::default();
    for plan in plans {
        let report = run::run(&plan, &keep);
        sum.add(&plan, &report);
        if begin.elapsed() >= time {
            break;
        }
    }
    sum.print(begin.elapsed());
    let missing: Vec<&str> = fault::kinds().filter(|kind| !sum.faults.contains_key(kind)).collect();
    if every_kind && !missing.is_empty() {
        println!("   [NOT OK] no run had: {}", missing.join(", "));
    } else if every_kind {
        println!("   [ok] each kind of fault has come");
    }
    if sum.failed == 0 && (missing.is_empty() || !every_kind) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Sum {
    passed: u64,
    failed: u64,
    figures: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, plan: &Plan, report: &Report) {
        let counts = &report.counts;
        let figures = [
            ("crashes", report.crashes),
            ("tasks", report.tasks),
            ("transactions", counts.transactions),
            ("calls", counts.calls),
            ("calls rolled back or refused", counts.rolled_back),
            ("unknown outcomes", counts.unknown),
            ("leases", counts.leases),
            ("duplicates across an expiry", counts.duplicates),
            ("stale tokens refused", counts.refused),
            ("tasks archived", report.archived),
        ];
        for (what, number) in figures {
            *self.figures.entry(what).or_default() += number;
        }
        for (what, number) in &report.faults {
            *self.faults.entry(what).or_default() += number;
        }
        for (code, number) in &counts.errors {
            *self.errors.entry(code.clone()).or_default() += number;
        }
        let line: Vec<String> =
            figures.iter().take(8).map(|(what, number)| format!("{number} {what}")).collect();
        let (word, line) = if report.found.is_empty() { ("[ok]", line) } else { ("[NOT OK]", line) };
        println!("   {word} seed {}: {}", plan.seed, line.join(", "));
        for what in report.found.iter().take(30) {
            println!("       {what}");
        }
        if report.found.is_empty() {
            self.passed += 1;
        } else {
            println!("       {} findings; again with: make soak SEED={}", report.found.len(), plan.seed);
            self.failed += 1;
        }
    }

    fn print(&self, time: Duration) {
        let list = |map: &BTreeMap<&'static str, u64>| {
            map.iter().map(|(what, number)| format!("{number} {what}")).collect::<Vec<_>>().join(", ")
        };
        println!(
            "== {} runs in {} s, {} of them without a finding",
            self.passed + self.failed,
            time.as_secs(),
            self.passed
        );
        println!("   {}", list(&self.figures));
        println!("   faults: {}", list(&self.faults));
        let errors: Vec<String> =
            self.errors.iter().map(|(code, number)| format!("{number} {code}")).collect();
        println!("   errors: {}", errors.join(", "));
    }
}
