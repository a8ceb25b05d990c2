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
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::statement::{Snapshot, Spi, internal};
use pgrx::pg_sys::{self, Datum, Oid, Relation};
use pgrx::{FromDatum, IntoDatum};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr;

/// The columns of the larger index.
const MOST_KEYS: usize = 4;
/// The check constraints that the table has of its own: `task_life_cycle`.
const CHECKS: u16 = 1;

impl Column {
    /// Its place among all.
    pub fn at(self) -> usize {
        self as usize - 1
    }
}

/// One of the two indexes.
#[derive(Clone, Copy)]
enum Index {
    /// `task_pkey`: (id)
    ById,
    /// `task_ready_idx`: (queue, priority desc, run_at, id)
    Ready,
}

impl Index {
    fn columns(self) -> &'static [Column] {
        match self {
            Index::ById => &[Column::Id],
            Index::Ready => &[Column::Queue, Column::Priority, Column::RunAt, Column::Id],
        }
    }

    fn name(self) -> &'static CStr {
        match self {
            Index::ById => c"task_pkey",
            Index::Ready => c"task_ready_idx",
        }
    }

    /// The number of a column in the index.
    fn number(self, column: Column) -> Option<i16> {
        self.columns().iter().position(|own| *own == column).map(|at| at as i16 + 1)
    }

    /// Where it was found last; REINDEX CONCURRENTLY makes another one.
    fn known(self) -> &'static std::thread::LocalKey<Cell<Oid>> {
        thread_local! {
            static BY_ID: Cell<Oid> = const { Cell::new(Oid::INVALID) };
            static READY: Cell<Oid> = const { Cell::new(Oid::INVALID) };
        }
        match self {
            Index::ById => &BY_ID,
            Index::Ready => &READY,
        }
    }
}

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

/// The table, open.
pub struct TaskTable {
    heap: Relation,
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

    /// Reads by an index, in its order, what is committed at this moment.
    fn scan(&self, index: Index) -> Outcome<Scan<'_>> {
        let most_keys = index.columns().len() as c_int;
        let snapshot = Snapshot::taken(|| ());
        // SAFETY: the index belongs to the open table and is closed by Drop; so are scan and slot.
        unsafe {
            let relation = pg_sys::index_open(self.find(index)?, pg_sys::AccessShareLock as c_int);
            let active = pg_sys::GetActiveSnapshot();
            #[cfg(not(feature = "pg18"))]
            let scan = pg_sys::index_beginscan(self.heap, relation, active, most_keys, 0);
            #[cfg(feature = "pg18")]
            let scan = pg_sys::index_beginscan(self.heap, relation, active, ptr::null_mut(), most_keys, 0);
            let slot = pg_sys::table_slot_create(self.heap, ptr::null_mut());
            Ok(Scan { _table: self, index, relation, scan, slot, _snapshot: snapshot })
        }
    }

    /// A scan in the order of claims.
    pub fn in_order(&self) -> Outcome<Scan<'_>> {
        self.scan(Index::Ready)
    }

    fn find(&self, index: Index) -> Outcome<Oid> {
        // SAFETY: the relation is open; the list is ours, and names its indexes.
        unsafe {
            let list = pg_sys::RelationGetIndexList(self.heap);
            let known = index.known().get();
            if pg_sys::list_member_oid(list, known) {
                pg_sys::list_free(list);
                return Ok(known);
            }
            let count = if list.is_null() { 0 } else { (*list).length };
            for at in 0..count {
                let oid = (*(*list).elements.offset(at as isize)).oid_value;
                let relation = pg_sys::index_open(oid, pg_sys::AccessShareLock as c_int);
                let form = (*relation).rd_index;
                let keys = (*form).indkey.values.as_slice((*form).indnatts as usize);
                let columns = index.columns().iter().map(|column| *column as i16);
                // (Others may have indexes on the same columns, but in another order, or of some rows only.)
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr());
                let fits = name == index.name() && (*form).indisvalid && keys.iter().copied().eq(columns);
                pg_sys::index_close(relation, pg_sys::NoLock as c_int);
                if fits {
                    index.known().set(oid);
                    pg_sys::list_free(list);
                    return Ok(oid);
                }
            }
        }
        Err(Failure::new("55000", "an index of taskq.task is missing")
            .hint("task_pkey and task_ready_idx belong to taskq: create the extension anew from a dump."))
    }

    /// Whether rows must be written by statements: there are triggers, constraints, or indexes with conditions or
    /// expressions, which somebody else has put on the table.
    pub fn needs_statements(&self) -> bool {
        // SAFETY: the relation is open, and locked such that neither comes while it is; the list is ours, and names its indexes.
        unsafe {
            let constraints = (*(*self.heap).rd_att).constr;
            let checks = if constraints.is_null() { 0 } else { (*constraints).num_check };
            if !(*self.heap).trigdesc.is_null() || checks != CHECKS {
                return true;
            }
            let list = pg_sys::RelationGetIndexList(self.heap);
            let count = if list.is_null() { 0 } else { (*list).length };
            let needs = (0..count).any(|at| {
                let oid = (*(*list).elements.offset(at as isize)).oid_value;
                let index = pg_sys::index_open(oid, pg_sys::AccessShareLock as c_int);
                let form = (*index).rd_index;
                let needs = (*form).indisexclusion
                    || !(*form).indimmediate
                    || !pg_sys::RelationGetIndexExpressions(index).is_null()
                    || !pg_sys::RelationGetIndexPredicate(index).is_null();
                pg_sys::index_close(index, pg_sys::NoLock as c_int);
                needs
            });
            pg_sys::list_free(list);
            needs
        }
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

    /// Reads tasks by id and locks them, as FOR NO KEY UPDATE SKIP LOCKED does.
    pub fn by_id(&self) -> Outcome<Scan<'_>> {
        self.scan(Index::ById)
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

/// Reads rows by an index. What it sees does not change while it lives.
pub struct Scan<'table> {
    _table: &'table TaskTable,
    index: Index,
    relation: Relation,
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    _snapshot: Snapshot,
}

impl Scan<'_> {
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
    tuple: pg_sys::HeapTuple,
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
