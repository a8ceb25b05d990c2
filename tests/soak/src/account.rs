//! The final account: what the clients stored is there, once; and at no time did more run, or begin, than
//! the limits allow.

use crate::history::{Call, Task};
use crate::journal::{Effect, Fate, Time, Want};
use crate::judge::{Found, finals};
use crate::verbs::SCRAP;
use std::collections::{HashMap, HashSet};

/// A row of one of the tables, as one snapshot sees it.
pub struct Row {
    pub place: String,
    pub id: i64,
    pub mark: Option<String>,
    pub task_type: String,
    pub state: String,
    /// Whether it was tried less often than it may be.
    pub retries_left: bool,
    pub last_error: Option<String>,
}

/// What the clients know of a task that they meant to store.
#[derive(Default)]
struct Stored {
    /// That it was stored, under this id.
    id: Option<i64>,
    /// That it may have been stored.
    maybe: bool,
}

/// Nothing lost, nothing unexpected.
pub fn total(calls: &[Call], tasks: &HashMap<i64, Task>, rows: &[Row]) -> Found {
    let mut found = Found::new();
    let mut marks: HashMap<&str, Stored> = HashMap::new();
    // Under which mark somebody was told of an id.
    let mut ids: HashMap<i64, &str> = HashMap::new();
    // ids of tasks that have, or had, a key, whoever stored them
    let mut told: HashSet<i64> = HashSet::new();
    let mut purged = (0, false);
    for call in calls {
        let mut answered: HashSet<&str> = HashSet::new();
        for effect in call.effects() {
            match effect {
                Effect::Stored { mark, id, keyed, .. } => {
                    answered.insert(mark);
                    // (After a crash the sequence gives ids again that nobody has committed.)
                    if call.possible() {
                        ids.insert(*id, mark);
                    }
                    let stored = marks.entry(mark).or_default();
                    stored.maybe |= call.possible();
                    if call.fate == Fate::Committed {
                        if *keyed {
                            told.insert(*id);
                        } else {
                            stored.id = Some(*id);
                        }
                    }
                }
                Effect::NotStored { mark } => {
                    answered.insert(mark);
                    marks.entry(mark).or_default();
                }
                Effect::Purged(n) if call.fate == Fate::Committed => purged.0 += n,
                _ => {}
            }
        }
        for want in &call.wants {
            match want {
                Want::Store { mark } if !answered.contains(mark.as_str()) => {
                    marks.entry(mark).or_default().maybe |= call.possible();
                }
                Want::Purge => purged.1 |= call.fate == Fate::Unknown,
                _ => {}
            }
        }
    }
    let mut places: HashMap<i64, &Row> = HashMap::new();
    let mut seen: HashMap<&str, i64> = HashMap::new();
    for row in rows {
        if let Some(other) = places.insert(row.id, row) {
            found.push(format!("task {} is in {} and in {}", row.id, other.place, row.place));
        }
        let Some(mark) = &row.mark else {
            if !["tick", "scheduled"].contains(&row.task_type.as_str()) {
                found.push(format!("task {} has no mark: nobody stored it", row.id));
            }
            continue;
        };
        if let Some(other) = seen.insert(mark, row.id) {
            found.push(format!("what was stored as {mark} is there twice, as {other} and {}", row.id));
        }
        match marks.get(mark.as_str()) {
            None => found.push(format!("task {} ({mark}) was stored by nobody", row.id)),
            Some(stored) if !stored.maybe => found.push(format!(
                "task {} ({mark}) is there although its transaction rolled back, or it was a duplicate",
                row.id
            )),
            Some(Stored { id: Some(id), .. }) if *id != row.id => {
                found.push(format!("what was stored as {id} ({mark}) is there as {}", row.id));
            }
            Some(_) => {}
        }
    }
    let (mut scrap_stored, mut scrap_maybe) = (0, 0);
    for (mark, stored) in &marks {
        let scrap = is_scrap(mark);
        scrap_stored += i64::from(scrap && stored.id.is_some());
        scrap_maybe += i64::from(scrap && stored.maybe);
        // A redriven task with a key may have been replaced by another; its id is looked at below.
        if let (Some(id), false) = (stored.id, scrap)
            && !places.contains_key(&id)
        {
            found.push(format!("task {id} ({mark}) is lost"));
        }
    }
    for id in told.iter().filter(|id| !places.contains_key(id)) {
        found.push(format!("task {id}, which has a key, is lost"));
    }
    let scrap_there =
        rows.iter().filter(|row| row.mark.as_ref().is_some_and(|mark| is_scrap(mark))).count() as i64;
    let (gone, unsure) = purged;
    if scrap_there + gone > scrap_maybe || (!unsure && scrap_there + gone < scrap_stored) {
        found.push(format!(
            "of {scrap_stored} to {scrap_maybe} tasks in the queue that is purged {scrap_there} are there, and {gone} were purged"
        ));
    }
    for (id, task) in tasks {
        // Whoever stored it: what somebody had, or has finished, was there. (Who cancels an id is not told whether it is of
        // those that are purged.)
        let stays = match task.committed().first() {
            Some(lease) => lease.claim.queue != SCRAP,
            None => !finals(task).is_empty() && ids.get(id).is_some_and(|mark| !is_scrap(mark)),
        };
        if stays && !places.contains_key(id) {
            found.push(format!("task {id}, which somebody was given or has finished, is lost"));
        }
        // What somebody was told of the end is so.
        for (call, state) in finals(task) {
            match places.get(id) {
                Some(row) if row.state != state => {
                    found.push(format!("task {id} is {}, but {} left it {state}", row.state, call.name()));
                }
                _ => {}
            }
        }
    }
    found
}

