//! `taskq.complete`: the work is done, and in the caller's transaction.

use crate::call::Call;
use crate::checks;
use crate::clock;
use crate::config;
use crate::failure::Outcome;
use crate::lease;
use crate::pairs::{self, Pairs};
use crate::sql_functions;
use crate::statement::{Spi, arg};
use crate::store::{self, Finish};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_complete / pg_finfo_taskq_complete => complete;
    taskq_complete_many / pg_finfo_taskq_complete_many => complete_many;
}

fn complete(call: &Call) -> Outcome<Datum> {
    let (id, token) = pairs::single(call)?;
    let result = call.jsonb(2);
    checks::size("the result", &[result])?;
    let now = clock::now()?;
    Spi::run(|spi| {
        let results = result.map(|result| [Some(result)]);
        let results = results.as_ref().map(|results| &results[..]);
        let config = config::current(spi)?;
        if store::finish(spi, &[id], Some(&[token]), results, Finish::Succeeded, &config, now)?.is_empty() {
            return Err(lease::stale(spi, id, now)?);
        }
        Ok(())
    })?;
    call.void()
}

fn complete_many(call: &Call) -> Outcome<Datum> {
    let pairs = Pairs::from_call(call)?;
    let results = call.jsonbs(2);
    pairs.check_length("results", results.as_deref().map(<[_]>::len))?;
    for (at, result) in results.iter().flatten().enumerate() {
        checks::size("the result", &[*result]).map_err(|f| f.at_element(at + 1))?;
    }
    let now = clock::now()?;
    let mut rows = call.rows();
    Spi::run(|spi| {
        let config = config::current(spi)?;
        for layer in pairs.layers() {
            let results = results.as_deref().map(|results| layer.in_order(results));
            let how = Finish::Succeeded;
            for id in
                store::finish(spi, &layer.ids, Some(&layer.tokens), results.as_deref(), how, &config, now)?
            {
                rows.add(&[arg(id)]);
            }
        }
        Ok(())
    })?;
    rows.finish()
}
