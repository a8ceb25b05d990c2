//! The launcher: one background worker a server, which starts a keeper in each database.

use super::process;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{FromDatum, pg_guard, warning};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How soon the postmaster starts the launcher again if it ended with an error.
const RESTART: Duration = Duration::from_secs(5);
/// How often the launcher looks for keepers that ended, and for new databases.
const LOOK: Duration = Duration::from_secs(2);
/// How often it looks into a database that had no taskq, or whose keeper was switched off. (CREATE
/// EXTENSION starts the keeper itself; this is for when it found no free worker slot.)
const LOOK_INTO: Duration = Duration::from_secs(300);
/// A keeper that was at work and ended is started again at each look, so often in a row: it may end
/// again before the next look sees it.
const TRIES: u32 = 5;

pub fn register() {
    BackgroundWorkerBuilder::new("taskq launcher")
        .set_type("taskq launcher")
        .set_library("taskq")
        .set_function("taskq_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART))
        .load();
}

/// Starts a keeper for a database; false if no worker slot is free. It leaves by itself if the
/// database has no taskq, or has a keeper already. The postmaster does not start it again, because
/// it would go on trying when the database is gone; the launcher does.
pub fn start_keeper(database: Oid) -> bool {
    BackgroundWorkerBuilder::new("taskq keeper")
        .set_type("taskq keeper")
        .set_library("taskq")
        .set_function("taskq_keeper_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(Some(Datum::from(database)))
        .load_dynamic()
        .is_ok()
}

/// Starts a keeper in every database at first, and again where one ended that had been at work.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn taskq_launcher_main(_argument: Datum) {
    process::accept_signals();
    process::connect(Oid::INVALID);
    process::set_name(c"taskq launcher");
    let mut looked_into: HashMap<Oid, Instant> = HashMap::new();
    let mut tries_left: HashMap<Oid, u32> = HashMap::new();
    let mut warned = false;
    loop {
        let (databases, kept) =
            process::transaction(|| (process::databases(), process::databases_with("taskq keeper")));
        looked_into.retain(|database, _| databases.contains(database));
        tries_left.retain(|database, _| databases.contains(database));
        tries_left.extend(kept.iter().map(|database| (*database, TRIES)));
        for database in databases.into_iter().filter(|database| !kept.contains(database)) {
            let not_lately = looked_into.get(&database).is_none_or(|at| at.elapsed() > LOOK_INTO);
            let left = tries_left.get(&database).copied().unwrap_or(0);
            if !not_lately && left == 0 {
                continue;
            }
            if start_keeper(database) {
                tries_left.insert(database, left.saturating_sub(1));
                looked_into.insert(database, Instant::now());
                warned = false;
            } else if !warned {
                warned = true;
                warning!("taskq launcher found no free background worker slot; raise max_worker_processes");
            }
        }
        process::sleep(LOOK);
    }
}

/// The keeper's entry point; its database is the argument.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn taskq_keeper_main(argument: Datum) {
    process::accept_signals();
    // SAFETY: start_keeper passes an oid.
    let database = unsafe { Oid::from_datum(argument, false) }.unwrap_or(Oid::INVALID);
    process::connect(database);
    process::set_name(c"taskq keeper");
    super::rounds::run();
}
