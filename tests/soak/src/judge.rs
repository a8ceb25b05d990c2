//! What must hold for the calls of all clients, whatever happened. Each rule returns what breaks it.

use crate::history::{Call, Lease, NEVER, Task};
use crate::journal::{Effect, Fate, Outcome, Time, Want};
use std::collections::HashMap;

/// Figures for the report.
#[derive(Default)]
pub struct Counts {
    pub calls: u64,
    pub transactions: u64,
    pub rolled_back: u64,
    pub unknown: u64,
    pub leases: u64,
    pub refused: u64,
    /// Tasks delivered again because a lease was over.
    pub duplicates: u64,
    pub errors: HashMap<String, u64>,
}

pub type Found = Vec<String>;

/// Errors that the README documents, where it says that they come.
pub fn errors(calls: &[Call], counts: &mut Counts) -> Found {
    let mut found = Found::new();
    for call in calls {
        if call.verb == "refused" && matches!(call.outcome, Some(Outcome::Done(_))) {
            found.push(format!("{}: it should have been", call.name()));
        }
        let Some(Outcome::Error { code, message }) = &call.outcome else { continue };
        *counts.errors.entry(code.clone()).or_default() += 1;
        let verb = call.verb.as_str();
        let documented = match code.as_str() {
            "TQ001" => ["complete", "fail", "fail without retry", "extend", "release"].contains(&verb),
            "TQ002" => ["enqueue, on conflict error", "enqueue, on conflict replace"].contains(&verb),
            "22023" => verb == "refused",
            "40001" => !call.level.is_empty() && call.level != "read committed",
            // of a transaction that holds back claims
            "0A000" => verb.starts_with("prepare transaction") && message.contains("max_running"),
            // only by a cancel: a statement that runs for so long hangs
            "57014" => message.contains("user request"),
            // who deadlocked with whom is in the server's log: `serverlog` looks at each
            "40P01" => true,
            _ => false,
        };
        if !documented {
            found.push(format!("{}: {code} {message}", call.name()));
        }
    }
    found
}

/// A claim returns its tasks in the order of claims.
pub fn order(calls: &[Call]) -> Found {
    let mut found = Found::new();
    for call in calls {
        let claims = call.effects().iter().filter_map(|effect| match effect {
            Effect::Claimed(claim) => Some((-claim.priority, claim.run_at, claim.id)),
            _ => None,
        });
        if !claims.clone().is_sorted() {
            let claims: Vec<_> = claims.map(|(priority, run_at, id)| (-priority, run_at, id)).collect();
            found.push(format!("{}: not in order are (priority, run_at, id) {claims:?}", call.name()));
        }
    }
    found
}

/// Tokens rise, and are never given twice.
pub fn tokens(tasks: &HashMap<i64, Task>) -> Found {
    let mut found = Found::new();
    for (id, task) in tasks {
        for pair in task.committed().windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.claim.token == second.claim.token {
                found.push(format!("task {id}: token {} was given twice", first.claim.token));
            } else if second.by.after < first.by.before {
                found.push(format!(
                    "task {id}: token {} came after {}",
                    first.claim.token, second.claim.token
                ));
            }
        }
        for call in &task.strangers {
            found.push(format!("task {id}: {} worked with a token that nobody has", call.name()));
        }
    }
    found
}

