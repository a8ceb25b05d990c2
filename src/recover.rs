//! Taking back leases that are over: `taskq._recover`, the recover duty.
//!
//! Nothing indexes leases, so finding those that are over means reading the whole table. That is done
//! seldom: a search also remembers when the leases that it saw will end, and until a lease ends that
//! was given since (the hint in shared memory tells), what is remembered is all there is to look at.

use crate::call::Call;
use crate::changes;
use crate::checks;
use crate::clock;
use crate::config;
use crate::effort::{self, Effort};
use crate::failure::Outcome;
use crate::lease;
use crate::sql_functions;
use crate::statement::Spi;
use crate::store;
use crate::values::Moment;
use pgrx::pg_sys::Datum;
use std::cell::RefCell;
use std::time::{Duration, Instant};

sql_functions! {
    taskq_recover / pg_finfo_taskq_recover => recover;
}

/// The most leases that a search remembers: those that end first.
const REMEMBERED: usize = 20_000;
/// After so many seconds tasks whose lease is over, but that others had locked, are tried again.
const LOCKED_AGAIN: f64 = 1.0;
/// Without a hint the table is searched by the next round after this time all the same (a lease that a prepared
/// transaction gave has no hint), if the last search has rested so many times as long as it cost.
const SEARCH_AGAIN: Duration = Duration::from_secs(29);
const QUIET_REST: u32 = 200;

/// What the keeper's last search saw.
struct Seen {
    /// When leases end, and of which tasks; those that end last come first.
    ends: Vec<(Moment, i64)>,
    /// Leases that end after this moment are not all among them.
    until: Moment,
    searched_at: Instant,
    cost: Duration,
}

thread_local! {
    /// None in sessions: only the keeper comes again.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
    static IS_KEEPER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// This process is the keeper, and does all rounds from here on.
pub fn in_keeper() {
    IS_KEEPER.set(true);
}

/// When the keeper has to come again, if no lease that was given since its last search ends before this
/// hint.
pub fn next_look(hint: Moment, now: Moment) -> Moment {
    SEEN.with_borrow(|seen| {
        let Some(seen) = seen else { return hint };
        let search = hint.min(seen.until).max(now.plus(seen.rest().as_secs_f64()));
        seen.ends.last().map_or(search, |(at, _)| search.min(*at))
    })
}

impl Seen {
    /// How long no search is to begin.
    fn rest(&self) -> Duration {
        effort::rest(self.cost).saturating_sub(self.searched_at.elapsed())
    }

    /// Whether the table must be searched again.
    fn is_outdated(&self, hint: Moment, now: Moment) -> bool {
        let due = hint.min(self.until) <= now && self.rest().is_zero();
        due || self.searched_at.elapsed() > SEARCH_AGAIN.max(self.cost * QUIET_REST)
    }

    /// Takes out the tasks whose lease should be over, so many at most.
    fn take_over(&mut self, now: Moment, at_most: usize) -> Vec<i64> {
        let first =
            self.ends.partition_point(|(at, _)| *at > now).max(self.ends.len().saturating_sub(at_most));
        self.ends.split_off(first).into_iter().map(|(_, id)| id).collect()
    }

    fn look_again_at(&mut self, ids: &[i64], at: Moment) {
        self.ends.extend(ids.iter().map(|id| (at, *id)));
        self.ends.sort_unstable_by(|a, b| b.cmp(a));
    }
}

/// `taskq._recover(at_most)`: takes back tasks whose lease is over, and says how many.
fn recover(call: &Call) -> Outcome<Datum> {
    let at_most = checks::required("at_most", call.int(0))?;
    let at_most = usize::try_from(at_most).unwrap_or(0);
    let now = clock::now()?;
    // Should this round be rolled back, everything is searched again.
    changes::looking();
    let hint = changes::lease_hint();
    let mut seen = match SEEN.take() {
        Some(seen) if !seen.is_outdated(hint, now) => seen,
        _ => search()?,
    };
    let over = seen.take_over(now, at_most);
    let recovered = Spi::run(|spi| {
        let recovered = lease::take_back(spi, over.clone(), &*config::current(spi)?, now)?;
        if recovered < over.len() {
            // Others have locked some; most have ended or were extended meanwhile.
            seen.look_again_at(&store::still_over(spi, &over, now)?, now.plus(LOCKED_AGAIN));
        }
        Ok(recovered)
    })?;
    if IS_KEEPER.get() {
        SEEN.set(Some(seen));
    } else {
        let next = seen.ends.last().map_or(seen.until, |(at, _)| seen.until.min(*at));
        if next < Moment::INFINITY {
            changes::lease_may_end(next);
        }
    }
    call.value(Some(recovered as i64))
}

fn search() -> Outcome<Seen> {
    let (searched_at, effort) = (Instant::now(), Effort::begin());
    // A lease that begins from here on lowers the hint; one that began before is seen by the search,
    // or lowers it when it is committed.
    changes::lease_search_begins();
    let mut ends = Spi::run_freely(|spi| store::lease_ends(spi, REMEMBERED))?;
    let until = if ends.len() < REMEMBERED { None } else { ends.last().map(|(at, _)| *at) };
    ends.reverse();
    Ok(Seen { ends, until: until.unwrap_or(Moment::INFINITY), searched_at, cost: effort.cost() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ends: &[i64], cost: Duration) -> Seen {
        let ends = ends.iter().rev().map(|at| (Moment(*at), *at)).collect();
        Seen { ends, until: Moment::INFINITY, searched_at: Instant::now(), cost }
    }

    #[test]
    fn leases_come_out_when_they_are_over_and_those_over_for_longest_first() {
        let mut seen = seen(&[10, 20, 30, 40], Duration::ZERO);
        assert_eq!(seen.take_over(Moment(9), 10), [0; 0]);
        assert_eq!(seen.take_over(Moment(30), 2), [20, 10]);
        seen.look_again_at(&[10], Moment(35));
        assert_eq!(seen.take_over(Moment(35), 10), [10, 30]);
        assert_eq!(seen.take_over(Moment(40), 0), [0; 0]);
        assert_eq!(seen.take_over(Moment(40), 10), [40]);
    }

    #[test]
    fn a_search_rests_and_then_follows_the_hint() {
        let slow = seen(&[], Duration::from_millis(100));
        assert!(!slow.is_outdated(Moment(1), Moment(2)), "it rests");
        let quick = seen(&[], Duration::ZERO);
        assert!(quick.is_outdated(Moment(1), Moment(2)));
        assert!(!quick.is_outdated(Moment(3), Moment(2)), "no lease is over");
        let many = Seen { until: Moment(1), ..seen(&[], Duration::ZERO) };
        assert!(many.is_outdated(Moment::INFINITY, Moment(2)), "more than it remembers");
    }
}
