//! Locks that belong to no table, one for each thing that only one at a time may do in a database.
//!
//! They look like advisory locks of database 0, which no SQL function can take: so nobody who may only connect can
//! hold up a duty. In `pg_locks` classid is the database, objid the key, and objsubid one of the numbers below.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::call::Call;
use crate::checks;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::internal;
use crate::transaction;
use pgrx::pg_sys::{self, Datum};
use std::ffi::c_int;

sql_functions! {
    taskq_try_lock / pg_finfo_taskq_try_lock => try_lock_function;
    taskq_wait_lock / pg_finfo_taskq_wait_lock => wait_lock_function;
}

/// What a lock is for.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Purpose {
    /// Being the keeper of this database, as long as the session lasts.
    Keeper = 10,
    /// A round of a duty; the key is the hash of its name.
    Duty = 11,
    /// A round of the archive.
    Archive = 12,
    /// A purge of finished tasks.
    Purge = 13,
    /// Making the turn of a group; the key is a hash of queue and group.
    Turn = 14,
    /// Granting a part.
    Grant = 15,
}

impl Purpose {
    fn named(name: &str) -> Outcome<Purpose> {
        Ok(match name {
            "duty" => Purpose::Duty,
            "archive" => Purpose::Archive,
            "purge" => Purpose::Purge,
            "turn" => Purpose::Turn,
            "grant" => Purpose::Grant,
            _ => return Err(internal("a lock for a purpose that is not known")),
        })
    }
}

fn tag(purpose: Purpose, key: i32) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: transaction::database(),
        locktag_field3: key.cast_unsigned(),
        locktag_field4: purpose as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

fn acquire(purpose: Purpose, key: i32, for_session: bool, wait: bool) -> bool {
    // SAFETY: the tag lives through the call. The end of the transaction, or of the session, releases the lock.
    let result = unsafe {
        pg_sys::LockAcquire(&tag(purpose, key), pg_sys::ExclusiveLock as c_int, for_session, !wait)
    };
    result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Takes the place of this database's keeper until this process ends, if it is free.
pub fn become_keeper() -> bool {
    acquire(Purpose::Keeper, 0, true, false)
}

/// `taskq._try_lock(purpose, key)`.
fn try_lock_function(call: &Call) -> Outcome<Datum> {
    let (purpose, key) = arguments(call)?;
    call.value(Some(acquire(purpose, key, false, false)))
}

/// `taskq._wait_lock(purpose, key)`.
fn wait_lock_function(call: &Call) -> Outcome<Datum> {
    let (purpose, key) = arguments(call)?;
    acquire(purpose, key, false, true);
    call.void()
}

fn arguments(call: &Call) -> Outcome<(Purpose, i32)> {
    let purpose = checks::required("purpose", call.text(0))?;
    Ok((Purpose::named(&purpose)?, call.int(1).unwrap_or_default()))
}