/// A task is given again only after its lease was over, or was ended; and its attempts count that.
pub fn deliveries(tasks: &HashMap<i64, Task>, calls: &[Call], counts: &mut Counts) -> Found {
    let mut found = Found::new();
    // claims whose answer nobody got
    let lost: Vec<(Time, Time)> = calls
        .iter()
        .filter(|call| {
            call.fate == Fate::Unknown && call.wants.iter().any(|want| matches!(want, Want::Claim))
        })
        .map(|call| (call.before, call.after))
        .collect();
    for (id, task) in tasks {
        counts.leases += task.leases.len() as u64;
        if let Some(first) = task.leases.first()
            && first.by.after < task.not_before
        {
            found.push(format!("task {id} was claimed before it was due"));
        }
        for pair in task.committed().windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let ended =
                first.ends.iter().any(|(call, _, _)| call.possible() && call.before <= second.by.after);
            let over = first.expiry(NEVER) <= second.by.after;
            if !ended && !over {
                found.push(format!(
                    "task {id} was given to client {} while client {} had it (tokens {} and {})",
                    second.by.client, first.by.client, first.claim.token, second.claim.token
                ));
            }
            counts.duplicates += u64::from(over && !ended);
            for (call, state, not_before) in &first.ends {
                // (on_conflict => 'replace' and redrive give another moment)
                let replaced = first.claim.queue == "keys" || *state == Some("dead");
                if call.fate == Fate::Committed
                    && !replaced
                    && not_before.is_some_and(|at| second.by.after < at)
                {
                    found.push(format!("task {id} was claimed before the moment that {} gave", call.name()));
                }
            }
            // Nobody else can have had it before the first lease was over or may have been ended.
            let ends = first.ends.iter().filter(|(call, ..)| call.possible()).map(|(call, ..)| call.before);
            let free = ends.chain([first.expiry(NEVER)]).min().unwrap_or_default();
            let unseen = lost.iter().filter(|(from, to)| *from <= second.by.after && *to >= free);
            let unseen = unseen.count() as i32;
            let (next, allowed) = (second.claim.attempt, attempts(first));
            let fits = allowed.iter().any(|after| (*after..=after + unseen).contains(&next))
                || (1..=unseen).contains(&next);
            if !fits {
                found.push(format!(
                    "task {id}: attempt {next} came after attempt {}, allowed are {allowed:?}, {unseen} claims unseen",
                    first.claim.attempt
                ));
            }
        }
    }
    found
}

/// The attempts that may follow this one.
fn attempts(lease: &Lease) -> Vec<i32> {
    let now = lease.claim.attempt;
    let mut allowed = Vec::new();
    for (call, state, _) in &lease.ends {
        match (call.fate, state) {
            (Fate::Committed, Some("released")) => return vec![now],
            (Fate::Committed, Some("dead")) => return vec![1],
            (Fate::Committed, Some(_)) => return vec![now + 1],
            (Fate::RolledBack, _) => {}
            _ => allowed.extend([now, now + 1, 1]),
        }
    }
    allowed.push(if now > lease.claim.max_retries { 1 } else { now + 1 });
    allowed
}

/// A task dies exactly when its retries are used up, or its worker says so.
pub fn deaths(tasks: &HashMap<i64, Task>) -> Found {
    let mut found = Found::new();
    for (id, task) in tasks {
        for lease in &task.leases {
            for (call, state, _) in &lease.ends {
                let (Some(state), true) = (state, call.verb.starts_with("fail")) else { continue };
                let used_up = lease.claim.attempt > lease.claim.max_retries;
                let dies = used_up || call.verb == "fail without retry";
                let cancel_asked = task.cancels.iter().any(|(cancel, ..)| cancel.before < call.after);
                let right = match *state {
                    "dead" => dies,
                    "scheduled" | "ready" => !dies,
                    "cancelled" => cancel_asked,
                    _ => false,
                };
                if !right {
                    found.push(format!(
                        "task {id}: {} left it {state} at attempt {} of {}",
                        call.name(),
                        lease.claim.attempt,
                        lease.claim.max_retries + 1
                    ));
                }
            }
        }
    }
    found
}

/// The commits that finished a task, with the state in which they left it.
pub fn finals<'a>(task: &Task<'a>) -> Vec<(&'a Call, &'a str)> {
    let by_workers = task.leases.iter().flat_map(|lease| &lease.ends);
    let by_workers = by_workers.filter_map(|(call, state, _)| Some((*call, (*state)?)));
    let by_cancel = task.cancels.iter().filter_map(|(call, _, answer)| Some((*call, (*answer)?)));
    by_workers
        .chain(by_cancel)
        .filter(|(call, state)| call.fate == Fate::Committed && ["succeeded", "cancelled"].contains(state))
        .collect()
}

