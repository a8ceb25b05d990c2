//! Groups: at most one task of each queue and group_key runs at a time.
//!
//! The turn of a group is a row that a claim locks, passing by those that others have locked, and gives
//! to the task that it takes. A due task that meets a taken turn is parked, once: later claims do not
//! read it. Whoever ends the task that has the turn gives the turn back first, and then, in a new
//! snapshot, lets the first parked task of the group return. (The lock order is in `sql/schema.sql`. Nobody
//! who holds a turn waits for anything, but for its own task's end. Giving a turn back waits for claims that are
//! parking tasks of the group; what only takes a lease back, as such a claim may, leaves that for later.)

use crate::call::Call;
use crate::changes::{self, Place};
use crate::checks;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::{Spi, Statement, Table, arg};
use crate::store::{Candidate, Column, Taken};
use crate::values::Moment;
use pgrx::pg_sys::{Datum, INT8ARRAYOID, INT8OID, TEXTARRAYOID, TIMESTAMPTZOID};
use std::collections::{HashMap, HashSet};

sql_functions! {
    taskq_unpark_next / pg_finfo_taskq_unpark_next => unpark_next_function;
}

macro_rules! statement {
    ($file:literal, $types:expr) => {
        Statement::new(include_str!(concat!("../sql/statements/", $file)), $types)
    };
}

static TURN_LOCK: Statement = statement!("turn_lock.sql", &[TEXTARRAYOID, TEXTARRAYOID, INT8OID]);
static TURN_MAKE: Statement = statement!("turn_make.sql", &[TEXTARRAYOID, TEXTARRAYOID, INT8OID]);
static TURN_USE: Statement = statement!("turn_use.sql", &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID]);
static TURN_HOLD: Statement = statement!("turn_hold.sql", &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID]);
static TURN_PASS: Statement = statement!("turn_pass.sql", &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID]);
static PARK: Statement = statement!("park.sql", &[INT8ARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID]);
static UNPARK_NEXT: Statement = statement!("unpark_next.sql", &[TEXTARRAYOID, TEXTARRAYOID]);
static UNPARK_ONE: Statement = statement!("unpark_one.sql", &[INT8OID]);
static PARKED_DROP: Statement = statement!("parked_drop.sql", &[INT8OID]);

/// A claim parks no more tasks than this.
const MOST_PARKED: usize = 1_000;

/// Queue and group_key.
type Group = (String, String);

/// What a claim has of groups.
#[derive(Default)]
pub struct Turns {
    /// Turns that it has locked and not used, with their versions (none if it made them).
    locked: HashMap<Group, Option<i64>>,
    /// Groups that it takes nothing more of: their turn was taken, or is with a task that it took, or
    /// their first task is held by others. The next one must not come before that.
    closed: HashSet<Group>,
    parked: usize,
}

/// A task of a group that cannot run now.
pub struct Blocked {
    id: i64,
    group: Group,
}

/// What is not among the candidates any more.
#[derive(Default)]
pub struct Dropped {
    pub blocked: Vec<Blocked>,
    /// Tasks of groups that were not tried are behind this place.
    pub untried: Option<(Moment, i64)>,
    /// A turn may have been given back since the claim began to read, so its group may have others that
    /// come first: read from the beginning.
    pub outdated: bool,
}

