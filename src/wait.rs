//! `CALL taskq.wait`: sleeps until something may be claimable.
//!
//! It registers first and looks then, so a task that comes in between is not missed. While it sleeps it
//! holds no snapshot and no lock but its own virtual one.

use crate::call::Call;
use crate::changes;
use crate::checks;
use crate::claim;
use crate::clock;
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::keeper::process;
use crate::permits::Permits;
use crate::shared::{self, Process, waiter::Waiter};
use crate::sql_functions;
use crate::statement::Spi;
use crate::store;
use crate::transaction;
use pgrx::pg_sys::Datum;
use std::time::{Duration, Instant};

sql_functions! {
    taskq_wait / pg_finfo_taskq_wait => wait;
    taskq_claimable / pg_finfo_taskq_claimable => claimable;
}

/// Without a keeper nobody wakes us: look so often.
const LOOK: Duration = Duration::from_secs(1);
/// With one, look all the same now and then: a worker that was woken in our place may have died.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);
/// The longest timeout, in seconds.
const LONGEST: f64 = 86_400.0;

fn wait(call: &Call) -> Outcome<Datum> {
    let queues = call.texts(0).map(claim::queue_names).transpose()?;
    let timeout = checks::required("timeout", call.seconds(1))?.0;
    if !(0.0..=LONGEST).contains(&timeout) {
        return Err(Failure::invalid(
            "timeout must be between 0 and 1 day",
            "Give an interval such as '20 seconds', and call wait again when it is over.",
        ));
    }
    if !call.may_commit() {
        return Err(Failure::new("2D000", "wait cannot be called inside a transaction block or a function")
            .hint("It would hold back vacuum while it waits. Call it on a connection in autocommit mode."));
    }
    let until = Instant::now() + Duration::from_secs_f64(timeout);
    let now = clock::now()?;
    claim::LAST_WORKER.with_borrow(|worker| {
        if let Some(worker) = worker {
            changes::worker_seen(worker, queues.as_deref(), None, now);
        }
    });
    let place = Place::take(queues.as_deref());
    loop {
        if store::any_claimable(queues.clone())? {
            break;
        }
        Spi::commit()?;
        let look = Instant::now() + if place.will_be_woken() { LOOK_ANYWAY } else { LOOK };
        let mut woken = false;
        while !woken && Instant::now() < until.min(look) {
            process::wait(until.min(look).saturating_duration_since(Instant::now()));
            woken = place.is_woken();
        }
        if woken || Instant::now() >= until {
            break;
        }
    }
    call.void()
}

/// `taskq._claimable(queues)`: whether a claim would find something now.
fn claimable(call: &Call) -> Outcome<Datum> {
    let queues = call.texts(0).map(claim::queue_names).transpose()?;
    let now = clock::now()?;
    let found = Spi::run(|spi| {
        let config = config::current(spi)?;
        for lane in store::due_lanes(spi, queues.as_deref(), &config, now)? {
            // Locks what it finds, as the claim would: what only looks free, because others have just
            // taken it and not committed, must not wake anybody.
            if !store::has_free_task(spi, &lane, now)? {
                continue;
            }
            let limit = config.limits.get(&lane.queue);
            let permitted = |limit| Permits::default().lock(spi, &lane.queue, limit, 1, now);
            if limit.map(permitted).transpose()? != Some(0) {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    call.value(Some(found))
}

/// Our place among the waiters, given back when this is dropped. (A process that is terminated cannot
/// give it back; whoever wants to wake it finds that it has ended.)
struct Place(Option<usize>);

impl Place {
    fn take(queues: Option<&[String]>) -> Self {
        let Some(mut shared) = shared::lock() else { return Place(None) };
        let number = shared.waiters.iter().map(|waiter| waiter.number).max().unwrap_or(0) + 1;
        let free = shared.waiters.iter().position(|waiter| waiter.database == 0 || !waiter.process.lives());
        if let Some(at) = free {
            shared.waiters[at] = Waiter::new(transaction::database(), queues, number);
        }
        Place(free)
    }

    /// Whether a keeper is at work that knows of us.
    fn will_be_woken(&self) -> bool {
        self.0.is_some() && shared::with_database(|database| database.keeper.lives()).unwrap_or(false)
    }

    fn is_woken(&self) -> bool {
        let (Some(at), Some(shared)) = (self.0, shared::lock()) else { return false };
        shared.waiters[at].woken
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(at), Some(mut shared)) = (self.0, shared::lock())
            && shared.waiters[at].process == Process::current()
        {
            shared.waiters[at].database = 0;
        }
    }
}
