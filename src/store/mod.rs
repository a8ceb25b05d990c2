//! The only module that reads and writes `taskq.task` on the hot paths.
//!
//! Each function here is one statement of `sql/statements/`. What it promises is written there;
//! callers must not assume how it is done (that a claim begins at a lane's first entry, say).

#[rustfmt::skip]
mod statements;

use crate::config::Config;
use crate::failure::Outcome;
use crate::keys::{self, UniqueKey};
use crate::statement::{Spi, Statement, Table, arg};
use crate::values::{Jsonb, Moment};
use pgrx::pg_sys::Datum;
use statements::*;

/// A queue and a priority: the tasks in it are in the order of claims.
pub struct Lane {
    pub queue: String,
    pub priority: i32,
    /// The place (run_at and id) of its first task.
    pub first: (Moment, i64),
}

/// The lanes of queues that are not paused and have something due, highest priority first.
pub fn due_lanes(spi: &Spi, queues: Option<&[String]>, config: &Config, now: Moment) -> Outcome<Vec<Lane>> {
    let table = match queues {
        None => spi.execute(&CLAIM_LANES, &[arg(now)])?,
        Some(queues) => spi.execute(&CLAIM_LANES_OF, &[arg(queues.to_vec()), arg(now)])?,
    };
    let mut lanes = (0..table.len())
        .map(|row| {
            Ok(Lane {
                queue: table.need(row, 0)?,
                priority: table.need(row, 1)?,
                first: (table.need(row, 2)?, table.need(row, 3)?),
            })
        })
        .collect::<Outcome<Vec<_>>>()?;
    lanes.retain(|lane| !config.paused.contains(&lane.queue));
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.priority));
    Ok(lanes)
}

/// A task that a claim may take, read without a lock.
pub struct Candidate {
    pub id: i64,
    pub run_at: Moment,
    pub bytes: i32,
    /// It is still running, but its lease is over.
    pub expired: bool,
}

/// The next candidates of these queues at one priority, behind a position (run_at and id).
pub fn candidates(
    spi: &Spi,
    queues: &[String],
    priority: i32,
    now: Moment,
    at_most: i64,
    behind: (Moment, i64),
) -> Outcome<Vec<Candidate>> {
    let args = [arg(queues.to_vec()), arg(priority), arg(now), arg(at_most), arg(behind.0), arg(behind.1)];
    let table = spi.execute(&CLAIM_CANDIDATES, &args)?;
    (0..table.len())
        .map(|row| {
            Ok(Candidate {
                id: table.need(row, 0)?,
                run_at: table.need(row, 1)?,
                bytes: table.need(row, 2)?,
                expired: table.need(row, 3)?,
            })
        })
        .collect()
}

/// Who claims, when, for how long, and the leases of types and queues where the claim has none.
pub struct Claimer<'a> {
    pub now: Moment,
    pub worker: &'a str,
    pub lease: Option<f64>,
    pub config: &'a Config,
}

/// Claims up to `at_most` of these tasks. The rows have the columns of `taskq.claim`, then
/// run_at, unique_key and bytes.
pub fn take<'spi>(spi: &'spi Spi, ids: &[i64], at_most: i64, by: &Claimer) -> Outcome<Table<'spi>> {
    claim(spi, &CLAIM_TAKE, [arg(ids), arg(at_most)], &[], by)
}

/// Claims the first task of a lane, with the same columns. No row comes back if there is none, or
/// if the lease of the first one is over and it is to be taken back.
pub fn take_first<'spi>(spi: &'spi Spi, lane: &Lane, by: &Claimer) -> Outcome<Table<'spi>> {
    let place = [arg(lane.first.0), arg(lane.first.1)];
    claim(spi, &CLAIM_FIRST, [arg(lane.queue.as_str()), arg(lane.priority)], &place, by)
}

fn claim<'spi>(
    spi: &'spi Spi,
    statement: &Statement,
    first: [Option<Datum>; 2],
    last: &[Option<Datum>],
    by: &Claimer,
) -> Outcome<Table<'spi>> {
    let common = [arg(by.now), arg(by.worker)];
    let args = [&first[..], &common, &lease_args(by.lease, by.config), last].concat();
    spi.execute(statement, &args)
}

/// What the statements that set a lease take: the caller's lease, those of types, those of queues.
fn lease_args(lease: Option<f64>, config: &Config) -> [Option<Datum>; 5] {
    fn some<T: Clone + pgrx::IntoDatum>(list: &[T]) -> Option<Datum> {
        if list.is_empty() { None } else { arg(list.to_vec()) }
    }
    let (types, queues) = (&config.type_leases, &config.queue_leases);
    [
        lease.and_then(arg),
        some(&types.names),
        some(&types.seconds),
        some(&queues.names),
        some(&queues.seconds),
    ]
}

