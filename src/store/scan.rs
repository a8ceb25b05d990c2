//! Rows of `taskq.task`, read in the order of an index and locked one by one.
//!
//! This is one of the few modules with unsafe code. What it rests on stands in `heap`.
#![allow(unsafe_code)]

use super::columns::Column;
use super::heap::TaskTable;
use super::index::{Index, MOST_KEYS};
use crate::failure::Outcome;
use crate::statement::{Snapshot, internal};
use pgrx::pg_sys::{self, Datum, Oid, Relation};
use pgrx::{FromDatum, IntoDatum};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// What a column of a row must be for a scan to find it.
#[derive(Clone, Copy)]
pub enum Is {
    Equal,
    Less,
    AtMost,
    Greater,
}

/// A condition on a column of the index.
pub struct Key {
    column: Column,
    is: Is,
    value: Datum,
}

impl Key {
    /// The value's type must be the column's.
    pub fn new(column: Column, is: Is, value: impl IntoDatum) -> Outcome<Key> {
        let value = value.into_datum().ok_or_else(|| internal("a key without a value"))?;
        Ok(Key { column, is, value })
    }

    /// The function that compares: of text, integer, bigint, timestamptz.
    fn procedure(&self) -> Outcome<u32> {
        use pg_sys as f;
        Ok(match (self.column, self.is) {
            (Column::Queue, Is::Equal) => f::F_TEXTEQ,
            (Column::Queue, Is::Greater) => f::F_TEXT_GT,
            (Column::Priority, Is::Equal) => f::F_INT4EQ,
            (Column::Priority, Is::Less) => f::F_INT4LT,
            (Column::RunAt, Is::Equal) => f::F_TIMESTAMPTZ_EQ,
            (Column::RunAt, Is::AtMost) => f::F_TIMESTAMPTZ_LE,
            (Column::RunAt, Is::Greater) => f::F_TIMESTAMPTZ_GT,
            (Column::Id, Is::Equal) => f::F_INT8EQ,
            (Column::Id, Is::Greater) => f::F_INT8GT,
            _ => return Err(internal("a scan with a key that nobody needed before")),
        })
    }

    fn strategy(&self) -> u32 {
        match self.is {
            Is::Less => pg_sys::BTLessStrategyNumber,
            Is::AtMost => pg_sys::BTLessEqualStrategyNumber,
            Is::Equal => pg_sys::BTEqualStrategyNumber,
            Is::Greater => pg_sys::BTGreaterStrategyNumber,
        }
    }
}

/// Reads rows by an index. What it sees does not change while it lives.
pub struct Scan<'table> {
    _table: &'table TaskTable,
    index: Index,
    relation: Relation,
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    _snapshot: Snapshot,
}

