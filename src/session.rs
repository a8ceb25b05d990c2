//! What PostgreSQL knows about the session we run in.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use pgrx::pg_sys;
use std::ffi::CStr;

/// The session's application_name (empty if none is set) and its process id.
pub fn names() -> (String, i32) {
    // SAFETY: application_name is NULL or a C string that lives as long as the setting; we copy it.
    unsafe {
        let name = pg_sys::application_name;
        let name =
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() };
        (name, pg_sys::MyProcPid)
    }
}

/// Whether all statements of this transaction see what its first one saw (REPEATABLE READ and above).
pub fn sees_one_snapshot() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// A random number from 0 to 1 from PostgreSQL's generator.
pub fn random() -> f64 {
    // SAFETY: drandom is random(), which takes no argument.
    unsafe { pgrx::direct_function_call::<f64>(pg_sys::drandom, &[]) }.unwrap_or(0.5)
}

/// Refuses settings that begin with `taskq.` and are not ours, such as misspelt ones.
pub fn reserve_settings_prefix() {
    // SAFETY: takes a C string and copies it.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"taskq".as_ptr()) }
}
