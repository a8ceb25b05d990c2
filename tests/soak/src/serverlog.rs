//! What the server's log may say: of faults that we made, nothing else.

use crate::history::Call;
use crate::journal::{Outcome, Time};
use crate::judge::Found;

/// The prefix of each line: time, process, SQLSTATE, and what kind of process it is.
pub const PREFIX: &str = "log_line_prefix = '%n [%p] %e %b: '";

/// What the log's clock of milliseconds may differ from that of the journal, and a bit.
const SLACK: Time = 5_000;

struct Line<'a> {
    at: Time,
    pid: i32,
    code: &'a str,
    backend: &'a str,
    level: &'a str,
    text: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let (at, rest) = line.split_once(" [")?;
    let (pid, rest) = rest.split_once("] ")?;
    let (code, rest) = rest.split_once(' ')?;
    let (backend, rest) = rest.split_once(": ")?;
    let (level, text) = rest.split_once(":  ")?;
    let at = (at.parse::<f64>().ok()? * 1e6) as Time;
    Some(Line { at, pid: pid.parse().ok()?, code, backend, level, text })
}

/// Errors that our faults cause, and those that clients have been told of (which `judge` looks at).
const OF_CLIENTS: &[&str] = &[
    "TQ001", "TQ002", "22023", "40001", "40P01", "57014", "57P01", "57P02", "57P03", "08006", "08P01",
    "25P01", "3B001", "0A000",
];

pub fn check(log: &str, calls: &[Call]) -> Found {
    let mut found = Found::new();
    // processes that were told of a deadlock, and when
    let mut victims: Vec<(i32, Time)> = Vec::new();
    let lines: Vec<&str> = log.lines().collect();
    for (number, text) in lines.iter().enumerate() {
        // (What a dying process says has no prefix.)
        if text.contains("TRAP:") || text.contains("panicked at") {
            found.push(format!("server log: {text}"));
            continue;
        }
        let Some(line) = parse(text) else { continue };
        match line.level {
            "PANIC" => found.push(format!("server log: {text}")),
            "LOG" if line.text.contains("terminated by signal") => {
                let killed = line.text.contains("terminated by signal 9:")
                    || line.text.contains("terminated by signal 3:")
                    || line.text.contains("terminated by signal 15:");
                if !killed {
                    found.push(format!("server log: {text}"));
                }
            }
            "WARNING" | "ERROR" | "FATAL" => {
                if line.code == "40P01" {
                    victims.push((line.pid, line.at));
                    found.extend(deadlock(&line, &lines[number + 1..], calls));
                } else if !allowed(&line) {
                    found.push(format!("server log: {text}"));
                }
            }
            "LOG" if duty_failure(line.text).is_some_and(|code| !OF_DUTIES.contains(&code)) => {
                found.push(format!("server log: {text}"));
            }
            _ => {}
        }
    }
    found.extend(unknown_deadlocks(&victims, calls));
    found
}

/// What a round of a duty may fail with: it was cancelled, or did not wait for a lock any longer.
pub const OF_DUTIES: [&str; 2] = ["57014", "55P03"];

/// The SQLSTATE with which a duty failed. It catches its errors: that is all that tells of it.
fn duty_failure(text: &str) -> Option<&str> {
    let (_, rest) = text.strip_prefix("taskq duty ")?.split_once(" failed with SQLSTATE ")?;
    rest.split(';').next()
}

/// Deadlocks that the server has counted since it started last, and that nobody was told of: somebody has caught them. (The
/// commit of a limit does, twice at most: it waits for claims, and goes on without.)
pub fn uncounted(deadlocks: i64, log: &str, calls: &[Call]) -> Found {
    let lines: Vec<Line> = log.lines().filter_map(parse).collect();
    let start = lines.iter().rposition(|line| line.text.starts_with("database system is ready to accept"));
    let lines = &lines[start.unwrap_or_default()..];
    let told = lines.iter().filter(|line| line.level == "ERROR" && line.code == "40P01").count();
    let since = lines.first().map_or(0, |line| line.at);
    let limits = calls
        .iter()
        .filter(|call| call.verb == "configure_queue" && call.ending.map_or(call.after, |(_, at)| at) > since)
        .count();
    if deadlocks as usize > told + 2 * limits {
        return vec![format!(
            "the server has counted {deadlocks} deadlocks since it started; its log tells of {told}, and {limits} calls may have caught one"
        )];
    }
    Found::new()
}

fn allowed(line: &Line) -> bool {
    match line.backend {
        "client backend" => OF_CLIENTS.contains(&line.code),
        // On a busy machine they are late.
        "autovacuum launcher" | "autovacuum worker" if line.level == "WARNING" => line.code == "01000",
        // terminated, cancelled, or without its server
        _ => ["57P01", "57P02", "57P03", "57014"].contains(&line.code),
    }
}

