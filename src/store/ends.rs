//! The ends of tasks and leases, each in one statement: what is finished, waits again, or is dead. Frees
//! what the task had: its unique key, its slot, the turn of its group.

use super::statements::*;
use crate::changes::{self, End, Place};
use crate::config::{self, Config};
use crate::failure::Outcome;
use crate::groups;
use crate::keys;
use crate::permits;
use crate::statement::{Spi, Table, arg};
use crate::values::{Jsonb, Moment};

/// How tasks end in `done`.
#[derive(Clone, Copy)]
pub enum Finish<'a> {
    Succeeded,
    /// With the reason, and an error for each task's history if it failed at the same time.
    Cancelled {
        reason: Option<&'a str>,
        errors: Option<&'a [String]>,
    },
}

/// Moves tasks to `done`, frees their keys, and returns the ids of those that were moved. Ids
/// must be sorted. With tokens only running tasks with that token are moved; without, the caller
/// has locked the tasks.
pub fn finish(
    spi: &Spi,
    ids: &[i64],
    tokens: Option<&[i64]>,
    results: Option<&[Option<Jsonb>]>,
    how: Finish,
    config: &Config,
    now: Moment,
) -> Outcome<Vec<i64>> {
    let (state, reason, errors) = match how {
        Finish::Succeeded => ("succeeded", None, None),
        Finish::Cancelled { reason, errors } => ("cancelled", reason, errors),
    };
    let args = [
        arg(ids),
        tokens.and_then(arg),
        results.and_then(|results| arg(results.to_vec())),
        arg(now),
        arg(state),
        reason.and_then(arg),
        errors.and_then(|errors| arg(errors.to_vec())),
        arg(config.keeps_nothing.clone()),
    ];
    let statement = if config.keeps_nothing.is_empty() { &FINISH } else { &FINISH_KEEPING_SOME };
    let gone = spi.execute(statement, &args)?;
    let mut finished = Vec::with_capacity(gone.len());
    let (mut ended, mut groups) = (Vec::new(), Vec::new());
    for row in 0..gone.len() {
        let id = gone.need(row, 0)?;
        let (queue, task_type) = (gone.need::<String>(row, 1)?, gone.need::<String>(row, 2)?);
        let place = Place {
            queue: &queue,
            task_type: &task_type,
            run_at: gone.need(row, 3)?,
            enqueued_at: gone.need(row, 4)?,
        };
        match (gone.get::<Moment>(row, 5), how) {
            (Some(claimed_at), Finish::Succeeded) => {
                changes::ended(place, &End::Succeeded { claimed_at, now })
            }
            (Some(_), Finish::Cancelled { .. }) => changes::ended(place, &End::Cancelled),
            (None, _) => changes::gone(place, true),
        }
        groups.extend(gone.get::<String>(row, 7).map(|group_key| (queue.clone(), group_key, id)));
        if let Some(key) = gone.get::<String>(row, 6) {
            keys::free(spi, &task_type, &key, id, now)?;
        }
        ended.push((queue, id));
        finished.push(id);
    }
    give_back(
        spi,
        ended.iter().map(|(queue, id)| (queue.as_str(), *id)),
        groups.iter().map(|(queue, key, id)| (queue.as_str(), Some(key.as_str()), *id)),
    )?;
    Ok(finished)
}

/// Tasks that are locked, or gone, do not run any more: others may have their slots, and the turns of
/// their groups.
fn give_back<'a>(
    spi: &Spi,
    slots: impl Iterator<Item = (&'a str, i64)>,
    turns: impl Iterator<Item = (&'a str, Option<&'a str>, i64)>,
) -> Outcome<()> {
    permits::free(spi, &*config::current(spi)?, &slots.collect::<Vec<_>>())?;
    let turns = turns.filter_map(|(queue, key, id)| key.map(|key| (queue, key, id)));
    groups::pass(spi, &turns.collect::<Vec<_>>())
}

fn give_back_leased<'a>(spi: &Spi, tasks: impl Iterator<Item = &'a Leased> + Clone) -> Outcome<()> {
    give_back(
        spi,
        tasks.clone().map(|task| (task.queue.as_str(), task.id)),
        tasks.map(|task| (task.queue.as_str(), task.group_key.as_deref(), task.id)),
    )
}

