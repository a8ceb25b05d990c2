//! What all sessions and the keeper share in memory: figures of queues, hints that spare the keeper
//! a search, and who is to be woken. Needs preloading; without it nothing here does anything.
//!
//! `changes` fills it as transactions commit, the keeper and `figures` read it.

pub mod buckets;
pub mod database;
pub mod figure;
pub mod histogram;
pub mod memory;
pub mod text;
pub mod waiter;
pub mod worker;

pub use memory::{Locked, Process, init, is_there, lock};

use crate::transaction;
use crate::values::Moment;
use database::Database;
use memory::Shared;

/// Looks at, or changes, what is kept for this database. None without shared memory, or if there is no
/// room. The lock is held meanwhile: see `lock`.
pub fn with_database<T>(body: impl FnOnce(&mut Database) -> T) -> Option<T> {
    lock()?.database(transaction::database()).map(body)
}

impl Shared {
    /// What is kept for a database, made if there is none. None if there is no room.
    pub fn database(&mut self, oid: u32) -> Option<&mut Database> {
        let at = self
            .databases
            .iter()
            .position(|database| database.oid == oid)
            .or_else(|| self.databases.iter().position(|database| database.oid == 0))?;
        let database = &mut self.databases[at];
        if database.oid == 0 {
            *database = Database::new(oid);
        }
        Some(database)
    }

    /// A database has a new taskq, of which nothing is known; a keeper that is at work stays known.
    pub fn begin_anew(&mut self, oid: u32) {
        figure::forget(&mut self.figures, |database| database == oid);
        if let Some(database) = self.database(oid) {
            let keeper = database.keeper;
            *database = Database::new(oid);
            database.keeper = keeper;
            database.wake_by(Moment::DISTANT_PAST);
        }
        for worker in self.workers.iter_mut().filter(|worker| worker.database == oid) {
            worker.database = 0;
        }
    }

    /// Forgets what is kept for databases that are not known any more. One that has just been made, and
    /// has a keeper already, may not be known yet.
    pub fn forget_unknown(&mut self, known: impl Fn(u32) -> bool) {
        let kept: Vec<u32> = self
            .databases
            .iter()
            .filter(|database| database.keeper.lives())
            .map(|database| database.oid)
            .collect();
        self.forget(|database| !known(database) && !kept.contains(&database));
    }

    /// Forgets what is kept for databases that are gone, or have taskq no more. (Waiters go with their
    /// sessions.)
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        for database in &mut self.databases {
            if database.oid != 0 && is_gone(database.oid) {
                database.oid = 0;
            }
        }
        for worker in &mut self.workers {
            if is_gone(worker.database) {
                worker.database = 0;
            }
        }
        figure::forget(&mut self.figures, is_gone);
    }
}
