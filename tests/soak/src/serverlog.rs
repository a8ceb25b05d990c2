//! What the server's log may say: of faults that we made, nothing else.

use crate::history::Call;
use crate::judge::Found;
use std::collections::HashMap;

/// The prefix of each line: time, process, SQLSTATE, and what kind of process it is.
pub const PREFIX: &str = "log_line_prefix = '%n [%p] %e %b: '";

struct Line<'a> {
    at: f64,
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
    Some(Line { at: at.parse().ok()?, pid: pid.parse().ok()?, code, backend, level, text })
}

/// Errors that our faults cause, and those that clients have been told of (which `judge` looks at).
const OF_CLIENTS: &[&str] = &[
    "TQ001", "TQ002", "22023", "40001", "40P01", "57014", "57P01", "57P02", "57P03", "08006", "08P01",
    "25P01", "3B001",
];

pub fn check(log: &str, calls: &[Call]) -> Found {
    let mut found = Found::new();
    let mut busy: HashMap<i32, Vec<&Call>> = HashMap::new();
    for call in calls {
        busy.entry(call.pid).or_default().push(call);
    }
    let lines: Vec<&str> = log.lines().collect();
    for (number, text) in lines.iter().enumerate() {
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
                    found.extend(deadlock(&line, &lines[number + 1..], &busy));
                } else if !allowed(&line) {
                    found.push(format!("server log: {text}"));
                }
            }
            _ if text.contains("TRAP:") || text.contains("panicked at") => {
                found.push(format!("server log: {text}"))
            }
            _ => {}
        }
    }
    found
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

/// A deadlock is documented where one of its sessions had called a verb in its transaction before, and so
/// held locks.
fn deadlock(line: &Line, following: &[&str], busy: &HashMap<i32, Vec<&Call>>) -> Found {
    // DETAIL:  Process 1 waits for ShareLock on transaction 2; blocked by process 3.
    let detail: Vec<&&str> =
        following.iter().take(12).take_while(|text| !text.contains("STATEMENT:")).collect();
    let at = (line.at * 1e6) as i64;
    let mut pids: Vec<i32> = vec![line.pid];
    for text in &detail {
        for word in ["Process ", "blocked by process "] {
            if let Some((_, rest)) = text.split_once(word) {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                pids.extend(digits.parse::<i32>());
            }
        }
    }
    let held_locks = pids.iter().any(|pid| {
        let calls = busy.get(pid).map_or(&[][..], Vec::as_slice);
        calls.iter().any(|call| {
            call.earlier > 0 && call.before <= at + 1_000_000 && call.after.saturating_add(1_000_000) >= at
        })
    });
    if held_locks {
        return Found::new();
    }
    let detail: Vec<String> = detail.iter().map(|text| text.trim().to_owned()).collect();
    vec![format!(
        "a deadlock of calls that each were alone in their transaction: {} {}",
        line.text,
        detail.join(" | ")
    )]
}
