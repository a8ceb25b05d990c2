//! The end of transactions and subtransactions, as PostgreSQL tells us of it.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::changes;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, SubTransactionId, SubXactEvent, XactEvent};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// How deep in subtransactions we are: 1 is the transaction itself.
pub fn level() -> i32 {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
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
        XactEvent::XACT_EVENT_PRE_COMMIT | XactEvent::XACT_EVENT_PRE_PREPARE => changes::announce(),
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
