//! The end of transactions and subtransactions, as PostgreSQL tells us of it.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::call::Call;
use crate::changes;
use crate::failure::Outcome;
use crate::sql_functions;
use pgrx::pg_sys::{self, Datum, SubTransactionId, SubXactEvent, XactEvent};
use pgrx::{PgSqlErrorCode, pg_guard};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

sql_functions! {
    taskq_top_transaction / pg_finfo_taskq_top_transaction => top_transaction;
}

static FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Has `changes` hear of the end of this transaction, and of all later ones.
pub fn follow() {
    if !FOLLOWED.swap(true, Ordering::Relaxed) {
        // SAFETY: the callbacks live as long as the process.
        unsafe {
            pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(at_end_of_subtransaction), std::ptr::null_mut());
        }
    }
}

/// Refuses to prepare a transaction that holds back claims: it could stay prepared for long.
fn refuse_to_hold_back_claims() {
    // SAFETY: in a transaction that is not over yet. The tag is that of a table of this database, or of none.
    let holds = unsafe {
        let schema = pg_sys::get_namespace_oid(c"taskq".as_ptr(), true);
        let tag = pg_sys::LOCKTAG {
            locktag_field1: database(),
            locktag_field2: pg_sys::get_relname_relid(c"claim_gate".as_ptr(), schema).to_u32(),
            locktag_field3: 0,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let holds = pg_sys::LockHeldByMe(&tag, pg_sys::ShareLock as i32);
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        let holds = pg_sys::LockHeldByMe(&tag, pg_sys::ShareLock as i32, false);
        holds
    };
    if holds {
        pgrx::ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            "a transaction that has set or lowered max_running cannot be prepared",
            "No task could be claimed until its end. Call configure_queue in a transaction of its own."
        );
    }
}

/// How deep in subtransactions we are: 1 is the transaction itself.
pub fn level() -> i32 {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
}

/// `taskq._top_transaction(xid)`: the transaction to which one that is in progress belongs, NULL if it is not.
fn top_transaction(call: &Call) -> Outcome<Datum> {
    let xid = call.bigint(0).and_then(|xid| u32::try_from(xid).ok()).map(pg_sys::TransactionId::from);
    // SAFETY: what is in progress is not older than the oldest transaction that our snapshot saw in progress: its parent is known.
    let top = xid
        .filter(|xid| unsafe { pg_sys::TransactionIdIsInProgress(*xid) })
        .map(|xid| unsafe { pg_sys::SubTransGetTopmostTransaction(xid) });
    call.value(top.map(|xid| i64::from(u32::from(xid))))
}

/// The database of this session.
pub fn database() -> u32 {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

// What these call must not raise an error: the transaction has ended already.
#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: XactEvent::Type, _argument: *mut c_void) {
    match event {
        XactEvent::XACT_EVENT_PRE_COMMIT => changes::announce(),
        XactEvent::XACT_EVENT_PRE_PREPARE => {
            refuse_to_hold_back_claims();
            changes::announce();
        }
        // The rows can be seen by others from here on.
        XactEvent::XACT_EVENT_COMMIT => changes::committed(),
        XactEvent::XACT_EVENT_ABORT => changes::aborted(),
        XactEvent::XACT_EVENT_PREPARE => changes::prepared(),
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end_of_subtransaction(
    event: SubXactEvent::Type,
    _own: SubTransactionId,
    _parent: SubTransactionId,
    _argument: *mut c_void,
) {
    match event {
        SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => changes::subtransaction_committed(level()),
        SubXactEvent::SUBXACT_EVENT_ABORT_SUB => changes::subtransaction_aborted(level()),
        _ => {}
    }
}
