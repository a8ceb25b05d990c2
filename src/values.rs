//! Values that pass between SQL and Rust without being taken apart: moments, durations, JSON.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{FromDatum, IntoDatum};

/// Microseconds in a second.
const MICROS: f64 = 1_000_000.0;
/// Seconds in a day, in a month of 30 days, and in a year: the figures that PostgreSQL's
/// `extract(epoch from interval)` uses.
const DAY: f64 = 86_400.0;
const MONTH: f64 = 30.0 * DAY;
const YEAR: f64 = 365.25 * DAY;

/// A `timestamptz`: microseconds since 2000-01-01 UTC.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    pub const DISTANT_PAST: Moment = Moment(i64::MIN);
    pub const INFINITY: Moment = Moment(i64::MAX);

    pub fn is_finite(self) -> bool {
        self != Self::DISTANT_PAST && self != Self::INFINITY
    }

    /// The moment so many seconds later; saturates just below infinity.
    pub fn plus(self, seconds: f64) -> Moment {
        // `as` saturates, and NaN becomes 0.
        let micros = (seconds * MICROS).round() as i64;
        Moment(self.0.saturating_add(micros).clamp(i64::MIN + 1, Self::LAST))
    }

    /// Seconds from an earlier moment to this one.
    pub fn seconds_since(self, earlier: Moment) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / MICROS
    }

    /// 294276-12-31 23:59:59.999999 UTC, the last finite timestamptz (END_TIMESTAMP in timestamp.h).
    const LAST: i64 = 9_223_371_331_200_000_000 - 1;
}

impl FromDatum for Moment {
    unsafe fn from_polymorphic_datum(datum: Datum, is_null: bool, _: Oid) -> Option<Self> {
        (!is_null).then(|| Moment(datum.value() as i64))
    }
}

impl IntoDatum for Moment {
    fn into_datum(self) -> Option<Datum> {
        Some(Datum::from(self.0))
    }

    fn type_oid() -> Oid {
        pg_sys::TIMESTAMPTZOID
    }
}

/// An `interval` as a fixed number of seconds, so that no session's time zone changes what
/// "1 day" means here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl Seconds {
    fn from_parts(months: i32, days: i32, micros: i64) -> Self {
        Seconds(
            f64::from(months / 12) * YEAR
                + f64::from(months % 12) * MONTH
                + f64::from(days) * DAY
                + micros as f64 / MICROS,
        )
    }
}

impl FromDatum for Seconds {
    unsafe fn from_polymorphic_datum(datum: Datum, is_null: bool, _: Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: a datum of type interval points to an Interval.
        let interval = unsafe { &*datum.cast_mut_ptr::<pg_sys::Interval>() };
        // PostgreSQL 17 and later write infinite intervals as the extreme of every field.
        let extreme =
            |end: i32, far: i64| interval.month == end && interval.day == end && interval.time == far;
        if extreme(i32::MAX, i64::MAX) {
            return Some(Seconds(f64::INFINITY));
        }
        if extreme(i32::MIN, i64::MIN) {
            return Some(Seconds(f64::NEG_INFINITY));
        }
        Some(Seconds::from_parts(interval.month, interval.day, interval.time))
    }
}

/// The server's clock.
pub fn wall_clock() -> Moment {
    // SAFETY: reads the system clock, nothing else.
    Moment(unsafe { pg_sys::GetCurrentTimestamp() })
}

/// Reads a `timestamptz` as PostgreSQL would in this session; None if it is not one.
pub fn parse_moment(text: &str) -> Option<Moment> {
    parse(pg_sys::timestamptz_in, text)
}

/// Reads an `interval` as PostgreSQL would; None if it is not one.
pub fn parse_interval(text: &str) -> Option<Seconds> {
    parse(pg_sys::interval_in, text)
}

