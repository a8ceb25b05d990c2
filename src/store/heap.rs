//! `taskq.task` read and written without the executor: what a claim and an enqueue do is a few steps in
//! two known indexes, and preparing those for PostgreSQL's executor takes longer than the steps.
//!
//! Snapshots, row locks, WAL and index entries are PostgreSQL's own functions, as they are for a
//! statement. The table's own check constraint is not looked at: what is written here holds it. If somebody has put
//! something on the table that only the executor takes care of, callers use statements instead (`needs_statements`).
//!
//! This is one of the few modules with unsafe code. What all of it rests on: relations stay locked until
//! the transaction ends; scans and slots live in the memory of the SPI connection; an error of PostgreSQL
//! leaves them to the end of the transaction, which gives back what they hold.
#![allow(unsafe_code)]

use super::columns::{COLUMNS, Column, Values};
use super::index::{Index, need_executor};
use super::scan::{LockedRow, Scan};
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::statement::{Spi, internal};
use pgrx::pg_sys::{self, Datum, Oid, Relation};
use pgrx::{FromDatum, IntoDatum};
use std::ffi::{CStr, c_int};

/// The check constraints that the table has of its own: `task_life_cycle`.
const CHECKS: u16 = 1;

impl Column {
    /// Its place among all.
    pub fn at(self) -> usize {
        self as usize - 1
    }
}

/// The table, open.
pub struct TaskTable {
    pub(super) heap: Relation,
}

impl TaskTable {
    /// Opens the table; it stays locked until the transaction ends.
    pub fn open(spi: &Spi, lock: Lock) -> Outcome<TaskTable> {
        let oid = config::tables(spi)?.task;
        // SAFETY: raises an error if there is no such table any more.
        let table = TaskTable { heap: unsafe { pg_sys::table_open(oid, lock as c_int) } };
        // SAFETY: the relation is open.
        let columns = unsafe { (*(*table.heap).rd_att).natts };
        if columns as usize != COLUMNS {
            return Err(Failure::new("55000", "this library does not know the columns of taskq.task")
                .hint("Run ALTER EXTENSION taskq UPDATE, or start a new session."));
        }
        Ok(table)
    }

    /// The indexes that the table has.
    pub(super) fn indexes(&self) -> Vec<Oid> {
        // SAFETY: the relation is open; the list is ours, and an empty one is null.
        unsafe {
            let list = pg_sys::RelationGetIndexList(self.heap);
            let count = if list.is_null() { 0 } else { (*list).length };
            let indexes = (0..count).map(|at| (*(*list).elements.offset(at as isize)).oid_value).collect();
            pg_sys::list_free(list);
            indexes
        }
    }

    /// Whether rows must be written by statements: there are triggers, constraints, or indexes with conditions or
    /// expressions, which somebody else has put on the table.
    pub fn needs_statements(&self) -> bool {
        // SAFETY: the relation is open, and locked such that neither comes while it is.
        let more = unsafe {
            let constraints = (*(*self.heap).rd_att).constr;
            let checks = if constraints.is_null() { 0 } else { (*constraints).num_check };
            !(*self.heap).trigdesc.is_null() || checks != CHECKS
        };
        more || need_executor(&self.indexes())
    }

    /// A scan in the order of claims.
    pub fn in_order(&self) -> Outcome<Scan<'_>> {
        Scan::begin(self, Index::Ready)
    }

    /// A scan by id.
    pub fn by_id(&self) -> Outcome<Scan<'_>> {
        Scan::begin(self, Index::ById)
    }

    /// Stores a row.
    pub fn insert(&self, row: &Values) {
        let mut values = row.map(|value| value.unwrap_or(Datum::from(0usize)));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: the arrays are as long as the table has columns (see `open`), and of their types.
        unsafe {
            let tuple = pg_sys::heap_form_tuple(
                (*self.heap).rd_att,
                (&raw mut values).cast(),
                (&raw mut nulls).cast(),
            );
            pg_sys::CatalogTupleInsert(self.heap, tuple);
            pg_sys::heap_freetuple(tuple);
        }
    }

    /// Writes a locked row's new version. Returns all its values; they live as long as the SPI connection.
    pub fn update(&self, row: &LockedRow, changes: &[(Column, Option<Datum>)]) -> Values {
        let (mut values, mut nulls, mut replace) =
            ([Datum::from(0usize); COLUMNS], [true; COLUMNS], [false; COLUMNS]);
        for (column, value) in changes {
            replace[column.at()] = true;
            nulls[column.at()] = value.is_none();
            values[column.at()] = value.unwrap_or(Datum::from(0usize));
        }
        // SAFETY: as in `insert`; the row is one of this table, and locked by this transaction.
        unsafe {
            let descriptor = (*self.heap).rd_att;
            let tuple = pg_sys::heap_modify_tuple(
                row.tuple,
                descriptor,
                (&raw mut values).cast(),
                (&raw mut nulls).cast(),
                (&raw mut replace).cast(),
            );
            let mut place = (*row.tuple).t_self;
            pg_sys::CatalogTupleUpdate(self.heap, &mut place, tuple);
            deform(tuple, descriptor)
        }
    }
}

/// How a table is locked.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Lock {
    Read = pg_sys::AccessShareLock as i32,
    Write = pg_sys::RowExclusiveLock as i32,
}

impl Drop for TaskTable {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `open`; the lock stays.
            unsafe { pg_sys::table_close(self.heap, pg_sys::NoLock as c_int) };
        }
    }
}

/// All values of a tuple. (Those that are references point into it.)
///
/// # Safety
/// The tuple must be of the table with this descriptor, and have its columns.
unsafe fn deform(tuple: pg_sys::HeapTuple, descriptor: pg_sys::TupleDesc) -> Values {
    let (mut values, mut nulls) = ([Datum::from(0usize); COLUMNS], [true; COLUMNS]);
    // SAFETY: the arrays are as long as the table has columns.
    unsafe {
        pg_sys::heap_deform_tuple(tuple, descriptor, (&raw mut values).cast(), (&raw mut nulls).cast())
    };
    std::array::from_fn(|at| (!nulls[at]).then_some(values[at]))
}

/// Refuses in a transaction that is read-only, with PostgreSQL's own error.
pub fn refuse_read_only(command: &CStr) {
    // SAFETY: a C string that lives through the call.
    unsafe { pg_sys::PreventCommandIfReadOnly(command.as_ptr()) }
}

/// Lets the statements that follow see what was written.
pub fn end_command() {
    // SAFETY: in a transaction, as everything here.
    unsafe { pg_sys::CommandCounterIncrement() }
}

/// A value of a row, whose type must be its column's.
pub fn value<T: FromDatum>(datum: Datum) -> Option<T> {
    // SAFETY: the caller names the column's type, as with a statement's columns.
    unsafe { T::from_datum(datum, false) }
}

/// The next value of a sequence.
pub fn next_value(sequence: Oid) -> Outcome<i64> {
    // SAFETY: nextval_oid takes a sequence and returns a bigint.
    unsafe { pgrx::direct_function_call(pg_sys::nextval_oid, &[sequence.into_datum()]) }
        .ok_or_else(|| internal("a sequence without a next value"))
}
