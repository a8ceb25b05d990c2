//! `taskq.claim`: the right to work on tasks, for the length of a lease.

use crate::call::{Call, Rows};
use crate::changes;
use crate::checks;
use crate::clock;
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::groups::Turns;
use crate::keys;
use crate::lease;
use crate::permits::Permits;
use crate::sql_functions;
use crate::statement::Spi;
use crate::store::{self, Candidate, Claimer, Column, Finish, Lane, Reading, Taken};
use crate::values::Moment;
use pgrx::pg_sys::Datum;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

sql_functions! {
    taskq_claim / pg_finfo_taskq_claim => claim;
}

/// The most rows of one claim; a larger n is read as this one.
const MOST_ROWS: usize = 1_000;
/// A claim stops before its payloads and headers exceed this, but gives one task in any case.
const MOST_BYTES: i64 = 16 * 1024 * 1024;
/// Candidates read beyond what is wanted, because other workers hold some of them.
const SPARE: usize = 8;
/// Before every place in a lane.
const BEFORE_ALL: (Moment, i64) = (Moment::DISTANT_PAST, 0);
/// What the caller gets of a task, in the order of the function's columns.
const COLUMNS: [Column; 12] = [
    Column::Id,
    Column::Token,
    Column::TaskType,
    Column::Queue,
    Column::Payload,
    Column::Headers,
    Column::Attempt,
    Column::MaxRetries,
    Column::Priority,
    Column::GroupKey,
    Column::EnqueuedAt,
    Column::LeaseExpiresAt,
];

thread_local! {
    /// Who claimed last in this session: who waits in it then is the same worker.
    pub static LAST_WORKER: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn claim(call: &Call) -> Outcome<Datum> {
    let wanted = checks::required("n", call.int(0))?;
    let wanted = usize::try_from(wanted)
        .map_err(|_| {
            Failure::invalid("n must not be negative", "Give the number of tasks wanted, 0 or more.")
        })?
        .min(MOST_ROWS);
    let queues = call.texts(1).map(queue_names).transpose()?;
    let worker = match call.text(2) {
        Some(worker) => checks::worker_name(worker)?,
        None => default_worker(),
    };
    let lease = call.seconds(3).map(checks::lease).transpose()?;
    let mut rows = call.rows();
    if wanted > 0 {
        // Also where nothing is due: a worker that was sent to a standby must not idle there.
        store::refuse_read_only(c"taskq.claim()");
        let (now, begin) = (clock::now()?, Instant::now());
        let claimed = Spi::run(|spi| {
            let config = config::for_claim(spi)?;
            let by = Claimer { now, worker: &worker, lease, config: &config };
            Claim {
                wanted,
                by,
                permits: RefCell::default(),
                turns: RefCell::default(),
                turns_passed: Cell::default(),
            }
            .run(spi, queues.as_deref(), &mut rows)
        })?;
        changes::worker_seen(&worker, queues.as_deref(), Some((claimed, begin.elapsed())), now);
        LAST_WORKER.set(Some(worker));
    }
    rows.finish()
}

struct Claim<'a> {
    wanted: usize,
    by: Claimer<'a>,
    permits: RefCell<Permits>,
    turns: RefCell<Turns>,
    /// Whether a turn of a group was passed on that another task had when this claim began.
    turns_passed: Cell<bool>,
}

