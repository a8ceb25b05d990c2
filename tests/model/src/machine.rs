//! The specification: the states of a task, and what each verb does.
//!
//! ```text
//!  enqueue ─► Waiting ──claim──► Running ──complete──► Succeeded
//!               ▲ │                │
//!               │ └──cancel──┐     ├─ fail, lease over: retries left ─► Waiting
//!               │            ▼     ├─ fail, lease over: none left, or retry => false ─► Dead
//!               │        Cancelled ◄── cancel with force; after a cancel: fail, release, lease over
//!               ├────── release ───┤
//!               └────── redrive ── Dead
//! ```
//!
//! A waiting task is shown as scheduled until its `run_at`, then as ready; while another task of its group runs
//! it may be shown as blocked. That changes nothing for the verbs, so it is not a state here.

use crate::schedules::Schedule;
use crate::verbs::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Waiting,
    Running { lease_expires_at: Seconds, cancel_requested_at: Option<Seconds> },
    Dead { died_at: Seconds },
    Succeeded { finished_at: Seconds, result: Option<i64> },
    Cancelled { finished_at: Seconds },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: Id,
    pub task_type: Name,
    pub queue: Name,
    pub priority: i32,
    pub run_at: Seconds,
    pub max_retries: i32,
    pub unique: Option<(Name, Until)>,
    pub group: Option<Name>,
    pub payload: i64,
    pub headers: Headers,
    pub enqueued_at: Seconds,
    pub redriven_at: Option<Seconds>,
    /// Claims since it was enqueued or redriven, less releases.
    pub attempt: i32,
    /// Claims in its whole life.
    pub token: u32,
    pub claimed_at: Option<Seconds>,
    pub cancel_reason: Option<Reason>,
    pub progress: Option<i64>,
    /// Attempt, moment and text of its failures.
    pub errors: Vec<(i32, Seconds, Name)>,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Given(Name),
    SupersededBy(Id),
}

impl Task {
    pub fn runs(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub fn unfinished(&self) -> bool {
        self.state == State::Waiting || self.runs()
    }

    pub fn cancel_requested(&self) -> bool {
        matches!(self.state, State::Running { cancel_requested_at: Some(_), .. })
    }

    pub fn lease_over(&self, now: Seconds) -> bool {
        matches!(self.state, State::Running { lease_expires_at, .. } if lease_expires_at <= now)
    }
}

/// A unique key: a task has it until it lets go of it, and then nobody until `kept_until`.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub id: Id,
    pub until: Until,
    pub kept_until: Option<Seconds>,
    pub let_go: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    pub paused: bool,
    pub max_running: Option<i64>,
    pub rated: bool,
    /// When the tokens that were used are free again.
    pub tokens: Vec<Seconds>,
    pub lease: Option<Seconds>,
    pub keeps_nothing: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Type {
    pub queue: Option<Name>,
    pub priority: Option<i32>,
    pub max_retries: Option<i32>,
    pub lease: Option<Seconds>,
    pub backoff_base: Option<Seconds>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub now: Seconds,
    /// How many tasks there ever were.
    pub ids: Id,
    /// All that are not forgotten. A dead, succeeded or cancelled one is kept until it is purged.
    pub tasks: BTreeMap<Id, Task>,
    /// By type and key.
    pub keys: BTreeMap<(Name, Name), Key>,
    pub queues: BTreeMap<Name, Queue>,
    pub types: BTreeMap<Name, Type>,
    pub schedules: BTreeMap<Name, Schedule>,
    /// The keys that `once` has seen, and until when.
    pub seen: BTreeMap<Name, Seconds>,
}

/// What a failure does to a task that has retries left.
#[derive(Clone, Copy)]
pub enum Retry {
    Backoff,
    After(Seconds),
    InPlace,
    Never,
}

pub type Refused = &'static str;
pub const INVALID: Refused = "22023";
pub const STALE: Refused = "TQ001";
pub const HELD: Refused = "TQ002";
const DEFAULT_LEASE: Seconds = 300;
const DEFAULT_BACKOFF: Seconds = 30;
const LONGEST_BACKOFF: Seconds = 6 * 3600;

impl Machine {
    pub fn task(&mut self, id: Id) -> &mut Task {
        self.tasks.get_mut(&id).expect("a task that is there")
    }

    /// The caller must hold the task. A lease that is over still counts until the task is taken back.
    pub fn check(&self, lease: Lease) -> Result<(), Refused> {
        let held = self.tasks.get(&lease.id).is_some_and(|task| task.runs() && task.token == lease.token);
        if held { Ok(()) } else { Err(STALE) }
    }

    // ---- enqueue, and who has a unique key ----

