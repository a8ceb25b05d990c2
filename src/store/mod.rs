//! The only module that reads and writes `taskq.task` on the hot paths.
//!
//! Most functions here are one statement of `sql/statements/`; enqueue, and what a claim reads and takes, go
//! to the table without PostgreSQL's executor (see `heap`). Callers must not assume how it is done (that
//! a claim begins at a lane's first entry, say).

mod columns;
mod ends;
mod heap;
mod index;
mod lanes;
mod scan;
#[rustfmt::skip]
mod statements;
mod taken;

pub use columns::Column;
pub use lanes::{Candidate, Lane, Reading, candidates, claimable, due_lanes, has_free_task, next_lane};
pub use taken::{Claimer, Taken, take};

pub use ends::{Failed, Finish, Leased, bury, finish, lock_expired, lock_leases, release, requeue};

use crate::changes::{self, Place};
use crate::config::{self, Config};
use crate::failure::Outcome;
use crate::groups;
use crate::keys::UniqueKey;
use crate::statement::{Spi, Table, arg};
use crate::values::{Jsonb, Moment};
pub use heap::refuse_read_only;
use heap::{Lock, TaskTable};
use pgrx::pg_sys::Datum;
use statements::*;

/// Whether a claim would find something. For a caller without rights on the tables.
pub fn any_claimable(queues: Option<Vec<String>>) -> Outcome<bool> {
    Spi::run_freely(|spi| spi.execute(&ANY_CLAIMABLE, &[queues.and_then(arg)])?.need(0, 0))
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
    refuse_read_only(c"taskq.enqueue()");
    let id = match id {
        Some(id) => id,
        None => heap::next_value(config::tables(spi)?.task_id_sequence)?,
    };
    let given = [
        (Column::Id, arg(id)),
        (Column::Queue, arg(task.queue.as_str())),
        (Column::Priority, arg(task.priority)),
        (Column::RunAt, arg(task.run_at)),
        (Column::MaxRetries, arg(task.max_retries)),
        (Column::EnqueuedAt, arg(now)),
        (Column::Bytes, arg(task.bytes)),
        (Column::TaskType, arg(task.task_type.as_str())),
        (Column::UniqueKey, task.unique.as_ref().and_then(|unique| arg(unique.key.as_str()))),
        (Column::UniqueUntil, task.unique.as_ref().and_then(|unique| arg(unique.until.name()))),
        (Column::GroupKey, task.group_key.as_deref().and_then(arg)),
        (Column::Payload, arg(task.payload)),
        (Column::Headers, task.headers.and_then(arg)),
    ];
    let table = TaskTable::open(spi, Lock::Write)?;
    if table.needs_statements() {
        spi.execute(&ENQUEUE, &given.map(|(_, value)| value))?;
    } else {
        let begin =
            [(Column::State, arg("waiting")), (Column::Token, arg(0i64)), (Column::Attempt, arg(0i32))];
        let mut row: columns::Values = [None; columns::COLUMNS];
        for (column, value) in given.into_iter().chain(begin) {
            row[column.at()] = value;
        }
        table.insert(&row);
    }
    heap::end_command();
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