/// A checked task with all settings resolved, ready to be stored.
#[derive(Clone)]
pub struct NewTask {
    pub task_type: String,
    pub queue: String,
    pub priority: i32,
    pub run_at: Moment,
    pub max_retries: i32,
    pub unique: Option<UniqueKey>,
    pub bytes: i32,
    pub payload: Jsonb,
    pub headers: Option<Jsonb>,
}

impl NewTask {
    /// Has what `on_conflict => 'replace'` gives it from another one.
    pub fn take_over(&mut self, other: NewTask) {
        self.priority = other.priority;
        self.run_at = other.run_at;
        self.bytes = other.bytes;
        self.payload = other.payload;
        self.headers = other.headers;
    }
}

/// Stores a task and returns its id: the given one, or the next.
pub fn insert(spi: &Spi, id: Option<i64>, task: &NewTask, now: Moment) -> Outcome<i64> {
    let args = [
        id.and_then(arg),
        arg(task.task_type.as_str()),
        arg(task.queue.as_str()),
        arg(task.priority),
        arg(task.run_at),
        arg(task.max_retries),
        arg(now),
        arg(task.bytes),
        task.unique.as_ref().and_then(|unique| arg(unique.key.as_str())),
        task.unique.as_ref().and_then(|unique| arg(unique.until.name())),
        arg(task.payload),
        task.headers.and_then(arg),
    ];
    spi.execute(&ENQUEUE, &args)?.need(0, 0)
}

/// Stores tasks under the given ids.
pub fn insert_many(spi: &Spi, tasks: &[(i64, &NewTask)], now: Moment) -> Outcome<()> {
    fn column<T: pgrx::IntoDatum>(tasks: &[(i64, &NewTask)], value: impl Fn(&NewTask) -> T) -> Option<Datum> {
        arg(tasks.iter().map(|(_, task)| value(task)).collect::<Vec<T>>())
    }
    let args = [
        arg(tasks.iter().map(|(id, _)| *id).collect::<Vec<i64>>()),
        column(tasks, |t| t.task_type.clone()),
        column(tasks, |t| t.queue.clone()),
        column(tasks, |t| t.priority),
        column(tasks, |t| t.run_at),
        column(tasks, |t| t.max_retries),
        arg(now),
        column(tasks, |t| t.bytes),
        column(tasks, |t| t.unique.as_ref().map(|unique| unique.key.clone())),
        column(tasks, |t| t.unique.as_ref().map(|unique| unique.until.name())),
        column(tasks, |t| t.payload),
        column(tasks, |t| t.headers),
    ];
    spi.execute(&ENQUEUE_MANY, &args).map(|_| ())
}

/// The elements of an `enqueue_many` array, one row each (see `enqueue_elements.sql`).
pub fn elements<'spi>(spi: &'spi Spi, tasks: Jsonb) -> Outcome<Table<'spi>> {
    spi.execute(&ENQUEUE_ELEMENTS, &[arg(tasks)])
}

/// Reserves so many ids, rising.
pub fn ids(spi: &Spi, count: usize) -> Outcome<Vec<i64>> {
    let table = spi.execute(&IDS, &[arg(count as i64)])?;
    (0..table.len()).map(|row| table.need(row, 0)).collect()
}

/// Gives a waiting task the payload, headers, priority and run_at of a new one; false if it does
/// not wait.
pub fn replace(spi: &Spi, id: i64, task: &NewTask) -> Outcome<bool> {
    let args = [
        arg(id),
        arg(task.priority),
        arg(task.run_at),
        arg(task.bytes),
        arg(task.payload),
        task.headers.and_then(arg),
    ];
    Ok(!spi.execute(&REPLACE, &args)?.is_empty())
}

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
    for row in 0..gone.len() {
        let id = gone.need(row, 0)?;
        if let Some(key) = gone.get::<String>(row, 2) {
            keys::free(spi, &gone.need::<String>(row, 1)?, &key, id, now)?;
        }
        finished.push(id);
    }
    Ok(finished)
}

/// A running task whose row is locked, and what decides what becomes of it.
pub struct Leased {
    pub id: i64,
    pub task_type: String,
    pub unique_key: Option<String>,
    pub attempt: i32,
    pub max_retries: i32,
    pub cancel_requested: bool,
    pub run_at: Moment,
}

/// Locks running tasks with these tokens, waiting for whoever holds them. Ids must be sorted.
pub fn lock_leases(spi: &Spi, ids: &[i64], tokens: Option<&[i64]>) -> Outcome<Vec<Leased>> {
    leased(spi.execute(&LOCK_LEASES, &[arg(ids), tokens.and_then(arg), None])?)
}

/// Locks running tasks whose lease is over, passing by those that somebody else is working on.
/// Ids must be sorted.
pub fn lock_expired(spi: &Spi, ids: &[i64], now: Moment) -> Outcome<Vec<Leased>> {
    leased(spi.execute(&LOCK_EXPIRED, &[arg(ids), None, arg(now)])?)
}