impl Turns {
    /// Keeps the candidates that have no group, and the first of each group whose turn is free. Their turns
    /// are locked then; no more than the claim wants, because others cannot take what is locked here.
    pub fn choose(
        &mut self,
        spi: &Spi,
        candidates: &mut Vec<Candidate>,
        wanted: usize,
        from_the_beginning: bool,
    ) -> Outcome<Dropped> {
        let held: HashSet<Group> = self.locked.keys().cloned().collect();
        let (mut first, mut others) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let mut open = 0;
        for candidate in candidates.iter() {
            let group = group(candidate);
            let again = group.as_ref().is_some_and(|group| !seen.insert(group.clone()));
            match group {
                Some(group) if again || self.closed.contains(&group) => {}
                Some(group) if open + first.len() >= wanted => others.push(group),
                Some(group) if !self.locked.contains_key(&group) => first.push(group),
                _ if open + first.len() < wanted => open += 1,
                _ => {}
            }
        }
        if seen.is_empty() {
            return Ok(Dropped::default());
        }
        open += self.lock(spi, &first, first.len())?;
        let mut untried = HashSet::new();
        if open >= wanted {
            untried.extend(others);
        } else if self.lock(spi, &others, wanted - open)? == wanted - open {
            untried.extend(others.into_iter().filter(|group| !self.locked.contains_key(group)));
        } else {
            first.extend(others);
        }
        // If their turn is given back meanwhile, it must not go to a task that this claim meets later.
        self.closed.extend(first.into_iter().filter(|group| !self.locked.contains_key(group)));
        let mut dropped = Dropped::default();
        let mut chosen = HashSet::new();
        candidates.retain(|candidate| {
            let Some(group) = group(candidate) else { return true };
            if untried.contains(&group) {
                dropped.untried.get_or_insert((candidate.run_at, candidate.id - 1));
                return false;
            }
            if let Some(version) = self.locked.get(&group)
                && chosen.insert(group.clone())
            {
                let unchanged = *version == candidate.turn && (from_the_beginning || held.contains(&group));
                dropped.outdated |= version.is_some() && !unchanged;
                return true;
            }
            dropped.blocked.push(Blocked { id: candidate.id, group });
            false
        });
        Ok(dropped)
    }

    /// Locks the turns of some of these groups, and says of how many.
    fn lock(&mut self, spi: &Spi, groups: &[Group], at_most: usize) -> Outcome<usize> {
        let before = self.locked.len();
        let mut left = groups.to_vec();
        for statement in [&TURN_LOCK, &TURN_MAKE] {
            left.retain(|group| !self.locked.contains_key(group));
            let missing = at_most - (self.locked.len() - before);
            if left.is_empty() || missing == 0 {
                break;
            }
            let (queues, keys) = columns(&left);
            let table = spi.execute(statement, &[arg(queues), arg(keys), arg(missing as i64)])?;
            for row in 0..table.len() {
                self.locked.insert((table.need(row, 0)?, table.need(row, 1)?), table.get(row, 2));
            }
        }
        Ok(self.locked.len() - before)
    }

    /// Others hold those of the candidates that were not taken. Their groups wait for them.
    pub fn leave(&mut self, candidates: &[Candidate], taken: &Taken) -> Outcome<()> {
        let taken =
            (0..taken.len()).map(|row| taken.need(row, Column::Id)).collect::<Outcome<HashSet<i64>>>()?;
        for group in candidates.iter().filter(|c| !taken.contains(&c.id)).filter_map(group) {
            self.locked.remove(&group);
            self.closed.insert(group);
        }
        Ok(())
    }

    /// Tasks that had turns have ended meanwhile: every group may have another one now.
    pub fn begin_again(&mut self) {
        self.closed.clear();
    }