    /// The id of the task, or of the one that has its key; and whether it is new.
    pub fn enqueue(&mut self, new: &NewTask) -> Result<(Option<Id>, bool), Refused> {
        let settings = self.types.get(new.task_type).cloned().unwrap_or_default();
        let run_at = match new.when {
            When::Now => self.now,
            When::RunAt(at) => at,
            When::Delay(delay) => self.now + delay,
        };
        let priority = new.priority.or(settings.priority).unwrap_or(0);
        let max_retries = new.max_retries.or(settings.max_retries).unwrap_or(3);
        new.check()?;
        if let Some(unique) = &new.unique {
            if let Some(holder) = self.key(new.task_type, unique.key).map(|key| key.id) {
                let state = self.tasks.get(&holder).map(|task| task.state.clone());
                match (unique.on_conflict, state) {
                    (OnConflict::Skip, _) => return Ok((None, false)),
                    (OnConflict::Error, _) | (OnConflict::Replace, Some(State::Running { .. })) => {
                        return Err(HELD);
                    }
                    (OnConflict::Replace, Some(State::Waiting)) => {
                        let task = self.task(holder);
                        (task.payload, task.headers, task.priority, task.run_at) =
                            (new.payload, new.headers, priority, run_at);
                    }
                    _ => {}
                }
                return Ok((Some(holder), false));
            }
            let kept_until = unique.kept_for.map(|seconds| self.now + seconds);
            self.keys.insert(
                (new.task_type, unique.key),
                Key { id: self.ids + 1, until: unique.until, kept_until, let_go: false },
            );
        }
        self.ids += 1;
        let task = Task {
            id: self.ids,
            task_type: new.task_type,
            queue: new.queue.or(settings.queue).unwrap_or("default"),
            priority,
            run_at,
            max_retries,
            unique: new.unique.map(|unique| (unique.key, unique.until)),
            group: new.group,
            payload: new.payload,
            headers: new.headers,
            enqueued_at: self.now,
            redriven_at: None,
            attempt: 0,
            token: 0,
            claimed_at: None,
            cancel_reason: None,
            progress: None,
            errors: Vec::new(),
            state: State::Waiting,
        };
        self.tasks.insert(self.ids, task);
        Ok((Some(self.ids), true))
    }

    /// Who has a key: nobody if its task has let go of it and the time for which it was kept is over.
    pub fn key(&self, task_type: Name, key: Name) -> Option<&Key> {
        self.keys
            .get(&(task_type, key))
            .filter(|key| !key.let_go || key.kept_until.is_some_and(|until| until > self.now))
    }

    /// A task lets go of its key, if it has it.
    pub fn let_go(&mut self, id: Id) {
        let Some((name, _)) = self.tasks[&id].unique else { return };
        let of = (self.tasks[&id].task_type, name);
        if let Some(key) = self.keys.get_mut(&of).filter(|key| key.id == id) {
            key.let_go = true;
        }
        if self.key(of.0, of.1).is_none() {
            self.keys.remove(&of);
        }
    }

    // ---- claim ----

    pub fn claim(
        &mut self,
        n: usize,
        queues: Option<&[Name]>,
        lease: Option<Seconds>,
        also: &[Id],
    ) -> Vec<Lease> {
        let mut held = Vec::new();
        let mut priority = i32::MAX;
        while held.len() < n {
            // The highest priority below that has something due, running tasks included: nothing goes before it.
            let asked = |task: &&Task| {
                queues.is_none_or(|queues| queues.contains(&task.queue)) && !self.queue(task.queue).paused
            };
            let due = |task: &&Task| task.unfinished() && task.run_at <= self.now && task.priority < priority;
            let Some(level) = self.tasks.values().filter(asked).filter(due).map(|task| task.priority).max()
            else {
                break;
            };
            priority = level;
            let in_level = |task: &Task| {
                task.priority == level && queues.is_none_or(|queues| queues.contains(&task.queue))
            };
            for id in also {
                if self
                    .tasks
                    .get(id)
                    .is_some_and(|task| in_level(task) && self.may_start(task) && task.runs())
                {
                    self.take_back(*id);
                }
            }
            let before = held.len();
            while held.len() < n {
                let candidates = self.tasks.values().filter(|task| in_level(task) && self.may_start(task));
                let Some(id) = candidates.min_by_key(|task| (task.run_at, task.id)).map(|task| task.id)
                else {
                    break;
                };
                if self.tasks[&id].runs() {
                    self.take_back(id);
                } else if self.start(id, lease) {
                    held.push(Lease { id, token: self.tasks[&id].token });
                }
            }
            held[before..].sort_unstable_by_key(|lease| (self.tasks[&lease.id].run_at, lease.id));
        }
        held
    }

    pub fn queue(&self, name: Name) -> Queue {
        self.queues.get(name).cloned().unwrap_or_default()
    }

