//! What is kept for a database as a whole: its keeper, and when the keeper must look.

use super::histogram::Histogram;
use super::memory::Process;
use super::text::Name;
use crate::values::Moment;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Database {
    /// 0: this slot is free.
    pub oid: u32,
    pub keeper: Process,
    /// When the keeper wants to be woken, by the real clock; infinity if nothing is to be told.
    pub wake_at: Moment,
    /// Something may have become claimable that no figure tells of: look at every lane.
    pub look_everywhere: bool,
    /// The same, because a pair of queue and task type had no room among the figures: that may come with each commit, so
    /// it is not done again before a moment.
    pub look_for_untracked: bool,
    pub untracked_quiet_until: Moment,
    /// Tasks that were due at this moment count as ready, later ones as scheduled (see `Figure`).
    pub due_until: Moment,
    /// No task becomes due before this moment. A hint: it may be too early, never too late.
    pub next_due: Moment,
    /// No lease ends before this moment. A hint of the same kind, for `recover`.
    pub next_expiry: Moment,
    /// When the first of the queues that wait for their rate may give tasks again.
    pub next_opening: Moment,
    /// When the keeper last found that the clock had jumped, and by how many seconds (negative: back).
    pub clock_jumped_at: Moment,
    pub clock_jumped_by: f64,
    /// Transactions between the announcement of a change and its end; and those of them that change
    /// what is scheduled.
    pub ending: i32,
    pub ending_scheduled: i32,
    /// Prepared transactions so far that change figures: their end reaches no callback of ours.
    pub prepared: u32,
    /// Whether the figures are those that a count would find.
    pub exact: bool,
    /// When they were last counted; the distant past: never yet.
    pub counted_at: Moment,
    /// How long calls of `claim` took since the sample duty last looked.
    pub claims: Histogram,
    pub drill: Drill,
}

impl Database {
    pub fn new(oid: u32) -> Self {
        Database {
            oid,
            keeper: Process::NONE,
            wake_at: Moment::INFINITY,
            look_everywhere: true,
            look_for_untracked: false,
            untracked_quiet_until: Moment::DISTANT_PAST,
            due_until: Moment::DISTANT_PAST,
            next_due: Moment::DISTANT_PAST,
            next_expiry: Moment::DISTANT_PAST,
            next_opening: Moment::INFINITY,
            clock_jumped_at: Moment::DISTANT_PAST,
            clock_jumped_by: 0.0,
            ending: 0,
            ending_scheduled: 0,
            prepared: 0,
            exact: false,
            counted_at: Moment::DISTANT_PAST,
            claims: Histogram::NONE,
            drill: Drill::NONE,
        }
    }

    /// Has the keeper look at this moment, or before. Returns whether it must be woken to know.
    pub fn wake_by(&mut self, at: Moment) -> bool {
        let earlier = at < self.wake_at;
        self.wake_at = self.wake_at.min(at);
        earlier
    }

    pub fn lower_next_due(&mut self, at: Moment) -> bool {
        let earlier = at < self.next_due;
        self.next_due = self.next_due.min(at);
        earlier
    }

    pub fn lower_next_expiry(&mut self, at: Moment) {
        self.next_expiry = self.next_expiry.min(at);
    }
}

/// A drill that was asked for, until it is over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Drill {
    /// 0: there is none.
    pub id: i64,
    pub queue: Name,
    /// In seconds.
    pub timeout: f64,
    pub asked_by: Name,
    /// When the keeper is to look after it, by the real clock.
    pub look_at: Moment,
}

impl Drill {
    pub const NONE: Drill =
        Drill { id: 0, queue: Name::EMPTY, timeout: 0.0, asked_by: Name::EMPTY, look_at: Moment::INFINITY };

    pub fn is_there(&self) -> bool {
        self.id != 0
    }
}
