//! Reading the lanes: which have something due, and what a claim may take from them.

use super::columns::Column;
use super::heap::{Lock, TaskTable};
use super::scan::{Is, Key, Scan};
use super::statements::{CLAIM_CANDIDATES, CLAIM_PROBE};
use crate::config::Config;
use crate::failure::Outcome;
use crate::statement::{Spi, arg};
use crate::values::Moment;

/// A queue and a priority: the tasks in it are in the order of claims.
pub struct Lane {
    pub queue: String,
    pub priority: i32,
    /// The place (run_at and id) of its first task.
    pub first: (Moment, i64),
    /// Whether that one has a group.
    pub grouped: bool,
}

/// The lanes of queues that are not paused and have something due, highest priority first.
/// Steps from lane to lane along the index: one probe a lane, however many tasks.
pub fn due_lanes(spi: &Spi, queues: Option<&[String]>, config: &Config, now: Moment) -> Outcome<Vec<Lane>> {
    let table = TaskTable::open(spi, Lock::Read)?;
    let mut scan = table.in_order()?;
    let mut lanes = Vec::new();
    match queues {
        Some(queues) => {
            for queue in queues.iter().filter(|queue| !config.paused.contains(*queue)) {
                scan.seek(&[Key::new(Column::Queue, Is::Equal, queue.as_str())?])?;
                lanes_of_queue(&mut scan, queue, now, &mut lanes)?;
            }
        }
        None => {
            scan.seek(&[])?;
            while scan.next() {
                let queue: String = scan.need(Column::Queue)?;
                if !config.paused.contains(&queue) {
                    lane_here(&scan, &queue, now, &mut lanes)?;
                    go_below(&mut scan, &queue)?;
                    lanes_of_queue(&mut scan, &queue, now, &mut lanes)?;
                }
                scan.seek(&[Key::new(Column::Queue, Is::Greater, queue.as_str())?])?;
            }
        }
    }
    // (stable: lanes of one priority stay in the order of their queues)
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.priority));
    Ok(lanes)
}

/// The highest lane of a queue, below a priority, that has something due, with its first candidates: so many,
/// or fewer if there are no more. They are None if tasks of groups are among them (see `candidates`).
pub fn next_lane(
    spi: &Spi,
    queue: &str,
    below: Option<i32>,
    now: Moment,
    at_most: usize,
) -> Outcome<Option<(Lane, Option<Vec<Candidate>>)>> {
    let table = TaskTable::open(spi, Lock::Read)?;
    let mut scan = table.in_order()?;
    match below {
        Some(priority) => seek_below(&mut scan, queue, priority)?,
        None => scan.seek(&[Key::new(Column::Queue, Is::Equal, queue)?])?,
    }
    let mut lanes = Vec::new();
    while scan.next() {
        lane_here(&scan, queue, now, &mut lanes)?;
        let Some(lane) = lanes.pop() else {
            go_below(&mut scan, queue)?;
            continue;
        };
        let mut page = Vec::new();
        // The scan goes on into lower lanes, and to what is not due.
        while scan.need::<i32>(Column::Priority)? == lane.priority
            && scan.need::<Moment>(Column::RunAt)? <= now
        {
            if !read_candidate(&scan, queue, now, &mut page)? {
                return Ok(Some((Lane { grouped: true, ..lane }, None)));
            }
            if page.len() == at_most || !scan.next() {
                break;
            }
        }
        return Ok(Some((lane, Some(page))));
    }
    Ok(None)
}

/// The lanes of a queue from the one on which the scan is about to step.
fn lanes_of_queue(scan: &mut Scan, queue: &str, now: Moment, lanes: &mut Vec<Lane>) -> Outcome<()> {
    while scan.next() {
        lane_here(scan, queue, now, lanes)?;
        go_below(scan, queue)?;
    }
    Ok(())
}

/// Notes the lane whose first task this is, if that is due.
fn lane_here(scan: &Scan, queue: &str, now: Moment, lanes: &mut Vec<Lane>) -> Outcome<()> {
    let run_at: Moment = scan.need(Column::RunAt)?;
    if run_at <= now {
        lanes.push(Lane {
            queue: queue.to_owned(),
            priority: scan.need(Column::Priority)?,
            first: (run_at, scan.need(Column::Id)?),
            grouped: scan.get::<&str>(Column::GroupKey).is_some(),
        });
    }
    Ok(())
}

/// To the next lane of the queue.
fn go_below(scan: &mut Scan, queue: &str) -> Outcome<()> {
    let priority = scan.need(Column::Priority)?;
    seek_below(scan, queue, priority)
}

fn seek_below(scan: &mut Scan, queue: &str, priority: i32) -> Outcome<()> {
    scan.seek(&[Key::new(Column::Queue, Is::Equal, queue)?, Key::new(Column::Priority, Is::Less, priority)?])
}

