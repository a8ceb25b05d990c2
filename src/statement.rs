//! Prepared statements, kept for the session, planned the same way whatever the statistics say.
//!
//! pgrx's own SPI client is not used for them: it gives every transaction that may write a
//! transaction id, so a worker that polls an empty queue would write a commit record each time.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::failure::{Failure, Outcome};
use crate::planner::FixedPlanner;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{FromDatum, IntoDatum};
use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A statement's text and the types of its arguments; its plan, once it was prepared.
pub struct Statement {
    text: &'static str,
    more: &'static [&'static str],
    types: &'static [Oid],
    // One process, one thread: atomic only because a static must be Sync.
    plan: AtomicPtr<pg_sys::_SPI_plan>,
}

impl Statement {
    pub const fn new(text: &'static str, types: &'static [Oid]) -> Self {
        Self::joined(text, &[], types)
    }

    /// A text that stands in several pieces, because statements share some of them.
    pub const fn joined(text: &'static str, more: &'static [&'static str], types: &'static [Oid]) -> Self {
        Statement { text, more, types, plan: AtomicPtr::new(ptr::null_mut()) }
    }

    fn plan(&self) -> Outcome<pg_sys::SPIPlanPtr> {
        let known = self.plan.load(Ordering::Relaxed);
        if !known.is_null() {
            return Ok(known);
        }
        let text = CString::new([self.text, &self.more.concat()].concat())
            .map_err(|_| internal("a statement contains a NUL byte"))?;
        // SAFETY: text and types live through the call. A kept plan outlives the SPI
        // connection and is never freed: it serves the whole session, and PostgreSQL plans
        // it anew when a table it uses changes.
        let plan = unsafe {
            let plan =
                pg_sys::SPI_prepare(text.as_ptr(), self.types.len() as c_int, self.types.as_ptr().cast_mut());
            if plan.is_null() || pg_sys::SPI_keepplan(plan) != 0 {
                return Err(internal("a statement could not be prepared"));
            }
            plan
        };
        self.plan.store(plan, Ordering::Relaxed);
        Ok(plan)
    }
}

/// An open connection to PostgreSQL's server programming interface.
pub struct Spi {
    _planner: Option<FixedPlanner>,
    _not_send: PhantomData<*const ()>,
}

impl Spi {
    /// Runs hot statements with fixed plans. What they return is gone when `body` has returned.
    pub fn run<T>(body: impl FnOnce(&Spi) -> Outcome<T>) -> Outcome<T> {
        Self::connect(|| Some(FixedPlanner::new()), body)
    }

    /// Runs statements that the planner may plan as it likes.
    pub fn run_freely<T>(body: impl FnOnce(&Spi) -> Outcome<T>) -> Outcome<T> {
        Self::connect(|| None, body)
    }

    /// Ends the transaction of a procedure that may commit, and begins another one.
    pub fn commit() -> Outcome<()> {
        // SAFETY: the caller has found that it may commit; nothing of ours lives in the transaction.
        unsafe {
            let status = pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as c_int);
            if status != pg_sys::SPI_OK_CONNECT as c_int {
                return Err(internal("SPI_connect failed"));
            }
            let spi = Spi { _planner: None, _not_send: PhantomData };
            pg_sys::SPI_commit();
            drop(spi);
        }
        Ok(())
    }

    fn connect<T>(
        planner: impl FnOnce() -> Option<FixedPlanner>,
        body: impl FnOnce(&Spi) -> Outcome<T>,
    ) -> Outcome<T> {
        // SAFETY: closed by Drop, also when a PostgreSQL error unwinds through here.
        let status = unsafe { pg_sys::SPI_connect() };
        if status != pg_sys::SPI_OK_CONNECT as c_int {
            return Err(internal("SPI_connect failed"));
        }
        let spi = Spi { _planner: planner(), _not_send: PhantomData };
        body(&spi)
    }

