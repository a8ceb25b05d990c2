//! What is done to tasks from outside: `cancel`, `redrive` and `purge`.

use crate::machine::*;
use crate::verbs::*;

impl Machine {
    /// A waiting task ends at once; a running one is asked to stop, unless it is forced to.
    pub fn cancel(&mut self, id: Id, reason: Option<Reason>, force: bool) -> &'static str {
        let now = self.now;
        let Some(task) = self.tasks.get_mut(&id) else { return "not found" };
        match &mut task.state {
            State::Running { cancel_requested_at, .. } if !force => {
                cancel_requested_at.get_or_insert(now);
                task.cancel_reason = reason.or(task.cancel_reason);
                "requested"
            }
            State::Waiting | State::Running { .. } => {
                self.cancelled(id, reason);
                "cancelled"
            }
            _ => "finished",
        }
    }

    /// Dead letters wait again, but not those whose key another task has. Of some, those that died first, and of these the
    /// ones that can. Returns which did and which did not.
    pub fn redrive(
        &mut self,
        meant: impl Fn(&Task) -> bool,
        at_most: Option<usize>,
        one_per_second: bool,
    ) -> (Vec<Id>, Vec<Id>) {
        let held = |task: &Task| {
            let key = task.unique.and_then(|(name, _)| self.key(task.task_type, name));
            at_most.is_some() && key.is_some_and(|key| key.id != task.id)
        };
        let mut dead: Vec<(bool, Seconds, Id)> = self
            .tasks
            .values()
            .filter(|task| meant(task))
            .filter_map(|task| {
                if let State::Dead { died_at } = task.state {
                    Some((held(task), died_at, task.id))
                } else {
                    None
                }
            })
            .collect();
        dead.sort_unstable();
        dead.truncate(at_most.unwrap_or(usize::MAX));
        let mut dead: Vec<Id> = dead.into_iter().map(|(_, _, id)| id).collect();
        // By type and key; those without a key are last.
        dead.sort_unstable_by_key(|id| {
            (
                self.tasks[id].task_type,
                self.tasks[id].unique.is_none(),
                self.tasks[id].unique.map(|u| u.0),
                *id,
            )
        });
        let (mut redriven, mut skipped) = (Vec::new(), Vec::new());
        for id in dead {
            let Task { task_type, unique, .. } = self.tasks[&id];
            if let Some((name, until)) = unique {
                let kept_until = match self.key(task_type, name) {
                    Some(key) if key.id != id => {
                        skipped.push(id);
                        continue;
                    }
                    known => known.and_then(|key| key.kept_until),
                };
                self.keys.insert((task_type, name), Key { id, until, kept_until, let_go: false });
            }
            let now = self.now;
            let run_at = now + if one_per_second { redriven.len() as Seconds } else { 0 };
            self.waits_again(id, run_at);
            let task = self.task(id);
            (task.attempt, task.redriven_at) = (0, Some(now));
            redriven.push(id);
        }
        (redriven, skipped)
    }

    /// Forgets tasks that ended, or were enqueued, before a moment. A waiting one leaves its key to others.
    pub fn purge(&mut self, state: Name, meant: impl Fn(&Task) -> bool, before: Seconds) -> usize {
        let now = self.now;
        let doomed = |task: &Task| match task.state {
            State::Waiting => {
                state == if task.run_at > now { "scheduled" } else { "ready" } && task.enqueued_at < before
            }
            State::Running { .. } => false,
            State::Dead { died_at } => state == "dead" && died_at < before,
            State::Succeeded { finished_at, .. } => state == "succeeded" && finished_at < before,
            State::Cancelled { finished_at } => state == "cancelled" && finished_at < before,
        };
        let doomed: Vec<Task> =
            self.tasks.values().filter(|task| doomed(task) && meant(task)).cloned().collect();
        for task in &doomed {
            if let (State::Waiting, Some((key, _))) = (&task.state, task.unique)
                && self.keys.get(&(task.task_type, key)).is_some_and(|key| key.id == task.id)
            {
                self.keys.remove(&(task.task_type, key));
            }
            self.tasks.remove(&task.id);
        }
        doomed.len()
    }
}
