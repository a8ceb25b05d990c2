//! Keeps the shared figures right: what has become due moves from scheduled to ready, and where the
//! figures may be wrong (after a start, after a prepared transaction) everything is counted.
//!
//! Both compare a search of the table with figures that change as transactions commit. They fit
//! together only if the search begins at a moment at which no transaction is between its commit and
//! its change of the figures. Such a moment is waited for, not for long: what is due must be told.

use super::prepared;
use crate::changes;
use crate::effort::Effort;
use crate::failure::Outcome;
use crate::shared::text::Name;
use crate::shared::{self, Locked, figure};
use crate::statement::{Snapshot, Spi, Statement, arg};
use crate::transaction;
use crate::values::{Moment, wall_clock};
use pgrx::pg_sys::TIMESTAMPTZOID;
use std::collections::HashMap;
use std::time::Duration;

static BECAME_DUE: Statement =
    Statement::new(include_str!("../../sql/statements/became_due.sql"), &[TIMESTAMPTZOID, TIMESTAMPTZOID]);
static COUNT: Statement =
    Statement::new(include_str!("../../sql/statements/count_tasks.sql"), &[TIMESTAMPTZOID]);

/// How often, and how long each time, a moment without a transaction that is just ending is waited for.
const TRIES: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_micros(200);
/// Figures that may be wrong are counted again after so many seconds; others, too, though more
/// seldom: somebody may have changed the table by hand, or restored a dump into it.
const RECOUNT_INEXACT: f64 = 30.0;
const RECOUNT: f64 = 600.0;
/// But not before the count has rested so many times as long as it cost: 100 is 1 % of a core.
const REST: u32 = 100;
/// Clocks are set back by less than so many seconds without a reason to count again.
const CLOCK_SLACK: f64 = 1.0;

/// Brings the figures of this database up to date.
pub fn bring_up_to_date(now: Moment) -> Outcome<()> {
    let Some(todo) = what_to_do(now) else { return Ok(()) };
    // Also before all are counted: only this marks the queues whose tasks have become due.
    if todo.move_due {
        move_due(now)?;
    }
    if todo.count_all {
        count_all(now)?;
    }
    Ok(())
}

struct Todo {
    move_due: bool,
    count_all: bool,
}

thread_local! {
    /// The figures are not counted again before this moment.
    static REST_UNTIL: std::cell::Cell<Moment> = const { std::cell::Cell::new(Moment::DISTANT_PAST) };
}

fn what_to_do(now: Moment) -> Option<Todo> {
    let mut shared = shared::lock()?;
    let database = shared.database(transaction::database())?;
    let never_counted = database.counted_at == Moment::DISTANT_PAST;
    // What lies between the two moments is not due any more.
    let set_back = now < database.due_until.plus(-CLOCK_SLACK);
    let after = if database.exact { RECOUNT } else { RECOUNT_INEXACT };
    let long_ago = now > database.counted_at.plus(after) && wall_clock() > REST_UNTIL.get();
    let due = database.next_due <= now;
    if !due {
        // The line between ready and scheduled may move without a search.
        database.due_until = database.due_until.max(now);
    }
    Some(Todo {
        move_due: due && !never_counted && !set_back,
        count_all: never_counted || set_back || long_ago,
    })
}

fn move_due(now: Moment) -> Outcome<()> {
    changes::looking();
    let mut since = now;
    Spi::run(|spi| {
        let snapshot = Snapshot::taken(|| {
            let (mut shared, quiet) = lock_when_quiet(|ending| ending.scheduled)?;
            let database = shared.database(transaction::database())?;
            since = database.due_until;
            database.due_until = database.due_until.max(now);
            database.next_due = Moment::INFINITY;
            database.exact &= quiet;
            Some(shared)
        });
        let table = spi.look(&snapshot, &BECAME_DUE, &[arg(since), arg(now)])?;
        let Some(mut shared) = shared::lock() else { return Ok(()) };
        let id = transaction::database();
        for row in 0..table.len() {
            let Some(queue) = table.get::<String>(row, 0) else {
                if let (Some(next), Some(database)) = (table.get(row, 3), shared.database(id)) {
                    database.lower_next_due(next);
                }
                continue;
            };
            let task_type: String = table.need(row, 1)?;
            let tasks: i64 = table.need(row, 2)?;
            match figure::find(&mut shared.figures, id, &Name::new(&queue), &Name::new(&task_type)) {
                Some(figure) => {
                    figure.scheduled -= tasks;
                    figure.ready += tasks;
                    figure.claimable += tasks;
                }
                None => no_room(&mut shared),
            }
        }
        Ok(())
    })
}