/// A deadlock is documented where a transaction of several verbs took part, which held locks of the earlier ones.
/// Nobody but clients may be in one, the keeper least of all.
fn deadlock(line: &Line, following: &[&str], calls: &[Call]) -> Found {
    let detail = following.iter().take_while(|text| text.contains("DETAIL:  ") || text.starts_with('\t'));
    let detail: Vec<&str> = detail.map(|text| text.trim()).collect();
    let mut circle: Vec<i32> = detail.iter().flat_map(|text| waiters(text)).chain([line.pid]).collect();
    circle.sort_unstable();
    circle.dedup();
    let (mut several, mut strange, mut members) = (false, false, Vec::new());
    for pid in circle {
        let (call, what) = match in_flight(calls, pid, line.at) {
            Some(call) => (Some(call), "in"),
            None => (ending(calls, pid, line.at), "ending the transaction of"),
        };
        several |= call.is_some_and(|call| call.earlier > 0);
        strange |= call.is_none();
        members.push(
            call.map_or(format!("process {pid}, which is no client's or called nothing then"), |call| {
                format!("process {pid}: {what} {}, after {} others", call.name(), call.earlier)
            }),
        );
    }
    if several && !strange {
        return Found::new();
    }
    let what = if strange { "which not only clients took part in" } else { "of calls that each were alone" };
    vec![format!("a deadlock {what}: {} | {}", members.join(" | "), detail.join(" | "))]
}

/// Who waits for whom, in a line of the circle: `Process 1 waits for ShareLock on transaction 2; blocked by process 3.`
/// (The lines with what each of them called are others.)
fn waiters(text: &str) -> Vec<i32> {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let pair = text.split_once("Process ").and_then(|(_, rest)| {
        let (_, blocker) = rest.split_once("; blocked by process ")?;
        rest.contains(" waits for ").then_some([number(rest)?, number(blocker)?])
    });
    pair.map_or(Vec::new(), Vec::from)
}

/// The call that a process was in at that moment.
fn in_flight(calls: &[Call], pid: i32, at: Time) -> Option<&Call> {
    let distance = |call: &Call| (call.before - at).max(at - call.after).max(0);
    let of_process = calls.iter().filter(|call| call.pid == pid && distance(call) <= SLACK);
    of_process.min_by_key(|call| distance(call))
}

/// The last call of the transaction that a process was ending at that moment.
fn ending(calls: &[Call], pid: i32, at: Time) -> Option<&Call> {
    let at_end = |call: &&Call| call.ending.is_some_and(|(from, to)| from - SLACK <= at && at - SLACK <= to);
    calls.iter().filter(|call| call.pid == pid).filter(at_end).max_by_key(|call| call.before)
}

