//! What time it is: the server's clock, read once a call; in tests, the setting `taskq.test_clock`.

use crate::call::Call;
use crate::failure::{Failure, Outcome};
use crate::settings::TEST_CLOCK;
use crate::sql_functions;
use crate::values::{Moment, parse_interval, parse_moment, wall_clock};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_now / pg_finfo_taskq_now => now_function;
}

/// `taskq._now()`. Never the transaction's start: a lease from an old transaction's clock would
/// be born expired.
fn now_function(call: &Call) -> Outcome<Datum> {
    call.value(Some(now()?))
}

pub fn now() -> Outcome<Moment> {
    let Some(setting) = TEST_CLOCK.get() else { return Ok(wall_clock()) };
    let text = setting.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return Ok(wall_clock());
    }
    let parsed = if let Some(offset) = text.strip_prefix('+') {
        parse_interval(offset.trim()).map(|s| wall_clock().plus(s.0))
    } else if let Some(offset) = text.strip_prefix('-') {
        parse_interval(offset.trim()).map(|s| wall_clock().plus(-s.0))
    } else {
        parse_moment(text)
    };
    parsed.filter(|moment| moment.is_finite()).ok_or_else(|| {
        Failure::invalid(
            "taskq.test_clock is neither a time nor an offset",
            "Give a timestamp with time zone, or an offset such as '+ 2 hours'.",
        )
    })
}
