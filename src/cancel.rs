//! `taskq.cancel`: a waiting task ends at once, a running one is asked to stop.

use crate::call::Call;
use crate::checks;
use crate::clock;
use crate::config;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::Spi;
use crate::store::{self, Finish, Whereabouts};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_cancel / pg_finfo_taskq_cancel => cancel;
}

fn cancel(call: &Call) -> Outcome<Datum> {
    let id = checks::required("id", call.bigint(0))?;
    let reason = call.text(1).map(checks::reason).transpose()?;
    let force = call.boolean(2).unwrap_or(false);
    let now = clock::now()?;
    let answer = Spi::run(|spi| {
        let Some(running) = store::lock_to_cancel(spi, id)? else {
            return Ok(match store::whereabouts(spi, id)? {
                Whereabouts::Unknown => "not found",
                _ => "finished",
            });
        };
        if running && !force {
            store::request_cancel(spi, id, now, reason.as_deref())?;
            return Ok("requested");
        }
        let how = Finish::Cancelled { reason: reason.as_deref(), errors: None };
        store::finish(spi, &[id], None, None, how, &*config::current(spi)?, now)?;
        Ok("cancelled")
    })?;
    call.value(Some(answer))
}
