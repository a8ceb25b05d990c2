//! Which databases may have a keeper: pg_database, and the setting `taskq.excluded_databases`.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::settings::EXCLUDED_DATABASES;
use pgrx::guc::{GucContext, GucFlags, GucRegistry};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Oid};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// What marks a database as half dropped: its limit of connections (pg_database.h).
const INVALID: i32 = -2;

/// A row of pg_database.
pub struct Database {
    pub oid: Oid,
    /// It can be connected to, is no template, and the configuration does not exclude it.
    pub eligible: bool,
}

pub fn define_setting() {
    // SAFETY: the hook is guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"taskq.excluded_databases",
            c"Databases that get no keeper.",
            c"A list of names, separated by commas. Names with capitals or special characters are double-quoted.",
            &EXCLUDED_DATABASES,
            GucContext::Sighup,
            GucFlags::from_bits_retain(pg_sys::GUC_LIST_INPUT as c_int),
            Some(check),
            None,
            None,
        );
    }
}

/// Refuses a value that is no list of names.
#[pg_guard]
unsafe extern "C-unwind" fn check(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: the value is NULL or a C string. The detail lives as long as it is needed.
    unsafe {
        let good = (*value).is_null() || names(CStr::from_ptr(*value)).is_some();
        if !good {
            pg_sys::GUC_check_errdetail_string = pg_sys::pstrdup(c"List syntax is invalid.".as_ptr());
        }
        good
    }
}

/// The names in a list, as PostgreSQL reads lists of identifiers.
fn names(list: &CStr) -> Option<Vec<CString>> {
    // SAFETY: the function cuts a copy of the text into C strings and lists where they begin; we
    // copy them before it is freed.
    unsafe {
        let text = pg_sys::pstrdup(list.as_ptr());
        let mut found = std::ptr::null_mut();
        let good = pg_sys::SplitIdentifierString(text, b',' as c_char, &mut found);
        let names = found.as_ref().map_or(Vec::new(), |found| {
            (0..found.length.unsigned_abs() as usize)
                .map(|at| CStr::from_ptr((*found.elements.add(at)).ptr_value.cast()).to_owned())
                .collect()
        });
        pg_sys::list_free(found);
        pg_sys::pfree(text.cast());
        good.then_some(names)
    }
}

fn excluded() -> Vec<CString> {
    EXCLUDED_DATABASES.get().and_then(|list| names(&list)).unwrap_or_default()
}

/// Whether the configuration excludes a database.
pub fn is_excluded(database: Oid) -> bool {
    // SAFETY: in a transaction; returns a copy of the name, or NULL.
    let name = unsafe { pg_sys::get_database_name(database) };
    // SAFETY: checked for NULL.
    !name.is_null()
        && excluded().iter().any(|excluded| excluded.as_c_str() == unsafe { CStr::from_ptr(name) })
}

/// All databases. Call it in a transaction.
pub fn all() -> Vec<Database> {
    let excluded = excluded();
    let mut found = Vec::new();
    // SAFETY: a catalog scan as in PostgreSQL's own launchers; a process that is connected to no
    // database can read this catalog in no other way. Each tuple is a pg_database row.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as c_int);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            let name = CStr::from_ptr(row.datname.data.as_ptr());
            let excluded = excluded.iter().any(|excluded| excluded.as_c_str() == name);
            // One whose DROP DATABASE was interrupted can only be dropped again.
            let valid = row.datconnlimit != INVALID;
            let eligible = row.datallowconn && valid && !row.datistemplate && !excluded;
            found.push(Database { oid: row.oid, eligible });
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as c_int);
    }
    found
}