    pub fn running(&self, queue: Name, group: Option<Name>) -> usize {
        self.tasks
            .values()
            .filter(|task| task.runs() && task.queue == queue && (group.is_none() || task.group == group))
            .count()
    }

    /// Whether a claim that comes to this task takes it: one that is due, its group has no other one running, and its
    /// queue is not paused and has a slot and a token left; or one whose lease is over.
    pub fn may_start(&self, task: &Task) -> bool {
        let queue = self.queue(task.queue);
        let slot = queue.max_running.is_none_or(|most| (self.running(task.queue, None) as i64) < most);
        let token =
            !queue.rated || queue.tokens.iter().filter(|free_at| **free_at > self.now).count() < RATE.0;
        let turn = task.group.is_none() || self.running(task.queue, task.group) == 0;
        let ready = task.state == State::Waiting && task.run_at <= self.now && slot && token && turn;
        !queue.paused && (ready || task.lease_over(self.now))
    }

    pub fn lease_of(&self, id: Id, given: Option<Seconds>) -> Seconds {
        let task = &self.tasks[&id];
        let of_type = self.types.get(task.task_type).and_then(|settings| settings.lease);
        given.or(of_type).or(self.queue(task.queue).lease).unwrap_or(DEFAULT_LEASE)
    }

    /// A task begins to run; or ends, if a successor has its unique key. Returns whether it runs.
    pub fn start(&mut self, id: Id, lease: Option<Seconds>) -> bool {
        let now = self.now;
        let lease_expires_at = now + self.lease_of(id, lease);
        let task = self.task(id);
        task.token += 1;
        task.attempt += 1;
        task.claimed_at = Some(now);
        task.state = State::Running { lease_expires_at, cancel_requested_at: None };
        let (queue, of) = (task.queue, task.unique.map(|(key, _)| (task.task_type, key)));
        if let Some(queue) = self.queues.get_mut(queue).filter(|queue| queue.rated) {
            queue.tokens.retain(|free_at| *free_at > now);
            queue.tokens.push(now + RATE.1);
        }
        match of.and_then(|(task_type, key)| self.key(task_type, key)) {
            Some(key) if key.id == id && key.until == Until::Started => self.let_go(id),
            Some(&Key { id: other, .. })
                if other != id && self.tasks.get(&other).is_some_and(Task::unfinished) =>
            {
                self.cancelled(id, Some(Reason::SupersededBy(other)));
                return false;
            }
            _ => {}
        }
        true
    }

    // ---- the ends of a lease ----

    /// A lease that is over is a failure, but the task keeps its place.
    pub fn take_back(&mut self, id: Id) {
        self.failed(id, "lease expired", Retry::InPlace);
    }

    pub fn failed(&mut self, id: Id, error: Name, retry: Retry) -> Ended {
        let now = self.now;
        let task = self.task(id);
        task.errors.push((task.attempt, now, error));
        let (attempt, run_at) = (task.attempt, task.run_at);
        if task.cancel_requested() {
            self.cancelled(id, None);
            return Ended { id, state: "cancelled", run_at: None };
        }
        if matches!(retry, Retry::Never) || attempt > task.max_retries {
            task.state = State::Dead { died_at: now };
            self.let_go(id);
            return Ended { id, state: "dead", run_at: None };
        }
        let run_at = match retry {
            Retry::Backoff => {
                let base =
                    self.types.get(self.tasks[&id].task_type).and_then(|settings| settings.backoff_base);
                now + (base.unwrap_or(DEFAULT_BACKOFF) << (attempt - 1).min(20)).min(LONGEST_BACKOFF)
            }
            Retry::After(seconds) => now + seconds,
            Retry::InPlace | Retry::Never => run_at,
        };
        self.waits_again(id, run_at);
        Ended { id, state: if run_at > now { "scheduled" } else { "ready" }, run_at: Some(run_at) }
    }

    pub fn waits_again(&mut self, id: Id, run_at: Seconds) {
        let task = self.task(id);
        (task.state, task.run_at, task.claimed_at) = (State::Waiting, run_at, None);
    }

    pub fn succeed(&mut self, id: Id, result: Option<i64>) {
        self.finish(id, State::Succeeded { finished_at: self.now, result });
    }

    pub fn cancelled(&mut self, id: Id, reason: Option<Reason>) {
        let task = self.task(id);
        task.cancel_reason = reason.or(task.cancel_reason);
        self.finish(id, State::Cancelled { finished_at: self.now });
    }

    pub fn finish(&mut self, id: Id, state: State) {
        self.task(id).state = state;
        self.let_go(id);
        if self.queue(self.tasks[&id].queue).keeps_nothing {
            self.tasks.remove(&id);
        }
    }
}