impl Claim<'_> {
    /// Goes through the lanes by falling priority until enough tasks are held or nothing due is left.
    /// Returns how many are held.
    fn run(&self, spi: &Spi, queues: Option<&[String]>, rows: &mut Rows) -> Outcome<usize> {
        let mut held = Held { count: 0, bytes: 0, rows: Vec::new() };
        if let Some([queue]) = queues {
            self.claim_queue(spi, queue, &mut held, rows)?;
            return Ok(held.count);
        }
        let due_lanes = || store::due_lanes(spi, queues, self.by.config, self.by.now);
        let mut lanes = due_lanes()?;
        let mut at = 0;
        while let Some(Lane { priority, .. }) = lanes.get(at) {
            let (priority, first) = (*priority, at);
            at += lanes[first..].iter().take_while(|lane| lane.priority == priority).count();
            let go_on = self.claim_level(spi, &lanes[first..at], None, &mut held)?;
            held.give_out(rows);
            if !go_on {
                break;
            }
            if self.turns_passed.take() {
                // Those who got their turn may be in lanes that had nothing due before.
                lanes = due_lanes()?;
                at = lanes.iter().take_while(|lane| lane.priority >= priority).count();
            }
        }
        Ok(held.count)
    }

    /// The same for one queue, as most workers claim: a lane is found and its first candidates are read in
    /// one step, and mostly the first lane has enough.
    fn claim_queue(&self, spi: &Spi, queue: &str, held: &mut Held, rows: &mut Rows) -> Outcome<()> {
        if self.by.config.paused.contains(queue) {
            return Ok(());
        }
        let mut below = None;
        loop {
            let asked = self.wanted - held.count + SPARE;
            let Some((lane, page)) = store::next_lane(spi, queue, below, self.by.now, asked)? else {
                return Ok(());
            };
            below = Some(lane.priority);
            let go_on = self.claim_level(spi, &[lane], page, held)?;
            held.give_out(rows);
            if !go_on {
                return Ok(());
            }
        }
    }

    /// Claims from the lanes of one priority, whose first candidates may have been read already. Returns
    /// whether more is wanted.
    fn claim_level(
        &self,
        spi: &Spi,
        level: &[Lane],
        mut first_page: Option<Vec<Candidate>>,
        held: &mut Held,
    ) -> Outcome<bool> {
        let mut queues: Vec<String> = level.iter().map(|lane| lane.queue.clone()).collect();
        // Just before the first task of all these lanes. A task of a group that returned meanwhile may be
        // before that.
        let first = level.iter().map(|lane| (lane.first.0, lane.first.1 - 1)).min();
        let grouped = level.iter().any(|lane| lane.grouped);
        let mut behind = first.filter(|_| !grouped).unwrap_or(BEFORE_ALL);
        let priority = level[0].priority;
        let mut spare = SPARE;
        loop {
            pgrx::check_for_interrupts!();
            let missing = self.wanted - held.count;
            let asked = missing + spare;
            let mut candidates = match first_page.take() {
                Some(page) => page,
                None => {
                    let from = Reading { queues: &queues, priority, behind, grouped };
                    store::candidates(spi, &from, self.by.now, asked)?
                }
            };
            let last_page = candidates.len() < asked;
            let Some(mut last) = candidates.last().map(|c| (c.run_at, c.id)) else { return Ok(true) };

            let over: Vec<i64> = candidates.iter().filter(|c| c.expired).map(|c| c.id).collect();
            let recovered = lease::take_back(spi, over, self.by.config, self.by.now)?;
            if recovered > 0 {
                self.permits.borrow_mut().look_again();
            }
            let turns_passed = recovered > 0 && candidates.iter().any(|c| c.expired && c.group_key.is_some());
            if turns_passed {
                // What was seen of their groups, also in lanes before this one, is outdated.
                self.turns.borrow_mut().begin_again();
                self.turns_passed.set(true);
            }

            let dropped =
                self.turns.borrow_mut().choose(spi, &mut candidates, missing, behind == BEFORE_ALL)?;
            if !dropped.blocked.is_empty() {
                // There may be many more of the same group: read larger pages.
                spare = (spare * 4).min(MOST_ROWS);
            }
            if dropped.outdated {
                behind = BEFORE_ALL;
                continue;
            }
            if let Some(untried) = dropped.untried {
                // Should those before it be gone, it comes next, and not a task without a group behind it. (Those that
                // have one, and are still here, have their turn.)
                candidates.retain(|candidate| {
                    candidate.group_key.is_some() || (candidate.run_at, candidate.id) <= untried
                });
            }
            let beyond = self.limit_to_permits(spi, &mut candidates, missing)?;
            let cut = held.cut_to_size(&mut candidates);
            match candidates.last() {
                Some(fit) if cut => last = (fit.run_at, fit.id),
                // Cut to nothing: what is held fills the claim.
                None if cut => return Ok(false),
                _ => (),
            }
            let ids: Vec<i64> = candidates.iter().map(|c| c.id).collect();
            let taken = store::take(spi, &ids, missing, &self.by)?;
            self.spend(spi, &taken)?;
            let go_on = {
                let mut turns = self.turns.borrow_mut();
                turns.give(spi, &taken)?;
                if taken.len() < missing {
                    turns.leave(&candidates, &taken)?;
                }
                turns.park(spi, dropped.blocked, self.by.now)?
            };
            let superseded = self.hand_over(spi, &taken, held)?;
            if superseded {
                self.turns_passed.set(true);
            }

            if held.count >= self.wanted || (cut && held.count > 0) || !go_on {
                return Ok(false);
            }
            if superseded || turns_passed {
                // Others may go in their place, and may be before these.
                self.permits.borrow_mut().look_again();
                self.turns.borrow_mut().begin_again();
                behind = BEFORE_ALL;
                continue;
            }
            queues.retain(|queue| !self.exhausted(queue));
            if queues.is_empty() {
                return Ok(true);
            }
            // Others held some of those that were permitted, or whose turn was free: these may go in
            // their place.
            let beyond =
                beyond.into_iter().filter(|(queue, _)| queues.contains(queue)).map(|(_, place)| place);
            behind = match beyond.chain(dropped.untried).min() {
                Some(place) => place.min(last),
                None if last_page && !cut => return Ok(true),
                None => last,
            };
        }
    }

    /// Whether no more tasks of the queue may begin.
    fn exhausted(&self, queue: &str) -> bool {
        let limit = self.by.config.limits.get(queue);
        limit.is_some_and(|limit| self.permits.borrow().exhausted(queue, limit))
    }

    /// Drops candidates that may not begin: their queue's limit or rate does not let them, or as many as
    /// are missing may go before them, so that they need no permits yet. Returns for each queue the place
    /// just before the first one that was dropped.
    fn limit_to_permits(
        &self,
        spi: &Spi,
        candidates: &mut Vec<Candidate>,
        missing: usize,
    ) -> Outcome<Vec<(String, (Moment, i64))>> {
        let mut dropped: Vec<(String, (Moment, i64))> = Vec::new();
        let limits = &self.by.config.limits;
        if !candidates.iter().any(|candidate| limits.contains_key(&candidate.queue)) {
            return Ok(dropped);
        }
        // The first that are missing get permits; where there are none, others come into their place.
        let mut most: HashMap<String, usize> = HashMap::new();
        let mut granted: HashMap<String, usize>;
        loop {
            granted = HashMap::new();
            let mut kept = 0;
            for queue in candidates.iter().map(|candidate| &candidate.queue) {
                if kept == missing {
                    break;
                }
                if limits.contains_key(queue) {
                    let granted = granted.entry(queue.clone()).or_default();
                    if most.get(queue) == Some(granted) {
                        continue;
                    }
                    *granted += 1;
                }
                kept += 1;
            }
            let mut all = true;
            for (queue, tasks) in &granted {
                if let Some(limit) = limits.get(queue) {
                    let locked = self.permits.borrow_mut().lock(spi, queue, limit, *tasks, self.by.now)?;
                    if locked < *tasks {
                        most.insert(queue.clone(), locked);
                        all = false;
                    }
                }
            }
            if all {
                break;
            }
        }
        // Behind one that may begin but need not, nothing goes before it.
        let mut end = false;
        candidates.retain(|candidate| {
            let queue = &candidate.queue;
            if !end && !limits.contains_key(queue) {
                return true;
            }
            if !end && let Some(left @ 1..) = granted.get_mut(queue) {
                *left -= 1;
                return true;
            }
            end |= !most.contains_key(queue);
            if dropped.iter().all(|(known, _)| known != queue) {
                dropped.push((queue.clone(), (candidate.run_at, candidate.id - 1)));
            }
            false
        });
        Ok(dropped)
    }

    /// Uses the permits of the tasks that were taken.
    fn spend(&self, spi: &Spi, taken: &Taken) -> Outcome<()> {
        if self.by.config.limits.is_empty() {
            return Ok(());
        }
        let mut by_queue: HashMap<String, Vec<i64>> = HashMap::new();
        for row in 0..taken.len() {
            by_queue.entry(taken.need(row, Column::Queue)?).or_default().push(taken.need(row, Column::Id)?);
        }
        for (queue, ids) in by_queue {
            if let Some(limit) = self.by.config.limits.get(&queue) {
                self.permits.borrow_mut().spend(spi, &queue, limit, &ids, self.by.now)?;
            }
        }
        Ok(())
    }

    /// Hands claimed tasks to the caller. Returns whether some were superseded instead.
    fn hand_over(&self, spi: &Spi, taken: &Taken, held: &mut Held) -> Outcome<bool> {
        let kept = self.without_superseded(spi, taken)?;
        let superseded = kept.len() < taken.len();
        held.count += kept.len();
        for row in &kept {
            held.bytes += i64::from(taken.need::<i32>(*row, Column::Bytes)?);
        }
        for row in kept {
            let place = (taken.need(row, Column::RunAt)?, taken.need(row, Column::Id)?);
            held.rows.push((place, COLUMNS.map(|column| taken.datum(row, column))));
        }
        Ok(superseded)
    }

    /// The rows of claimed tasks, but for those whose unique key is with an unfinished successor:
    /// they are cancelled.
    fn without_superseded(&self, spi: &Spi, taken: &Taken) -> Outcome<Vec<usize>> {
        let mut kept = Vec::with_capacity(taken.len());
        let mut rows: Vec<usize> = (0..taken.len()).collect();
        // In the order of claims, as if each had been claimed alone: the successor may be here, too, and may
        // let go of the key when it comes to it.
        rows.sort_by_key(|row| {
            (taken.get::<Moment>(*row, Column::RunAt), taken.get::<i64>(*row, Column::Id))
        });
        for row in rows {
            if let Some(key) = taken.get::<String>(row, Column::UniqueKey) {
                let id: i64 = taken.need(row, Column::Id)?;
                let task_type: String = taken.need(row, Column::TaskType)?;
                if let Some(successor) = keys::claimed(spi, &task_type, &key, id, self.by.now)? {
                    let reason = format!("superseded by {successor}");
                    let how = Finish::Cancelled { reason: Some(&reason), errors: None };
                    store::finish(spi, &[id], None, None, how, self.by.config, self.by.now)?;
                    continue;
                }
            }
            kept.push(row);
        }
        Ok(kept)
    }
}