fn count_all(now: Moment) -> Outcome<()> {
    changes::looking();
    let effort = Effort::begin();
    // Prepared transactions change tasks at any time, and no figures. (Asked before the wait: between that and the
    // snapshot nothing else is to take time.)
    let noted = prepared::noted();
    let no_prepared = prepared::now()?.is_empty();
    let mut before = HashMap::new();
    Spi::run_freely(|spi| {
        let snapshot = Snapshot::taken(|| {
            let (mut shared, quiet) = lock_when_quiet(|ending| ending.all)?;
            let id = transaction::database();
            for figure in figure::of(&mut shared.figures, id) {
                before.insert(
                    (figure.queue, figure.task_type),
                    [figure.ready, figure.scheduled, figure.running, figure.blocked],
                );
            }
            let database = shared.database(id)?;
            database.due_until = now;
            database.next_due = Moment::INFINITY;
            database.exact = quiet && no_prepared && database.prepared == noted;
            database.counted_at = now;
            Some(shared)
        });
        let table = spi.look(&snapshot, &COUNT, &[arg(now)])?;
        let mut counted = HashMap::new();
        let mut next_due = Moment::INFINITY;
        for row in 0..table.len() {
            let key = (Name::new(&table.need::<String>(row, 0)?), Name::new(&table.need::<String>(row, 1)?));
            let counts: [i64; 4] =
                [table.need(row, 2)?, table.need(row, 3)?, table.need(row, 4)?, table.need(row, 5)?];
            counted.insert(key, counts);
            next_due = next_due.min(table.get(row, 6).unwrap_or(Moment::INFINITY));
        }
        let Some(mut shared) = shared::lock() else { return Ok(()) };
        let id = transaction::database();
        let keys: Vec<_> = before.keys().chain(counted.keys()).copied().collect();
        for key in keys {
            // What has changed since the search began stays as it is.
            let (was, is) =
                (before.remove(&key).unwrap_or_default(), counted.remove(&key).unwrap_or_default());
            match figure::find(&mut shared.figures, id, &key.0, &key.1) {
                Some(figure) => {
                    figure.ready += is[0] - was[0];
                    figure.scheduled += is[1] - was[1];
                    figure.running += is[2] - was[2];
                    figure.blocked += is[3] - was[3];
                }
                None => no_room(&mut shared),
            }
        }
        if let Some(database) = shared.database(id) {
            database.lower_next_due(next_due);
        }
        REST_UNTIL.set(wall_clock().plus((effort.cost() * REST).as_secs_f64()));
        Ok(())
    })
}

fn no_room(shared: &mut Locked) {
    if let Some(database) = shared.database(transaction::database()) {
        database.exact = false;
        database.look_everywhere = true;
    }
}

/// Transactions of this database that are between their announcement and their end.
struct Ending {
    all: i32,
    scheduled: i32,
}

fn ending(shared: &mut Locked) -> Ending {
    let database = shared.database(transaction::database());
    database.map_or(Ending { all: 0, scheduled: 0 }, |database| Ending {
        all: database.ending,
        scheduled: database.ending_scheduled,
    })
}

/// The lock, at a moment at which none is ending; or, if none came in a while, at any, and which of the two it is.
fn lock_when_quiet(count: impl Fn(&Ending) -> i32) -> Option<(Locked, bool)> {
    for _ in 0..TRIES {
        let mut shared = shared::lock()?;
        if count(&ending(&mut shared)) == 0 {
            return Some((shared, true));
        }
        drop(shared);
        std::thread::sleep(TRY_AGAIN);
    }
    shared::lock().map(|shared| (shared, false))
}
