//! Slots and tokens: how many tasks of a queue may run at once (`max_running`), and how fast they may
//! begin (`rate`).
//!
//! A claim locks a free slot and a free token for each task that it is about to take, and gives them to
//! those it took. It passes by rows that others have locked, so claimers never wait for each other; what
//! it locked and did not use is free again when its transaction ends. A slot comes back when the
//! task ends in any way or is taken back; a token, some time after its use.

use crate::changes;
use crate::config::{Config, Limit, Rate};
use crate::failure::Outcome;
use crate::statement::{Spi, Statement, arg};
use crate::values::Moment;
use pgrx::pg_sys::{FLOAT8OID, INT4ARRAYOID, INT4OID, INT8ARRAYOID, INT8OID, TEXTOID, TIMESTAMPTZOID};
use std::collections::HashMap;

static SLOT_LOCK: Statement =
    Statement::new(include_str!("../sql/statements/slot_lock.sql"), &[TEXTOID, INT4OID, INT8OID]);
static SLOT_USE: Statement =
    Statement::new(include_str!("../sql/statements/slot_use.sql"), &[TEXTOID, INT4ARRAYOID, INT8ARRAYOID]);
static SLOT_FREE: Statement =
    Statement::new(include_str!("../sql/statements/slot_free.sql"), &[TEXTOID, INT8ARRAYOID, INT4OID]);
static TOKEN_LOCK: Statement = Statement::new(
    include_str!("../sql/statements/token_lock.sql"),
    &[TEXTOID, TIMESTAMPTZOID, FLOAT8OID, INT4OID, INT8OID],
);
static TOKEN_USE: Statement =
    Statement::new(include_str!("../sql/statements/token_use.sql"), &[TEXTOID, INT4ARRAYOID, TIMESTAMPTZOID]);
static TOKEN_NEXT: Statement =
    Statement::new(include_str!("../sql/statements/token_next.sql"), &[TEXTOID, TIMESTAMPTZOID, INT4OID]);

static AVAILABLE: Statement = Statement::new(
    include_str!("../sql/statements/permits_available.sql"),
    &[TEXTOID, TIMESTAMPTZOID, INT4OID, INT4OID, FLOAT8OID],
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
        let tokens = limit.rate.map_or(usize::MAX, |_| self.tokens.len());
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
        if let Some(max_running) = limit.max_running {
            let args = [arg(queue), arg(max_running), arg(wanted as i64)];
            locked.slots = numbers(spi, &SLOT_LOCK, &args)?;
            reach = reach.min(locked.slots.len());
        }
        if let Some(rate) = limit.rate
            && reach > 0
        {
            let args = [arg(queue), arg(now), arg(rate.period), arg(rate.tokens), arg(reach as i64)];
            locked.tokens = numbers(spi, &TOKEN_LOCK, &args)?;
            if locked.tokens.len() < reach {
                open_later(spi, queue, &rate, now)?;
            }
        }
        locked.exhausted = locked.count(limit) < wanted;
        Ok(locked.count(limit).min(wanted))
    }

    /// Whether a claim can take nothing more from the queue.
    pub fn exhausted(&self, queue: &str, limit: &Limit) -> bool {
        self.queues.get(queue).is_some_and(|locked| locked.exhausted && locked.count(limit) == 0)
    }

    /// Tasks have ended meanwhile, in the claim itself: there may be more.
    pub fn look_again(&mut self) {
        for locked in self.queues.values_mut() {
            locked.exhausted = false;
        }
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
        if let Some(rate) = limit.rate {
            let tokens: Vec<i32> = locked.tokens.drain(..tasks.len()).collect();
            spi.execute(&TOKEN_USE, &[arg(queue), arg(tokens), arg(now.plus(rate.period))])?;
        }
        Ok(())
    }
}

/// How many tasks of the queue could begin now. Locks nothing, so others may be faster.
pub fn available(spi: &Spi, queue: &str, limit: &Limit, now: Moment) -> Outcome<i64> {
    let (tokens, period) = (limit.rate.map(|rate| rate.tokens), limit.rate.map(|rate| rate.period));
    let args =
        [arg(queue), arg(now), limit.max_running.and_then(arg), tokens.and_then(arg), period.and_then(arg)];
    let table = spi.execute(&AVAILABLE, &args)?;
    let (slots, tokens): (i64, i64) = (table.need(0, 0)?, table.need(0, 1)?);
    let slots = limit.max_running.map_or(i64::MAX, |_| slots);
    let Some(rate) = limit.rate else { return Ok(slots) };
    if tokens == 0 && slots > 0 {
        open_later(spi, queue, &rate, now)?;
    }
    Ok(slots.min(tokens))
}

/// No token is free: the keeper is to look again when one is.
fn open_later(spi: &Spi, queue: &str, rate: &Rate, now: Moment) -> Outcome<()> {
    let table = spi.execute(&TOKEN_NEXT, &[arg(queue), arg(now), arg(rate.tokens)])?;
    // Without a row others are just using them all.
    let at = if table.is_empty() { now.plus(rate.period) } else { table.need(0, 0)? };
    changes::opens_at(queue, at);
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