/// Where a task is in its lane: run_at and id.
type Place = (Moment, i64);

/// How much a claim has so far.
struct Held {
    count: usize,
    bytes: i64,
    /// Those of one priority: run_at and id, and what the caller gets.
    rows: Vec<(Place, [Option<Datum>; COLUMNS.len()])>,
}

impl Held {
    /// Hands the rows of one priority to the caller, by run_at and id: they may have been taken in several
    /// steps, because a task that ended in the claim let others go before those that were taken already.
    fn give_out(&mut self, rows: &mut Rows) {
        self.rows.sort_unstable_by_key(|(place, _)| *place);
        for (_, columns) in self.rows.drain(..) {
            rows.add(&columns);
        }
    }

    /// Drops the candidates with which the claim would become too large. Returns whether it did.
    fn cut_to_size(&self, candidates: &mut Vec<Candidate>) -> bool {
        let mut bytes = self.bytes;
        let mut fit = 0;
        for candidate in candidates.iter() {
            bytes += i64::from(candidate.bytes);
            let first_of_all = self.count == 0 && fit == 0;
            if bytes > MOST_BYTES && !first_of_all {
                break;
            }
            fit += 1;
        }
        let cut = fit < candidates.len();
        candidates.truncate(fit);
        cut
    }
}

/// The queues of a claim, each once.
pub fn queue_names(queues: Vec<Option<String>>) -> Outcome<Vec<String>> {
    let mut names =
        queues.into_iter().map(|queue| checks::name("queue", queue)).collect::<Outcome<Vec<_>>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A worker that gives no name is known by its application_name, else by its process.
fn default_worker() -> String {
    let (application, pid) = crate::session::names();
    let clean: String = application.chars().filter(|c| !c.is_control()).collect();
    if clean.is_empty() { format!("pid {pid}") } else { clean }
}