/// Calls a type's input function, and turns its complaint into None. That needs no
/// subtransaction: these functions compute and change nothing.
fn parse<T: FromDatum>(input: unsafe fn(pg_sys::FunctionCallInfo) -> Datum, text: &str) -> Option<T> {
    let text = std::ffi::CString::new(text).ok()?;
    pgrx::PgTryBuilder::new(std::panic::AssertUnwindSafe(|| {
        let (text, no_type, no_modifier) =
            (Datum::from(text.as_ptr()), Datum::from(0usize), Datum::from(-1i32));
        // SAFETY: an input function takes a C string, a type oid and a type modifier.
        unsafe { pgrx::direct_function_call::<T>(input, &[Some(text), Some(no_type), Some(no_modifier)]) }
    }))
    .catch_others(|_| None)
    .execute()
}

/// A time zone, as PostgreSQL knows it by this name.
pub struct TimeZone(Option<Datum>);

impl TimeZone {
    pub fn named(name: String) -> Self {
        TimeZone(name.into_datum())
    }

    /// What clocks show there: the same as `at time zone`, in microseconds since 2000-01-01 00:00
    /// there. An unknown zone is an error of PostgreSQL's.
    pub fn local(&self, at: Moment) -> Moment {
        // SAFETY: takes a text and a timestamptz and returns a timestamp, which has the same form.
        unsafe { pgrx::direct_function_call::<Moment>(pg_sys::timestamptz_zone, &[self.0, at.into_datum()]) }
            .unwrap_or(at)
    }
}

/// A `jsonb` datum. It is passed through as it is and never parsed: PostgreSQL allows deeper
/// nesting and longer numbers than any Rust value does.
#[derive(Debug, Clone, Copy)]
pub struct Jsonb(Datum);

impl Jsonb {
    /// The size of the binary jsonb in bytes, whether it is stored compressed or not.
    pub fn bytes(self) -> usize {
        // SAFETY: the datum is a jsonb varlena.
        unsafe { pg_sys::toast_raw_datum_size(self.0) as usize - pg_sys::VARHDRSZ }
    }

    /// The empty object, `{}`.
    pub fn empty_object() -> Option<Self> {
        // SAFETY: jsonb_in takes a C string.
        unsafe { pgrx::direct_function_call::<Jsonb>(pg_sys::jsonb_in, &[Some(Datum::from(c"{}".as_ptr()))]) }
    }

    /// What `jsonb_typeof` says: object, array, string, number, boolean or null.
    pub fn kind(self) -> String {
        // SAFETY: jsonb_typeof takes a jsonb and returns a text.
        unsafe { pgrx::direct_function_call::<String>(pg_sys::jsonb_typeof, &[Some(self.0)]) }
            .unwrap_or_default()
    }
}

impl FromDatum for Jsonb {
    unsafe fn from_polymorphic_datum(datum: Datum, is_null: bool, _: Oid) -> Option<Self> {
        (!is_null).then_some(Jsonb(datum))
    }
}

impl IntoDatum for Jsonb {
    fn into_datum(self) -> Option<Datum> {
        Some(self.0)
    }

    fn type_oid() -> Oid {
        pg_sys::JSONBOID
    }
}

// SAFETY: a Jsonb is the datum itself, so unboxing it is the identity. Of an array it points into that, which must live for
// as long: `Call::jsonbs` sees to it, and nothing else makes arrays of them.
unsafe impl pgrx::datum::UnboxDatum for Jsonb {
    type As<'src> = Jsonb;

    unsafe fn unbox<'src>(datum: pgrx::datum::Datum<'src>) -> Jsonb
    where
        Self: 'src,
    {
        Jsonb(datum.sans_lifetime())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_fixed_seconds() {
        assert_eq!(Seconds::from_parts(0, 1, 0), Seconds(86_400.0));
        assert_eq!(Seconds::from_parts(13, 0, 1_500_000), Seconds(YEAR + MONTH + 1.5));
        assert_eq!(Seconds::from_parts(0, -1, 0), Seconds(-86_400.0));
    }

    #[test]
    fn moments_saturate_and_stay_finite() {
        assert_eq!(Moment(0).plus(1.5), Moment(1_500_000));
        assert!(Moment(0).plus(f64::MAX).is_finite());
        assert!(Moment(0).plus(f64::MIN).is_finite());
        assert_eq!(Moment(7).plus(f64::NAN), Moment(7));
    }
}
