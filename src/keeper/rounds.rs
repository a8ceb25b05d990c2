//! The keeper's loop: which duty is due, one round of it, sleep.

use super::{prepared, process, requests};
use crate::clock;
use crate::effort::{self, Effort};
use crate::failure::Outcome;
use crate::locks;
use crate::recover;
use crate::settings::{KEEPER, KEEPER_INTERVAL, TEST_CLOCK};
use crate::shared::{self, Process};
use crate::statement::{Spi, Statement, arg};
use crate::transaction;
use crate::values::{Moment, Seconds, wall_clock};
use pgrx::pg_sys::{Oid, TEXTOID};
use std::collections::HashSet;
use std::ffi::CString;
use std::time::{Duration, Instant};

/// Of this library's version: with another one's tables there is nothing that a keeper could do well. The
/// end of an upgrade starts one.
static EXTENSION: Statement = Statement::new(
    concat!(
        "select oid, extowner from pg_catalog.pg_extension where extname = 'taskq' and extversion = '",
        env!("CARGO_PKG_VERSION"),
        "'"
    ),
    &[],
);
static DUTIES: Statement = Statement::new("select name, every from taskq.duty order by name", &[]);
/// What ALTER DATABASE ... SET has set of ours. It reaches only new sessions; a keeper that is at work looks for itself.
static SETTINGS: Statement = Statement::new(
    "select pg_catalog.array_agg(c.setting order by c.setting),
            pg_catalog.bool_or(case when c.setting like 'taskq.keeper=%'
                                    then not pg_catalog.split_part(c.setting, '=', 2)::boolean end)
       from pg_catalog.pg_db_role_setting s
       join pg_catalog.pg_database d on d.oid = s.setdatabase and d.datname = pg_catalog.current_database()
      cross join pg_catalog.unnest(s.setconfig) c(setting)
      where s.setrole = 0 and c.setting like 'taskq.%'",
    &[],
);
static RUN_DUTY: Statement = Statement::new("select taskq._run_duty($1)", &[TEXTOID]);
static DUTY_FAILED: Statement = Statement::new("select taskq._duty_failed($1, $2)", &[TEXTOID, TEXTOID]);

/// A clock that goes wrong by more than so many seconds between two looks has jumped.
const JUMP: f64 = 5.0;
/// The wake duty is short, and must be quick; a drill is rare, and its steps are small.
const APART: Duration = Duration::from_millis(10);
/// Leases that end one after the other are taken back together.
const RECOVER_APART: Duration = Duration::from_millis(500);
/// So many are one full round.
const MANY_LEASES: i64 = 1_000;
/// Seconds after which a round of the drill duty that failed is tried again.
const DRILL_AGAIN: f64 = 1.0;

/// So often a new keeper tries to take the place of another one, in case that is just leaving.
const TRIES: u32 = 10;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Does the duties of this database until the extension is gone or the keeper is switched off.
pub fn run() {
    // One that is switched off must not be taken for a keeper, not even for a moment.
    let settings = process::transaction(Settings::now);
    if settings.off || !alone() || process::transaction(|| Settings::now().off) {
        process::leave();
    }
    // Should this keeper end before the launcher has seen it, it is started again soon all the same.
    requests::look_into(process::database());
    recover::in_keeper();
    let extension = process::transaction(installed).map_or(Oid::INVALID, |extension| extension.oid);
    shared::with_database(|database| {
        database.keeper = Process::current();
        // Whatever happened while there was none.
        database.look_everywhere = true;
        database.next_due = Moment::DISTANT_PAST;
        database.next_expiry = Moment::DISTANT_PAST;
        database.wake_at = Moment::DISTANT_PAST;
    });
    let mut keeper = Keeper {
        extension,
        settings,
        begin: Instant::now(),
        duties: Vec::new(),
        looked_at: None,
        time: (clock::now().unwrap_or_else(|_| wall_clock()), Instant::now()),
        clock: TEST_CLOCK.get(),
        prepared: (0, HashSet::new()),
    };
    loop {
        keeper.look();
        keeper.do_what_is_due();
        process::sleep(keeper.rest());
    }
}

struct Keeper {
    extension: Oid,
    /// Those of this database when it began.
    settings: Settings,
    begin: Instant,
    duties: Vec<Duty>,
    looked_at: Option<Instant>,
    /// The clock when last looked, and the time of the machine, which no one can set.
    time: (Moment, Instant),
    clock: Option<CString>,
    /// How many prepared transactions had been noted, and which of them there were, when last looked.
    prepared: (u32, HashSet<String>),
}

struct Duty {
    name: String,
    every: Duration,
    /// When it is due if nothing happens before.
    next: Instant,
    rest_until: Instant,
}

