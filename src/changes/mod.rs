//! What this transaction changes in the shared figures, kept until it commits.
//!
//! The verbs note here what they did to tasks. Nobody else sees it before the commit, and what a
//! subtransaction did goes when that is rolled back. A transaction announces what it is about to
//! change just before it commits, and changes it just after: between the two nobody can know whether a
//! search found its rows. (The same is done for the hints: lowered before, for searches that begin
//! now, and after, for those that began before and did not see the rows.)

mod ending;

pub use ending::{
    aborted, announce, committed, look_again, prepared, subtransaction_aborted, subtransaction_committed,
};

use crate::shared::figure::{self, Counts, Figure};
use crate::shared::text::Name;
use crate::shared::{self, worker};
use crate::transaction;
use crate::values::Moment;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

/// Queue and task type.
type Key = (Name, Name);

/// What happened to the tasks of one queue and type.
#[derive(Default)]
struct Change {
    ready: i64,
    /// Tasks that were not due when they were enqueued: when they are, and how many more or fewer.
    scheduled: Vec<(Moment, i64)>,
    running: i64,
    blocked: i64,
    counts: Counts,
    claimable: i64,
    /// Seconds.
    waited: Vec<f64>,
    ran: Vec<(f64, f64)>,
}

impl Change {
    fn merge(&mut self, more: Change) {
        self.ready += more.ready;
        self.scheduled.extend(more.scheduled);
        self.running += more.running;
        self.blocked += more.blocked;
        self.counts.add(&more.counts);
        self.claimable += more.claimable;
        self.waited.extend(more.waited);
        self.ran.extend(more.ran);
    }

    fn waits(&mut self, run_at: Moment, enqueued_at: Moment, tasks: i64) {
        if run_at == Moment::INFINITY {
            self.blocked += tasks;
        } else if run_at <= enqueued_at {
            self.ready += tasks;
            self.claimable += tasks.max(0);
        } else {
            self.scheduled.push((run_at, tasks));
        }
    }

    fn apply(&self, figure: &mut Figure, due_until: Moment) -> i64 {
        let mut claimable = self.claimable;
        figure.ready += self.ready;
        for (run_at, tasks) in &self.scheduled {
            if *run_at <= due_until {
                figure.ready += tasks;
                claimable += tasks.max(&0);
            } else {
                figure.scheduled += tasks;
            }
        }
        figure.running += self.running;
        figure.blocked += self.blocked;
        figure.counts.add(&self.counts);
        for seconds in &self.waited {
            figure.waited(*seconds);
        }
        for (run, total) in &self.ran {
            figure.ran(*run, *total);
        }
        figure.claimable += claimable;
        claimable
    }
}

/// A figure as the sample duty saw it.
pub type Taken = (Key, Counts, figure::Durations);

#[derive(Default)]
struct Pending {
    /// By level of subtransaction, queue and type.
    changes: HashMap<(i32, Key), Change>,
    /// The earliest end of a lease that was given.
    lease_end: Option<Moment>,
    /// The sample duty has these, since this level; they are taken when it commits.
    taken: Option<(i32, Vec<Taken>)>,
    /// The keeper took note of events at this level: should that be rolled back, it must look again.
    looked: Option<i32>,
    announced: Option<Announced>,
}

#[derive(Clone, Copy)]
struct Announced {
    scheduled: bool,
    /// The keeper sleeps longer than it should now.
    wake: bool,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// A task as it waits.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub queue: &'a str,
    pub task_type: &'a str,
    pub run_at: Moment,
    pub enqueued_at: Moment,
}

/// How a running task went on.
pub enum End {
    Succeeded {
        claimed_at: Moment,
        now: Moment,
    },
    Cancelled,
    /// It waits again, not before this moment.
    Retried {
        run_at: Moment,
        expired: bool,
    },
    Released {
        run_at: Moment,
    },
    Dead {
        expired: bool,
    },
}

fn note(place: Place, change: impl FnOnce(&mut Change)) {
    if !shared::is_there() {
        return;
    }
    transaction::follow();
    let key = (transaction::level(), (Name::new(place.queue), Name::new(place.task_type)));
    PENDING.with_borrow_mut(|pending| change(pending.changes.entry(key).or_default()));
}

/// A task waits that was not there before (or was dead).
pub fn enqueued(place: Place) {
    note(place, |change| {
        change.waits(place.run_at, place.enqueued_at, 1);
        change.counts.enqueued += 1;
    });
}

/// A waiting task is due at another moment.
pub fn moved(place: Place, run_at: Moment) {
    note(place, |change| {
        change.waits(place.run_at, place.enqueued_at, -1);
        change.waits(run_at, place.enqueued_at, 1);
    });
}

