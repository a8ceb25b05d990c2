//! What must hold whatever is asked, in words of its own: nothing here says how a verb works.

use crate::machine::{Key, Machine, Reason, State, Task};
use crate::verbs::*;
use std::collections::{BTreeMap, BTreeSet};

/// Watches a machine from the beginning of a history.
#[derive(Clone, Default)]
pub struct Watch {
    /// When tasks of the queues that have a rate began to run, since it was set.
    starts: BTreeMap<Name, Vec<Seconds>>,
    occurrences: BTreeSet<(Name, Seconds)>,
}

macro_rules! hold {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl Watch {
    /// Asks the machine, and says what does not hold then.
    pub fn ask(&mut self, machine: &mut Machine, verb: &Verb) -> Result<Answer, String> {
        let before = machine.clone();
        let answer = machine.ask(verb);
        if let Answer::Refused(code) = answer {
            hold!(before == *machine, "{code} was raised, and yet something changed");
            return Ok(answer);
        }
        hold!(machine.now >= before.now, "time went back");
        created(&before, machine, verb, &answer)?;
        for (id, task) in &machine.tasks {
            match before.tasks.get(id) {
                Some(was) => changed(was, task, verb, machine.now)?,
                None => {
                    hold!(task.state == State::Waiting && task.token == 0, "task {id} was not born waiting")
                }
            }
        }
        unique_keys(machine)?;
        limits(&before, machine)?;
        if let (Verb::Claim { n, queues, .. }, Answer::Claimed(rows)) = (verb, &answer) {
            claimed(&before, machine, *n, queues.as_deref(), rows)?;
        }
        self.rates(&before, machine)?;
        self.schedules(&before, machine)?;
        Ok(answer)
    }

    /// Any time T sees at most rate x T + burst starts.
    fn rates(&mut self, before: &Machine, after: &Machine) -> Result<(), String> {
        self.starts.retain(|queue, _| after.queue(queue).rated);
        for (queue, _) in after.queues.iter().filter(|(_, settings)| settings.rated) {
            let starts = self.starts.entry(queue).or_default();
            let started = |id: &Id| {
                after.tasks.get(id).map_or(0, |task| task.token)
                    > before.tasks.get(id).map_or(0, |task| task.token)
            };
            let begun = after.tasks.values().filter(|task| task.queue == *queue && started(&task.id));
            starts.extend(begun.map(|_| after.now));
            for (at, first) in starts.iter().enumerate() {
                for (behind, last) in starts[at..].iter().enumerate() {
                    let allowed = (last - first) as usize * RATE.0 / RATE.1 as usize + RATE.0;
                    hold!(
                        behind < allowed,
                        "{} tasks of queue {queue} began within {} s",
                        behind + 1,
                        last - first
                    );
                }
            }
        }
        Ok(())
    }

    /// No occurrence of a schedule is enqueued twice.
    fn schedules(&mut self, before: &Machine, after: &Machine) -> Result<(), String> {
        for task in after.tasks.values().filter(|task| !before.tasks.contains_key(&task.id)) {
            if let Headers::Occurrence(name, at) = task.headers {
                hold!(self.occurrences.insert((name, at)), "the occurrence of {name} at {at} came twice");
                hold!(at <= after.now && task.run_at == at, "the occurrence of {name} at {at} came early");
            }
        }
        Ok(())
    }

    /// Nothing is lost: when all obstacles are gone and workers finish what they get, no task is left unfinished.
    pub fn drain(&mut self, machine: &mut Machine) -> Result<(), String> {
        for queue in machine.queues.keys().copied().collect::<Vec<_>>() {
            self.ask(machine, &Verb::Resume(queue))?;
            self.ask(machine, &Verb::ConfigureQueue(queue, QueueSetting::MaxRunning(None)))?;
            self.ask(machine, &Verb::ConfigureQueue(queue, QueueSetting::Rate(false)))?;
        }
        let latest = |machine: &Machine| {
            machine
                .tasks
                .values()
                .filter(|task| task.unfinished())
                .map(|task| match task.state {
                    State::Running { lease_expires_at, .. } => lease_expires_at,
                    _ => task.run_at,
                })
                .max()
        };
        while let Some(latest) = latest(machine) {
            self.ask(machine, &Verb::Pass((latest - machine.now).max(0)))?;
            let before = machine.clone();
            let Answer::Claimed(rows) =
                self.ask(machine, &Verb::Claim { n: 3, queues: None, lease: None, also: vec![] })?
            else {
                return Err("a claim was refused".into());
            };
            hold!(before != *machine, "tasks are left that no claim gets");
            for lease in rows {
                let answer = self.ask(machine, &Verb::Complete(lease, None))?;
                hold!(answer == Answer::Nothing, "the holder of task {} could not complete it", lease.id);
            }
        }
        Ok(())
    }
}

/// Tasks come only from those who enqueue, and go only where somebody forgets them.
fn created(before: &Machine, after: &Machine, verb: &Verb, answer: &Answer) -> Result<(), String> {
    let new = match (verb, answer) {
        (Verb::Enqueue(_), Answer::Id(Some(id))) if *id > before.ids => 1,
        (Verb::EnqueueMany(_), Answer::Enqueued(rows)) => rows.iter().filter(|(_, created)| *created).count(),
        (Verb::RunSchedules, _) => after.tasks.len() - before.tasks.len(),
        _ => 0,
    };
    hold!(after.ids as usize == before.ids as usize + new, "tasks came from nowhere");
    hold!((before.ids + 1..=after.ids).all(|id| after.tasks.contains_key(&id)), "a new task is not there");
    for task in before.tasks.values().filter(|task| !after.tasks.contains_key(&task.id)) {
        let purged = matches!(verb, Verb::Purge { .. }) && !task.runs();
        let not_kept = task.unfinished() && before.queue(task.queue).keeps_nothing;
        hold!(purged || not_kept, "task {} is lost", task.id);
    }
    Ok(())
}

/// What one verb may do to a task.
fn changed(was: &Task, is: &Task, verb: &Verb, now: Seconds) -> Result<(), String> {
    use State::{Cancelled, Dead, Running, Succeeded, Waiting};
    let id = is.id;
    hold!(
        (was.task_type, was.queue, was.max_retries, was.unique, was.group, was.enqueued_at)
            == (is.task_type, is.queue, is.max_retries, is.unique, is.group, is.enqueued_at),
        "task {id} became another one"
    );
    let claim = matches!(verb, Verb::Claim { .. });
    hold!(
        is.token == was.token || (claim && is.token == was.token + 1),
        "the token of task {id} went from {} to {}",
        was.token,
        is.token
    );
    let attempts = match verb {
        Verb::Release(..) if is.attempt < was.attempt => -1,
        Verb::Redrive { .. } if matches!(was.state, Dead { .. }) && is.state == Waiting => -was.attempt,
        _ => (is.token - was.token) as i32,
    };
    hold!(
        is.attempt == was.attempt + attempts,
        "the attempts of task {id} went from {} to {}",
        was.attempt,
        is.attempt
    );
    hold!(is.attempt >= 0 && is.attempt as u32 <= is.token, "task {id} has {} attempts", is.attempt);
    if let (Running { lease_expires_at, .. }, true) = (&was.state, claim) {
        hold!(
            *lease_expires_at <= now || was == is,
            "task {id} was taken from a worker whose lease is not over"
        );
    }
    let lawful = match (&was.state, &is.state) {
        (Waiting | Running { .. }, Running { .. }) if is.token > was.token => {
            was.run_at <= now && is.run_at == was.run_at
        }
        (Running { .. }, Running { .. }) => true,
        (_, Running { .. }) => false,
        (Waiting, Waiting) => true,
        (Running { .. }, Waiting) => true,
        (Dead { .. }, Waiting) => matches!(verb, Verb::Redrive { .. }),
        (Running { .. }, Dead { .. }) => {
            is.attempt > is.max_retries || matches!(verb, Verb::Fail { retry: false, .. })
        }
        (Running { .. }, Succeeded { .. }) => matches!(verb, Verb::Complete(..) | Verb::CompleteMany(_)),
        (Waiting, Cancelled { .. }) => {
            matches!(verb, Verb::Cancel { .. }) || matches!(is.cancel_reason, Some(Reason::SupersededBy(_)))
        }
        (Running { cancel_requested_at, .. }, Cancelled { .. }) => {
            cancel_requested_at.is_some()
                || matches!(verb, Verb::Cancel { force: true, .. })
                || matches!(is.cancel_reason, Some(Reason::SupersededBy(_)))
        }
        // Dead letters and finished tasks stay as they are.
        _ => was == is,
    };
    hold!(lawful, "task {id} went from {:?} to {:?} by {verb:?}", was.state, is.state);
    let alive = matches!(is.state, Waiting | Running { .. });
    hold!(!alive || is.attempt <= is.max_retries + 1, "task {id} has used up its retries and still lives");
    hold!(is.state != Waiting || is.attempt <= is.max_retries, "task {id} would run once too often");
    Ok(())
}

/// At most one task has a key, and it is the one that is to have it.
fn unique_keys(machine: &Machine) -> Result<(), String> {
    for task in machine.tasks.values() {
        let Some((name, until)) = task.unique else { continue };
        let of = machine.key(task.task_type, name);
        let has_it = matches!(of, Some(Key { id, let_go: false, .. }) if *id == task.id);
        if task.unfinished() && until == Until::Finished {
            hold!(has_it, "task {} has lost its key", task.id);
        }
        hold!(!has_it || task.unfinished(), "task {} has ended and still has its key", task.id);
        hold!(
            !(has_it && until == Until::Started && task.runs()),
            "task {} runs and still has its key",
            task.id
        );
    }
    let kept = machine.keys.values().filter(|key| !key.let_go).all(|key| machine.tasks.contains_key(&key.id));
    hold!(kept, "a task that is not there has a key");
    Ok(())
}

/// One task of each group runs, and no more of a queue than its limit, but for those that ran before it was set.
fn limits(before: &Machine, after: &Machine) -> Result<(), String> {
    let running: Vec<&Task> = after.tasks.values().filter(|task| task.runs()).collect();
    let mut turns = BTreeSet::new();
    for task in &running {
        if let Some(group) = task.group {
            hold!(turns.insert((task.queue, group)), "two tasks of group {group} run");
        }
    }
    for (queue, most) in
        after.queues.iter().filter_map(|(queue, settings)| settings.max_running.map(|most| (queue, most)))
    {
        let now = running.iter().filter(|task| task.queue == *queue).count();
        hold!(
            now as i64 <= most || now <= before.running(queue, None),
            "{now} tasks of queue {queue} run, {most} are allowed"
        );
    }
    Ok(())
}

/// A claim returns what comes first, in order, and leaves nothing that it could have returned.
fn claimed(
    before: &Machine,
    after: &Machine,
    n: i32,
    queues: Option<&[Name]>,
    rows: &[Lease],
) -> Result<(), String> {
    hold!(rows.len() <= n as usize, "more than {n} tasks were claimed");
    let place = |task: &Task| (-task.priority, task.run_at, task.id);
    let mut last = None;
    for lease in rows {
        let task = &after.tasks[&lease.id];
        hold!(
            task.runs() && task.token == lease.token,
            "task {} does not run by the token that was returned",
            lease.id
        );
        hold!(!before.queue(task.queue).paused, "task {} of a paused queue was claimed", lease.id);
        hold!(
            queues.is_none_or(|queues| queues.contains(&task.queue)),
            "task {} of another queue was claimed",
            lease.id
        );
        hold!(last < Some(place(task)), "task {} was returned out of order", lease.id);
        last = Some(place(task));
    }
    let asked = |task: &&Task| queues.is_none_or(|queues| queues.contains(&task.queue));
    // A claim that has taken a lease back made room on the way: what may start only since may have to wait for
    // the next one.
    let goes_on =
        |task: &Task| after.tasks.get(&task.id).is_some_and(|now| now.runs() && now.token == task.token);
    let took_back = before.tasks.values().any(|task| task.runs() && !goes_on(task));
    for left in after.tasks.values().filter(asked).filter(|task| after.may_start(task) && !took_back) {
        let behind = rows.len() == n as usize && last < Some(place(left));
        hold!(behind || n == 0, "task {} could have been claimed", left.id);
    }
    Ok(())
}
