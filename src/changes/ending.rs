//! What becomes of the pending changes when the transaction ends. `transaction` calls these; none of them may
//! raise an error.

use super::{Announced, Change, Key, PENDING, Pending};
use crate::shared::database::Database;
use crate::shared::{self, figure};
use crate::transaction;
use crate::values::{Moment, wall_clock};

/// Just before the commit: others must take into account that this may be there soon.
pub fn announce() {
    PENDING.with_borrow_mut(|pending| {
        if pending.changes.is_empty() && pending.lease_end.is_none() {
            return;
        }
        let Some(mut shared) = shared::lock() else { return };
        let Some(database) = shared.database(transaction::database()) else { return };
        let scheduled = pending.changes.values().any(|change| !change.scheduled.is_empty());
        database.ending += 1;
        database.ending_scheduled += i32::from(scheduled);
        let wake = next_due(pending).is_some_and(|at| database.lower_next_due(at));
        if let Some(at) = pending.lease_end {
            database.lower_next_expiry(at);
        }
        pending.announced = Some(Announced { scheduled, wake });
    });
}

/// When the first of the tasks that wait now is due, but for those that are due already.
fn next_due(pending: &Pending) -> Option<Moment> {
    let scheduled = pending.changes.values().flat_map(|change| &change.scheduled);
    scheduled.filter(|(_, tasks)| *tasks > 0).map(|(run_at, _)| *run_at).min()
}

/// Just after the commit.
pub fn committed() {
    PENDING.with_borrow_mut(|pending| {
        let pending = std::mem::take(pending);
        if pending.announced.is_none() && pending.taken.is_none() {
            return;
        }
        let Some(mut shared) = shared::lock() else { return };
        let shared = &mut *shared;
        let id = transaction::database();
        let Some(database) = shared.database(id) else { return };
        end_announced(database, pending.announced);
        let mut wake = pending.announced.is_some_and(|announced| announced.wake);
        if let Some(at) = next_due(&pending) {
            wake |= database.lower_next_due(at);
        }
        if let Some(at) = pending.lease_end {
            database.lower_next_expiry(at);
        }
        let due_until = database.due_until;
        let mut wake_at = Moment::INFINITY;
        let mut missed = false;
        for ((_, (queue, task_type)), change) in &pending.changes {
            match figure::find(&mut shared.figures, id, queue, task_type) {
                Some(figure) => {
                    if change.apply(figure, due_until) > 0 {
                        wake_at = wake_at.min(figure.quiet_until.max(wall_clock()));
                    }
                }
                None => missed = true,
            }
        }
        for ((queue, task_type), counts, durations) in pending.taken.iter().flat_map(|(_, taken)| taken) {
            if let Some(figure) = figure::find(&mut shared.figures, id, queue, task_type) {
                figure.taken = *counts;
                figure.durations.waiting.subtract(&durations.waiting);
                figure.durations.run.subtract(&durations.run);
                figure.durations.total.subtract(&durations.total);
            }
        }
        let Some(database) = shared.database(id) else { return };
        if missed {
            database.exact = false;
            database.look_for_untracked = true;
            wake_at = wake_at.min(database.untracked_quiet_until.max(wall_clock()));
        }
        wake |= wake_at < Moment::INFINITY && database.wake_by(wake_at);
        if wake {
            database.keeper.wake();
        }
    });
}

pub fn aborted() {
    PENDING.with_borrow_mut(|pending| {
        let pending = std::mem::take(pending);
        if pending.announced.is_none() && pending.looked.is_none() {
            return;
        }
        shared::with_database(|database| {
            end_announced(database, pending.announced);
            if pending.looked.is_some() {
                look_again(database);
            }
        });
    });
}

/// The transaction will end without us, at any time, or never.
pub fn prepared() {
    PENDING.with_borrow_mut(|pending| {
        let pending = std::mem::take(pending);
        if pending.announced.is_none() {
            return;
        }
        shared::with_database(|database| {
            end_announced(database, pending.announced);
            database.prepared = database.prepared.wrapping_add(1);
            database.exact = false;
            database.keeper.wake();
        });
    });
}

fn end_announced(database: &mut Database, announced: Option<Announced>) {
    if let Some(announced) = announced {
        // Not below 0: the slot is another one if taskq was dropped and made again meanwhile.
        database.ending = (database.ending - 1).max(0);
        database.ending_scheduled = (database.ending_scheduled - i32::from(announced.scheduled)).max(0);
    }
}

/// What the keeper took note of got lost: everything must be looked at.
pub fn look_again(database: &mut Database) {
    database.look_everywhere = true;
    database.next_due = Moment::DISTANT_PAST;
    database.next_expiry = Moment::DISTANT_PAST;
    database.exact = false;
    // Not at once: what failed may fail again.
    database.wake_by(wall_clock().plus(1.0));
}

pub fn subtransaction_committed(level: i32) {
    PENDING.with_borrow_mut(|pending| {
        for (key, change) in of_level(pending, level) {
            pending.changes.entry((level - 1, key)).or_default().merge(change);
        }
        let parent = |of: &mut i32| *of = (*of).min(level - 1);
        pending.looked.as_mut().map(parent);
        pending.taken.as_mut().map(|(of, _)| of).map(parent);
    });
}

pub fn subtransaction_aborted(level: i32) {
    PENDING.with_borrow_mut(|pending| {
        of_level(pending, level);
        pending.taken.take_if(|(of, _)| *of >= level);
        if pending.looked.take_if(|of| *of >= level).is_some() {
            shared::with_database(look_again);
        }
    });
}

/// Takes out the changes of this level.
fn of_level(pending: &mut Pending, level: i32) -> Vec<(Key, Change)> {
    if pending.changes.is_empty() {
        return Vec::new();
    }
    pending.changes.extract_if(|(of, _), _| *of >= level).map(|((_, key), change)| (key, change)).collect()
}
