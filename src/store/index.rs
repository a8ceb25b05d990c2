//! The indexes of `taskq.task`: the two that claims and enqueues go by, and what others may have added.
//!
//! This is one of the few modules with unsafe code. What all of it rests on: the caller has the table open, and locked such
//! that its indexes stay.
#![allow(unsafe_code)]

use super::columns::Column;
use crate::failure::{Failure, Outcome};
use pgrx::pg_sys::{self, Oid, Relation};
use std::cell::Cell;
use std::ffi::{CStr, c_int};

/// One of the two indexes.
#[derive(Clone, Copy)]
pub enum Index {
    /// `task_pkey`: (id)
    ById,
    /// `task_ready_idx`: (queue, priority desc, run_at, id)
    Ready,
}

impl Index {
    pub fn columns(self) -> &'static [Column] {
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
    pub fn number(self, column: Column) -> Option<i16> {
        self.columns().iter().position(|own| *own == column).map(|at| at as i16 + 1)
    }

    /// Whether an open index is this one.
    fn is(self, relation: Relation) -> bool {
        // SAFETY: the index is open.
        unsafe {
            let form = (*relation).rd_index;
            let keys = (*form).indkey.values.as_slice((*form).indnatts as usize);
            let columns = self.columns().iter().map(|column| *column as i16);
            // (Others may have indexes on the same columns, but in another order, or of some rows only.)
            let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr());
            name == self.name() && (*form).indisvalid && keys.iter().copied().eq(columns)
        }
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

    /// Which of a table's indexes it is.
    pub fn find(self, indexes: &[Oid]) -> Outcome<Oid> {
        let known = self.known().get();
        if indexes.contains(&known) {
            return Ok(known);
        }
        let found = indexes.iter().copied().find(|oid| look_at(*oid, |relation| self.is(relation)));
        let found = found.ok_or_else(|| {
            Failure::new("55000", "an index of taskq.task is missing")
                .hint("task_pkey and task_ready_idx belong to taskq: create the extension anew from a dump.")
        })?;
        self.known().set(found);
        Ok(found)
    }
}

/// The columns of the larger index.
pub const MOST_KEYS: usize = 4;

/// Whether only the executor fills one of these indexes rightly: it has conditions, expressions, or is a constraint of its own.
pub fn need_executor(indexes: &[Oid]) -> bool {
    indexes.iter().any(|oid| look_at(*oid, needs_executor))
}

/// What is found out about an index, while it is open.
fn look_at(index: Oid, find_out: impl FnOnce(Relation) -> bool) -> bool {
    // SAFETY: indexes cannot go while their table is locked; this one is closed again, its lock stays.
    unsafe {
        let relation = pg_sys::index_open(index, pg_sys::AccessShareLock as c_int);
        let found = find_out(relation);
        pg_sys::index_close(relation, pg_sys::NoLock as c_int);
        found
    }
}

fn needs_executor(index: Relation) -> bool {
    // SAFETY: the index is open.
    unsafe {
        let form = (*index).rd_index;
        (*form).indisexclusion
            || !(*form).indimmediate
            || !pg_sys::RelationGetIndexExpressions(index).is_null()
            || !pg_sys::RelationGetIndexPredicate(index).is_null()
    }
}
