//! The final account: what the clients stored is there, once; and at no time did more run, or begin, than
//! the limits allow.

use crate::history::{Call, Task};
use crate::journal::{Effect, Fate, Time, Want};
use crate::judge::{Found, finals};
use std::collections::{HashMap, HashSet};

/// A row of one of the tables, as one snapshot sees it.
pub struct Row {
    pub place: String,
    pub id: i64,
    pub mark: Option<String>,
    pub task_type: String,
    pub state: String,
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
    // ids of tasks that have, or had, a key, whoever stored them
    let mut told: HashSet<i64> = HashSet::new();
    let mut purged = (0, false);
    for call in calls {
        let mut answered: HashSet<&str> = HashSet::new();
        for effect in call.effects() {
            match effect {
                Effect::Stored { mark, id, keyed, .. } => {
                    answered.insert(mark);
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
        let scrap = mark.starts_with('s');
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
        rows.iter().filter(|row| row.mark.as_ref().is_some_and(|mark| mark.starts_with('s'))).count() as i64;
    let (gone, unsure) = purged;
    if scrap_there + gone > scrap_maybe || (!unsure && scrap_there + gone < scrap_stored) {
        found.push(format!(
            "of {scrap_stored} to {scrap_maybe} tasks in the queue that is purged {scrap_there} are there, and {gone} were purged"
        ));
    }
    // What somebody was told of the end is so.
    for (id, task) in tasks {
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
