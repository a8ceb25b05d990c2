//! The wake duty: tells listeners and waiting workers that a queue has something to claim.
//!
//! Only this sends NOTIFY: a producer's transaction just leaves a mark in shared memory when it
//! commits. The first event of a quiet queue is told at once, further ones together, a tenth of a
//! second later.

use super::count;
use crate::call::Call;
use crate::changes;
use crate::clock;
use crate::config::{self, Config};
use crate::failure::Outcome;
use crate::permits;
use crate::shared::{self, figure, waiter};
use crate::statement::Spi;
use crate::store;
use crate::transaction;
use crate::values::{Moment, wall_clock};
use pgrx::pg_sys::Datum;
use std::collections::HashMap;
use std::rc::Rc;

const CHANNEL: &str = "taskq_ready";
/// So many tasks of a lane are counted: more than most queues have waiting workers.
const MANY: usize = 100;
/// Seconds between two messages about a queue.
const APART: f64 = 0.1;
/// Seconds between two looks at every lane because of tasks that no figure tells of.
const UNTRACKED_APART: f64 = 1.0;

/// `taskq._wake()`: one round of the duty; returns of how many queues it told.
pub fn wake(call: &Call) -> Outcome<Datum> {
    let now = clock::now()?;
    count::bring_up_to_date(now)?;
    let events = events(now)?;
    for queue in events.keys() {
        crate::call::notify(CHANNEL, queue);
    }
    if let Some(mut shared) = shared::lock() {
        let id = transaction::database();
        for (queue, tasks) in &events {
            waiter::wake(&mut shared.waiters, id, queue, *tasks);
        }
    }
    call.value(Some(events.len() as i64))
}

/// The queues to tell of, and how many tasks each has to give.
fn events(now: Moment) -> Outcome<HashMap<String, i64>> {
    changes::looking();
    let marked = marked(now);
    // Marks may be of tasks that came while the figures were brought up to date: to an older clock they would not be due.
    let now = clock::now()?;
    let mut config = Spi::run(config::current)?;
    let in_doubt = match &marked {
        Marked::Everywhere => true,
        Marked::Queues(queues) => {
            queues.keys().any(|queue| config.paused.contains(queue) || config.limits.contains_key(queue))
        }
    };
    if in_doubt {
        // A queue may have been opened just now: a commit leaves its mark before sessions hear that
        // settings have changed.
        config = Rc::new(Spi::run(Config::read)?);
    }
    Spi::run(|spi| {
        let mut queues = match marked {
            Marked::Everywhere => claimable(spi, None, &config, now)?,
            Marked::Queues(marks) => {
                let names: Vec<String> = marks.keys().cloned().collect();
                let mut queues = claimable(spi, Some(&names), &config, now)?;
                for (queue, tasks) in &mut queues {
                    // Only what is new is told; but what others have claimed meanwhile is not.
                    let marks = marks.get(queue).copied().unwrap_or(0);
                    *tasks = if *tasks < MANY as i64 { marks.min(*tasks) } else { marks };
                }
                queues
            }
        };
        for (queue, tasks) in &mut queues {
            if let Some(limit) = config.limits.get(queue) {
                *tasks = (*tasks).min(permits::available(spi, queue, limit, now)?);
            }
        }
        queues.retain(|_, tasks| *tasks > 0);
        Ok(queues)
    })
}

enum Marked {
    /// It is not known which.
    Everywhere,
    Queues(HashMap<String, i64>),
}

/// Takes the marks of all queues that are not to be left alone yet.
fn marked(at: Moment) -> Marked {
    let Some(mut shared) = shared::lock() else { return Marked::Everywhere };
    let (id, now) = (transaction::database(), wall_clock());
    let Some(database) = shared.database(id) else { return Marked::Everywhere };
    database.wake_at = Moment::INFINITY;
    let mut wake_at = Moment::INFINITY;
    let mut everywhere = std::mem::take(&mut database.look_everywhere);
    if database.look_for_untracked && database.untracked_quiet_until > now && !everywhere {
        wake_at = database.untracked_quiet_until;
    } else if database.look_for_untracked || everywhere {
        everywhere = true;
        database.look_for_untracked = false;
        database.untracked_quiet_until = now.plus(UNTRACKED_APART);
    }
    let opened = database.next_opening <= at;

    struct Queue {
        marks: i64,
        quiet_until: Moment,
    }
    let mut queues: HashMap<String, Queue> = HashMap::new();
    let mut next_opening = Moment::INFINITY;
    for figure in figure::of(&mut shared.figures, id) {
        if opened && figure.opens_at <= at {
            figure.opens_at = Moment::INFINITY;
            figure.claimable += changes::OPENED;
        }
        next_opening = next_opening.min(figure.opens_at);
        let queue = queues
            .entry(figure.queue.as_str().to_owned())
            .or_insert(Queue { marks: 0, quiet_until: Moment::DISTANT_PAST });
        queue.marks += figure.claimable;
        queue.quiet_until = queue.quiet_until.max(figure.quiet_until);
    }
    for figure in figure::of(&mut shared.figures, id) {
        let Some(queue) = queues.get(figure.queue.as_str()) else { continue };
        if queue.marks > 0 && queue.quiet_until > now && !everywhere {
            figure.quiet_until = queue.quiet_until;
            wake_at = wake_at.min(queue.quiet_until);
        } else if queue.marks > 0 || everywhere {
            figure.claimable = 0;
            figure.quiet_until = now.plus(APART);
        }
    }
    if let Some(database) = shared.database(id) {
        database.wake_by(wake_at);
        database.next_opening = next_opening;
    }
    if everywhere {
        return Marked::Everywhere;
    }
    let told = queues.into_iter().filter(|(_, queue)| queue.marks > 0 && queue.quiet_until <= now);
    Marked::Queues(told.map(|(name, queue)| (name, queue.marks)).collect())
}

/// How many tasks these queues (or all) have for a claim, those that are not paused. Looks in the table:
/// the figures may be wrong where somebody has changed it by hand.
fn claimable(
    spi: &Spi,
    queues: Option<&[String]>,
    config: &Config,
    now: Moment,
) -> Outcome<HashMap<String, i64>> {
    let mut found = HashMap::new();
    for lane in store::due_lanes(spi, queues, config, now)? {
        let tasks = store::claimable(spi, &lane, now, MANY)?;
        *found.entry(lane.queue).or_insert(0) += tasks as i64;
    }
    Ok(found)
}