    /// These tasks were taken: they have the turn of their group.
    pub fn give(&mut self, spi: &Spi, taken: &Taken) -> Outcome<()> {
        let (mut groups, mut ids) = (Vec::new(), Vec::new());
        for row in 0..taken.len() {
            if let Some(key) = taken.get::<String>(row, Column::GroupKey) {
                groups.push((taken.need::<String>(row, Column::Queue)?, key));
                ids.push(taken.need::<i64>(row, Column::Id)?);
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        let (queues, keys) = columns(&groups);
        spi.execute(&TURN_USE, &[arg(queues), arg(keys), arg(ids)])?;
        for group in groups {
            self.locked.remove(&group);
            self.closed.insert(group);
        }
        Ok(())
    }

    /// Parks tasks whose group's turn is taken. Returns whether the claim may go on: it parks only so
    /// many tasks.
    pub fn park(&mut self, spi: &Spi, mut blocked: Vec<Blocked>, now: Moment) -> Outcome<bool> {
        // The turn of these is ours and still free: one of them may have it.
        blocked.retain(|task| !self.locked.contains_key(&task.group));
        if blocked.is_empty() {
            return Ok(true);
        }
        let ids: Vec<i64> = blocked.iter().map(|task| task.id).collect();
        let groups: Vec<Group> = blocked.into_iter().map(|task| task.group).collect();
        let (queues, keys) = columns(&groups);
        let table = spi.execute(&PARK, &[arg(ids), arg(queues), arg(keys), arg(now)])?;
        for row in 0..table.len() {
            moved(&table, row, Moved::Parked)?;
        }
        self.parked += table.len();
        if self.parked < MOST_PARKED {
            return Ok(true);
        }
        // Behind them may be others: whoever waits is to come again.
        for queue in queues_of(&groups) {
            changes::opened(queue);
        }
        Ok(false)
    }
}

/// Of tasks that are to be taken back, those whose turns can be given back at once: these are locked now.
pub fn hold_turns(spi: &Spi, tasks: &[(&str, &str, i64)]) -> Outcome<HashSet<i64>> {
    if tasks.is_empty() {
        return Ok(HashSet::new());
    }
    let (groups, ids): (Vec<Group>, Vec<i64>) =
        tasks.iter().map(|(queue, key, id)| (((*queue).to_owned(), (*key).to_owned()), *id)).unzip();
    let (queues, keys) = columns(&groups);
    let table = spi.execute(&TURN_HOLD, &[arg(queues), arg(keys), arg(ids)])?;
    (0..table.len()).map(|row| table.need(row, 0)).collect()
}

/// Tasks of groups have ended or were taken back: the next ones get their turn.
pub fn pass(spi: &Spi, ended: &[(&str, &str, i64)]) -> Outcome<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let queues: Vec<String> = ended.iter().map(|(queue, ..)| (*queue).to_owned()).collect();
    let keys: Vec<String> = ended.iter().map(|(_, key, _)| (*key).to_owned()).collect();
    let ids: Vec<i64> = ended.iter().map(|(.., id)| *id).collect();
    spi.execute(&TURN_PASS, &[arg(queues.clone()), arg(keys.clone()), arg(ids)])?;
    unpark_next(spi, queues, keys)
}

fn unpark_next(spi: &Spi, queues: Vec<String>, keys: Vec<String>) -> Outcome<()> {
    let table = spi.execute(&UNPARK_NEXT, &[arg(queues), arg(keys)])?;
    for row in 0..table.len() {
        moved(&table, row, Moved::Returned)?;
    }
    Ok(())
}

/// `taskq._unpark_next(queue, group_key)`.
fn unpark_next_function(call: &Call) -> Outcome<Datum> {
    let queue = checks::required("queue", call.text(0))?;
    let group_key = checks::required("group_key", call.text(1))?;
    Spi::run(|spi| unpark_next(spi, vec![queue], vec![group_key]))?;
    call.void()
}

/// A waiting task of a group was given another place. If it was the next of its group, which is due only
/// later now, then another one is.
pub fn replaced(spi: &Spi, queue: &str, group_key: &str, id: i64) -> Outcome<()> {
    spi.execute(&PARKED_DROP, &[arg(id)])?;
    unpark_next(spi, vec![queue.to_owned()], vec![group_key.to_owned()])
}

/// A locked task, if it is parked, has its real run_at again.
pub fn unpark(spi: &Spi, id: i64) -> Outcome<()> {
    let table = spi.execute(&UNPARK_ONE, &[arg(id)])?;
    if table.is_empty() { Ok(()) } else { moved(&table, 0, Moved::Returned) }
}

enum Moved {
    Parked,
    Returned,
}

/// Notes that a task was parked, or not any more. The row has its queue, type, real run_at and enqueued_at.
fn moved(table: &Table, row: usize, how: Moved) -> Outcome<()> {
    let (queue, task_type): (String, String) = (table.need(row, 0)?, table.need(row, 1)?);
    let real: Moment = table.need(row, 2)?;
    let (from, to) = match how {
        Moved::Parked => (real, Moment::INFINITY),
        Moved::Returned => (Moment::INFINITY, real),
    };
    let place =
        Place { queue: &queue, task_type: &task_type, run_at: from, enqueued_at: table.need(row, 3)? };
    changes::moved(place, to);
    Ok(())
}

fn group(candidate: &Candidate) -> Option<Group> {
    candidate.group_key.as_ref().map(|key| (candidate.queue.clone(), key.clone()))
}

fn columns(groups: &[Group]) -> (Vec<String>, Vec<String>) {
    groups.iter().cloned().unzip()
}

fn queues_of(groups: &[Group]) -> HashSet<&str> {
    groups.iter().map(|(queue, _)| queue.as_str()).collect()
}