    /// Executes a statement. Each one sees what was committed before it began (READ COMMITTED).
    pub fn execute(&self, statement: &Statement, args: &[Option<Datum>]) -> Outcome<Table<'_>> {
        self.run_plan(statement, args, false)
    }

    /// Executes a statement that only reads, and sees what this snapshot sees.
    pub fn look(
        &self,
        _snapshot: &Snapshot,
        statement: &Statement,
        args: &[Option<Datum>],
    ) -> Outcome<Table<'_>> {
        self.run_plan(statement, args, true)
    }

    fn run_plan(&self, statement: &Statement, args: &[Option<Datum>], read_only: bool) -> Outcome<Table<'_>> {
        if args.len() != statement.types.len() {
            return Err(internal("a statement was given the wrong number of arguments"));
        }
        let plan = statement.plan()?;
        let mut values: Vec<Datum> = args.iter().map(|a| a.unwrap_or(Datum::from(0usize))).collect();
        let nulls: Vec<c_char> =
            args.iter().map(|a| if a.is_some() { b' ' } else { b'n' } as c_char).collect();
        // SAFETY: the arrays are as long as the statement has arguments (checked above).
        unsafe {
            pg_sys::SPI_tuptable = ptr::null_mut();
            let status = pg_sys::SPI_execute_plan(plan, values.as_mut_ptr(), nulls.as_ptr(), read_only, 0);
            if status < 0 {
                return Err(internal("SPI_execute_plan failed"));
            }
            Ok(Table { table: pg_sys::SPI_tuptable, _spi: PhantomData })
        }
    }
}

impl Drop for Spi {
    fn drop(&mut self) {
        // SAFETY: closes the connection that `run` opened.
        unsafe {
            pg_sys::SPI_finish();
        }
    }
}

/// What `Spi::look` sees.
pub struct Snapshot(PhantomData<*const ()>);

impl Snapshot {
    /// Takes one of what is committed at this moment, while what `guard` returns is held.
    pub fn taken<T>(guard: impl FnOnce() -> T) -> Self {
        let guard = guard();
        // SAFETY: in a transaction; Drop, or the end of the transaction, takes it off again.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        drop(guard);
        Snapshot(PhantomData)
    }

    /// What is committed at this moment, also above READ COMMITTED.
    pub fn latest() -> Self {
        // SAFETY: as in `taken`.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
        Snapshot(PhantomData)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: pushed by `taken`. After an error the transaction's end has taken it off, or will.
        unsafe {
            if !std::thread::panicking() {
                pg_sys::PopActiveSnapshot();
            }
        }
    }
}

/// The rows that a statement returned.
pub struct Table<'spi> {
    table: *mut pg_sys::SPITupleTable,
    _spi: PhantomData<&'spi Spi>,
}

impl Table<'_> {
    pub fn len(&self) -> usize {
        // SAFETY: NULL for statements without rows, else valid until SPI_finish.
        if self.table.is_null() { 0 } else { unsafe { (*self.table).numvals as usize } }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A column (from 0) of a row (from 0), as it is; valid until the connection closes.
    pub fn datum(&self, row: usize, column: usize) -> Option<Datum> {
        assert!(row < self.len(), "row out of range");
        let mut is_null = false;
        // SAFETY: the row exists (asserted); SPI_getbinval checks the column itself.
        let datum = unsafe {
            let tuple = *(*self.table).vals.add(row);
            pg_sys::SPI_getbinval(tuple, (*self.table).tupdesc, column as c_int + 1, &mut is_null)
        };
        (!is_null).then_some(datum)
    }

    /// A column as a Rust value, whose type must be that of the column.
    pub fn get<T: FromDatum>(&self, row: usize, column: usize) -> Option<T> {
        let datum = self.datum(row, column)?;
        // SAFETY: the statement's text fixes the column's type.
        unsafe { T::from_datum(datum, false) }
    }

    /// A column that the table declares NOT NULL.
    pub fn need<T: FromDatum>(&self, row: usize, column: usize) -> Outcome<T> {
        self.get(row, column).ok_or_else(|| internal("a column is unexpectedly NULL"))
    }
}

/// A statement argument.
pub fn arg<T: IntoDatum>(value: T) -> Option<Datum> {
    value.into_datum()
}

/// Something that our own code should have made impossible.
pub fn internal(message: &str) -> Failure {
    Failure::new("XX000", message)
        .hint("This is a defect of taskq: please report it with the statement that caused it.")
}
