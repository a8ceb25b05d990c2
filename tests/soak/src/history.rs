//! What the journals of all clients say together: calls with their fates, and the leases of each task.

use crate::journal::{Claim, Effect, Event, Fate, Intent, Outcome, Time, Want};
use std::collections::HashMap;

/// A call, and what became of it.
pub struct Call {
    pub client: u64,
    pub pid: i32,
    pub txn: u64,
    /// The isolation level; empty for a call on its own.
    pub level: String,
    pub earlier: u32,
    pub verb: String,
    pub before: Time,
    /// When the answer came, or, if none did, when it was over for certain.
    pub after: Time,
    pub wants: Vec<Want>,
    /// None: the client was killed.
    pub outcome: Option<Outcome>,
    pub fate: Fate,
    /// When its client knew that it was committed.
    pub settled: Time,
    /// From when to when its transaction was ended, or prepared, which may wait, too: for what is done at the commit.
    pub ending: Option<(Time, Time)>,
}

pub const NEVER: Time = Time::MAX;

impl Call {
    pub fn effects(&self) -> &[Effect] {
        match &self.outcome {
            Some(Outcome::Done(effects)) => effects,
            _ => &[],
        }
    }

    /// Whether it may have happened.
    pub fn possible(&self) -> bool {
        self.fate != Fate::RolledBack
    }

    pub fn same_transaction(&self, other: &Call) -> bool {
        (self.client, self.txn) == (other.client, other.txn)
    }

    pub fn name(&self) -> String {
        format!("{} of client {} in transaction {}", self.verb, self.client, self.txn)
    }
}

#[derive(Default)]
struct Txn {
    level: String,
    ending: Option<(Time, Time)>,
    end: Option<(Fate, Time)>,
    undone: Vec<(u64, u64)>,
}

/// Puts the events of all clients, each in its own order, together.
pub fn calls(events: &[(u64, Event)]) -> Vec<Call> {
    let mut txns: HashMap<(u64, u64), Txn> = HashMap::new();
    let mut last_call: HashMap<u64, u64> = HashMap::new();
    let mut answers: HashMap<(u64, u64), (Time, &Outcome)> = HashMap::new();
    for (client, event) in events {
        match event {
            Event::Begin { txn, level } => {
                txns.entry((*client, *txn)).or_default().level = level.clone();
            }
            Event::Before(Intent { call, .. }) => {
                last_call.insert(*client, *call);
            }
            Event::Undo { txn, from } => {
                let to = last_call.get(client).copied().unwrap_or_default();
                txns.entry((*client, *txn)).or_default().undone.push((*from, to));
            }
            // A prepared transaction is ended once more, but what waits is the PREPARE.
            Event::Ending { txn, at } => {
                txns.entry((*client, *txn)).or_default().ending.get_or_insert((*at, NEVER));
            }
            Event::End { txn, at, fate } => {
                let txn = txns.entry((*client, *txn)).or_default();
                txn.end = Some((*fate, *at));
                if let Some((_, to)) = &mut txn.ending {
                    *to = (*at).min(*to);
                }
            }
            Event::After { call, at, outcome } => {
                answers.insert((*client, *call), (*at, outcome));
            }
            Event::Session { .. } => {}
        }
    }
    let mut pids: HashMap<u64, i32> = HashMap::new();
    let mut calls = Vec::new();
    for (client, event) in events {
        let intent = match event {
            Event::Session { pid } => {
                pids.insert(*client, *pid);
                continue;
            }
            Event::Before(intent) => intent,
            _ => continue,
        };
        let answer = answers.get(&(*client, intent.call));
        let (after, outcome) = answer.map_or((NEVER, None), |(at, outcome)| (*at, Some((*outcome).clone())));
        let txn = txns.get(&(*client, intent.txn));
        let undone = |txn: &Txn| txn.undone.iter().any(|(from, to)| (*from..=*to).contains(&intent.call));
        let (fate, settled) = match (&outcome, txn) {
            (Some(Outcome::Error { .. }), _) => (Fate::RolledBack, NEVER),
            (_, Some(txn)) if undone(txn) => (Fate::RolledBack, NEVER),
            (_, Some(Txn { end: Some((fate, at)), .. })) => match fate {
                Fate::Prepared => (Fate::Unknown, NEVER),
                Fate::Committed => (Fate::Committed, *at),
                fate => (*fate, NEVER),
            },
            // Killed: before it could commit, or just then.
            (_, Some(txn)) if txn.ending.is_none() => (Fate::RolledBack, NEVER),
            (_, Some(_)) => (Fate::Unknown, NEVER),
            (Some(Outcome::Done(_)), None) => (Fate::Committed, after),
            (_, None) => (Fate::Unknown, NEVER),
        };
        calls.push(Call {
            client: *client,
            pid: pids.get(client).copied().unwrap_or_default(),
            txn: intent.txn,
            level: txn.map_or(String::new(), |txn| txn.level.clone()),
            earlier: intent.earlier,
            verb: intent.verb.clone(),
            before: intent.at,
            after,
            wants: intent.wants.clone(),
            outcome,
            fate,
            settled,
            ending: txn.and_then(|txn| txn.ending),
        });
    }
    // An unanswered call is over when its client calls again: it waits until its former session is gone.
    let mut next: HashMap<u64, Time> = HashMap::new();
    for call in calls.iter_mut().rev() {
        let following = next.insert(call.client, call.before);
        if call.after == NEVER {
            call.after = following.unwrap_or(NEVER);
        }
    }
    calls
}

