//! The background workers: a launcher for the server, a keeper for each database that has taskq.
//!
//! The keeper only times the duties; what they do is in `sql/keeper.sql` and the files it names.

mod count;
mod databases;
mod launcher;
mod prepared;
pub mod process;
mod requests;
mod rounds;
mod stand_aside;
mod wake;

pub use databases::define_setting as define_excluded_databases;

use crate::call::Call;
use crate::failure::Outcome;
use crate::shared;
use crate::sql_functions;
use crate::transaction;
use pgrx::pg_sys::Datum;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

sql_functions! {
    taskq_start_keeper / pg_finfo_taskq_start_keeper => start_keeper;
    taskq_wake / pg_finfo_taskq_wake => wake::wake;
    taskq_log / pg_finfo_taskq_log => log;
    taskq_library_version / pg_finfo_taskq_library_version => library_version;
    taskq_preloaded / pg_finfo_taskq_preloaded => preloaded;
    taskq_excluded / pg_finfo_taskq_excluded => excluded;
}

pub fn init() {
    if process::preloading() {
        crate::shared::init();
        requests::init();
        stand_aside::init();
        // pg_upgrade fills databases table by table; a keeper there would see the half of it.
        if !process::binary_upgrade() {
            launcher::register();
        }
    }
}

/// `taskq._start_keeper()`: the end of CREATE EXTENSION. The launcher is told, for when no worker
/// slot is free, or the keeper ends before it has seen it. What is in shared memory may be that of a
/// taskq that was just dropped.
fn start_keeper(call: &Call) -> Outcome<Datum> {
    if process::preloaded() {
        if let Some(mut shared) = shared::lock() {
            shared.begin_anew(transaction::database());
        }
        register_xact_callback(PgXactCallbackEvent::Commit, || {
            let database = process::database();
            let _no_slot = !launcher::start_keeper(database);
            requests::look_into(database);
        });
    }
    call.void()
}

/// `taskq._log(message)`.
fn log(call: &Call) -> Outcome<Datum> {
    crate::call::log_line(&call.text(0).unwrap_or_default());
    call.void()
}

/// `taskq._library_version()`.
fn library_version(call: &Call) -> Outcome<Datum> {
    call.value(Some(env!("CARGO_PKG_VERSION")))
}

/// `taskq._preloaded()`.
fn preloaded(call: &Call) -> Outcome<Datum> {
    call.value(Some(process::preloaded()))
}

/// `taskq._excluded()`.
fn excluded(call: &Call) -> Outcome<Datum> {
    call.value(Some(databases::is_excluded(process::database())))
}
