//! Slots and tokens: how many tasks of a queue may run at once (`max_running`), and how fast they may
//! begin (`rate`).
//!
//! A claim locks a free slot and a free token for each task that it is about to take, and gives them to
//! those it took. It passes by rows that others have locked, so claimers never wait for each other; what
//! it locked and did not use is free again when its transaction ends. A slot comes back when the
//! task ends in any way or is taken back; a token, some time after its use.

use crate::changes;
use crate::config::{Config, Limit};
use crate::failure::Outcome;
use crate::statement::{Spi, Statement, arg};
use crate::values::Moment;
use pgrx::pg_sys::{FLOAT8OID, INT4ARRAYOID, INT4OID, INT8ARRAYOID, INT8OID, TEXTOID, TIMESTAMPTZOID};
use std::collections::HashMap;

static SLOT_LOCK: Statement =
    Statement::new(include_str!("../sql/statements/slot_lock.sql"), &[TEXTOID, INT8OID]);
static SLOT_USE: Statement =
    Statement::new(include_str!("../sql/statements/slot_use.sql"), &[TEXTOID, INT4ARRAYOID, INT8ARRAYOID]);
static SLOT_FREE: Statement =
    Statement::new(include_str!("../sql/statements/slot_free.sql"), &[TEXTOID, INT8ARRAYOID, INT4OID]);
static TOKEN_LOCK: Statement = Statement::new(
    include_str!("../sql/statements/token_lock.sql"),
    &[TEXTOID, TIMESTAMPTZOID, FLOAT8OID, INT8OID],
);
static TOKEN_USE: Statement =
    Statement::new(include_str!("../sql/statements/token_use.sql"), &[TEXTOID, INT4ARRAYOID, TIMESTAMPTZOID]);
static TOKEN_NEXT: Statement =
    Statement::new(include_str!("../sql/statements/token_next.sql"), &[TEXTOID, TIMESTAMPTZOID]);

static AVAILABLE: Statement = Statement::new(
    include_str!("../sql/statements/permits_available.sql"),
    &[TEXTOID, TIMESTAMPTZOID, FLOAT8OID],
);

/// What a claim has locked, by queue.
#[derive(Default)]
pub struct Permits {
    queues: HashMap<String, Locked>,
}

#[derive(Default)]
struct Locked {
    slots: Vec<i32>,
    tokens: Vec<i32>,
    /// The queue has no more.
    exhausted: bool,
}

impl Locked {
    fn count(&self, limit: &Limit) -> usize {
        let slots = limit.max_running.map_or(usize::MAX, |_| self.slots.len());
        let tokens = limit.token_period.map_or(usize::MAX, |_| self.tokens.len());
        slots.min(tokens)
    }
}

impl Permits {
    /// Has permits for so many tasks of the queue, or as many as there are; says how many.
    pub fn lock(
        &mut self,
        spi: &Spi,
        queue: &str,
        limit: &Limit,
        wanted: usize,
        now: Moment,
    ) -> Outcome<usize> {
        let locked = self.queues.entry(queue.to_owned()).or_default();
        if locked.exhausted || locked.count(limit) >= wanted {
            return Ok(locked.count(limit).min(wanted));
        }
        // Rows that this transaction has locked before would be found again: ask for all, anew.
        let mut reach = wanted;
        if limit.max_running.is_some() {
            locked.slots = numbers(spi, &SLOT_LOCK, &[arg(queue), arg(wanted as i64)])?;
            reach = reach.min(locked.slots.len());
        }
        if let Some(period) = limit.token_period
            && reach > 0
        {
            let args = [arg(queue), arg(now), arg(period), arg(reach as i64)];
            locked.tokens = numbers(spi, &TOKEN_LOCK, &args)?;
            if locked.tokens.len() < reach {
                open_later(spi, queue, now)?;
            }
        }
        locked.exhausted = locked.count(limit) < wanted;
        Ok(locked.count(limit).min(wanted))
    }

    /// Whether a claim can take nothing more from the queue.
    pub fn exhausted(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|locked| locked.exhausted)
    }

    /// These tasks were taken: their permits are used.
    pub fn spend(
        &mut self,
        spi: &Spi,
        queue: &str,
        limit: &Limit,
        tasks: &[i64],
        now: Moment,
    ) -> Outcome<()> {
        let Some(locked) = self.queues.get_mut(queue) else { return Ok(()) };
        if limit.max_running.is_some() {
            let slots: Vec<i32> = locked.slots.drain(..tasks.len()).collect();
            spi.execute(&SLOT_USE, &[arg(queue), arg(slots), arg(tasks)])?;
        }
        if let Some(period) = limit.token_period {
            let tokens: Vec<i32> = locked.tokens.drain(..tasks.len()).collect();
            spi.execute(&TOKEN_USE, &[arg(queue), arg(tokens), arg(now.plus(period))])?;
        }
        Ok(())
    }
}

/// How many tasks of the queue could begin now. Locks nothing, so others may be faster.
pub fn available(spi: &Spi, queue: &str, limit: &Limit, now: Moment) -> Outcome<i64> {
    let table = spi.execute(&AVAILABLE, &[arg(queue), arg(now), limit.token_period.and_then(arg)])?;
    let (slots, tokens): (i64, i64) = (table.need(0, 0)?, table.need(0, 1)?);
    let slots = limit.max_running.map_or(i64::MAX, |_| slots);
    if limit.token_period.is_some() && tokens == 0 && slots > 0 {
        open_later(spi, queue, now)?;
    }
    Ok(slots.min(limit.token_period.map_or(i64::MAX, |_| tokens)))
}

/// No token is free: the keeper is to look again when one is.
fn open_later(spi: &Spi, queue: &str, now: Moment) -> Outcome<()> {
    let table = spi.execute(&TOKEN_NEXT, &[arg(queue), arg(now)])?;
    if !table.is_empty() {
        changes::opens_at(queue, table.need(0, 0)?);
    }
    Ok(())
}

fn numbers(spi: &Spi, statement: &Statement, args: &[Option<pgrx::pg_sys::Datum>]) -> Outcome<Vec<i32>> {
    let table = spi.execute(statement, args)?;
    (0..table.len()).map(|row| table.need(row, 0)).collect()
}

/// Tasks of a queue have ended or were taken back: their slots are free. `config` must have been read
/// after the tasks' rows were locked, so that a limit that was set meanwhile is known.
pub fn free(spi: &Spi, config: &Config, tasks: &[(&str, i64)]) -> Outcome<()> {
    if config.limits.is_empty() {
        return Ok(());
    }
    let mut by_queue: HashMap<&str, Vec<i64>> = HashMap::new();
    for (queue, id) in tasks {
        by_queue.entry(queue).or_default().push(*id);
    }
    for (queue, mut ids) in by_queue {
        let Some(limit) = config.limits.get(queue).and_then(|limit| limit.max_running) else { continue };
        ids.sort_unstable();
        changes::freed(queue, ids.len());
        spi.execute(&SLOT_FREE, &[arg(queue), arg(ids), arg(limit)])?;
    }
    Ok(())
}
