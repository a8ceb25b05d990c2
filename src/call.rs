//! How PostgreSQL calls us and how we answer: arguments, results, errors.
//!
//! The SQL files declare every function by hand (`language c`), with its names, defaults
//! and rights where a DBA reads them. `sql_functions!` makes the C symbols behind them.
//! They do not use `#[pg_extern]`, because it cannot raise a SQLSTATE of our own.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::failure::{Failure, Outcome};
use crate::values::{Jsonb, Moment, Seconds};
use pgrx::pg_sys::{self, Datum};
use pgrx::{FromDatum, IntoDatum};
use std::ffi::{c_char, c_int};
use std::ptr;

/// Makes a C function (and its V1 record) for each `symbol => body`.
///
/// A body takes the call's arguments and returns the result's datum or a `Failure`.
#[macro_export]
macro_rules! sql_functions {
    ($($symbol:ident / $info:ident => $body:path;)*) => {$(
        // SAFETY: PostgreSQL calls this with a valid call frame, as `language c` promises.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(
            frame: pgrx::pg_sys::FunctionCallInfo,
        ) -> pgrx::pg_sys::Datum {
            // SAFETY: the frame is PostgreSQL's, valid for the call.
            unsafe { $crate::call::enter(frame, $body) }
        }

        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $info() -> &'static pgrx::pg_sys::Pg_finfo_record {
            const V1: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &V1
        }
    )*};
}

/// The arguments of one call. A missing or NULL argument is `None`.
pub struct Call {
    frame: pg_sys::FunctionCallInfo,
}

impl Call {
    fn arg<T: FromDatum>(&self, n: usize) -> Option<T> {
        // SAFETY: the frame is valid for the call, and the SQL declaration fixes the types.
        unsafe { pgrx::fcinfo::pg_getarg::<T>(self.frame, n) }
    }

    pub fn int(&self, n: usize) -> Option<i32> {
        self.arg(n)
    }

    pub fn bigint(&self, n: usize) -> Option<i64> {
        self.arg(n)
    }

    pub fn double(&self, n: usize) -> Option<f64> {
        self.arg(n)
    }

    pub fn boolean(&self, n: usize) -> Option<bool> {
        self.arg(n)
    }

    pub fn text(&self, n: usize) -> Option<String> {
        self.arg(n)
    }

    pub fn moment(&self, n: usize) -> Option<Moment> {
        self.arg(n)
    }

    pub fn seconds(&self, n: usize) -> Option<Seconds> {
        self.arg(n)
    }

    pub fn jsonb(&self, n: usize) -> Option<Jsonb> {
        self.arg(n)
    }

    pub fn texts(&self, n: usize) -> Option<Vec<Option<String>>> {
        self.arg(n)
    }

    pub fn bigints(&self, n: usize) -> Option<Vec<Option<i64>>> {
        self.arg(n)
    }

    pub fn jsonbs(&self, n: usize) -> Option<Vec<Option<Jsonb>>> {
        // A Jsonb points into the array. One from a table or a variable may be in another form, which pgrx would bring into
        // this one and free again at once: so that is done before, in memory that lasts as long as the call.
        // SAFETY: the frame is valid for the call, and the SQL declaration says that this is a jsonb[].
        unsafe {
            let given = pgrx::fcinfo::pg_getarg_datum(self.frame, n)?;
            FromDatum::from_datum(Datum::from(pg_sys::pg_detoast_datum(given.cast_mut_ptr())), false)
        }
    }

    /// Whether this is a CALL that may commit: not one inside a transaction block or a function.
    pub fn may_commit(&self) -> bool {
        // SAFETY: in a CALL the context is a CallContext; its tag is checked.
        unsafe {
            let context = (*self.frame).context.cast::<pg_sys::CallContext>();
            context.as_ref().is_some_and(|call| call.type_ == pg_sys::NodeTag::T_CallContext && !call.atomic)
        }
    }

