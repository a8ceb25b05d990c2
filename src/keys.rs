//! Unique keys: who holds one, when it is free again, and what a second enqueue does.
//!
//! A key is a row of `taskq.unique_key`, made by the enqueue. The task lets go of it when it has
//! finished (or at its first claim, with `unique_until => 'started'`); then the row goes, or
//! stays until `unique_for` is over. A retry never takes a key back: it would wait for a producer's
//! open transaction. So a task whose key is with a successor is cancelled when it is next claimed.

use crate::failure::{DUPLICATE_KEY, Failure, Outcome};
use crate::statement::{Spi, Statement, arg};
use crate::store::{self, NewTask, Whereabouts};
use crate::values::Moment;
use pgrx::pg_sys::{BOOLOID, INT8OID, TEXTOID, TIMESTAMPTZOID};

static TAKE: Statement = Statement::new(
    include_str!("../sql/statements/key_take.sql"),
    &[TEXTOID, TEXTOID, INT8OID, BOOLOID, TIMESTAMPTZOID],
);
static HOLDER: Statement =
    Statement::new(include_str!("../sql/statements/key_holder.sql"), &[TEXTOID, TEXTOID, TIMESTAMPTZOID]);
static DROP: Statement = Statement::new(
    include_str!("../sql/statements/key_drop.sql"),
    &[TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID],
);
static FREE: Statement = Statement::new(
    include_str!("../sql/statements/key_free.sql"),
    &[TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID],
);

/// When a task lets go of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Finished,
    Started,
}

impl Until {
    pub fn name(self) -> &'static str {
        match self {
            Until::Finished => "finished",
            Until::Started => "started",
        }
    }
}

/// A key as an enqueue asks for it.
#[derive(Clone)]
pub struct UniqueKey {
    pub key: String,
    pub until: Until,
    /// Not free before this moment, whatever becomes of the task.
    pub kept_until: Option<Moment>,
}

/// What a second enqueue with a held key does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Returns the holder's id.
    Ignore,
    /// Returns NULL.
    Skip,
    /// Gives a waiting holder the new payload, headers, priority and run_at.
    Replace,
    /// Raises TQ002.
    Error,
}

impl OnConflict {
    pub fn parse(text: Option<&str>) -> Outcome<Self> {
        match text {
            None | Some("ignore") => Ok(OnConflict::Ignore),
            Some("skip") => Ok(OnConflict::Skip),
            Some("replace") => Ok(OnConflict::Replace),
            Some("error") => Ok(OnConflict::Error),
            Some(_) => Err(Failure::invalid(
                "on_conflict is not valid",
                "Use 'ignore', 'skip', 'replace' or 'error'.",
            )),
        }
    }
}

/// Takes a key for a new task, or returns the id of the task that has it. Waits for a
/// transaction that is just taking or freeing the key.
pub fn take(
    spi: &Spi,
    task_type: &str,
    unique: &UniqueKey,
    id: i64,
    now: Moment,
) -> Outcome<Result<(), i64>> {
    let until_started = unique.until == Until::Started;
    let args = [
        arg(task_type),
        arg(unique.key.as_str()),
        arg(id),
        arg(until_started),
        unique.kept_until.and_then(arg),
    ];
    loop {
        if !spi.execute(&TAKE, &args)?.is_empty() {
            return Ok(Ok(()));
        }
        match holder(spi, task_type, &unique.key, now)? {
            Some(holder) if holder.up => {
                let args = [arg(task_type), arg(unique.key.as_str()), arg(holder.id), arg(now)];
                spi.execute(&DROP, &args)?;
            }
            Some(holder) => return Ok(Err(holder.id)),
            // The holder let go of it between the two statements.
            None => {}
        }
        pgrx::check_for_interrupts!();
    }
}

/// What comes of a conflict.
pub enum Conflict {
    /// The id to return, None for NULL.
    Answer(Option<i64>),
    /// The holder has moved on meanwhile: try to take the key again.
    Changed,
}

/// Answers an enqueue whose key is held by a stored task, or raises TQ002.
pub fn conflict(
    spi: &Spi,
    on_conflict: OnConflict,
    unique: &UniqueKey,
    task: &NewTask,
    id: i64,
    now: Moment,
) -> Outcome<Conflict> {
    match on_conflict {
        OnConflict::Ignore => Ok(Conflict::Answer(Some(id))),
        OnConflict::Skip => Ok(Conflict::Answer(None)),
        OnConflict::Error => Err(held(&task.task_type, id)),
        OnConflict::Replace if store::replace(spi, id, task)? => Ok(Conflict::Answer(Some(id))),
        // It does not wait. If that has just changed, what the caller wants stored must not get lost.
        OnConflict::Replace => {
            let whereabouts = store::whereabouts(spi, id)?;
            let holds_it =
                holder(spi, &task.task_type, &unique.key, now)?.is_some_and(|h| h.id == id && !h.up);
            match whereabouts {
                Whereabouts::Waiting { .. } => Ok(Conflict::Changed),
                // A task that holds its key only until it starts may just have started.
                _ if !holds_it => Ok(Conflict::Changed),
                Whereabouts::Running => Err(held(&task.task_type, id)),
                _ => Ok(Conflict::Answer(Some(id))),
            }
        }
    }
}

fn held(task_type: &str, holder: i64) -> Failure {
    Failure::new(DUPLICATE_KEY, format!("task {holder} of type \"{task_type}\" holds the unique key"))
        .hint("Wait until the key is free, or use on_conflict => 'ignore' to get its id.")
}

/// A task lets go of its key.
pub fn free(spi: &Spi, task_type: &str, key: &str, id: i64, now: Moment) -> Outcome<()> {
    spi.execute(&FREE, &[arg(task_type), arg(key), arg(id), arg(now)]).map(|_| ())
}

/// A task with a key was claimed: it lets go of the key if it holds it only until it starts.
/// Returns the id of an unfinished task that has the key instead, which this one must give way to.
pub fn claimed(spi: &Spi, task_type: &str, key: &str, id: i64, now: Moment) -> Outcome<Option<i64>> {
    // A key that is up is free, although its row may still be there.
    let Some(holder) = holder(spi, task_type, key, now)?.filter(|holder| !holder.up) else { return Ok(None) };
    if holder.id == id {
        if holder.until_started {
            free(spi, task_type, key, id, now)?;
        }
        return Ok(None);
    }
    Ok(match store::whereabouts(spi, holder.id)? {
        Whereabouts::Waiting { .. } | Whereabouts::Running => Some(holder.id),
        _ => None,
    })
}

struct Holder {
    id: i64,
    until_started: bool,
    up: bool,
}

fn holder(spi: &Spi, task_type: &str, key: &str, now: Moment) -> Outcome<Option<Holder>> {
    let table = spi.execute(&HOLDER, &[arg(task_type), arg(key), arg(now)])?;
    if table.is_empty() {
        return Ok(None);
    }
    Ok(Some(Holder {
        id: table.need(0, 0)?,
        until_started: table.need(0, 1)?,
        up: table.get(0, 2).unwrap_or(false),
    }))
}