/// What a client was told of is in the log, where its circle was looked at.
fn unknown_deadlocks(victims: &[(i32, Time)], calls: &[Call]) -> Found {
    let told = calls
        .iter()
        .filter(|call| matches!(&call.outcome, Some(Outcome::Error { code, .. }) if code == "40P01"));
    let unknown = told.filter(|call| {
        let during = call.before - SLACK..=call.after + SLACK;
        !victims.iter().any(|(pid, at)| *pid == call.pid && during.contains(at))
    });
    unknown.map(|call| format!("{}: 40P01, of which the server's log does not tell", call.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Fate;

    /// A call of a process, from and to so many milliseconds after the deadlock; refused with this code.
    fn call(pid: i32, earlier: u32, from: Time, to: Time, code: &str) -> Call {
        let at = 1_796_004_000_123_000;
        let error = Outcome::Error { code: code.to_owned(), message: String::new() };
        Call {
            client: 1,
            pid,
            txn: 1,
            level: String::new(),
            earlier,
            verb: "cancel".to_owned(),
            before: at + from * 1000,
            after: at + to * 1000,
            wants: Vec::new(),
            outcome: (!code.is_empty()).then_some(error),
            fate: Fate::RolledBack,
            settled: at,
            ending: None,
        }
    }

    const LOG: &str = "\
1796004000.000 [90] 00000 checkpointer: LOG:  checkpoint complete
1796004000.123 [11] 40P01 client backend: ERROR:  deadlock detected
1796004000.123 [11] 40P01 client backend: DETAIL:  Process 11 waits for ShareLock on transaction 5; blocked by process 12.
\tProcess 12 waits for ShareLock on transaction 4; blocked by process 11.
\tProcess 11: select taskq.cancel(1)
\tProcess 12: select taskq.cancel(2) -- Process 13 waits for nobody
1796004000.123 [11] 40P01 client backend: HINT:  See server log for query details.
1796004000.123 [11] 40P01 client backend: STATEMENT:  select taskq.cancel(1)
";

    #[test]
    fn a_deadlock_is_fine_only_if_a_call_in_it_was_not_the_first_of_its_transaction() {
        let victim = || call(11, 0, -201, 1, "40P01");
        assert_eq!(check(LOG, &[victim(), call(12, 2, -300, 40, "")]), Found::new());
        let found = check(LOG, &[victim(), call(12, 0, -300, 40, "")]);
        assert!(
            found.len() == 1 && found[0].starts_with("a deadlock of calls that each were alone"),
            "{found:?}"
        );
        // Others that these processes called shortly before and after do not count.
        let around = [call(12, 1, -320, -301, ""), call(12, 0, -300, 40, ""), call(12, 3, 41, 60, "")];
        let around = around.into_iter().chain([call(11, 4, -240, -210, ""), victim(), call(11, 5, 2, 9, "")]);
        assert_eq!(check(LOG, &around.collect::<Vec<_>>()).len(), 1);
    }

    #[test]
    fn a_commit_takes_part_in_a_deadlock_with_the_calls_before_it() {
        let at = 1_796_004_000_123_000;
        let committed = |earlier, from: Time, to: Time| Call {
            ending: Some((at + from * 1000, at + to * 1000)),
            ..call(12, earlier, -400, -300, "")
        };
        let check = |commit| check(LOG, &[call(11, 0, -201, 1, "40P01"), commit]);
        assert_eq!(check(committed(1, -250, 10)), Found::new());
        assert!(check(committed(0, -250, 10))[0].starts_with("a deadlock of calls that each were alone"));
        assert!(check(committed(1, -290, -250))[0].contains("process 12, which is no client's"));
        assert!(check(committed(1, 20, 30))[0].contains("process 12, which is no client's"));
    }

    #[test]
    fn a_keeper_in_a_deadlock_is_always_found() {
        let several = call(11, 2, -201, 1, "40P01");
        let found = check(LOG, &[several, call(12, 1, -9000, -8000, "")]);
        assert!(found.len() == 1 && found[0].contains("process 12, which is no client's"), "{found:?}");
        let keeper = LOG.replace("client backend", "taskq keeper");
        assert_eq!(check(&keeper, &[call(12, 2, -300, 40, "")]).len(), 1);
    }

    #[test]
    fn a_duty_that_failed_is_found_unless_it_was_cancelled_or_gave_up_a_lock() {
        let failed = |code| {
            format!(
                "1796004000.123 [90] 00000 taskq keeper: LOG:  taskq duty archive failed with SQLSTATE {code}; see taskq.duties"
            )
        };
        assert_eq!(check(&failed("55P03"), &[]), Found::new());
        assert_eq!(check(&failed("57014"), &[]), Found::new());
        assert_eq!(check(&failed("40P01"), &[]).len(), 1);
    }

    #[test]
    fn a_panic_or_a_failed_assertion_has_no_prefix() {
        let log = "thread '<unnamed>' panicked at src/claim.rs:1:1:\nTRAP: failed Assert(\"false\"), File: \"lock.c\"\n";
        assert_eq!(check(log, &[]).len(), 2);
    }

    #[test]
    fn a_deadlock_that_was_counted_but_not_told_is_found() {
        let ready =
            "1796004000.200 [1] 00000 postmaster: LOG:  database system is ready to accept connections\n";
        assert_eq!(uncounted(1, &format!("{ready}{LOG}"), &[]), Found::new());
        assert_eq!(uncounted(2, &format!("{ready}{LOG}"), &[]).len(), 1);
        // With a crash the server has forgotten what it had counted.
        assert_eq!(uncounted(1, &format!("{LOG}{ready}"), &[]).len(), 1);
        let limit = |to| Call { verb: "configure_queue".to_owned(), ..call(12, 0, 0, to, "") };
        assert_eq!(uncounted(2, &format!("{LOG}{ready}"), &[limit(90)]), Found::new());
        assert_eq!(uncounted(2, &format!("{LOG}{ready}"), &[limit(70)]).len(), 1);
    }

    #[test]
    fn a_deadlock_that_the_log_does_not_tell_of_is_found() {
        let calls =
            [call(11, 0, -201, 1, "40P01"), call(12, 2, -300, 40, ""), call(12, 2, 300, 540, "40P01")];
        let found = check(LOG, &calls);
        assert!(found.len() == 1 && found[0].contains("does not tell"), "{found:?}");
    }
}