    /// The table whose trigger this call is.
    pub fn trigger_relation(&self) -> Outcome<pg_sys::Relation> {
        // SAFETY: in a trigger's call the context is a TriggerData; its tag is checked.
        unsafe {
            let context = (*self.frame).context.cast::<pg_sys::TriggerData>();
            match context.as_ref() {
                Some(trigger) if trigger.type_ == pg_sys::NodeTag::T_TriggerData => Ok(trigger.tg_relation),
                _ => Err(Failure::new("39P01", "this function is a trigger")
                    .hint("It is called by PostgreSQL when the settings change.")),
            }
        }
    }

    /// Answers with a value, or NULL for `None`.
    pub fn value<T: IntoDatum>(&self, value: Option<T>) -> Outcome<Datum> {
        match value.and_then(IntoDatum::into_datum) {
            Some(datum) => Ok(datum),
            // SAFETY: the frame is valid for the call.
            None => Ok(unsafe { pgrx::fcinfo::pg_return_null(self.frame) }),
        }
    }

    pub fn void(&self) -> Outcome<Datum> {
        Ok(Datum::from(0usize))
    }

    /// Begins the answer of a set-returning function.
    pub fn rows(&self) -> Rows {
        // SAFETY: the frame is valid; the SQL declaration returns a set of a known row type.
        // USE_EXPECTED_DESC is not wanted: the declared row type counts. A function that
        // returns a set of one plain type has no row type, and the expected one is used.
        unsafe {
            let flags =
                if Self::returns_composite(self.frame) { 0 } else { pg_sys::MAT_SRF_USE_EXPECTED_DESC };
            pg_sys::InitMaterializedSRF(self.frame, flags);
            let info = (*self.frame).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            Rows { store: (*info).setResult, shape: (*info).setDesc }
        }
    }

    /// # Safety
    /// The frame must be that of a running call.
    unsafe fn returns_composite(frame: pg_sys::FunctionCallInfo) -> bool {
        // SAFETY: as promised by the caller; NULL out-parameters are allowed.
        unsafe {
            pg_sys::get_call_result_type(frame, ptr::null_mut(), ptr::null_mut())
                == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE
        }
    }
}

/// The rows of a set-returning function, kept by PostgreSQL until they are read.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    shape: pg_sys::TupleDesc,
}

