//! Checks of arguments that several verbs share. Each refusal names the argument and says what
//! would be right; none repeats the value, which may be long or secret.

use crate::call::Call;
use crate::failure::{Failure, LIMIT_EXCEEDED, Outcome};
use crate::settings::MAX_PAYLOAD_BYTES;
use crate::sql_functions;
use crate::values::{Jsonb, Seconds};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_check_name / pg_finfo_taskq_check_name => check_name_function;
    taskq_check_size / pg_finfo_taskq_check_size => check_size_function;
}

/// Names of queues and task types: as long as PostgreSQL's identifiers.
const NAME_BYTES: usize = 63;
/// Names of workers often hold a host, a pod and a process.
const WORKER_BYTES: usize = 255;
const KEY_BYTES: usize = 512;
const REASON_BYTES: usize = 1_000;
/// No delay or backoff is longer than a hundred years.
const LONGEST_DELAY_DAYS: f64 = 36_525.0;
const LONGEST_LEASE_DAYS: f64 = 366.0;
const DAY: f64 = 86_400.0;
pub const MAX_PRIORITY: i32 = 100;
pub const MAX_RETRIES: i32 = 1_000_000;

/// `taskq._check_name(what, name)` returns the name or refuses it.
fn check_name_function(call: &Call) -> Outcome<Datum> {
    let what = call.text(0).unwrap_or_else(|| "name".into());
    call.value(Some(name(&what, call.text(1))?))
}

/// `taskq._check_size(what, payload, headers)` returns the bytes or refuses them.
fn check_size_function(call: &Call) -> Outcome<Datum> {
    let what = call.text(0).unwrap_or_else(|| "payload".into());
    call.value(Some(size(&what, &[call.jsonb(1), call.jsonb(2)])?))
}

/// An argument that must not be NULL.
pub fn required<T>(what: &str, value: Option<T>) -> Outcome<T> {
    value.ok_or_else(|| {
        Failure::invalid(format!("{what} must not be null"), format!("Give a value for {what}."))
    })
}

/// A name of a queue or a task type.
pub fn name(what: &str, value: Option<String>) -> Outcome<String> {
    bounded(what, required(what, value)?, NAME_BYTES)
}

pub fn worker_name(value: String) -> Outcome<String> {
    bounded("worker", value, WORKER_BYTES)
}

pub fn unique_key(value: String) -> Outcome<String> {
    bounded("unique_key", value, KEY_BYTES)
}

pub fn group_key(value: String) -> Outcome<String> {
    bounded("group_key", value, KEY_BYTES)
}

pub fn reason(value: String) -> Outcome<String> {
    bounded("reason", value, REASON_BYTES)
}

fn bounded(what: &str, value: String, longest: usize) -> Outcome<String> {
    let hint = format!("Use 1 to {longest} bytes without control characters.");
    if value.is_empty() {
        return Err(Failure::invalid(format!("{what} must not be empty"), hint));
    }
    if value.len() > longest {
        return Err(Failure::invalid(
            format!("{what} is {} bytes long, more than {longest}", value.len()),
            hint,
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(Failure::invalid(format!("{what} contains a control character"), hint));
    }
    Ok(value)
}

pub fn priority(value: i64) -> Outcome<i32> {
    whole_number("priority", value, -MAX_PRIORITY, MAX_PRIORITY)
}

pub fn max_retries(value: i64) -> Outcome<i32> {
    whole_number("max_retries", value, 0, MAX_RETRIES)
}

fn whole_number(what: &str, value: i64, least: i32, most: i32) -> Outcome<i32> {
    i32::try_from(value).ok().filter(|v| (least..=most).contains(v)).ok_or_else(|| {
        Failure::invalid(
            format!("{what} must be between {least} and {most}"),
            format!("Give a whole number from {least} to {most}."),
        )
    })
}

/// A delay: 0 seconds or more.
pub fn delay(what: &str, value: Seconds) -> Outcome<f64> {
    if (0.0..=LONGEST_DELAY_DAYS * DAY).contains(&value.0) {
        return Ok(value.0);
    }
    Err(Failure::invalid(
        format!("{what} must be between 0 and 100 years"),
        "Give an interval such as '90 seconds'; a day counts 24 hours, a month 30 days.",
    ))
}

/// A lease: longer than 0.
pub fn lease(value: Seconds) -> Outcome<f64> {
    // Microseconds are the resolution of a timestamp.
    if (0.000_001..=LONGEST_LEASE_DAYS * DAY).contains(&value.0) {
        return Ok(value.0);
    }
    Err(Failure::invalid(
        "lease must be longer than 0 and at most 366 days",
        "Give an interval such as '5 minutes', or NULL for the setting of the type or queue.",
    ))
}

/// Sizes of what is stored with a task.
pub fn size(what: &str, values: &[Option<Jsonb>]) -> Outcome<i32> {
    let bytes: usize = values.iter().flatten().map(|value| value.bytes()).sum();
    let limit = MAX_PAYLOAD_BYTES.get();
    match i32::try_from(bytes) {
        Ok(bytes) if bytes <= limit => Ok(bytes),
        _ => Err(Failure::new(LIMIT_EXCEEDED, format!("{what} is {bytes} bytes, more than the {limit} allowed"))
            .hint("Store large data elsewhere and enqueue a reference to it, or have the DBA raise taskq.max_payload_bytes.")),
    }
}
