//! The keeper's loop: which duty is due, one round of it, sleep.

use super::process;
use crate::failure::Outcome;
use crate::settings::{KEEPER, KEEPER_INTERVAL};
use crate::statement::{Spi, Statement, arg};
use crate::values::Seconds;
use pgrx::pg_sys::{Oid, TEXTOID};
use std::collections::HashMap;
use std::time::{Duration, Instant};

static EXTENSION: Statement =
    Statement::new("select oid from pg_catalog.pg_extension where extname = 'taskq'", &[]);
/// One keeper a database: the lock is held for the life of the session. The first number is
/// "task" in ASCII; `_run_duty` uses the same with the duty as the second one.
static ONLY_ONE: Statement = Statement::new("select pg_catalog.pg_try_advisory_lock(1952539499, 0)", &[]);
static DUTIES: Statement = Statement::new("select name, every from taskq.duty order by name", &[]);
/// ALTER DATABASE ... SET reaches only new sessions; a keeper that is at work looks for itself.
static SWITCHED_OFF: Statement = Statement::new(
    "select from pg_catalog.pg_db_role_setting s
       join pg_catalog.pg_database d on d.oid = s.setdatabase and d.datname = pg_catalog.current_database()
      cross join pg_catalog.unnest(s.setconfig) c(setting)
      where s.setrole = 0 and c.setting like 'taskq.keeper=%'
        and not pg_catalog.split_part(c.setting, '=', 2)::boolean",
    &[],
);
static RUN_DUTY: Statement = Statement::new("select taskq._run_duty($1)", &[TEXTOID]);

/// A duty is not done again before it has rested so many times as long as it took.
const REST: u32 = 20;

/// So often a new keeper tries to take the place of another one, in case that is just leaving.
const TRIES: u32 = 10;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Does the duties of this database until the extension is gone or the keeper is switched off.
pub fn run() {
    if !alone() {
        process::leave();
    }
    // The first round of each comes after its interval: a dump that is just being restored gets
    // time to make its own partitions.
    let begin = Instant::now();
    let mut next: HashMap<String, Instant> = HashMap::new();
    loop {
        for (name, every) in process::transaction(duties) {
            let due = next.entry(name.clone()).or_insert(begin + every);
            if *due > Instant::now() {
                continue;
            }
            let round = Instant::now();
            let rows = process::transaction(|| if installed() { run_duty(&name) } else { 0 });
            let rest = round.elapsed() * REST;
            // A round is bounded; one that found something may have left some.
            *due = round + if rows > 0 { rest } else { rest.max(every) };
        }
        process::sleep(Duration::from_millis(KEEPER_INTERVAL.get().unsigned_abs().into()));
    }
}

/// The duties and how often each is due. Leaves if the extension was dropped or the keeper was
/// switched off.
fn duties() -> Vec<(String, Duration)> {
    if !installed() || switched_off() {
        process::leave();
    }
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

fn switched_off() -> bool {
    !KEEPER.get() || or_fail(Spi::run_freely(|spi| Ok(!spi.execute(&SWITCHED_OFF, &[])?.is_empty())))
}

/// Whether the extension is there. If so, it stays until this transaction ends: DROP EXTENSION
/// waits for us, and does not meet us half way, where one of us would end in a deadlock.
fn installed() -> bool {
    let mut found = extension();
    while let Some(oid) = found {
        process::lock_extension(oid);
        found = extension();
        if found == Some(oid) {
            return true;
        }
    }
    false
}

fn extension() -> Option<Oid> {
    or_fail(Spi::run_freely(|spi| {
        let table = spi.execute(&EXTENSION, &[])?;
        if table.is_empty() { Ok(None) } else { table.need(0, 0).map(Some) }
    }))
}

/// Whether this is the only keeper of the database. One that is just leaving, as after a quick
/// DROP and CREATE EXTENSION, is waited for.
fn alone() -> bool {
    for _ in 0..TRIES {
        match process::transaction(|| installed().then(only_one)) {
            None => return false,
            Some(true) => return true,
            Some(false) => process::sleep(TRY_AGAIN),
        }
    }
    false
}

fn only_one() -> bool {
    or_fail(Spi::run_freely(|spi| spi.execute(&ONLY_ONE, &[])?.need(0, 0)))
}

/// One round; returns how many rows it changed. An error in it was noted and logged by `_run_duty`.
fn run_duty(name: &str) -> i64 {
    or_fail(Spi::run_freely(|spi| spi.execute(&RUN_DUTY, &[arg(name)])?.need(0, 0)))
}

/// A failure here is a defect: it ends the process with a line in the log, and the postmaster
/// starts it again.
fn or_fail<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Ok(value) => value,
        Err(failure) => pgrx::error!("taskq keeper: {}", failure.message),
    }
}
