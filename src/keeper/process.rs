//! The process of a background worker: signals, sleep, transactions, the list of databases.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Oid};
use std::collections::HashSet;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether the postmaster is loading us now; remembered for its children.
pub fn preloading() -> bool {
    // SAFETY: a plain variable of this process.
    let preloading = unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    PRELOADED.store(preloading, Ordering::Relaxed);
    preloading
}

pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// The database of this session.
pub fn database() -> Oid {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::MyDatabaseId }
}

/// Sets up the signals of a background worker and lets them through.
///
/// SIGTERM gets PostgreSQL's own handler, `die`: it interrupts a running statement, where pgrx's
/// handler only sets a flag that is seen when the statement is over.
pub fn accept_signals() {
    unsafe extern "C-unwind" {
        fn die(signal: c_int);
        fn SignalHandlerForConfigReload(signal: c_int);
        fn StatementCancelHandler(signal: c_int);
    }
    // SAFETY: the handlers are PostgreSQL's, made for this.
    unsafe {
        pg_sys::pqsignal(pg_sys::SIGTERM as c_int, Some(die));
        pg_sys::pqsignal(pg_sys::SIGHUP as c_int, Some(SignalHandlerForConfigReload));
        pg_sys::pqsignal(pg_sys::SIGINT as c_int, Some(StatementCancelHandler));
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Connects this process to a database, or to none (shared catalogs only), as the bootstrap
/// superuser. The duties themselves run as the owner of the extension.
pub fn connect(database: Oid) {
    // SAFETY: called once, at the start of a background worker.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) }
}

/// Sleeps until the time is over or somebody wakes this process; serves termination and cancel, which
/// do not return.
pub fn nap(time: Duration) {
    // SAFETY: the usual way to sleep in PostgreSQL.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as c_int,
            // rounded up: a rest of less than a millisecond must not become none
            time.as_micros().div_ceil(1_000).try_into().unwrap_or(i64::MAX),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
        pgrx::check_for_interrupts!();
    }
}

/// The same for a background worker, which also serves a changed configuration.
pub fn sleep(time: Duration) {
    nap(time);
    // SAFETY: the usual loop body of a background worker.
    unsafe {
        if std::ptr::read_volatile(&raw const pg_sys::ConfigReloadPending) != 0 {
            std::ptr::write_volatile(&raw mut pg_sys::ConfigReloadPending, 0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// Runs something in a transaction of its own. An error ends the process, and the postmaster
/// starts it again.
pub fn transaction<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the frame that every background worker puts around its statements.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, c"taskq duties".as_ptr());
        let result = body();
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        pg_sys::pgstat_report_stat(true);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
        result
    }
}

/// As `transaction`, but an error ends only that: its SQLSTATE is returned, and nothing is logged.
pub fn attempt<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    let tried = pgrx::PgTryBuilder::new(std::panic::AssertUnwindSafe(|| Ok(transaction(body))))
        .catch_others(|error| Err(sqlstate(&error)))
        .execute();
    if tried.is_err() {
        // SAFETY: what a background worker does after an error that it goes on from.
        unsafe {
            pg_sys::AbortCurrentTransaction();
            pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
        }
    }
    tried
}

fn sqlstate(error: &pgrx::pg_sys::panic::CaughtError) -> String {
    use pgrx::pg_sys::panic::CaughtError::{ErrorReport, PostgresError, RustPanic};
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    crate::call::sqlstate_text(report.sql_error_code() as i32)
}

/// Keeps an extension from being dropped until the transaction ends. Waits while it is being
/// dropped.
pub fn lock_extension(extension: Oid) {
    // SAFETY: takes a lock, which the end of the transaction releases.
    unsafe {
        pg_sys::LockDatabaseObject(
            pg_sys::ExtensionRelationId,
            extension,
            0,
            pg_sys::AccessShareLock as c_int,
        );
    }
}

/// Ends this background worker for good: the postmaster does not start it again.
pub fn leave() -> ! {
    // SAFETY: ends the process in PostgreSQL's way; exit code 0 unregisters the worker.
    unsafe { pg_sys::proc_exit(0) }
}

/// The databases that can be connected to and are no templates. Call it in a transaction.
pub fn databases() -> Vec<Oid> {
    let mut found = Vec::new();
    // SAFETY: a catalog scan as in PostgreSQL's own launchers; a process that is connected to no
    // database can read shared catalogs in no other way. Each tuple is a pg_database row.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as c_int);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            if row.datallowconn && !row.datistemplate {
                found.push(row.oid);
            }
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as c_int);
    }
    found
}

/// The databases in which a background worker of this type is at work.
pub fn databases_with(worker_type: &str) -> HashSet<Oid> {
    let mut found = HashSet::new();
    // SAFETY: reads PostgreSQL's own list of processes, which is kept for this transaction. The
    // type is a C string in a static buffer; it is read before the next call.
    unsafe {
        for at in 1..=pg_sys::pgstat_fetch_stat_numbackends() {
            let Some(entry) = pg_sys::pgstat_fetch_stat_local_beentry(at).as_ref() else { continue };
            let process = &entry.backendStatus;
            if process.st_backendType != pg_sys::BackendType::B_BG_WORKER {
                continue;
            }
            let name = pg_sys::GetBackgroundWorkerTypeByPid(process.st_procpid);
            if !name.is_null() && CStr::from_ptr(name).to_bytes() == worker_type.as_bytes() {
                found.insert(process.st_databaseid);
            }
        }
    }
    found
}

/// Names this process in pg_stat_activity.
pub fn set_name(name: &CStr) {
    // SAFETY: sets a string setting, as a session would.
    unsafe {
        pg_sys::SetConfigOption(
            c"application_name".as_ptr(),
            name.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}
