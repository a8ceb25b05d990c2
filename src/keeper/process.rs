//! The process of a background worker: signals, sleep, transactions; and the list of such processes.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use super::{requests, stand_aside};
use crate::transaction;
#[cfg(not(feature = "pg18"))]
use pgrx::pg_sys::pqsignal;
#[cfg(feature = "pg18")]
use pgrx::pg_sys::pqsignal_be as pqsignal; // as a macro of 18 has it; libpq has one of the old name
use pgrx::pg_sys::{self, Oid};
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

/// Whether pg_upgrade has started this server.
pub fn binary_upgrade() -> bool {
    // SAFETY: a plain variable of this process, set before libraries are preloaded.
    unsafe { pg_sys::IsBinaryUpgrade }
}

pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// The database of this session.
pub fn database() -> Oid {
    Oid::from(transaction::database())
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
        pqsignal(pg_sys::SIGTERM as c_int, Some(die));
        pqsignal(pg_sys::SIGHUP as c_int, Some(SignalHandlerForConfigReload));
        pqsignal(pg_sys::SIGINT as c_int, Some(StatementCancelHandler));
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Settings that the owner of a database could give to its sessions (ALTER DATABASE ... SET), who need not
/// be a superuser, as this process is: objects of theirs must not stand before PostgreSQL's own, and
/// duties must be able to write and to wait.
const SETTINGS: &[(&CStr, &CStr)] = &[
    (c"role", c"none"),
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"standard_conforming_strings", c"on"),
    (c"row_security", c"on"),
    (c"statement_timeout", c"0"),
    (c"lock_timeout", c"0"),
    (c"idle_in_transaction_session_timeout", c"0"),
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    (c"transaction_timeout", c"0"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_read_only", c"off"),
    (c"default_transaction_deferrable", c"off"),
];

/// Connects this process to a database, or to none (shared catalogs only), as the bootstrap
/// superuser. What is the extension's runs as the owner of that (`as_role`).
pub fn connect(database: Oid) {
    // SAFETY: called once, at the start of a background worker.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) }
    for (name, value) in SETTINGS {
        // Above what the database and its roles say, and below SET and the SET clauses of functions.
        set(name, value, pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_OVERRIDE);
    }
}

/// Sleeps until the time is over or something happens, then serves what came: termination (which
/// does not return), a changed configuration, a wish that the keeper stand aside (nor does that).
pub fn sleep(time: Duration) {
    // SAFETY: the usual loop body of a background worker. A cancel is for a statement; there is
    // none, so it is forgotten, as in a session that waits for its client.
    unsafe {
        wait_latch(time);
        pg_sys::QueryCancelHoldoffCount += 1;
        pgrx::check_for_interrupts!();
        std::ptr::write_volatile(&raw mut pg_sys::QueryCancelPending, 0);
        pg_sys::QueryCancelHoldoffCount -= 1;
        if std::ptr::read_volatile(&raw const pg_sys::ConfigReloadPending) != 0 {
            std::ptr::write_volatile(&raw mut pg_sys::ConfigReloadPending, 0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
    if database() != Oid::INVALID && stand_aside::asked(database()) {
        // The launcher may not have seen this keeper yet.
        requests::look_into(database());
        leave();
    }
}

/// Waits inside a statement: it can be cancelled.
pub fn wait(time: Duration) {
    wait_latch(time);
    pgrx::check_for_interrupts!();
}

fn wait_latch(time: Duration) {
    // SAFETY: the latch is that of this process.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as c_int,
            // rounded up: a rest of less than a millisecond must not become none
            time.as_micros().div_ceil(1_000).try_into().unwrap_or(i64::MAX),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
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

/// Does something as this role, in a transaction, as PostgreSQL does what others wrote (VACUUM and REFRESH so call functions):
/// what it calls cannot become another role, makes no temporary objects, and leaves no trigger to the commit, where that
/// would be the superuser's again.
pub fn as_role<T>(role: Oid, body: impl FnOnce() -> T) -> T {
    let (mut own, mut context) = (Oid::INVALID, 0);
    let restricted = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
    // SAFETY: reads and writes two variables of this process. After an error the end of the transaction sets them back.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut own, &raw mut context);
        pg_sys::SetUserIdAndSecContext(role, context | restricted as c_int);
    }
    let result = body();
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(own, context) };
    result
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
#[allow(unreachable_code)] // pgrx's binding of 18 does not know that proc_exit never returns
pub fn leave() -> ! {
    // SAFETY: ends the process in PostgreSQL's way; exit code 0 unregisters the worker.
    unsafe { pg_sys::proc_exit(0) };
    unreachable!("proc_exit does not return")
}

unsafe extern "C" {
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

/// A background worker of ours.
pub struct Worker {
    pub database: Oid,
    pid: c_int,
    latch: *mut pg_sys::Latch,
}

impl Worker {
    /// Ends its sleep. If the process has just ended, some other one looks up from its sleep.
    pub fn wake(&self) {
        // SAFETY: latches are in shared memory, and stay.
        unsafe { pg_sys::SetLatch(self.latch) }
    }

    /// Ends it also in the middle of a statement.
    pub fn terminate(&self) {
        // SAFETY: a system call without pointers. A process that is gone already is none of our
        // concern: whoever calls this has just found it.
        unsafe {
            kill(self.pid, pg_sys::SIGTERM as c_int);
        }
    }
}

/// The background workers of this type, from the moment they begin to connect. This reads the list
/// of processes itself, because a session's view of it (pg_stat_activity) does not change until its
/// transaction ends.
pub fn workers(worker_type: &CStr) -> Vec<Worker> {
    let mut found = Vec::new();
    // SAFETY: the array is in shared memory and stays; what is read from it may be of a process
    // that is just coming or going, as with any list of processes. The type is a C string in a
    // static buffer, read before the next call.
    unsafe {
        let all = &*pg_sys::ProcGlobal;
        for at in 0..all.allProcCount as usize {
            let process = all.allProcs.add(at);
            let pid = std::ptr::read_volatile(&raw const (*process).pid);
            if pid == 0 || is_session(process) {
                continue;
            }
            let name = pg_sys::GetBackgroundWorkerTypeByPid(pid);
            if !name.is_null() && CStr::from_ptr(name) == worker_type {
                let database = std::ptr::read_volatile(&raw const (*process).databaseId);
                found.push(Worker { database, pid, latch: &raw mut (*process).procLatch });
            }
        }
    }
    found
}

/// Whether an entry is that of a client's session, which spares a look into the list of workers.
///
/// # Safety
/// The entry must be one of PostgreSQL's array.
unsafe fn is_session(process: *const pg_sys::PGPROC) -> bool {
    // SAFETY: as promised by the caller; the array is in shared memory and stays.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        !std::ptr::read_volatile(&raw const (*process).isBackgroundWorker)
    }
    // SAFETY: as above.
    #[cfg(feature = "pg18")]
    unsafe {
        std::ptr::read_volatile(&raw const (*process).isRegularBackend)
    }
}

pub fn workers_in(worker_type: &CStr, database: Oid) -> Vec<Worker> {
    let mut found = workers(worker_type);
    found.retain(|worker| worker.database == database);
    found
}

/// Names this process in pg_stat_activity.
pub fn set_name(name: &CStr) {
    set(c"application_name", name, pg_sys::GucContext::PGC_USERSET, pg_sys::GucSource::PGC_S_SESSION);
}

fn set(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type, source: pg_sys::GucSource::Type) {
    // SAFETY: both are C strings, and are copied.
    unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source) }
}