impl<'table> Scan<'table> {
    /// Reads by an index, in its order, what is committed at this moment.
    pub fn begin(table: &'table TaskTable, index: Index) -> Outcome<Scan<'table>> {
        let most_keys = index.columns().len() as c_int;
        let snapshot = Snapshot::taken(|| ());
        // SAFETY: the index belongs to the open table and is closed by Drop; so are scan and slot.
        unsafe {
            let relation =
                pg_sys::index_open(index.find(&table.indexes())?, pg_sys::AccessShareLock as c_int);
            let active = pg_sys::GetActiveSnapshot();
            #[cfg(not(feature = "pg18"))]
            let scan = pg_sys::index_beginscan(table.heap, relation, active, most_keys, 0);
            #[cfg(feature = "pg18")]
            let scan = pg_sys::index_beginscan(table.heap, relation, active, ptr::null_mut(), most_keys, 0);
            let slot = pg_sys::table_slot_create(table.heap, ptr::null_mut());
            Ok(Scan { _table: table, index, relation, scan, slot, _snapshot: snapshot })
        }
    }

    /// Begins anew, with rows for which all of this holds.
    pub fn seek(&mut self, keys: &[Key]) -> Outcome<()> {
        let mut scan_keys = [const { MaybeUninit::<pg_sys::ScanKeyData>::uninit() }; MOST_KEYS];
        if keys.len() > self.index.columns().len() {
            return Err(internal("a scan with too many keys"));
        }
        for (scan_key, key) in scan_keys.iter_mut().zip(keys) {
            let number = self
                .index
                .number(key.column)
                .ok_or_else(|| internal("a scan with a key of another index"))?;
            // SAFETY: fills the key in. Text columns have the collation "C", which is what this sets.
            unsafe {
                pg_sys::ScanKeyInit(
                    scan_key.as_mut_ptr(),
                    number,
                    key.strategy() as u16,
                    Oid::from(key.procedure()?),
                    key.value,
                )
            };
        }
        // SAFETY: the scan was begun with room for at least so many keys (checked above), and copies as many
        // as its count says, which were filled in.
        unsafe {
            (*self.scan).numberOfKeys = keys.len() as c_int;
            let keys_begin = scan_keys.as_mut_ptr().cast();
            pg_sys::index_rescan(self.scan, keys_begin, keys.len() as c_int, ptr::null_mut(), 0);
        }
        Ok(())
    }

    /// Goes to the next row; false behind the last one.
    pub fn next(&mut self) -> bool {
        // SAFETY: scan and slot belong together.
        unsafe {
            pg_sys::index_getnext_slot(self.scan, pg_sys::ScanDirection::ForwardScanDirection, self.slot)
        }
    }

    /// A column of the row, whose type must be the column's.
    pub fn get<T: FromDatum>(&self, column: Column) -> Option<T> {
        let number = column as i16;
        // SAFETY: the slot holds a row of the table, which has the column.
        unsafe {
            if (*self.slot).tts_nvalid < number {
                pg_sys::slot_getsomeattrs_int(self.slot, c_int::from(number));
            }
            let null = *(*self.slot).tts_isnull.add(column.at());
            T::from_datum(*(*self.slot).tts_values.add(column.at()), null)
        }
    }

    /// A column that is never NULL.
    pub fn need<T: FromDatum>(&self, column: Column) -> Outcome<T> {
        self.get(column).ok_or_else(|| internal("a column is unexpectedly NULL"))
    }

    /// Whether a text column has this value; spares a copy of it.
    pub fn is(&self, column: Column, text: &str) -> bool {
        self.get::<&str>(column) == Some(text)
    }

    /// Locks the row, if nobody else has locked or changed it.
    pub fn lock(&self) -> Locking {
        let mut tuple = pg_sys::HeapTupleData::default();
        let mut buffer = 0;
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the slot holds a row that the active snapshot sees, so its place is still its own. The
        // buffer that comes back is pinned, and released when the row was copied.
        unsafe {
            tuple.t_self = (*self.slot).tts_tid;
            let heap = (*self.scan).heapRelation;
            let result = pg_sys::heap_lock_tuple(
                heap,
                &mut tuple,
                pg_sys::GetCurrentCommandId(false),
                pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
                pg_sys::LockWaitPolicy::LockWaitSkip,
                false,
                &mut buffer,
                &mut failure,
            );
            let copy = if result == pg_sys::TM_Result::TM_Ok {
                Some(pg_sys::heap_copytuple(&raw mut tuple))
            } else {
                None
            };
            pg_sys::ReleaseBuffer(buffer);
            match (copy, result) {
                (Some(tuple), _) => Locking::Locked(LockedRow { tuple }),
                (None, pg_sys::TM_Result::TM_Updated | pg_sys::TM_Result::TM_Deleted) => Locking::Changed,
                _ => Locking::Held,
            }
        }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: all three were opened by `scan`, and are closed once.
            unsafe {
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::index_endscan(self.scan);
                pg_sys::index_close(self.relation, pg_sys::NoLock as c_int);
            }
        }
    }
}

/// What came of locking a row.
pub enum Locking {
    Locked(LockedRow),
    /// Somebody else holds it.
    Held,
    /// Somebody has changed it since the scan began.
    Changed,
}

/// A copy of a row that this transaction has locked.
pub struct LockedRow {
    pub(super) tuple: pg_sys::HeapTuple,
}
