//! What the shared memory knows about queues, task types and workers, for SQL.

use crate::call::Call;
use crate::failure::Outcome;
use crate::sql_functions;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_figures / pg_finfo_taskq_figures => figures;
    taskq_figures_state / pg_finfo_taskq_figures_state => state;
    taskq_take_figures / pg_finfo_taskq_take_figures => take;
    taskq_workers_seen / pg_finfo_taskq_workers_seen => workers_seen;
}

fn figures(call: &Call) -> Outcome<Datum> {
    call.rows().finish()
}

fn state(call: &Call) -> Outcome<Datum> {
    call.rows().finish()
}

fn take(call: &Call) -> Outcome<Datum> {
    call.rows().finish()
}

fn workers_seen(call: &Call) -> Outcome<Datum> {
    call.rows().finish()
}
