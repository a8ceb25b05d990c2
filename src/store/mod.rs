//! The only module that reads and writes `taskq.task` on the hot paths.
//!
//! Each function here is one statement of `sql/statements/`. What it promises is written there;
//! callers must not assume how it is done (that a claim begins at a lane's first entry, say).

mod ends;
#[rustfmt::skip]
mod statements;

pub use ends::{Failed, Finish, Leased, bury, finish, lock_expired, lock_leases, release, requeue};

use crate::changes::{self, Place};
use crate::config::Config;
use crate::failure::Outcome;
use crate::groups;
use crate::keys::UniqueKey;
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
    /// Whether that one has a group.
    pub grouped: bool,
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
                grouped: table.need(row, 4)?,
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
    pub queue: String,
    pub group_key: Option<String>,
    /// The version of its group's turn, if there is one.
    pub turn: Option<i64>,
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
                queue: table.need(row, 4)?,
                group_key: table.get(row, 5),
                turn: table.get(row, 6),
            })
        })
        .collect()
}

/// How many tasks of a lane a claim could take, counted up to `at_most`.
pub fn claimable(spi: &Spi, lane: &Lane, now: Moment, at_most: i64) -> Outcome<i64> {
    let queues = std::slice::from_ref(&lane.queue);
    let before = (lane.first.0, lane.first.1 - 1);
    Ok(candidates(spi, queues, lane.priority, now, at_most, before)?.len() as i64)
}

/// Whether a claim could take a task of this lane that nobody else holds. Locks it.
pub fn has_free_task(spi: &Spi, lane: &Lane, now: Moment) -> Outcome<bool> {
    // A task of a group that returned meanwhile may be before the first one.
    let first = if lane.grouped { (Moment::DISTANT_PAST, 0) } else { lane.first };
    let args = [arg(lane.queue.as_str()), arg(lane.priority), arg(now), arg(first.0), arg(first.1)];
    Ok(!spi.execute(&CLAIM_PROBE, &args)?.is_empty())
}

/// Whether a claim would find something. For a caller without rights on the tables.
pub fn any_claimable(queues: Option<Vec<String>>) -> Outcome<bool> {
    Spi::run_freely(|spi| spi.execute(&ANY_CLAIMABLE, &[queues.and_then(arg)])?.need(0, 0))
}

/// Who claims, when, for how long, and the leases of types and queues where the claim has none.
pub struct Claimer<'a> {
    pub now: Moment,
    pub worker: &'a str,
    pub lease: Option<f64>,
    pub config: &'a Config,
}

impl Claimer<'_> {
    /// No lease that this claim gives is shorter, in seconds.
    fn shortest_lease(&self) -> f64 {
        self.lease.unwrap_or_else(|| self.config.shortest_lease())
    }
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
    changes::lease_may_end(by.now.plus(by.shortest_lease()));
    let taken = spi.execute(statement, &args)?;
    for row in 0..taken.len() {
        let (queue, task_type) = (taken.need::<String>(row, 3)?, taken.need::<String>(row, 2)?);
        let place = Place {
            queue: &queue,
            task_type: &task_type,
            run_at: taken.need(row, 12)?,
            enqueued_at: taken.need(row, 10)?,
        };
        changes::started(place, by.now, taken.need(row, 11)?);
    }
    Ok(taken)
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
    pub group_key: Option<String>,
    pub bytes: i32,
    pub payload: Jsonb,
    pub headers: Option<Jsonb>,
}

impl NewTask {
    fn place(&self, enqueued_at: Moment) -> Place<'_> {
        Place { queue: &self.queue, task_type: &self.task_type, run_at: self.run_at, enqueued_at }
    }

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
        task.group_key.as_deref().and_then(arg),
    ];
    let id = spi.execute(&ENQUEUE, &args)?.need(0, 0)?;
    changes::enqueued(task.place(now));
    Ok(id)
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
        column(tasks, |t| t.group_key.clone()),
    ];
    spi.execute(&ENQUEUE_MANY, &args)?;
    for (_, task) in tasks {
        changes::enqueued(task.place(now));
    }
    Ok(())
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
    let replaced = spi.execute(&REPLACE, &args)?;
    if replaced.is_empty() {
        return Ok(false);
    }
    let (queue, task_type) = (replaced.need::<String>(0, 0)?, replaced.need::<String>(0, 1)?);
    let place = Place {
        queue: &queue,
        task_type: &task_type,
        run_at: replaced.need(0, 2)?,
        enqueued_at: replaced.need(0, 3)?,
    };
    changes::moved(place, task.run_at);
    if let Some(group_key) = replaced.get::<String>(0, 4) {
        groups::replaced(spi, &queue, &group_key, id)?;
    }
    Ok(true)
}

/// Lengthens a lease. Returns its new end and whether a cancel was requested, or None if the
/// token is not the task's any more.
pub fn extend(
    spi: &Spi,
    id: i64,
    token: i64,
    now: Moment,
    progress: Option<Jsonb>,
    seconds: Option<f64>,
    config: &Config,
) -> Outcome<Option<(Moment, bool)>> {
    let [lease, types, type_leases, queues, queue_leases] = lease_args(seconds, config);
    let progress = progress.and_then(arg);
    changes::lease_may_end(now.plus(seconds.unwrap_or_else(|| config.shortest_lease())));
    let table = spi.execute(
        &EXTEND,
        &[arg(id), arg(token), arg(now), progress, lease, types, type_leases, queues, queue_leases],
    )?;
    if table.is_empty() {
        return Ok(None);
    }
    let ends: Moment = table.need(0, 0)?;
    changes::lease_ends(ends);
    Ok(Some((ends, table.need(0, 1)?)))
}

/// When the leases of running tasks end, and of which tasks: so many, those that end first.
pub fn lease_ends(spi: &Spi, at_most: usize) -> Outcome<Vec<(Moment, i64)>> {
    let table = spi.execute(&LEASE_ENDS, &[arg(at_most as i64)])?;
    (0..table.len()).map(|row| Ok((table.need(row, 0)?, table.need(row, 1)?))).collect()
}

/// Which of these tasks are running although their lease is over.
pub fn still_over(spi: &Spi, ids: &[i64], now: Moment) -> Outcome<Vec<i64>> {
    let table = spi.execute(&STILL_OVER, &[arg(ids), arg(now)])?;
    (0..table.len()).map(|row| table.need(row, 0)).collect()
}

/// Locks an unfinished task; says whether it is running, None if there is no such task. A parked one
/// returns to its place.
pub fn lock_to_cancel(spi: &Spi, id: i64) -> Outcome<Option<bool>> {
    let table = spi.execute(&CANCEL_LOCK, &[arg(id)])?;
    if table.is_empty() {
        return Ok(None);
    }
    if table.need(0, 1)? {
        groups::unpark(spi, id)?;
    }
    table.need(0, 0).map(Some)
}

/// Notes on a locked, running task that it is to be cancelled.
pub fn request_cancel(spi: &Spi, id: i64, now: Moment, reason: Option<&str>) -> Outcome<()> {
    spi.execute(&CANCEL_REQUEST, &[arg(id), arg(now), reason.and_then(arg)]).map(|_| ())
}

/// Where a task is now.
pub enum Whereabouts {
    /// Infinity: it is parked, because another task of its group runs.
    Waiting {
        run_at: Moment,
    },
    Running,
    Dead,
    Finished {
        state: String,
    },
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