/// A lease that a claim gave, and what was done with it.
pub struct Lease<'a> {
    pub claim: &'a Claim,
    pub by: &'a Call,
    /// Calls that ended it, or may have, or tried to.
    pub ends: Vec<(&'a Call, Option<&'a str>, Option<Time>)>,
    pub extensions: Vec<(&'a Call, Time)>,
}

impl Lease<'_> {
    /// The earliest moment at which it may have been over by the clock, by all that was called until a moment. (It may be
    /// over, and prolonged later: if nobody has claimed the task in between.)
    pub fn expiry(&self, until: Time) -> Time {
        let extensions = self.extensions.iter().filter(|(call, _)| call.before <= until);
        extensions.fold(self.claim.expires_at, |expiry, (call, at)| match call.fate {
            Fate::Committed => *at,
            Fate::RolledBack => expiry,
            _ => expiry.min(*at),
        })
    }

    /// While its client had it for certain: since it knew of it, until it or somebody else may have ended it,
    /// or its time was over.
    pub fn certain(&self, task: &Task) -> (Time, Time) {
        let began = self.by.before;
        let ends = self.ends.iter().map(|(call, ..)| call.before).filter(|at| *at > began);
        // A cancel that was called before the claim may have waited for something, and have come after it.
        let forced =
            task.cancels.iter().filter(|(call, force, _)| *force && call.possible() && call.settled > began);
        let forced = forced.map(|(call, ..)| call.before.max(began));
        let mut until = self.claim.expires_at;
        // What it prolonged late, when it was over by the clock, does not count.
        for (call, at) in &self.extensions {
            until = match call.fate {
                Fate::Committed if call.after <= until => *at,
                Fate::RolledBack => until,
                _ => until.min(*at),
            };
        }
        let end = ends.chain(forced).min();
        (self.by.settled, until.min(end.unwrap_or(NEVER)))
    }
}

/// All that is known of one task.
#[derive(Default)]
pub struct Task<'a> {
    /// In the order of their tokens; without those that were rolled back.
    pub leases: Vec<Lease<'a>>,
    /// Ends with tokens that no claim has given.
    pub strangers: Vec<&'a Call>,
    /// Calls of cancel, with their answers.
    pub cancels: Vec<(&'a Call, bool, Option<&'a str>)>,
    pub not_before: Time,
}

impl<'a> Task<'a> {
    /// The leases of which it is known that they were given.
    pub fn committed(&self) -> Vec<&Lease<'a>> {
        self.leases.iter().filter(|lease| lease.by.fate == Fate::Committed).collect()
    }
}

pub fn tasks(calls: &[Call]) -> HashMap<i64, Task<'_>> {
    let mut tasks: HashMap<i64, Task> = HashMap::new();
    for call in calls.iter().filter(|call| call.possible()) {
        for effect in call.effects() {
            match effect {
                Effect::Claimed(claim) => {
                    let lease = Lease { claim, by: call, ends: Vec::new(), extensions: Vec::new() };
                    tasks.entry(claim.id).or_default().leases.push(lease);
                }
                Effect::Stored { id, not_before, .. } => {
                    let task = tasks.entry(*id).or_default();
                    task.not_before = task.not_before.max(*not_before);
                }
                _ => {}
            }
        }
    }
    for task in tasks.values_mut() {
        task.leases.sort_by_key(|lease| lease.claim.token);
    }
    for call in calls {
        let unanswered = matches!(call.outcome, None | Some(Outcome::Lost { .. }));
        for want in call.wants.iter().filter(|_| unanswered && call.possible()) {
            match want {
                Want::Lease { id, token, end: true } => add_end(&mut tasks, call, *id, *token, None, None),
                // It may have made the lease shorter; how long it is now nobody was told.
                Want::Lease { id, token, end: false } => {
                    if let Some(lease) = lease(&mut tasks, *id, *token) {
                        lease.extensions.push((call, call.before));
                    }
                }
                Want::Force { id } => tasks.entry(*id).or_default().cancels.push((call, true, None)),
                _ => {}
            }
        }
        for effect in call.effects() {
            match effect {
                Effect::Ended { id, token, state, not_before } => {
                    add_end(&mut tasks, call, *id, *token, Some(state), *not_before);
                }
                Effect::Extended { id, token, expires_at } => match lease(&mut tasks, *id, *token) {
                    Some(lease) => lease.extensions.push((call, *expires_at)),
                    None if call.possible() => tasks.entry(*id).or_default().strangers.push(call),
                    None => {}
                },
                Effect::Cancel { id, force, answer } => {
                    tasks.entry(*id).or_default().cancels.push((call, *force, Some(answer)));
                }
                _ => {}
            }
        }
    }
    tasks
}