/// A waiting task has ended: it was cancelled, or purged.
pub fn gone(place: Place, cancelled: bool) {
    note(place, |change| {
        change.waits(place.run_at, place.enqueued_at, -1);
        change.counts.cancelled += i64::from(cancelled);
    });
}

pub fn started(place: Place, now: Moment, lease_end: Moment) {
    note(place, |change| {
        change.waits(place.run_at, place.enqueued_at, -1);
        change.running += 1;
        change.counts.started += 1;
        change.waited.push(now.seconds_since(place.run_at.max(place.enqueued_at)));
    });
    lease_ends(lease_end);
}

/// A lease was given or changed.
pub fn lease_ends(at: Moment) {
    if shared::is_there() {
        transaction::follow();
        PENDING.with_borrow_mut(|pending| {
            pending.lease_end = Some(pending.lease_end.map_or(at, |known| known.min(at)));
        });
    }
}

/// A running task is not running any more.
pub fn ended(place: Place, end: &End) {
    note(place, |change| {
        change.running -= 1;
        match end {
            End::Succeeded { claimed_at, now } => {
                change.counts.succeeded += 1;
                change.ran.push((now.seconds_since(*claimed_at), now.seconds_since(place.enqueued_at)));
            }
            End::Cancelled => change.counts.cancelled += 1,
            End::Retried { run_at, expired } => {
                change.waits(*run_at, place.enqueued_at, 1);
                change.counts.retried += 1;
                change.counts.expired += i64::from(*expired);
            }
            End::Released { run_at } => change.waits(*run_at, place.enqueued_at, 1),
            End::Dead { expired } => {
                change.counts.dead += 1;
                change.counts.expired += i64::from(*expired);
            }
        }
    });
}

/// The queue may give tasks again: it was resumed, or a limit was raised.
pub fn opened(queue: &str) {
    note(of_queue(queue), |change| change.claimable += OPENED);
}

/// Stands for the queue as a whole.
fn of_queue(queue: &str) -> Place<'_> {
    Place { queue, task_type: "", run_at: Moment::DISTANT_PAST, enqueued_at: Moment::DISTANT_PAST }
}

/// So many slots of the queue are free again.
pub fn freed(queue: &str, slots: usize) {
    note(of_queue(queue), |change| change.claimable += slots as i64);
}

/// A claim found no free token; the next one is free at this moment.
pub fn opens_at(queue: &str, at: Moment) {
    let Some(mut shared) = shared::lock() else { return };
    let id = transaction::database();
    let Some(figure) = figure::find(&mut shared.figures, id, &Name::new(queue), &Name::EMPTY) else { return };
    figure.opens_at = figure.opens_at.min(at);
    if let Some(database) = shared.database(id)
        && at < database.next_opening
    {
        database.next_opening = at;
        database.keeper.wake();
    }
}

/// How many waiters are woken when a queue is opened; each looks what there is.
pub const OPENED: i64 = 1_000;

/// The sample duty has seen these figures.
pub fn taken(figures: Vec<Taken>) {
    transaction::follow();
    PENDING.with_borrow_mut(|pending| pending.taken = Some((transaction::level(), figures)));
}

/// The keeper looks in this transaction, having taken note of what is pending.
pub fn looking() {
    transaction::follow();
    let level = transaction::level();
    PENDING.with_borrow_mut(|pending| pending.looked = Some(pending.looked.map_or(level, |l| l.max(level))));
}

/// Before a claim or `extend` writes: no lease that it gives ends before this moment.
pub fn lease_may_end(at: Moment) {
    shared::with_database(|database| database.lower_next_expiry(at));
}

/// No lease ends before this moment that was given since the last search; the distant past if nobody knows.
pub fn lease_hint() -> Moment {
    shared::with_database(|database| database.next_expiry).unwrap_or(Moment::DISTANT_PAST)
}

/// `recover` is about to search: what it must know from here on is told by `lease_may_end`.
pub fn lease_search_begins() {
    shared::with_database(|database| database.next_expiry = Moment::INFINITY);
}

/// A worker called `wait`, or `claim`, which gave it so many tasks and took so long.
pub fn worker_seen(name: &str, queues: Option<&[String]>, claimed: Option<(usize, Duration)>, now: Moment) {
    let Some(mut shared) = shared::lock() else { return };
    let id = transaction::database();
    if let (Some((_, took)), Some(database)) = (claimed, shared.database(id)) {
        database.claims.add(took.as_secs_f64());
    }
    let worker = worker::find(&mut shared.workers, id, name, now);
    worker.seen(queues, now);
    if let Some((claimed, _)) = claimed {
        worker.claims += 1;
        worker.claimed += claimed as i64;
        if claimed > 0 {
            worker.claimed_at = now;
        }
    }
}