/// A running task whose row is locked, and what decides what becomes of it.
pub struct Leased {
    pub id: i64,
    pub queue: String,
    pub task_type: String,
    pub run_at: Moment,
    pub enqueued_at: Moment,
    pub unique_key: Option<String>,
    pub attempt: i32,
    pub max_retries: i32,
    pub cancel_requested: bool,
    pub group_key: Option<String>,
}

impl Leased {
    fn ended(&self, end: &End) {
        let place = Place {
            queue: &self.queue,
            task_type: &self.task_type,
            run_at: self.run_at,
            enqueued_at: self.enqueued_at,
        };
        changes::ended(place, end);
    }
}

/// Locks running tasks with these tokens, waiting for whoever holds them. Ids must be sorted.
pub fn lock_leases(spi: &Spi, ids: &[i64], tokens: Option<&[i64]>) -> Outcome<Vec<Leased>> {
    leased(spi.execute(&LOCK_LEASES, &[arg(ids), tokens.and_then(arg), None])?)
}

/// Locks running tasks whose lease is over, passing by those that somebody else is working on, or whose turn somebody
/// else has locked: nobody waits for an open claim. Ids must be sorted.
pub fn lock_expired(spi: &Spi, ids: &[i64], now: Moment) -> Outcome<Vec<Leased>> {
    let mut tasks = leased(spi.execute(&LOCK_EXPIRED, &[arg(ids), None, arg(now)])?)?;
    let turns =
        tasks.iter().filter_map(|task| Some((task.queue.as_str(), task.group_key.as_deref()?, task.id)));
    let held = groups::held(spi, &turns.collect::<Vec<_>>())?;
    tasks.retain(|task| !held.contains(&task.id));
    Ok(tasks)
}

fn leased(table: Table) -> Outcome<Vec<Leased>> {
    (0..table.len())
        .map(|row| {
            Ok(Leased {
                id: table.need(row, 0)?,
                queue: table.need(row, 1)?,
                task_type: table.need(row, 2)?,
                run_at: table.need(row, 3)?,
                enqueued_at: table.need(row, 4)?,
                unique_key: table.get(row, 5),
                attempt: table.need(row, 6)?,
                max_retries: table.need(row, 7)?,
                cancel_requested: table.need(row, 8)?,
                group_key: table.get(row, 9),
            })
        })
        .collect()
}

/// A locked task that failed, and the error that is added to its history.
pub struct Failed<'a> {
    pub task: &'a Leased,
    pub error: String,
    /// Its lease was over.
    pub expired: bool,
}

/// Ends the leases of locked tasks that failed and will run again, each at its moment. Must be sorted
/// by id.
pub fn requeue(spi: &Spi, tasks: &[(Failed, Moment)], now: Moment) -> Outcome<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let args = [
        arg(tasks.iter().map(|(failed, _)| failed.task.id).collect::<Vec<_>>()),
        arg(tasks.iter().map(|(_, run_at)| *run_at).collect::<Vec<_>>()),
        arg(tasks.iter().map(|(failed, _)| failed.error.clone()).collect::<Vec<_>>()),
        arg(now),
        arg(0i32),
    ];
    spi.execute(&REQUEUE, &args)?;
    for (failed, run_at) in tasks {
        failed.task.ended(&End::Retried { run_at: *run_at, expired: failed.expired });
    }
    give_back_leased(spi, tasks.iter().map(|(failed, _)| failed.task))
}

/// Ends the lease of a locked task without a failure: the attempt does not count.
pub fn release(spi: &Spi, task: &Leased, run_at: Moment, now: Moment) -> Outcome<()> {
    spi.execute(&REQUEUE, &[arg(vec![task.id]), arg(vec![run_at]), None, arg(now), arg(-1i32)])?;
    task.ended(&End::Released { run_at });
    give_back_leased(spi, std::iter::once(task))
}

/// Moves locked tasks to the dead letters and frees their keys. Must be sorted by id.
pub fn bury(spi: &Spi, tasks: &[Failed], now: Moment) -> Outcome<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let args = [
        arg(tasks.iter().map(|failed| failed.task.id).collect::<Vec<_>>()),
        arg(tasks.iter().map(|failed| failed.error.clone()).collect::<Vec<_>>()),
        arg(now),
    ];
    spi.execute(&BURY, &args)?;
    for Failed { task, expired, .. } in tasks {
        task.ended(&End::Dead { expired: *expired });
        if let Some(key) = &task.unique_key {
            keys::free(spi, &task.task_type, key, task.id, now)?;
        }
    }
    give_back_leased(spi, tasks.iter().map(|failed| failed.task))
}
