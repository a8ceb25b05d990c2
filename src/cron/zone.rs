//! Occurrences of a cron expression in a time zone: from local times to moments, and what becomes of
//! them when the clock is changed.
//!
//! The zone is asked for one thing only, what its clocks show at a moment; the rest is found by
//! searching. Moments are seconds since 2000-01-01 UTC.
//!
//! An expression that names every hour follows the clock: a local time that does not exist is passed
//! over, one that comes twice counts twice, so an hourly task stays hourly. Any other expression runs
//! each local time once: the first time it comes, or at the change if it does not exist.

use super::expression::{Expression, Local};

const DAY: i64 = 86_400;

/// What the clocks of a place show.
pub trait Zone {
    fn local(&self, at: i64) -> i64;

    fn offset(&self, at: i64) -> i64 {
        self.local(at) - at
    }
}

/// The first occurrence after a moment. None if there is none any more.
pub fn next(expression: &Expression, zone: &impl Zone, after: i64) -> Option<i64> {
    if expression.every_hour {
        by_the_clock(expression, zone, after)
    } else {
        by_the_calendar(expression, zone, after)
    }
}

fn by_the_calendar(expression: &Expression, zone: &impl Zone, after: i64) -> Option<i64> {
    let mut local = Local(zone.local(after));
    loop {
        local = expression.next(local, false)?;
        let (Place::At(at) | Place::Change(at)) = place(zone, local);
        // While a stretch of time comes for the second time, its times are over.
        if at > after {
            return Some(at);
        }
    }
}

fn by_the_clock(expression: &Expression, zone: &impl Zone, after: i64) -> Option<i64> {
    let (mut from, mut inclusive) = (after, false);
    loop {
        let (offset, day_later) = (zone.offset(from), from + DAY);
        let local = expression.next(Local(from + offset), inclusive)?;
        let at = local.0 - offset;
        inclusive = true;
        if zone.offset(day_later) != offset {
            let change = first(from, day_later, |t| zone.offset(t) != offset);
            if at < change {
                return Some(at);
            }
            from = change;
        } else if at <= day_later {
            return Some(at);
        } else {
            match place(zone, local) {
                Place::At(at) => return Some(at),
                Place::Change(change) => from = change,
            }
        }
    }
}

enum Place {
    /// When it is that time, for the first time if it comes twice.
    At(i64),
    /// It does not exist: the clock is set forward over it at this moment.
    Change(i64),
}

fn place(zone: &impl Zone, local: Local) -> Place {
    // No offset is as large as a day, so one of these holds before a change close by, one after it.
    let offsets = [zone.offset(local.0 - DAY), zone.offset(local.0 + DAY)];
    let early = local.0 - offsets[0].max(offsets[1]);
    let late = local.0 - offsets[0].min(offsets[1]);
    match [early, late].into_iter().find(|at| zone.local(*at) == local.0) {
        Some(at) => Place::At(at),
        None => Place::Change(first(early, late, |at| zone.local(at) > local.0)),
    }
}

/// The first moment after `from` at which something is so that is so from then on until `until`.
fn first(mut from: i64, mut until: i64, is_so: impl Fn(i64) -> bool) -> i64 {
    while until - from > 1 {
        let middle = from + (until - from) / 2;
        if is_so(middle) {
            until = middle;
        } else {
            from = middle;
        }
    }
    until
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Clocks that are changed by `by` seconds at the moment 0, from an hour east of UTC.
    struct Change {
        by: i64,
    }

    impl Zone for Change {
        fn local(&self, at: i64) -> i64 {
            at + 3_600 + if at < 0 { 0 } else { self.by }
        }
    }

    /// The occurrences from half an hour after midnight (an hour and a half before the change) on, in minutes from
    /// the change.
    fn minutes(text: &str, by: i64, until: i64) -> Vec<i64> {
        let expression = Expression::parse(text).unwrap();
        let (mut found, mut at) = (Vec::new(), -7_200);
        loop {
            at = next(&expression, &Change { by }, at).unwrap();
            if at >= until {
                return found;
            }
            assert_eq!(at % 60, 0);
            found.push(at / 60);
        }
    }

    // The change comes at 01:00 of the old clock.

    #[test]
    fn a_time_that_does_not_exist_runs_at_the_change_and_once() {
        assert_eq!(minutes("30 1 * * *", 3_600, DAY), [0, 24 * 60 - 30]);
        assert_eq!(minutes("0 1 * * *", 3_600, DAY), [0, 24 * 60 - 60]);
        // all of them at the change, where one runs anyway
        assert_eq!(minutes("0,15,30 1,2 * * *", 3_600, 7_200), [0, 15, 30]);
        assert_eq!(minutes("10 1 * * *", 1_800, 7_200), [0]);
        assert_eq!(minutes("30 1 * * *", 1_800, 7_200), [0]);
        assert_eq!(minutes("40 1 * * *", 1_800, 7_200), [10]);
    }

    #[test]
    fn a_time_that_comes_twice_runs_once() {
        assert_eq!(minutes("30 0 * * *", -3_600, DAY), [-30]);
        assert_eq!(minutes("0 0 * * *", -3_600, DAY), [-60]);
        assert_eq!(minutes("*/20 0 * * *", -3_600, DAY), [-60, -40, -20]);
        assert_eq!(minutes("0 1 * * *", -3_600, DAY), [60]);
        assert_eq!(minutes("45 0 * * *", -1_800, DAY), [-15]);
        assert_eq!(minutes("0 1 * * *", -1_800, DAY), [30]);
    }

    #[test]
    fn what_runs_every_hour_follows_the_clock() {
        assert_eq!(minutes("0 * * * *", 3_600, 7_200), [-60, 0, 60]);
        assert_eq!(minutes("30 * * * *", 3_600, 7_200), [-90, -30, 30, 90]);
        assert_eq!(minutes("*/20 0-23 * * *", 3_600, 1_800), [-100, -80, -60, -40, -20, 0, 20]);
        assert_eq!(minutes("0 * * * *", -3_600, 7_200), [-60, 0, 60]);
        assert_eq!(minutes("30 * * * *", -3_600, 7_200), [-90, -30, 30, 90]);
        assert_eq!(minutes("*/20 * * * *", -3_600, 3_600), [-100, -80, -60, -40, -20, 0, 20, 40]);
        // half an hour: the clock has 00:30 to 01:00 twice, or no 01:00 to 01:30
        assert_eq!(minutes("45 * * * *", -1_800, 7_200), [-75, -15, 15, 75]);
        assert_eq!(minutes("0 * * * *", 1_800, 7_200), [-60, 30, 90]);
    }

    #[test]
    fn the_same_from_whatever_moment_one_asks() {
        for by in [3_600, 1_800, -1_800, -3_600] {
            for text in ["30 0,1 * * *", "*/7 0,1 * * *", "5 * * * *", "*/3 * * * * *"] {
                let expression = Expression::parse(text).unwrap();
                let mut later = None;
                for after in (-4_000..4_000).rev() {
                    let found = next(&expression, &Change { by }, after).unwrap();
                    assert!(found > after);
                    if let Some(later) = later {
                        assert!(found == later || found == after + 1, "{text} {by} after {after}");
                    }
                    later = Some(found);
                }
            }
        }
    }
}
