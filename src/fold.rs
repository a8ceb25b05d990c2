//! `taskq._fold_error`: an error's text without what differs from one task to the next.
//!
//! Numbers and ids become `#`, so that "customer 17 not found" and "customer 18 not found" are one error.
//! Status codes stay: HTTP 404 and HTTP 503 are two.

use crate::call::Call;
use crate::failure::Outcome;
use crate::sql_functions;
use pgrx::pg_sys::Datum;
use regex::{Captures, Regex};
use std::sync::LazyLock;

sql_functions! {
    taskq_fold_error / pg_finfo_taskq_fold_error => fold_error;
}

/// Only so many bytes of a text are looked at, and so many characters of the result are kept.
const READ: usize = 2_000;
const KEPT: usize = 200;
/// A word of letters and digits that is at least so long is an id, not a word.
const LONG: usize = 16;
/// A number behind one of these is a status code.
const STATUS: [&str; 6] = ["http", "smtp", "status", "code", "response", "error"];

/// A UUID, a word that may be an id, a number. None if the pattern is wrong, which a test would show.
static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x-u)
        \b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b
        | \b0x[0-9A-Fa-f]+\b
        | \b[0-9A-Za-z]{8,}\b
        | [0-9]+(?:[.,:][0-9]+)*",
    )
    .ok()
});
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("[0-9]+").ok());

/// `taskq._fold_error(error)`. NULL stays NULL.
fn fold_error(call: &Call) -> Outcome<Datum> {
    call.value(call.text(0).map(|text| fold(&text)))
}

fn fold(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(READ)];
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let folded = match &*VARIABLE {
        Some(variable) => variable.replace_all(&text, |found: &Captures| {
            let all = found.get_match();
            replacement(all.as_str(), &text[..all.start()])
        }),
        None => text.as_str().into(),
    };
    folded.chars().take(KEPT).collect()
}

fn replacement(found: &str, before: &str) -> String {
    if !found.bytes().any(|byte| byte.is_ascii_digit()) || is_status(found, before) {
        return found.to_owned();
    }
    let is_id = found.len() >= LONG
        || found.starts_with("0x")
        || !found.bytes().any(|byte| byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit());
    match &*NUMBER {
        // A word with a number in it, such as "worker17abc".
        Some(number) if !is_id => number.replace_all(found, "#").into_owned(),
        _ => "#".to_owned(),
    }
}

/// Whether it is a code such as 404 or 550, where such codes stand: at the beginning, or behind a word that
/// announces one.
fn is_status(found: &str, before: &str) -> bool {
    if found.len() != 3 || !found.starts_with(['4', '5']) || !found.bytes().all(|byte| byte.is_ascii_digit())
    {
        return false;
    }
    let before = before.trim_end_matches(|c: char| !c.is_alphanumeric());
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    word.is_empty() || STATUS.contains(&word.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_folded_and_what_tells_errors_apart_is_not() {
        for (text, folded) in [
            ("customer 17 not found", "customer # not found"),
            ("took 3.75 s,\n at  12:03:59", "took # s, at #"),
            ("order 9b2f6c1e-4f5d-4c8a-9a43-0d6f0c1b2a3d is gone", "order # is gone"),
            ("object 0x7ffee4 at deadbeef01", "object # at #"),
            ("token 01ARZ3NDEKTSV4RRFFQ69G5FAV expired", "token # expired"),
            ("commit deadbeef is not defaced", "commit deadbeef is not defaced"),
            ("worker17abc task_12345678", "worker#abc task_#"),
            ("HTTP 503 from 10.0.0.7:8080", "HTTP 503 from #"),
            ("HTTP/1.1 404", "HTTP/# #"),
            ("status: 404, order 404", "status: 404, order #"),
            ("550 no such mailbox 550", "550 no such mailbox #"),
            ("(421, b'4.3.2 try later')", "(421, b'# try later')"),
            ("Fehler für Kunde №42 ü", "Fehler für Kunde №# ü"),
            ("", ""),
        ] {
            assert_eq!(fold(text), folded, "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(fold(&"ü".repeat(5_000)), "ü".repeat(KEPT));
        assert_eq!(fold(&"7".repeat(5_000)), "#");
    }
}