fn lease<'t, 'a>(tasks: &'t mut HashMap<i64, Task<'a>>, id: i64, token: i64) -> Option<&'t mut Lease<'a>> {
    tasks.get_mut(&id)?.leases.iter_mut().find(|lease| lease.claim.token == token)
}

fn add_end<'a>(
    tasks: &mut HashMap<i64, Task<'a>>,
    call: &'a Call,
    id: i64,
    token: i64,
    state: Option<&'a str>,
    not_before: Option<Time>,
) {
    match lease(tasks, id, token) {
        Some(lease) => lease.ends.push((call, state, not_before)),
        // (Without an answer it may well have been refused.)
        None if call.possible() && state.is_some() => tasks.entry(id).or_default().strangers.push(call),
        None => {}
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::journal::Intent;
    use crate::judge::{self, Counts};

    /// A call on its own, from this moment on for a millisecond.
    pub fn called(
        client: u64,
        at: Time,
        verb: &str,
        wants: Vec<Want>,
        outcome: Outcome,
    ) -> [(u64, Event); 2] {
        let number = at as u64;
        let intent = Intent { txn: number, call: number, at, verb: verb.to_owned(), earlier: 0, wants };
        [(client, Event::Before(intent)), (client, Event::After { call: number, at: at + 1_000, outcome })]
    }

    /// Of task 1, by a call at this moment.
    pub fn claim(at: Time, attempt: i32) -> Claim {
        let (queue, expires_at) = ("main".to_owned(), at + 5_000_000);
        let (token, max_retries) = (10 * i64::from(attempt), 3);
        Claim { id: 1, token, attempt, max_retries, queue, group: None, expires_at, priority: 0, run_at: at }
    }

    pub fn lease(id: i64, token: i64) -> Vec<Want> {
        vec![Want::Lease { id, token, end: true }]
    }

    fn claimed(client: u64, at: Time, token: i64, attempt: i32) -> [(u64, Event); 2] {
        let claim = Claim { token, ..claim(at, attempt) };
        called(client, at, "claim", vec![Want::Claim], Outcome::Done(vec![Effect::Claimed(claim)]))
    }

    fn extended(at: Time, outcome: Option<Outcome>) -> [(u64, Event); 2] {
        let effect = Effect::Extended { id: 1, token: 10, expires_at: at + 5_000_000 };
        let wants = vec![Want::Lease { id: 1, token: 10, end: false }];
        called(6, at, "extend", wants, outcome.unwrap_or(Outcome::Done(vec![effect])))
    }

    fn found(events: &[[(u64, Event); 2]]) -> judge::Found {
        let calls = calls(&events.concat());
        let (tasks, mut counts) = (tasks(&calls), Counts::default());
        let mut found = judge::deliveries(&tasks, &calls, &mut counts);
        found.extend(judge::refusals(&tasks, &calls, &mut counts));
        found
    }

    #[test]
    fn a_prepared_transaction_waits_when_it_is_prepared() {
        let ending = |at| (1, Event::Ending { txn: 10, at });
        let end = |at, fate| (1, Event::End { txn: 10, at, fate });
        let [before, after] = called(1, 10, "configure_queue", vec![], Outcome::Done(vec![]));
        let events =
            [before, after, ending(20), end(30, Fate::Prepared), ending(40), end(50, Fate::Committed)];
        let call = calls(&events).remove(0);
        assert_eq!((call.ending, call.fate, call.settled), (Some((20, 30)), Fate::Committed, 50));
    }

    #[test]
    fn only_an_extend_that_nobody_was_answered_may_have_ended_a_lease_early() {
        let (first, second) = (|| claimed(6, 1_000_000, 10, 1), || claimed(7, 2_000_000, 20, 2));
        assert_eq!(found(&[first(), second()]).len(), 1, "a lease given twice");
        assert_eq!(found(&[first(), extended(1_500_000, None), second()]).len(), 1);
        let lost = Outcome::Lost { code: "57P01".to_owned() };
        assert_eq!(found(&[first(), extended(1_500_000, Some(lost)), second()]), judge::Found::new());
    }

    #[test]
    fn only_who_had_the_lease_at_that_moment_must_not_be_refused() {
        let refused = |at| {
            let error = Outcome::Error { code: "TQ001".to_owned(), message: String::new() };
            called(6, at, "complete", lease(1, 10), error)
        };
        let first = || claimed(6, 1_000_000, 10, 1);
        assert_eq!(found(&[first(), refused(5_000_000)]).len(), 1);
        assert_eq!(found(&[first(), refused(6_100_000)]).len(), 0);
        assert_eq!(found(&[first(), extended(5_500_000, None), refused(6_100_000)]).len(), 1);
        // It was over, and was prolonged later.
        assert_eq!(found(&[first(), refused(6_100_000), extended(6_200_000, None)]).len(), 0);
    }
}