fn leased(table: Table) -> Outcome<Vec<Leased>> {
    (0..table.len())
        .map(|row| {
            Ok(Leased {
                id: table.need(row, 0)?,
                task_type: table.need(row, 1)?,
                unique_key: table.get(row, 2),
                attempt: table.need(row, 3)?,
                max_retries: table.need(row, 4)?,
                cancel_requested: table.need(row, 5)?,
                run_at: table.need(row, 6)?,
            })
        })
        .collect()
}

/// A locked task that will run again: when, and the error that is added to its history.
pub struct Requeue {
    pub id: i64,
    pub run_at: Moment,
    pub error: String,
}

/// Ends the leases of locked tasks that failed and will run again. Must be sorted by id.
pub fn requeue(spi: &Spi, tasks: &[Requeue], now: Moment) -> Outcome<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let args = [
        arg(tasks.iter().map(|t| t.id).collect::<Vec<_>>()),
        arg(tasks.iter().map(|t| t.run_at).collect::<Vec<_>>()),
        arg(tasks.iter().map(|t| t.error.clone()).collect::<Vec<_>>()),
        arg(now),
        arg(0i32),
    ];
    spi.execute(&REQUEUE, &args).map(|_| ())
}

/// Ends the lease of a locked task without a failure: the attempt does not count.
pub fn release(spi: &Spi, id: i64, run_at: Moment, now: Moment) -> Outcome<()> {
    spi.execute(&REQUEUE, &[arg(vec![id]), arg(vec![run_at]), None, arg(now), arg(-1i32)]).map(|_| ())
}

/// Moves locked tasks to the dead letters and frees their keys. Must be sorted by id.
pub fn bury(spi: &Spi, tasks: &[(&Leased, String)], now: Moment) -> Outcome<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let args = [
        arg(tasks.iter().map(|(task, _)| task.id).collect::<Vec<_>>()),
        arg(tasks.iter().map(|(_, error)| error.clone()).collect::<Vec<_>>()),
        arg(now),
    ];
    spi.execute(&BURY, &args)?;
    for (task, _) in tasks {
        if let Some(key) = &task.unique_key {
            keys::free(spi, &task.task_type, key, task.id, now)?;
        }
    }
    Ok(())
}

/// Lengthens a lease. Returns its new end and whether a cancel was requested, or None if the
/// token is not the task's any more.
pub fn extend(
    spi: &Spi,
    id: i64,
    token: i64,
    now: Moment,
    progress: Option<Jsonb>,
    lease: Option<f64>,
    config: &Config,
) -> Outcome<Option<(Moment, bool)>> {
    let [lease, types, type_leases, queues, queue_leases] = lease_args(lease, config);
    let progress = progress.and_then(arg);
    let table = spi.execute(
        &EXTEND,
        &[arg(id), arg(token), arg(now), progress, lease, types, type_leases, queues, queue_leases],
    )?;
    if table.is_empty() { Ok(None) } else { Ok(Some((table.need(0, 0)?, table.need(0, 1)?))) }
}

/// Ids of running tasks whose lease is over, in no order.
pub fn expired(spi: &Spi, now: Moment, at_most: i64) -> Outcome<Vec<i64>> {
    let table = spi.execute(&EXPIRED, &[arg(now), arg(at_most)])?;
    (0..table.len()).map(|row| table.need(row, 0)).collect()
}

/// Locks an unfinished task; says whether it is running, None if there is no such task.
pub fn lock_to_cancel(spi: &Spi, id: i64) -> Outcome<Option<bool>> {
    let table = spi.execute(&CANCEL_LOCK, &[arg(id)])?;
    Ok(if table.is_empty() { None } else { Some(table.need(0, 0)?) })
}

/// Notes on a locked, running task that it is to be cancelled.
pub fn request_cancel(spi: &Spi, id: i64, now: Moment, reason: Option<&str>) -> Outcome<()> {
    spi.execute(&CANCEL_REQUEST, &[arg(id), arg(now), reason.and_then(arg)]).map(|_| ())
}

/// Where a task is now.
pub enum Whereabouts {
    Waiting { run_at: Moment },
    Running,
    Dead,
    Finished { state: String },
    Unknown,
}

pub fn whereabouts(spi: &Spi, id: i64) -> Outcome<Whereabouts> {
    let table = spi.execute(&WHEREABOUTS, &[arg(id)])?;
    if table.is_empty() {
        return Ok(Whereabouts::Unknown);
    }
    let state: String = table.need(0, 0)?;
    Ok(match state.as_str() {
        "waiting" => Whereabouts::Waiting { run_at: table.need(0, 1)? },
        "running" => Whereabouts::Running,
        "dead" => Whereabouts::Dead,
        _ => Whereabouts::Finished { state },
    })
}
