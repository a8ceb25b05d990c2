//! The shared memory itself: what is in it, where it is, and its lock.
//!
//! It holds nothing that the tables cannot rebuild. PostgreSQL gives it to us zeroed, so all zeros
//! must be a valid value of every part: a slot whose database is 0 is free.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use super::database::Database;
use super::figure::Figure;
use super::waiter::Waiter;
use super::worker::Worker;
use pgrx::pg_guard;
use pgrx::pg_sys;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Databases of one server that may use taskq with shared memory; further ones do as without it.
const DATABASES: usize = 64;
/// Pairs of queue and task type, of all databases; figures of further ones are not kept.
pub const FIGURES: usize = 2048;
/// Sessions that can be in `taskq.wait` at once; further ones look once a second.
const WAITERS: usize = 1024;
/// Workers that are remembered, of all databases.
pub const WORKERS: usize = 512;

#[repr(C)]
pub struct Shared {
    pub databases: [Database; DATABASES],
    pub waiters: [Waiter; WAITERS],
    pub workers: [Worker; WORKERS],
    pub figures: [Figure; FIGURES],
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
static LOCK: AtomicPtr<pg_sys::LWLock> = AtomicPtr::new(ptr::null_mut());

/// Asks for the memory. To be called while the postmaster preloads the library.
pub fn init() {
    // SAFETY: the hooks are set in the postmaster before it makes its shared memory, and each
    // calls the one that was there.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;
const NAME: &std::ffi::CStr = c"taskq";

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: PostgreSQL calls this hook when memory and locks can be asked for.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>());
        pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), 1);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: PostgreSQL calls this hook when the memory is there, also after a crash, when it is
    // new. No other process runs yet.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let mut found = false;
        let shared = pg_sys::ShmemInitStruct(NAME.as_ptr(), size_of::<Shared>(), &mut found);
        if !found {
            ptr::write_bytes(shared.cast::<u8>(), 0, size_of::<Shared>());
        }
        LOCK.store(&raw mut (*pg_sys::GetNamedLWLockTranche(NAME.as_ptr())).lock, Ordering::Relaxed);
        SHARED.store(shared.cast(), Ordering::Relaxed);
    }
}

/// Whether there is shared memory: whether the library was preloaded.
pub fn is_there() -> bool {
    !SHARED.load(Ordering::Relaxed).is_null()
}

/// The shared memory for this process alone, until the guard is dropped; None without preloading.
/// Nothing that can raise an error, and nothing slow, may be done meanwhile.
pub fn lock() -> Option<Locked> {
    let shared = SHARED.load(Ordering::Relaxed);
    if shared.is_null() {
        return None;
    }
    let lock = LOCK.load(Ordering::Relaxed);
    // SAFETY: the lock is ours, in shared memory; it is not held by this process already, as no
    // caller keeps a guard while it calls this.
    unsafe { pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE) };
    Some(Locked { shared, lock })
}

pub struct Locked {
    shared: *mut Shared,
    lock: *mut pg_sys::LWLock,
}

impl Deref for Locked {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: the lock is held, and the memory was zeroed, which is a valid value.
        unsafe { &*self.shared }
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Shared {
        // SAFETY: as above; the lock is exclusive.
        unsafe { &mut *self.shared }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the lock is held, unless an error of PostgreSQL unwinds through here: that sets
        // the count to 0, and the end of the transaction releases the lock.
        unsafe {
            if pg_sys::InterruptHoldoffCount > 0 {
                pg_sys::LWLockRelease(self.lock);
            }
        }
    }
}

/// A process that can be woken.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pid: i32,
    /// Its place in PostgreSQL's array of processes.
    place: i32,
}

impl Process {
    pub const NONE: Process = Process { pid: 0, place: 0 };

    /// This process.
    pub fn current() -> Process {
        // SAFETY: a backend or background worker that is connected to a database has both.
        unsafe {
            let place = pg_sys::MyProc.offset_from((*pg_sys::ProcGlobal).allProcs);
            Process { pid: pg_sys::MyProcPid, place: place as i32 }
        }
    }

    /// Whether it still is the process that was noted. Its latch says so: the entry in the array keeps
    /// the id of a process that has ended until another one takes the place.
    pub fn lives(self) -> bool {
        // SAFETY: the place was that of a process, so it is one of the array.
        let owner =
            || unsafe { (*(*pg_sys::ProcGlobal).allProcs.offset(self.place as isize)).procLatch.owner_pid };
        self.pid != 0 && owner() == self.pid
    }

    /// Wakes it from its sleep. One that has ended is left alone; should another have taken its
    /// place just now, that looks around once more than it must.
    pub fn wake(self) {
        if self.lives() {
            // SAFETY: the latch is in shared memory, as the array is.
            unsafe {
                let process = (*pg_sys::ProcGlobal).allProcs.offset(self.place as isize);
                pg_sys::SetLatch(&raw mut (*process).procLatch);
            }
        }
    }
}
