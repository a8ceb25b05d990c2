//! The figures of a queue and a task type in one database.
//!
//! Whether a waiting task counts as ready or scheduled must be the same when it is added and when it is
//! taken away. Its row decides: one that was due when it was enqueued is ready; any other one is
//! scheduled until the keeper has come by (`Database::due_until`), then ready.

use super::buckets::Buckets;
use super::histogram::Histogram;
use super::memory::FIGURES;
use super::text::{Name, hash};
use crate::values::{Moment, wall_clock};

/// What has happened, each kind counted since the server started.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub enqueued: i64,
    pub started: i64,
    pub succeeded: i64,
    /// Failures after which the task waits again, and after which it is dead.
    pub retried: i64,
    pub dead: i64,
    /// Those of both that were the end of a lease.
    pub expired: i64,
    pub cancelled: i64,
}

impl Counts {
    pub fn add(&mut self, more: &Counts) {
        self.enqueued += more.enqueued;
        self.started += more.started;
        self.succeeded += more.succeeded;
        self.retried += more.retried;
        self.dead += more.dead;
        self.expired += more.expired;
        self.cancelled += more.cancelled;
    }

    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            enqueued: self.enqueued - earlier.enqueued,
            started: self.started - earlier.started,
            succeeded: self.succeeded - earlier.succeeded,
            retried: self.retried - earlier.retried,
            dead: self.dead - earlier.dead,
            expired: self.expired - earlier.expired,
            cancelled: self.cancelled - earlier.cancelled,
        }
    }
}

/// How long tasks waited (from due to claimed), ran (to complete), and took in all (from enqueue).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Durations {
    pub waiting: Histogram,
    pub run: Histogram,
    pub total: Histogram,
}

/// The same durations, for metrics.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Totals {
    pub waiting: Buckets,
    pub run: Buckets,
    pub total: Buckets,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Figure {
    /// 0: this slot is free; `GONE`: it was used once.
    database: u32,
    hash: u64,
    pub queue: Name,
    /// Empty for what concerns the queue as a whole.
    pub task_type: Name,
    pub ready: i64,
    pub scheduled: i64,
    pub running: i64,
    /// Tasks that are parked because another one of their group runs.
    pub blocked: i64,
    pub counts: Counts,
    /// What the sample duty had when it last took the counts.
    pub taken: Counts,
    /// Since that moment.
    pub durations: Durations,
    /// Since the figure was made.
    pub totals: Totals,
    /// When that was. Of more pairs than metrics show, the first ones have series of their own.
    pub made_at: Moment,
    /// Tasks that became claimable since the keeper last told of the queue.
    pub claimable: i64,
    /// It is not told of again before this moment.
    pub quiet_until: Moment,
    /// When its rate lets the next task begin, if a claim found that it had to wait; else infinity.
    pub opens_at: Moment,
}

const GONE: u32 = u32::MAX;

impl Figure {
    /// A task was claimed after so many seconds.
    pub fn waited(&mut self, seconds: f64) {
        self.durations.waiting.add(seconds);
        self.totals.waiting.add(seconds);
    }

    /// A task was completed so many seconds after its claim, and after it was enqueued.
    pub fn ran(&mut self, run: f64, total: f64) {
        self.durations.run.add(run);
        self.durations.total.add(total);
        self.totals.run.add(run);
        self.totals.total.add(total);
    }

    /// Nothing is lost if it is forgotten.
    fn is_idle(&self) -> bool {
        self.ready == 0
            && self.scheduled == 0
            && self.running == 0
            && self.blocked == 0
            && self.claimable == 0
            && self.opens_at == Moment::INFINITY
            && self.counts == self.taken
    }
}

/// The figure of a queue and a task type, made if there is none. None if there is no room.
pub fn find<'a>(
    figures: &'a mut [Figure; FIGURES],
    database: u32,
    queue: &Name,
    task_type: &Name,
) -> Option<&'a mut Figure> {
    let hash = hash((database, queue.as_str(), task_type.as_str()));
    let first = hash as usize % FIGURES;
    let mut room = None;
    for step in 0..FIGURES {
        let at = (first + step) % FIGURES;
        let figure = &figures[at];
        if figure.database == database
            && figure.hash == hash
            && figure.queue == *queue
            && figure.task_type == *task_type
        {
            return figures.get_mut(at);
        }
        if figure.database == GONE {
            room = room.or(Some(at));
        } else if figure.database == 0 {
            room = room.or(Some(at));
            break;
        }
    }
    // All are taken: one that nobody misses makes room.
    let at = room.or_else(|| figures.iter().position(Figure::is_idle))?;
    let figure = figures.get_mut(at)?;
    *figure = Figure {
        database,
        hash,
        queue: *queue,
        task_type: *task_type,
        ready: 0,
        scheduled: 0,
        running: 0,
        blocked: 0,
        counts: Counts::default(),
        taken: Counts::default(),
        durations: Durations { waiting: Histogram::NONE, run: Histogram::NONE, total: Histogram::NONE },
        totals: Totals { waiting: Buckets::NONE, run: Buckets::NONE, total: Buckets::NONE },
        made_at: wall_clock(),
        claimable: 0,
        quiet_until: Moment::DISTANT_PAST,
        opens_at: Moment::INFINITY,
    };
    Some(figure)
}

/// All figures of a database.
pub fn of(figures: &mut [Figure; FIGURES], database: u32) -> impl Iterator<Item = &mut Figure> {
    figures.iter_mut().filter(move |figure| figure.database == database)
}

/// Forgets one figure.
pub fn forget_one(figures: &mut [Figure; FIGURES], database: u32, queue: &Name, task_type: &Name) {
    for figure in of(figures, database) {
        if figure.queue == *queue && figure.task_type == *task_type {
            figure.database = GONE;
        }
    }
}

/// Forgets the figures of databases that are gone.
pub fn forget(figures: &mut [Figure; FIGURES], is_gone: impl Fn(u32) -> bool) {
    for figure in figures {
        if figure.database != 0 && figure.database != GONE && is_gone(figure.database) {
            figure.database = GONE;
        }
    }
}
