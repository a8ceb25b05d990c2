//! The launcher: one background worker a server, which starts a keeper in each database.

use super::process;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{FromDatum, pg_guard, warning};
use std::collections::HashSet;
use std::time::Duration;

/// How soon the postmaster starts a worker again that ended with an error.
const RESTART: Duration = Duration::from_secs(5);
/// How often the launcher looks for new databases.
const LOOK: Duration = Duration::from_secs(10);

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
/// database has no taskq, or has a keeper already.
pub fn start_keeper(database: Oid) -> bool {
    BackgroundWorkerBuilder::new("taskq keeper")
        .set_type("taskq keeper")
        .set_library("taskq")
        .set_function("taskq_keeper_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART))
        .set_argument(Some(Datum::from(database)))
        .load_dynamic()
        .is_ok()
}

/// Looks into every database once: what has taskq then keeps its keeper. Later CREATE EXTENSIONs
/// start theirs themselves.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn taskq_launcher_main(_argument: Datum) {
    process::accept_signals();
    process::connect(Oid::INVALID);
    process::set_name(c"taskq launcher");
    let mut looked_into: HashSet<Oid> = HashSet::new();
    let mut warned = false;
    loop {
        let databases = process::transaction(process::databases);
        looked_into.retain(|database| databases.contains(database));
        for database in databases {
            if looked_into.contains(&database) {
                continue;
            }
            if start_keeper(database) {
                looked_into.insert(database);
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
