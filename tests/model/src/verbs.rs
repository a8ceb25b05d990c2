//! The language of the machine: what callers ask, and what is answered. Named like the SQL functions.

use crate::machine::{INVALID, Refused};

/// Of types, queues, keys, groups and the like: histories use a few fixed ones.
pub type Name = &'static str;
pub type Id = u32;
/// Moments are counted from the beginning of the history.
pub type Seconds = i64;

/// An id and the number of the claim that the caller believes to hold it by (1 is the first claim of the
/// task's life). The product's tokens rise by random steps; here they are just counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: Id,
    pub token: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Finished,
    Started,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Ignore,
    Skip,
    Replace,
    Error,
}

#[derive(Clone, Copy, Debug)]
pub struct Unique {
    pub key: Name,
    pub until: Until,
    pub kept_for: Option<Seconds>,
    pub on_conflict: OnConflict,
}

#[derive(Clone, Copy, Debug)]
pub enum When {
    Now,
    RunAt(Seconds),
    Delay(Seconds),
}

/// The arguments of an enqueue. What is None is the setting of the type.
#[derive(Clone, Copy, Debug)]
pub struct NewTask {
    pub task_type: Name,
    pub payload: i64,
    pub headers: Headers,
    pub queue: Option<Name>,
    pub priority: Option<i32>,
    pub when: When,
    pub max_retries: Option<i32>,
    pub unique: Option<Unique>,
    pub group: Option<Name>,
}

impl NewTask {
    /// Whether its arguments are valid at all, whatever is stored.
    pub fn check(&self) -> Result<(), Refused> {
        let in_range = self.priority.is_none_or(|priority| (-100..=100).contains(&priority));
        let retries = self.max_retries.is_none_or(|retries| retries >= 0);
        if in_range && retries && !matches!(self.when, When::Delay(..0)) { Ok(()) } else { Err(INVALID) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    None,
    Given(i64),
    /// Those of a schedule's task: its name and the occurrence.
    Occurrence(Name, Seconds),
}

#[derive(Clone, Copy, Debug)]
pub enum QueueSetting {
    MaxRunning(Option<i64>),
    /// RATE, or none.
    Rate(bool),
    Lease(Option<Seconds>),
    /// Whether finished tasks are kept.
    Kept(bool),
}

/// The rate that histories use: so many starts within so many seconds, which is also the burst.
pub const RATE: (usize, Seconds) = (2, 60);

#[derive(Clone, Copy, Debug)]
pub enum TypeSetting {
    Queue(Option<Name>),
    Priority(Option<i32>),
    MaxRetries(Option<i32>),
    Lease(Option<Seconds>),
    BackoffBase(Option<Seconds>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    RunOnce,
    Skip,
    RunAll,
}

/// What `missed: run_all` runs at most, in all schedules of histories.
pub const MAX_MISSED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub name: Name,
    /// Comes true whenever the clock shows a multiple of it: minutes that divide an hour.
    pub minutes: i64,
    pub task_type: Name,
    pub payload: i64,
    pub missed: Missed,
    pub paused: bool,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Enqueue(NewTask),
    EnqueueMany(Vec<NewTask>),
    /// `also`: tasks behind those that are returned whose lease is over. A claim may take these back,
    /// too; how far it looks is its own affair.
    Claim {
        n: i32,
        queues: Option<Vec<Name>>,
        lease: Option<Seconds>,
        also: Vec<Id>,
    },
    Complete(Lease, Option<i64>),
    CompleteMany(Vec<Lease>),
    Fail {
        lease: Lease,
        retry_in: Option<Seconds>,
        retry: bool,
    },
    FailMany(Vec<Lease>),
    Extend {
        lease: Lease,
        seconds: Option<Seconds>,
        progress: Option<i64>,
    },
    Release(Lease, Option<Seconds>),
    Cancel {
        id: Id,
        reason: Option<Name>,
        force: bool,
    },
    Once {
        key: Name,
        keep_for: Option<Seconds>,
    },
    Redrive {
        queue: Option<Name>,
        task_type: Option<Name>,
        ids: Option<Vec<Id>>,
        max_tasks: Option<i32>,
        one_per_second: bool,
    },
    Purge {
        state: Name,
        queue: Option<Name>,
        task_type: Option<Name>,
        older_than: Option<Seconds>,
    },
    Pause(Name),
    Resume(Name),
    ConfigureQueue(Name, QueueSetting),
    ConfigureType(Name, TypeSetting),
    Schedule(Plan),
    Unschedule(Name),
    /// The duties `recover` and `schedule`.
    Recover,
    RunSchedules,
    /// Time passes.
    Pass(Seconds),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An error with this SQLSTATE.
    Refused(&'static str),
    Nothing,
    Id(Option<Id>),
    /// Of each element its id, and whether it was created.
    Enqueued(Vec<(Option<Id>, bool)>),
    /// In the order of claims.
    Claimed(Vec<Lease>),
    Completed(Vec<Id>),
    Ended(Vec<Ended>),
    Extended {
        lease_expires_at: Seconds,
        cancel_requested: bool,
    },
    Word(&'static str),
    Count(usize),
    Redriven {
        redriven: usize,
        skipped: Vec<Id>,
    },
    Flag(bool),
}

/// A row of `fail` or `fail_many`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub id: Id,
    pub state: &'static str,
    pub run_at: Option<Seconds>,
}