/// Whether a task may be purged: its mark says so.
fn is_scrap(mark: &str) -> bool {
    mark.starts_with('s')
}

/// Nobody is told that there is no such task of one whose enqueue was committed before, wherever it is by now. (Above READ
/// COMMITTED one may look at what was before.)
pub fn unknown(calls: &[Call]) -> Found {
    let mut since: HashMap<i64, Time> = HashMap::new();
    for call in calls.iter().filter(|call| call.fate == Fate::Committed) {
        for effect in call.effects() {
            if let Effect::Stored { mark, id, .. } = effect
                && !is_scrap(mark)
            {
                since.entry(*id).and_modify(|at| *at = call.settled.min(*at)).or_insert(call.settled);
            }
        }
    }
    let mut found = Found::new();
    for call in calls.iter().filter(|call| ["", "read committed"].contains(&call.level.as_str())) {
        for effect in call.effects() {
            if let Effect::Unknown { id } = effect
                && since.get(id).is_some_and(|at| *at < call.before)
            {
                found.push(format!("{}: it did not find task {id}, which was there", call.name()));
            }
        }
    }
    found
}

/// With retries left only those are dead whose workers said so; a lease that was over is one failure, not the last.
pub fn deaths(calls: &[Call], rows: &[Row]) -> Found {
    let giving_up = calls.iter().filter(|call| call.possible() && call.verb == "fail without retry");
    let given_up: HashSet<i64> = giving_up
        .flat_map(|call| &call.wants)
        .filter_map(|want| if let Want::Lease { id, .. } = want { Some(*id) } else { None })
        .collect();
    let early = rows.iter().filter(|row| row.place == "dead_letter" && row.retries_left);
    let wrong =
        early.filter(|row| row.last_error.as_deref() != Some("trouble") || !given_up.contains(&row.id));
    wrong
        .map(|row| {
            format!(
                "task {} died with retries left, of: {}",
                row.id,
                row.last_error.as_deref().unwrap_or("?")
            )
        })
        .collect()
}

/// From when to when a task ran.
type Span = (Time, Time, i64);

/// Leases of one task, tasks of one group, and tasks of a queue with a limit, that ran at the same time for
/// certain.
pub fn together(tasks: &HashMap<i64, Task>, limits: &[(&str, usize)]) -> Found {
    let mut spans: HashMap<String, (usize, Vec<Span>)> = HashMap::new();
    let mut add = |what: String, limit: usize, span: Span| {
        spans.entry(what).or_insert_with(|| (limit, Vec::new())).1.push(span);
    };
    for (id, task) in tasks {
        for lease in task.committed() {
            let (from, to) = lease.certain(task);
            if from >= to {
                continue;
            }
            let span = (from, to, *id);
            add(format!("task {id}"), 1, span);
            if let Some(group) = &lease.claim.group {
                add(format!("group {group} of queue {}", lease.claim.queue), 1, span);
            }
            for (queue, limit) in limits.iter().filter(|(queue, _)| *queue == lease.claim.queue) {
                add(format!("queue {queue}"), *limit, span);
            }
        }
    }
    let mut found = Found::new();
    for (what, (limit, spans)) in spans {
        // An end comes before a begin at the same moment.
        let mut steps: Vec<(Time, i32, i64)> =
            spans.iter().flat_map(|(from, to, id)| [(*from, 1, *id), (*to, -1, *id)]).collect();
        steps.sort_unstable();
        let mut running: Vec<i64> = Vec::new();
        for (at, step, id) in steps {
            if step < 0 {
                if let Some(place) = running.iter().position(|other| *other == id) {
                    running.swap_remove(place);
                }
                continue;
            }
            running.push(id);
            if running.len() > limit {
                found.push(format!("{what}: tasks {running:?} ran at once at {at}, {limit} may"));
                break;
            }
        }
    }
    found
}

