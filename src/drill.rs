//! `taskq.drill`: how its caller and the keeper find each other. What a drill does is in `sql/drill.sql`.
//!
//! The request stays in shared memory until the drill is over and the keeper has committed that. So
//! there is never a second one, and the caller knows when to read the steps.

use crate::call::Call;
use crate::checks;
use crate::failure::Outcome;
use crate::shared::database::Drill;
use crate::shared::text::{Name, Text};
use crate::shared::{self, figure};
use crate::sql_functions;
use crate::statement::arg;
use crate::transaction;
use crate::values::wall_clock;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_ask_drill / pg_finfo_taskq_ask_drill => ask;
    taskq_drill_state / pg_finfo_taskq_drill_state => state;
    taskq_drill_asked / pg_finfo_taskq_drill_asked => asked;
    taskq_drill_goes_on / pg_finfo_taskq_drill_goes_on => goes_on;
    taskq_drill_is_over / pg_finfo_taskq_drill_is_over => is_over;
}

/// Seconds until the keeper looks again what a drill waits for.
const PAUSE: f64 = 0.05;

/// `taskq._ask_drill(id, queue, timeout, asked_by)`.
fn ask(call: &Call) -> Outcome<Datum> {
    let drill = Drill {
        id: checks::required("id", call.bigint(0))?,
        queue: Name::new(&call.text(1).unwrap_or_default()),
        timeout: checks::required("timeout", call.double(2))?,
        asked_by: Name::new(&call.text(3).unwrap_or_default()),
        look_at: wall_clock(),
    };
    call.value(Some(answer(drill)))
}

fn answer(drill: Drill) -> &'static str {
    shared::with_database(|database| {
        if !database.keeper.lives() {
            return "no keeper";
        }
        if database.drill.is_there() {
            return "busy";
        }
        database.drill = drill;
        database.keeper.wake();
        "asked"
    })
    .unwrap_or("no keeper")
}

/// `taskq._drill_state(id)`.
fn state(call: &Call) -> Outcome<Datum> {
    let id = checks::required("id", call.bigint(0))?;
    let mut state = "over";
    if let Some(mut shared) = shared::lock()
        && let Some(database) = shared.database(transaction::database())
        && database.drill.id == id
    {
        state = if database.keeper.lives() { "open" } else { "no keeper" };
    }
    call.value(Some(state))
}

/// `taskq._drill_asked()`.
fn asked(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    let drill = shared::with_database(|database| database.drill).filter(Drill::is_there);
    if let Some(drill) = drill {
        rows.add(&[
            arg(drill.id),
            arg(drill.queue.as_str()),
            arg(drill.timeout),
            arg(drill.asked_by.as_str()),
        ]);
    }
    rows.finish()
}

/// `taskq._drill_goes_on(id)`. After a start of the server the keeper knows of an open drill from the
/// table only: from now on it looks as often as for one that was just asked for.
fn goes_on(call: &Call) -> Outcome<Datum> {
    let id = checks::required("id", call.bigint(0))?;
    shared::with_database(|database| {
        if !database.drill.is_there() {
            database.drill = Drill { id, ..Drill::NONE };
        }
        database.drill.look_at = wall_clock().plus(PAUSE);
    });
    call.void()
}

/// `taskq._drill_is_over(id, queue, task_type)`.
fn is_over(call: &Call) -> Outcome<Datum> {
    let id = checks::required("id", call.bigint(0))?;
    let (queue, name) = (call.text(1).unwrap_or_default(), call.text(2).unwrap_or_default());
    if let Some(mut shared) = shared::lock() {
        let shared = &mut *shared;
        let database = transaction::database();
        figure::forget_one(&mut shared.figures, database, &Name::new(&queue), &Name::new(&name));
        let worker = Text::new(&name);
        for known in &mut shared.workers {
            if known.database == database && known.name == worker {
                known.database = 0;
            }
        }
        if let Some(database) = shared.database(database)
            && database.drill.id == id
        {
            database.drill = Drill::NONE;
        }
    }
    call.void()
}