/// A task finishes once, and is never given to anybody after that.
pub fn endings(tasks: &HashMap<i64, Task>) -> Found {
    let mut found = Found::new();
    for (id, task) in tasks {
        let finals = finals(task);
        if finals.len() > 1 {
            let names: Vec<String> =
                finals.iter().map(|(call, state)| format!("{} ({state})", call.name())).collect();
            found.push(format!("task {id} has finished more than once: {}", names.join(", ")));
        }
        for (call, _) in &finals {
            for lease in task.leases.iter().filter(|lease| lease.by.before > call.settled) {
                found.push(format!("task {id} was claimed by {} after {}", lease.by.name(), call.name()));
            }
        }
        // Whoever finishes a task has its last lease.
        let last = task.committed().iter().map(|lease| lease.claim.token).max();
        for lease in task.leases.iter().filter(|lease| Some(lease.claim.token) < last) {
            for (call, state, _) in &lease.ends {
                if call.fate == Fate::Committed && *state == Some("succeeded") {
                    found.push(format!("task {id}: {} finished it with a stale token", call.name()));
                }
            }
        }
        // With a lease that was taken back nothing can be done any more.
        for pair in task.committed().windows(2) {
            for (call, state, _) in &pair[0].ends {
                if call.fate == Fate::Committed && state.is_some() && call.before > pair[1].by.settled {
                    found.push(format!("task {id}: {} worked with a stale token", call.name()));
                }
            }
        }
    }
    found
}

/// Nobody who has a lease is told that he has not.
pub fn refusals(tasks: &HashMap<i64, Task>, calls: &[Call], counts: &mut Counts) -> Found {
    let mut found = Found::new();
    let mut check = |call: &Call, id: i64, token: i64| {
        counts.refused += 1;
        let Some(task) = tasks.get(&id) else { return };
        let Some(lease) = task.leases.iter().find(|lease| lease.claim.token == token) else { return };
        let matters = |other: &Call| {
            !std::ptr::eq(other, call)
                && other.before <= call.after
                && (other.possible() || other.same_transaction(call))
        };
        let ended = lease.ends.iter().any(|(other, ..)| matters(other))
            || task.cancels.iter().any(|(other, force, _)| *force && matters(other));
        if lease.by.fate == Fate::Committed && !ended && lease.expiry(call.before) > call.after {
            found.push(format!(
                "task {id}: {} was refused although client {} had the lease",
                call.name(),
                lease.by.client
            ));
        }
    };
    for call in calls {
        if let Some(Outcome::Error { code, .. }) = &call.outcome
            && code == "TQ001"
        {
            for want in &call.wants {
                if let Want::Lease { id, token, .. } = want {
                    check(call, *id, *token);
                }
            }
        }
        for effect in call.effects() {
            if let Effect::LeftOut { id, token } = effect {
                check(call, *id, *token);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::calls;
    use crate::history::tests::{called, claim};
    use crate::journal::Claim;

    fn wrong(verb: &str, outcome: Outcome) -> usize {
        errors(&calls(&called(1, 10, verb, vec![], outcome)), &mut Counts::default()).len()
    }

    #[test]
    fn what_must_be_refused_is() {
        let error = |code: &str| Outcome::Error { code: code.to_owned(), message: String::new() };
        assert_eq!(wrong("refused", Outcome::Done(vec![])), 1);
        assert_eq!(wrong("refused", error("22023")), 0);
        assert_eq!(wrong("refused", Outcome::Lost { code: String::new() }), 0);
        assert_eq!(wrong("enqueue, on conflict error", error("TQ002")), 0);
        assert_eq!(wrong("enqueue, on conflict replace", error("TQ002")), 0);
        for verb in ["enqueue, on conflict ignore", "enqueue, on conflict skip", "enqueue", "enqueue_many"] {
            assert_eq!(wrong(verb, error("TQ002")), 1, "{verb}");
        }
    }

    #[test]
    fn a_claim_out_of_order_is_found() {
        let judged = |order: &[(i32, Time, i64)]| {
            let claims =
                order.iter().map(|&(priority, run_at, id)| Claim { id, priority, run_at, ..claim(10, 1) });
            let outcome = Outcome::Done(claims.map(Effect::Claimed).collect());
            super::order(&calls(&called(1, 10, "claim", vec![Want::Claim], outcome))).len()
        };
        assert_eq!(judged(&[(2, 30, 9), (1, 10, 5), (1, 10, 7), (1, 20, 1)]), 0);
        assert_eq!(judged(&[(1, 10, 5), (2, 30, 9)]), 1);
        assert_eq!(judged(&[(1, 20, 5), (1, 10, 9)]), 1);
        assert_eq!(judged(&[(1, 10, 9), (1, 10, 5)]), 1);
    }
}