/// Our settings of this database, and whether they switch the keeper off.
#[derive(PartialEq)]
struct Settings {
    list: Vec<String>,
    off: bool,
}

impl Settings {
    fn now() -> Self {
        or_fail(Spi::run_freely(|spi| {
            let table = spi.execute(&SETTINGS, &[])?;
            let off = !KEEPER.get() || table.get(0, 1).unwrap_or_default();
            Ok(Settings { list: table.get(0, 0).unwrap_or_default(), off })
        }))
    }
}

impl Keeper {
    /// Compares the clock with the time that has really passed.
    fn watch_clock(&mut self) {
        let (now, real) = (clock::now().unwrap_or_else(|_| wall_clock()), Instant::now());
        let (was, was_real) = std::mem::replace(&mut self.time, (now, real));
        let jump = now.seconds_since(was) - (real - was_real).as_secs_f64();
        if jump.abs() > JUMP {
            shared::with_database(|database| {
                database.clock_jumped_at = now;
                database.clock_jumped_by = jump;
            });
        }
    }

    /// Looks once a second (or as `taskq.keeper_interval` says) what may have changed.
    fn look(&mut self) {
        // A clock that was set forward makes everything due.
        let clock = TEST_CLOCK.get();
        if clock != self.clock {
            self.clock = clock;
            for duty in &mut self.duties {
                (duty.next, duty.rest_until) = (Instant::now(), Instant::now());
            }
        }
        if self.looked_at.is_some_and(|at| at.elapsed() < interval()) {
            return;
        }
        self.looked_at = Some(Instant::now());
        self.watch_clock();
        let (duties, prepared) = process::transaction(|| {
            let extension = leave_if_unwanted(self.extension, &self.settings);
            let noted = prepared::noted();
            // Whether some have ended is only asked while there were some.
            let asked = noted != self.prepared.0 || !self.prepared.1.is_empty() || self.duties.is_empty();
            process::as_role(extension.owner, || (duties(), asked.then(|| (noted, or_fail(prepared::now())))))
        });
        if let Some(now) = prepared {
            if now.0 != self.prepared.0 || !self.prepared.1.is_subset(&now.1) {
                shared::with_database(crate::changes::look_again);
            }
            self.prepared = now;
        }
        // The first round of each comes after its interval: a dump that is just being restored gets
        // time to make its own partitions.
        self.duties = duties
            .into_iter()
            .map(|(name, every)| match self.duties.iter().position(|duty| duty.name == name) {
                Some(at) => Duty { every, ..self.duties.swap_remove(at) },
                None => Duty { name, every, next: self.begin + every, rest_until: self.begin },
            })
            .collect();
    }

    fn do_what_is_due(&mut self) {
        let mut events = Events::now();
        for duty in &mut self.duties {
            if Instant::now() < duty.rest_until
                || (Instant::now() < duty.next && events.wait_for(&duty.name) > Duration::ZERO)
            {
                continue;
            }
            let (begin, effort) = (Instant::now(), Effort::begin());
            let name = duty.name.as_str();
            if name == "drill" {
                shared::with_database(|database| database.drill.look_at = wall_clock().plus(DRILL_AGAIN));
            }
            let mut rows = 0;
            match process::attempt(|| installed().map_or(0, |extension| run_duty(&extension, name))) {
                Ok(changed) => {
                    rows = changed;
                    // A round is bounded; one that found something may have left some. (`recover` knows.)
                    duty.next = if rows > 0 && name != "recover" { begin } else { begin + duty.every };
                }
                Err(code) => {
                    duty.next = begin + duty.every;
                    // Should this fail, too, there is nothing more to do than go on.
                    let _ = process::attempt(|| {
                        if let Some(extension) = installed() {
                            note_failure(&extension, name, &code);
                        }
                    });
                }
            }
            let rest = match name {
                "wake" | "drill" => APART,
                // It rests from its searches by itself; and many leases at once are work, not overhead.
                "recover" if rows >= MANY_LEASES => begin.elapsed() * 2,
                "recover" => RECOVER_APART,
                // So are many occurrences: midnight has most of them, and late ones count as missed.
                "schedule" if rows > 0 => begin.elapsed() * 2,
                _ => effort::rest(effort.cost()),
            };
            duty.rest_until = begin + rest;
            events = Events::now();
        }
    }

    /// How long until something may be due.
    fn rest(&self) -> Duration {
        let events = Events::now();
        let now = Instant::now();
        let rest = |duty: &Duty| {
            let due = duty.next.saturating_duration_since(now).min(events.wait_for(&duty.name));
            due.max(duty.rest_until.saturating_duration_since(now))
        };
        self.duties.iter().map(rest).min().unwrap_or(Duration::MAX).min(interval())
    }
}