impl Rows {
    /// Adds a row; its values must be in the order and of the types that the SQL declares.
    pub fn add(&mut self, row: &[Option<Datum>]) {
        let mut values: Vec<Datum> = row.iter().map(|v| v.unwrap_or(Datum::from(0usize))).collect();
        let mut nulls: Vec<bool> = row.iter().map(Option::is_none).collect();
        // SAFETY: both arrays are as long as the row type is wide (asserted), and the
        // tuplestore copies what they point to.
        unsafe {
            assert_eq!((*self.shape).natts as usize, row.len(), "row of the wrong width");
            pg_sys::tuplestore_putvalues(self.store, self.shape, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
    }

    pub fn finish(self) -> Outcome<Datum> {
        Ok(Datum::from(0usize))
    }
}

/// What crosses from the guarded part to the part that raises: plain data, nothing to drop.
#[derive(Clone, Copy)]
enum End {
    Return(Datum),
    Raise(Raised),
}

#[derive(Clone, Copy)]
struct Raised {
    code: c_int,
    message: *const c_char,
    detail: *const c_char,
    hint: *const c_char,
}

/// Runs the body of a function and returns its datum or raises its failure.
///
/// # Safety
/// To be called by PostgreSQL only, with the frame of a `language c` function.
pub unsafe fn enter(frame: pg_sys::FunctionCallInfo, body: fn(&Call) -> Outcome<Datum>) -> Datum {
    // SAFETY: nothing with a destructor is alive in this frame or above it.
    let end = unsafe {
        pg_sys::submodules::panic::pgrx_extern_c_guard(|| match body(&Call { frame }) {
            Ok(datum) => End::Return(datum),
            Err(failure) => End::Raise(prepare(failure)),
        })
    };
    match end {
        End::Return(datum) => datum,
        // SAFETY: the strings are in PostgreSQL's memory, and all Rust values are gone.
        End::Raise(raised) => unsafe { raise(raised) },
    }
}

fn prepare(failure: Failure) -> Raised {
    Raised {
        code: sqlstate(failure.code),
        message: c_string(Some(failure.message)),
        detail: c_string(failure.detail),
        hint: c_string(failure.hint),
    }
}

/// Copies a text to PostgreSQL's memory as a C string. Control characters become spaces, so
/// that nothing from outside can begin a line of its own in the server log.
fn c_string(text: Option<String>) -> *const c_char {
    let Some(text) = text else { return ptr::null() };
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // SAFETY: pnstrdup copies exactly the given bytes and adds the terminator.
    unsafe { pg_sys::pnstrdup(clean.as_ptr().cast(), clean.len()) }
}

/// PostgreSQL's packed form of a five-character SQLSTATE (MAKE_SQLSTATE in elog.h).
fn sqlstate(code: &str) -> c_int {
    code.bytes().rev().fold(0, |packed, byte| (packed << 6) + ((c_int::from(byte) - 0x30) & 0x3f))
}

/// The five characters of a packed SQLSTATE.
pub fn sqlstate_text(code: c_int) -> String {
    (0..5).map(|at| char::from(((code >> (6 * at)) & 0x3f) as u8 + b'0')).collect()
}

// pgrx wraps or hides these; here they must be called bare, because an error that passes through
// pgrx loses every SQLSTATE that is not PostgreSQL's own.
unsafe extern "C-unwind" {
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    fn errcode(code: c_int) -> c_int;
    fn errmsg_internal(format: *const c_char, ...) -> c_int;
    fn errdetail_internal(format: *const c_char, ...) -> c_int;
    fn errhint(format: *const c_char, ...) -> c_int;
    fn errhidecontext(hide: bool) -> c_int;
    fn errhidestmt(hide: bool) -> c_int;
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}
const TEXT: *const c_char = c"%s".as_ptr();

/// Raises an ERROR.
///
/// # Safety
/// PostgreSQL leaves by longjmp: no value with a destructor may be alive in any Rust frame
/// between here and the C caller.
unsafe fn raise(raised: Raised) -> ! {
    // SAFETY: the calls are those of the ereport macro, in its order.
    unsafe {
        errstart(pgrx::PgLogLevel::ERROR as c_int, ptr::null());
        errcode(raised.code);
        errmsg_internal(TEXT, raised.message);
        if !raised.detail.is_null() {
            errdetail_internal(TEXT, raised.detail);
        }
        if !raised.hint.is_null() {
            errhint(TEXT, raised.hint);
        }
        errfinish(c"taskq".as_ptr(), 0, c"raise".as_ptr());
    }
    unreachable!("errfinish does not return from an ERROR")
}

/// Sends a notification when the transaction commits.
pub fn notify(channel: &str, payload: &str) {
    unsafe extern "C-unwind" {
        fn Async_Notify(channel: *const c_char, payload: *const c_char);
    }
    let (channel, payload) = (c_string(Some(channel.to_owned())), c_string(Some(payload.to_owned())));
    // SAFETY: both are C strings, which PostgreSQL copies; an error becomes one of Rust.
    unsafe { pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| Async_Notify(channel, payload)) }
}

/// Writes one line to the server log, whatever function or statement we are called from:
/// PostgreSQL would add several lines about those.
pub fn log_line(message: &str) {
    let message = c_string(Some(message.to_owned()));
    // SAFETY: the calls are those of the ereport macro, in its order; LOG returns.
    unsafe {
        if errstart(pgrx::PgLogLevel::LOG as c_int, ptr::null()) {
            errmsg_internal(TEXT, message);
            errhidecontext(true);
            errhidestmt(true);
            errfinish(c"taskq".as_ptr(), 0, c"log_line".as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{sqlstate, sqlstate_text};

    #[test]
    fn sqlstates_are_packed_as_postgresql_does() {
        // ERRCODE_INVALID_PARAMETER_VALUE and ERRCODE_T_R_SERIALIZATION_FAILURE in errcodes.h
        assert_eq!(sqlstate("22023"), 50856066);
        assert_eq!(sqlstate("40001"), 16777220);
        assert_eq!(sqlstate_text(50856066), "22023");
    }
}