/// A task that a claim may take, read without a lock.
pub struct Candidate {
    pub id: i64,
    pub queue: String,
    pub group_key: Option<String>,
    /// The version of its group's turn, if there is one.
    pub turn: Option<i64>,
    pub run_at: Moment,
    pub bytes: i32,
    /// It is still running, but its lease is over.
    pub expired: bool,
}

/// Where a claim reads on in its lanes.
pub struct Reading<'a> {
    pub queues: &'a [String],
    pub priority: i32,
    /// Behind this place (run_at and id).
    pub behind: (Moment, i64),
    /// Tasks of groups are to be expected, whose turns must be read with them.
    pub grouped: bool,
}

/// The next candidates of these queues at one priority, in the order of claims.
pub fn candidates(spi: &Spi, from: &Reading, now: Moment, at_most: usize) -> Outcome<Vec<Candidate>> {
    if !from.grouped {
        let table = TaskTable::open(spi, Lock::Read)?;
        let mut scan = table.in_order()?;
        let mut found = Vec::new();
        let mut ungrouped = true;
        for queue in from.queues {
            ungrouped &= read_lane(&mut scan, queue, from, now, at_most, &mut found)?;
        }
        if ungrouped {
            found.sort_unstable_by_key(|candidate| (candidate.run_at, candidate.id));
            found.truncate(at_most);
            return Ok(found);
        }
    }
    let args = [
        arg(from.queues.to_vec()),
        arg(from.priority),
        arg(now),
        arg(at_most as i64),
        arg(from.behind.0),
        arg(from.behind.1),
    ];
    let table = spi.execute(&CLAIM_CANDIDATES, &args)?;
    (0..table.len())
        .map(|row| {
            Ok(Candidate {
                id: table.need(row, 0)?,
                run_at: table.need(row, 1)?,
                bytes: table.need(row, 2)?,
                expired: table.need(row, 3)?,
                queue: table.need(row, 4)?,
                group_key: table.get(row, 5),
                turn: table.get(row, 6),
            })
        })
        .collect()
}

/// Adds the candidates of one lane. False if one has a group: its turn would have to be read, too.
fn read_lane(
    scan: &mut Scan,
    queue: &str,
    from: &Reading,
    now: Moment,
    at_most: usize,
    found: &mut Vec<Candidate>,
) -> Outcome<bool> {
    let lane = || {
        Ok([
            Key::new(Column::Queue, Is::Equal, queue)?,
            Key::new(Column::Priority, Is::Equal, from.priority)?,
        ])
    };
    let (run_at, id) = from.behind;
    let most = found.len() + at_most;
    // What is due at the same moment but behind it, then what is due later: each is one stretch of the index.
    for stretch in [
        [Key::new(Column::RunAt, Is::Equal, run_at)?, Key::new(Column::Id, Is::Greater, id)?],
        [Key::new(Column::RunAt, Is::Greater, run_at)?, Key::new(Column::RunAt, Is::AtMost, now)?],
    ] {
        let [first, second] = lane()?;
        let [third, fourth] = stretch;
        scan.seek(&[first, second, third, fourth])?;
        while found.len() < most && scan.next() {
            if !read_candidate(scan, queue, now, found)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Adds the task on which the scan is, if a claim could take it. False if it has a group.
fn read_candidate(scan: &Scan, queue: &str, now: Moment, found: &mut Vec<Candidate>) -> Outcome<bool> {
    let expired = scan.is(Column::State, "running");
    if expired && scan.get::<Moment>(Column::LeaseExpiresAt).is_none_or(|ends_at| ends_at > now) {
        return Ok(true);
    }
    if scan.get::<&str>(Column::GroupKey).is_some() {
        return Ok(false);
    }
    found.push(Candidate {
        id: scan.need(Column::Id)?,
        queue: queue.to_owned(),
        group_key: None,
        turn: None,
        run_at: scan.need(Column::RunAt)?,
        bytes: scan.need(Column::Bytes)?,
        expired,
    });
    Ok(true)
}

/// How many tasks of a lane a claim could take, counted up to `at_most`.
pub fn claimable(spi: &Spi, lane: &Lane, now: Moment, at_most: usize) -> Outcome<usize> {
    let from = Reading {
        queues: std::slice::from_ref(&lane.queue),
        priority: lane.priority,
        behind: (lane.first.0, lane.first.1 - 1),
        grouped: lane.grouped,
    };
    Ok(candidates(spi, &from, now, at_most)?.len())
}

/// Whether a claim could take a task of this lane that nobody else holds. Locks it.
pub fn has_free_task(spi: &Spi, lane: &Lane, now: Moment) -> Outcome<bool> {
    // A task of a group that returned meanwhile may be before the first one.
    let first = if lane.grouped { (Moment::DISTANT_PAST, 0) } else { lane.first };
    let args = [arg(lane.queue.as_str()), arg(lane.priority), arg(now), arg(first.0), arg(first.1)];
    Ok(!spi.execute(&CLAIM_PROBE, &args)?.is_empty())
}
