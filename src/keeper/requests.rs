//! What sessions ask of the launcher: to look into a database again.
//!
//! Shared memory of our own, which only atomic operations touch: a session asks when it has
//! committed, where nothing may fail.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Oid};
use pgrx::{PgAtomic, pg_guard, pg_shmem_init};
use std::sync::atomic::{AtomicU32, Ordering};

/// Databases to look into; 0 is a free place. More at a time than that would wait for the launcher's
/// own round.
// SAFETY: nothing else has this name.
static REQUESTS: PgAtomic<[AtomicU32; 32]> = unsafe { PgAtomic::new(c"taskq requests to the launcher") };

/// To be called while the library is preloaded.
#[allow(unexpected_cfgs, reason = "the macro asks for versions of PostgreSQL that we have no feature for")]
pub fn init() {
    pg_shmem_init!(REQUESTS);
}

/// Has the launcher look into a database with its next rounds, whatever it knows of it. Should a
/// keeper be there, it is left alone.
pub fn look_into(database: Oid) {
    let number = database.to_u32();
    let places = REQUESTS.get();
    if !places.iter().any(|place| place.load(Ordering::Acquire) == number) {
        let take = |place: &AtomicU32| place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        let _all_taken = places.iter().all(|place| take(place).is_err());
    }
}

/// The requests so far, which are then forgotten.
pub fn taken() -> Vec<Oid> {
    let numbers = REQUESTS.get().iter().map(|place| place.swap(0, Ordering::AcqRel));
    numbers.filter(|number| *number != 0).map(Oid::from).collect()
}
