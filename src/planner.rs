//! Plans of the hot statements that are the same whatever the statistics say.
//!
//! A plan is kept for the session. One that was made while the tables were empty must do when they are full: to
//! PostgreSQL 17 and later, whatever reads an index of one page from end to end is cheaper than to look for several keys in
//! it. So the planner is told that our tables are full.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Oid};
use pgrx::{PgList, pg_guard};
use std::ffi::c_int;

/// At least so many rows, and pages of a table and of an index.
const ROWS: f64 = 1_000_000.0;
const PAGES: u32 = 50_000;
const INDEX_PAGES: u32 = 5_000;

static mut TABLES_ARE_FULL: bool = false;
static mut NEXT_HOOK: pg_sys::get_relation_info_hook_type = None;

/// Puts the hook in front of those that are there.
pub fn init() {
    // SAFETY: called once, when the library is loaded.
    unsafe {
        NEXT_HOOK = pg_sys::get_relation_info_hook;
        pg_sys::get_relation_info_hook = Some(relation_info);
    }
}

/// Called when the planner has looked at a relation.
#[pg_guard]
unsafe extern "C-unwind" fn relation_info(
    root: *mut pg_sys::PlannerInfo,
    oid: Oid,
    inherits: bool,
    relation: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: the arguments are handed on; the relation lives through the call.
    unsafe {
        if let Some(next) = NEXT_HOOK {
            next(root, oid, inherits, relation);
        }
        if TABLES_ARE_FULL && is_ours(oid) {
            as_if_full(&mut *relation);
        }
    }
}

/// (A trigger of others may be planned while our statement runs.)
fn is_ours(oid: Oid) -> bool {
    // SAFETY: both look into the system's caches.
    unsafe { pg_sys::get_rel_namespace(oid) == pg_sys::get_namespace_oid(c"taskq".as_ptr(), true) }
}

fn as_if_full(relation: &mut pg_sys::RelOptInfo) {
    relation.tuples = relation.tuples.max(ROWS);
    relation.pages = relation.pages.max(PAGES);
    // SAFETY: the planner has just made the list.
    let indexes = unsafe { PgList::<pg_sys::IndexOptInfo>::from_pg(relation.indexlist) };
    for index in indexes.iter_ptr() {
        // SAFETY: as above; each is a place of its own.
        let index = unsafe { &mut *index };
        index.tuples = index.tuples.max(ROWS);
        index.pages = index.pages.max(INDEX_PAGES);
        index.tree_height = index.tree_height.max(2);
    }
}

/// The planner's choices that could flip with the statistics, switched off while hot statements
/// are planned and run. Sorting is only discouraged: PostgreSQL still sorts where nothing
/// else can give the order. The settings are put back when the connection closes.
pub struct FixedPlanner {
    switches: [bool; 9],
    plan_cache_mode: c_int,
}

impl FixedPlanner {
    /// Fixes the planner, and keeps what was set before.
    pub fn new() -> Self {
        let mut planner = FixedPlanner {
            switches: [false, false, false, false, false, false, true, true, true],
            plan_cache_mode: pg_sys::PlanCacheMode::PLAN_CACHE_MODE_FORCE_GENERIC_PLAN as c_int,
        };
        planner.swap();
        planner
    }

    /// Exchanges the planner's settings with those kept here.
    fn swap(&mut self) {
        let planner = [
            &raw mut pg_sys::enable_seqscan,
            &raw mut pg_sys::enable_bitmapscan,
            &raw mut pg_sys::enable_hashjoin,
            &raw mut pg_sys::enable_mergejoin,
            &raw mut pg_sys::enable_sort,
            &raw mut pg_sys::jit_enabled,
            &raw mut pg_sys::enable_indexscan,
            &raw mut pg_sys::enable_nestloop,
            &raw mut TABLES_ARE_FULL,
        ];
        // SAFETY: these are plain variables of this single-threaded process.
        unsafe {
            for (kept, set) in self.switches.iter_mut().zip(planner) {
                std::ptr::swap(kept, set);
            }
            let mode = pg_sys::plan_cache_mode as c_int;
            pg_sys::plan_cache_mode = self.plan_cache_mode as _;
            self.plan_cache_mode = mode;
        }
    }
}

impl Drop for FixedPlanner {
    fn drop(&mut self) {
        self.swap();
    }
}