/// In no time did more tasks of the queue begin than rate x time + burst.
pub fn rate(tasks: &HashMap<i64, Task>, queue: &str, per_second: f64, burst: f64) -> Found {
    let claims = tasks.values().flat_map(|task| task.committed());
    let mut begins: Vec<(Time, Time)> = claims
        .filter(|lease| lease.claim.queue == queue)
        .map(|lease| (lease.by.before, lease.by.after))
        .collect();
    begins.sort_unstable();
    for (n, (from, _)) in begins.iter().enumerate() {
        let mut ends: Vec<Time> = begins[n..].iter().map(|(_, after)| *after).collect();
        ends.sort_unstable();
        for (count, to) in ends.iter().enumerate() {
            let allowed = per_second * (to - from) as f64 / 1e6 + burst + 0.01;
            if (count + 1) as f64 > allowed {
                return vec![format!(
                    "queue {queue}: {} tasks began between {from} and {to}, {allowed:.1} may",
                    count + 1
                )];
            }
        }
    }
    Found::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::{called, claim, lease};
    use crate::history::{calls, tasks};
    use crate::journal::{Claim, Event, Outcome};

    type Events = [(u64, Event); 2];

    fn row(place: &str, id: i64, mark: &str) -> Row {
        Row {
            place: place.to_owned(),
            id,
            mark: Some(mark.to_owned()),
            task_type: "plain".to_owned(),
            state: place.replace("dead_letter", "dead").replace("archive", "succeeded"),
            retries_left: false,
            last_error: None,
        }
    }

    fn effect(at: Time, effect: Effect) -> Events {
        called(1, at, "status", vec![], Outcome::Done(vec![effect]))
    }

    fn stored(at: Time, mark: &str) -> Events {
        effect(at, Effect::Stored { mark: mark.to_owned(), id: 1, keyed: false, not_before: 0 })
    }

    #[test]
    fn what_somebody_had_or_finished_must_be_there_though_nobody_was_told_that_it_was_stored() {
        let lost = |events: &[Events]| {
            let calls = calls(&events.concat());
            total(&calls, &tasks(&calls), &[])
        };
        let given =
            |queue: &str| effect(10, Effect::Claimed(Claim { queue: queue.to_owned(), ..claim(10, 1) }));
        assert_eq!(lost(&[given("main")]).len(), 1);
        assert_eq!(lost(&[given(SCRAP)]), Found::new());
        let rolled_back = called(1, 10, "claim", vec![Want::Claim], Outcome::Lost { code: String::new() });
        assert_eq!(lost(&[rolled_back]), Found::new());
        // It was stored in a transaction whose end is not known, and then was cancelled.
        let cancelled =
            || effect(20_000, Effect::Cancel { id: 1, force: false, answer: "cancelled".to_owned() });
        let prepared = |mark: &str| {
            let begin = [1, 2].map(|_| (1, Event::Begin { txn: 10, level: String::new() }));
            let ending = [1, 2].map(|_| (1, Event::Ending { txn: 10, at: 2_000 }));
            [begin, stored(10, mark), ending, cancelled()]
        };
        assert_eq!(lost(&prepared("1-1-1")).len(), 1);
        assert_eq!(lost(&prepared("s1-1-1")), Found::new());
    }

    #[test]
    fn who_does_not_find_what_was_stored_is_found() {
        let look = |stored_at, mark, at| {
            let events = [stored(stored_at, mark), effect(at, Effect::Unknown { id: 1 })];
            unknown(&calls(&events.concat())).len()
        };
        assert_eq!(look(1_000, "1-1-1", 5_000), 1);
        assert_eq!(look(5_000, "1-1-1", 1_000), 0);
        assert_eq!(look(1_000, "s1-1-1", 5_000), 0);
    }

    #[test]
    fn who_dies_early_was_given_up() {
        let dead = |error: &str| Row {
            retries_left: true,
            last_error: Some(error.to_owned()),
            ..row("dead_letter", 1, "1-1-1")
        };
        let give_up = called(1, 10, "fail without retry", lease(1, 10), Outcome::Done(vec![]));
        let calls = calls(&give_up);
        assert_eq!(deaths(&calls, &[dead("trouble")]), Found::new());
        assert_eq!(deaths(&[], &[dead("trouble")]).len(), 1);
        assert_eq!(deaths(&calls, &[dead("lease expired")]).len(), 1);
        let used_up = Row { retries_left: false, ..dead("lease expired") };
        assert_eq!(deaths(&[], &[used_up]), Found::new());
    }
}
