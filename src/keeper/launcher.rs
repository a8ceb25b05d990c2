//! The launcher: one background worker a server, which starts a keeper in each database.

use super::databases::{self, Database};
use super::{process, requests, stand_aside};
use crate::settings::KEEPER;
use crate::shared;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{FromDatum, pg_guard, warning};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How soon the postmaster starts the launcher again if it ended with an error.
const RESTART: Duration = Duration::from_secs(5);
/// How often the launcher looks for keepers that ended, and for new databases.
const LOOK: Duration = Duration::from_secs(2);
/// The same while it has more to start.
const SOON: Duration = Duration::from_millis(100);
/// How soon it looks at those it has started.
const SEE: Duration = Duration::from_millis(300);
/// So many are started at a time: in a database without taskq a keeper ends at once, and the next
/// ones take its worker slot.
const BATCH: usize = 4;
/// How often it looks into a database that had no taskq, or whose keeper was switched off. (It is
/// told when that changes: see `requests`. This is for what it could not be told.)
const LOOK_INTO: Duration = Duration::from_secs(60);
/// A keeper that was at work and ended is started again at each look, so often in a row: it may end
/// again before the next look sees it.
const TRIES: u32 = 5;
/// A keeper that was started is given so long to appear.
const ARRIVE: Duration = Duration::from_secs(1);
/// Worker slots are short when none was free for so long: ours may have been in use for a moment.
const SHORT: Duration = Duration::from_secs(3);
/// A keeper that was asked to leave, and has not, is terminated.
const GENTLE: Duration = Duration::from_secs(1);

pub fn register() {
    BackgroundWorkerBuilder::new("taskq launcher")
        .set_type("taskq launcher")
        .set_library("taskq")
        .set_function("taskq_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART))
        .load();
}

/// Starts a keeper for a database; false if no worker slot is free. It leaves by itself if the
/// database has no taskq, or has a keeper already. The postmaster does not start it again, because
/// it would go on trying when the database is gone; the launcher does.
pub fn start_keeper(database: Oid) -> bool {
    BackgroundWorkerBuilder::new("taskq keeper")
        .set_type("taskq keeper")
        .set_library("taskq")
        .set_function("taskq_keeper_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(Some(Datum::from(database)))
        .load_dynamic()
        .is_ok()
}

/// What the launcher knows of the databases.
#[derive(Default)]
struct Launcher {
    looked_into: HashMap<Oid, Instant>,
    tries_left: HashMap<Oid, u32>,
    /// Databases that we have marked, because a keeper is where none should be.
    leaving: HashMap<Oid, Instant>,
    no_slot_since: Option<Instant>,
    warned: bool,
}

impl Launcher {
    /// Starts the keepers that are missing, and has those leave that should not be. Returns when to
    /// look again.
    fn look(&mut self, databases: &[Database]) -> Duration {
        let keepers = process::workers(c"taskq keeper");
        let kept: HashSet<Oid> = keepers.iter().map(|keeper| keeper.database).collect();
        let known: HashSet<Oid> = databases.iter().map(|database| database.oid).collect();
        if let Some(mut shared) = shared::lock() {
            shared.forget_unknown(|database| known.contains(&Oid::from(database)));
        }
        self.looked_into.retain(|database, _| known.contains(database));
        self.tries_left.retain(|database, _| known.contains(database));
        self.tries_left.extend(kept.iter().map(|database| (*database, TRIES)));
        for database in requests::taken() {
            // A keeper may be on its way to it.
            self.looked_into.insert(database, Instant::now());
            self.tries_left.insert(database, TRIES);
        }
        self.send_away(databases, &keepers);
        let mut missing = self.missing(databases, &kept);
        if !missing.is_empty() {
            // One that was just dropped may have been in the list, and its command over when we asked.
            let there: HashSet<Oid> = databases::all().iter().map(|database| database.oid).collect();
            missing.retain(|database| there.contains(database));
        }
        for (started, database) in missing.iter().enumerate() {
            if started == BATCH {
                return SOON;
            }
            if !start_keeper(*database) {
                self.note_shortage();
                return if self.warned { LOOK } else { SOON };
            }
            let left = self.tries_left.entry(*database).or_default();
            *left = left.saturating_sub(1);
            self.looked_into.insert(*database, Instant::now());
            self.no_slot_since = None;
        }
        if missing.is_empty() {
            self.warned = false;
            return LOOK;
        }
        SEE
    }

    /// Where to start a keeper: first where that is longest ago, or never was.
    fn missing(&mut self, databases: &[Database], kept: &HashSet<Oid>) -> Vec<Oid> {
        let mut missing = Vec::new();
        for database in databases {
            if !database.eligible || stand_aside::asked(database.oid) {
                // It comes back as soon as it may.
                self.looked_into.remove(&database.oid);
            } else if !kept.contains(&database.oid) && self.is_due(database.oid) {
                missing.push(database.oid);
            }
        }
        missing.sort_by_key(|database| self.looked_into.get(database).copied());
        missing
    }

    fn is_due(&self, database: Oid) -> bool {
        let tries_left = self.tries_left.get(&database).is_some_and(|left| *left > 0);
        let rest = if tries_left { ARRIVE } else { LOOK_INTO };
        self.looked_into.get(&database).is_none_or(|at| at.elapsed() > rest)
    }

    /// One warning until all could be started.
    fn note_shortage(&mut self) {
        let since = *self.no_slot_since.get_or_insert_with(Instant::now);
        if !self.warned && since.elapsed() > SHORT {
            self.warned = true;
            warning!("taskq launcher found no free background worker slot; raise max_worker_processes");
        }
    }

    /// Keepers of excluded databases, and of those that have become templates.
    fn send_away(&mut self, databases: &[Database], keepers: &[process::Worker]) {
        let out: HashSet<Oid> =
            databases.iter().filter(|database| !database.eligible).map(|database| database.oid).collect();
        for keeper in keepers.iter().filter(|keeper| out.contains(&keeper.database)) {
            let asked = self.leaving.entry(keeper.database).or_insert_with(|| {
                stand_aside::mark(keeper.database);
                Instant::now()
            });
            if asked.elapsed() < GENTLE { keeper.wake() } else { keeper.terminate() }
        }
        self.leaving.retain(|database, _| {
            let stays = out.contains(database) && keepers.iter().any(|keeper| keeper.database == *database);
            if !stays {
                stand_aside::unmark(*database);
            }
            stays
        });
    }
}

/// Starts a keeper in every database at first, and again where one ended that had been at work.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn taskq_launcher_main(_argument: Datum) {
    process::accept_signals();
    process::connect(Oid::INVALID);
    process::set_name(c"taskq launcher");
    let mut launcher = Launcher::default();
    let mut switched_on = KEEPER.get();
    loop {
        if KEEPER.get() != switched_on {
            switched_on = KEEPER.get();
            launcher.looked_into.clear();
        }
        let time = process::transaction(|| launcher.look(&databases::all()));
        process::sleep(time);
    }
}

/// The keeper's entry point; its database is the argument.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn taskq_keeper_main(argument: Datum) {
    process::accept_signals();
    // SAFETY: start_keeper passes an oid.
    let database = unsafe { Oid::from_datum(argument, false) }.unwrap_or(Oid::INVALID);
    // Somebody may want the database for himself, before or just after we have come to it.
    if stand_aside::asked(database) {
        process::leave();
    }
    process::connect(database);
    process::set_name(c"taskq keeper");
    let eligible =
        process::transaction(|| databases::all().iter().any(|other| other.oid == database && other.eligible));
    if !eligible || stand_aside::asked(database) {
        process::leave();
    }
    super::rounds::run();
}