/// When duties are due that do not only go by the clock.
struct Events {
    wake: Duration,
    recover: Duration,
    drill: Duration,
}

impl Events {
    fn now() -> Self {
        let (mut wake, mut drill) = (Duration::MAX, Duration::MAX);
        // A test clock that cannot be read is shown by the duties themselves.
        let now = clock::now().unwrap_or_else(|_| wall_clock());
        let mut next_expiry = Moment::INFINITY;
        shared::with_database(|database| {
            let due = database.next_due.min(database.next_opening);
            wake = until(database.wake_at, wall_clock()).min(until(due, now));
            next_expiry = database.next_expiry;
            if database.drill.is_there() {
                drill = until(database.drill.look_at, wall_clock());
            }
        });
        Events { wake, recover: until(recover::next_look(next_expiry, now), now), drill }
    }

    fn wait_for(&self, duty: &str) -> Duration {
        match duty {
            "wake" => self.wake,
            "recover" => self.recover,
            "drill" => self.drill,
            _ => Duration::MAX,
        }
    }
}

fn until(moment: Moment, now: Moment) -> Duration {
    if moment == Moment::INFINITY {
        return Duration::MAX;
    }
    Duration::try_from_secs_f64(moment.seconds_since(now).max(0.0)).unwrap_or(Duration::MAX)
}

fn interval() -> Duration {
    Duration::from_millis(KEEPER_INTERVAL.get().unsigned_abs().into())
}

/// Leaves if the extension was dropped (another one that was created since has its own keeper), or ALTER DATABASE has
/// changed our settings: if the keeper was not switched off, the next one begins with the new ones.
fn leave_if_unwanted(extension: Oid, known: &Settings) -> Extension {
    let Some(installed) = installed().filter(|installed| installed.oid == extension) else {
        if let Some(mut shared) = shared::lock() {
            let id = transaction::database();
            shared.forget(|database| database == id);
        }
        process::leave();
    };
    let settings = Settings::now();
    if settings.off {
        shared::with_database(|database| database.keeper = Process::NONE);
        process::leave();
    }
    if settings != *known {
        requests::look_into(process::database());
        process::leave();
    }
    installed
}

/// The duties and how often each is due.
fn duties() -> Vec<(String, Duration)> {
    or_fail(Spi::run_freely(|spi| {
        let table = spi.execute(&DUTIES, &[])?;
        (0..table.len())
            .map(|row| {
                let every: Seconds = table.need(row, 1)?;
                Ok((table.need(row, 0)?, Duration::try_from_secs_f64(every.0).unwrap_or(Duration::MAX)))
            })
            .collect()
    }))
}

#[derive(PartialEq)]
struct Extension {
    oid: Oid,
    owner: Oid,
}

/// The extension, if it is there. If so, it stays until this transaction ends: DROP EXTENSION
/// waits for us, and does not meet us half way, where one of us would end in a deadlock.
fn installed() -> Option<Extension> {
    let mut found = extension();
    while let Some(extension_then) = found {
        process::lock_extension(extension_then.oid);
        found = extension();
        if found == Some(extension_then) {
            break;
        }
    }
    found
}

fn extension() -> Option<Extension> {
    or_fail(Spi::run_freely(|spi| {
        let table = spi.execute(&EXTENSION, &[])?;
        if table.is_empty() {
            return Ok(None);
        }
        Ok(Some(Extension { oid: table.need(0, 0)?, owner: table.need(0, 1)? }))
    }))
}

/// Whether this is the only keeper of the database. One that is just leaving, as after a quick
/// DROP and CREATE EXTENSION, is waited for.
fn alone() -> bool {
    for _ in 0..TRIES {
        match process::transaction(|| installed().map(|_| locks::become_keeper())) {
            None => return false,
            Some(true) => return true,
            Some(false) => process::sleep(TRY_AGAIN),
        }
    }
    false
}

/// One round; returns how many rows it changed. An error in it was noted and logged by `_run_duty`.
fn run_duty(extension: &Extension, name: &str) -> i64 {
    process::as_role(extension.owner, || {
        or_fail(Spi::run_freely(|spi| spi.execute(&RUN_DUTY, &[arg(name)])?.need(0, 0)))
    })
}

/// The round failed where `_run_duty` could not note it: at its commit, or it was cancelled.
fn note_failure(extension: &Extension, name: &str, code: &str) {
    process::as_role(extension.owner, || {
        or_fail(Spi::run_freely(|spi| spi.execute(&DUTY_FAILED, &[arg(name), arg(code)]).map(|_| ())));
    });
}

/// A failure here is a defect.
fn or_fail<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Ok(value) => value,
        Err(failure) => pgrx::error!("taskq keeper: {}", failure.message),
    }
}
