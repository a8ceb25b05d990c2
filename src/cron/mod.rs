//! When schedules run: `taskq._cron_next` and `taskq._cron_due`, which `sql/schedule.sql` is built on.
//!
//! croner reads expressions and finds the local times they name. It is given no time zone: PostgreSQL's
//! own zones are the only truth, so that a schedule and `at time zone` never disagree, and an update of
//! the server's (or the system's) zones needs no new build of ours. Hence neither chrono nor a second
//! zone database is linked.

mod expression;
mod zone;

use crate::call::Call;
use crate::checks::required;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::arg;
use crate::values::{Moment, TimeZone};
use expression::Expression;
use pgrx::pg_sys::Datum;
use std::collections::VecDeque;
use zone::Zone;

sql_functions! {
    taskq_cron_next / pg_finfo_taskq_cron_next => cron_next;
    taskq_cron_due / pg_finfo_taskq_cron_due => cron_due;
}

/// One round walks so many occurrences at most, and enqueues so many: that is well below a second.
const MOST_WALKED: usize = 100_000;
const MOST_RUNS: usize = 1_000;

impl Zone for TimeZone {
    fn local(&self, at: i64) -> i64 {
        seconds(TimeZone::local(self, moment(at)))
    }
}

/// The whole seconds of a moment: occurrences have no others.
fn seconds(moment: Moment) -> i64 {
    moment.0.div_euclid(1_000_000)
}

fn moment(seconds: i64) -> Moment {
    Moment(seconds.saturating_mul(1_000_000))
}

/// `taskq._cron_next(cron, time_zone, after)`
fn cron_next(call: &Call) -> Outcome<Datum> {
    let expression = Expression::parse(&required("cron", call.text(0))?)?;
    let zone = TimeZone::named(required("time_zone", call.text(1))?);
    let after = required("after", call.moment(2))?;
    call.value(zone::next(&expression, &zone, seconds(after)).map(moment))
}

/// `taskq._cron_due(cron, time_zone, next_run_at, missed_before, until, keep)`
fn cron_due(call: &Call) -> Outcome<Datum> {
    let expression = Expression::parse(&required("cron", call.text(0))?)?;
    let zone = TimeZone::named(required("time_zone", call.text(1))?);
    let begin = seconds(required("next_run_at", call.moment(2))?);
    let missed_before = required("missed_before", call.moment(3))?;
    let until = seconds(required("until", call.moment(4))?);
    let keep = usize::try_from(required("keep", call.int(5))?).unwrap_or(0);
    let due = due(
        begin,
        until,
        keep,
        |at| moment(at) < missed_before,
        |at| {
            pgrx::check_for_interrupts!();
            zone::next(&expression, &zone, at)
        },
    );
    let runs: Vec<Moment> = due.runs.into_iter().map(moment).collect();
    let mut rows = call.rows();
    rows.add(&[arg(runs), arg(due.left_out), due.next.map(moment).and_then(arg)]);
    rows.finish()
}

#[derive(Debug, PartialEq)]
struct Due {
    /// What is to be enqueued now.
    runs: VecDeque<i64>,
    /// How many missed ones are not.
    left_out: i64,
    /// The one after that. It is due, too, if there is more than one round can do.
    next: Option<i64>,
}

/// Of the occurrences from `begin` to `until`, those to be enqueued: the last `keep` of the missed ones,
/// and all others.
fn due(
    begin: i64,
    until: i64,
    keep: usize,
    missed: impl Fn(i64) -> bool,
    following: impl Fn(i64) -> Option<i64>,
) -> Due {
    let mut due = Due { runs: VecDeque::new(), left_out: 0, next: Some(begin) };
    for _ in 0..MOST_WALKED {
        let Some(at) = due.next.filter(|at| *at <= until) else {
            if due.runs.len() > MOST_RUNS {
                due.next = due.runs.get(MOST_RUNS).copied();
                due.runs.truncate(MOST_RUNS);
            }
            return due;
        };
        due.runs.push_back(at);
        if missed(at) && due.runs.len() > keep {
            due.runs.pop_front();
            due.left_out += 1;
        }
        due.next = following(at);
    }
    // Too many for one round: which of the missed ones are the last is not known yet.
    due.next = due.runs.front().copied().or(due.next);
    due.runs.clear();
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An occurrence every second, from 1 on; those before `missed_before` are missed.
    fn seconds_until(until: i64, keep: usize, missed_before: i64) -> Due {
        due(1, until, keep, |at| at < missed_before, |at| Some(at + 1))
    }

    fn expect(runs: std::ops::RangeInclusive<i64>, left_out: i64, next: i64) -> Due {
        Due { runs: runs.collect(), left_out, next: Some(next) }
    }

    #[test]
    fn the_last_missed_ones_are_kept_and_all_that_are_in_time() {
        assert_eq!(seconds_until(0, 1, 0), Due { runs: VecDeque::new(), left_out: 0, next: Some(1) });
        assert_eq!(seconds_until(5, 0, 0), expect(1..=5, 0, 6));
        assert_eq!(seconds_until(20, 0, 11), expect(11..=20, 10, 21));
        assert_eq!(seconds_until(20, 1, 11), expect(10..=20, 9, 21));
        assert_eq!(seconds_until(20, 5, 11), expect(6..=20, 5, 21));
        assert_eq!(seconds_until(20, 100, 11), expect(1..=20, 0, 21));
    }

    #[test]
    fn the_last_one_of_all_has_none_after_it() {
        let found = due(1, 9, 1, |_| false, |at| (at < 3).then_some(at + 1));
        assert_eq!(found, Due { runs: (1..=3).collect(), left_out: 0, next: None });
    }

    #[test]
    fn a_round_is_bounded_and_the_next_one_goes_on() {
        assert_eq!(seconds_until(5_000, 3_000, 4_001), expect(1_001..=2_000, 1_000, 2_001));
        // more than are walked: nothing is enqueued before the last ones are known
        for keep in [0, 1, 500] {
            let (mut begin, mut left_out, mut rounds) = (1, 0, 0);
            let found = loop {
                let found = due(begin, 250_000, keep, |at| at < 249_991, |at| Some(at + 1));
                (left_out, rounds) = (left_out + found.left_out, rounds + 1);
                if !found.runs.is_empty() {
                    break found;
                }
                begin = found.next.unwrap_or(0);
            };
            assert_eq!(rounds, 3);
            assert_eq!(left_out, 249_990 - keep as i64);
            assert_eq!(found.runs, (249_991 - keep as i64..=250_000).collect::<Vec<_>>());
            assert_eq!(found.next, Some(250_001));
        }
    }
}
