//! What each verb asks of the machine, and what it answers.

use crate::machine::*;
use crate::verbs::*;

impl Machine {
    /// Does what the verb asks. A verb that is refused changes nothing.
    pub fn ask(&mut self, verb: &Verb) -> Answer {
        self.answer(verb).unwrap_or_else(Answer::Refused)
    }

    fn answer(&mut self, verb: &Verb) -> Result<Answer, Refused> {
        Ok(match verb {
            Verb::Enqueue(new) => Answer::Id(self.enqueue(new)?.0),
            Verb::EnqueueMany(new) => {
                // All are checked before one is stored.
                new.iter().try_for_each(NewTask::check)?;
                let before = self.clone();
                let all: Result<Vec<_>, _> = new.iter().map(|new| self.enqueue(new)).collect();
                Answer::Enqueued(all.inspect_err(|_| *self = before)?)
            }
            Verb::Claim { n, .. } if *n < 0 => return Err(INVALID),
            Verb::Claim { n, queues, lease, also } => {
                Answer::Claimed(self.claim(*n as usize, queues.as_deref(), *lease, also))
            }
            Verb::Complete(lease, result) => {
                self.check(*lease)?;
                self.succeed(lease.id, *result);
                Answer::Nothing
            }
            Verb::CompleteMany(leases) => {
                let valid = leases
                    .iter()
                    .filter(|lease| self.check(**lease).map(|()| self.succeed(lease.id, None)).is_ok());
                Answer::Completed(valid.map(|lease| lease.id).collect())
            }
            Verb::Fail { retry_in: Some(_), retry: false, .. } => return Err(INVALID),
            Verb::Fail { lease, retry_in, retry } => {
                self.check(*lease)?;
                let retry = if *retry { retry_in.map_or(Retry::Backoff, Retry::After) } else { Retry::Never };
                Answer::Ended(vec![self.failed(lease.id, "failed", retry)])
            }
            Verb::FailMany(leases) => {
                let failed = leases.iter().filter_map(|lease| {
                    self.check(*lease).ok().map(|()| self.failed(lease.id, "failed", Retry::Backoff))
                });
                Answer::Ended(failed.collect())
            }
            Verb::Extend { lease, seconds, progress } => {
                self.check(*lease)?;
                let lease_expires_at = self.now + self.lease_of(lease.id, *seconds);
                let task = self.task(lease.id);
                task.progress = progress.or(task.progress);
                let cancel_requested = task.cancel_requested();
                if let State::Running { lease_expires_at: expires, .. } = &mut task.state {
                    *expires = lease_expires_at;
                }
                Answer::Extended { lease_expires_at, cancel_requested }
            }
            Verb::Release(lease, delay) => {
                self.check(*lease)?;
                if self.tasks[&lease.id].cancel_requested() {
                    self.cancelled(lease.id, None);
                } else {
                    let run_at = delay.map_or(self.tasks[&lease.id].run_at, |delay| self.now + delay);
                    self.waits_again(lease.id, run_at);
                    self.task(lease.id).attempt -= 1;
                }
                Answer::Nothing
            }
            Verb::Cancel { id, reason, force } => {
                Answer::Word(self.cancel(*id, reason.map(Reason::Given), *force))
            }
            Verb::Once { key, keep_for } => {
                let new = self.seen.get(key).is_none_or(|until| *until <= self.now);
                if new {
                    self.seen.insert(key, self.now + keep_for.unwrap_or(30 * 86_400));
                }
                Answer::Flag(new)
            }
            Verb::Recover => {
                let over: Vec<Id> = self
                    .tasks
                    .values()
                    .filter(|task| task.lease_over(self.now))
                    .map(|task| task.id)
                    .collect();
                over.iter().for_each(|id| self.take_back(*id));
                Answer::Count(over.len())
            }
            Verb::Redrive { queue: None, task_type: None, ids: None, .. } => return Err(INVALID),
            Verb::Redrive { max_tasks: Some(..0), .. } => return Err(INVALID),
            Verb::Redrive { queue, task_type, ids, max_tasks, one_per_second } => {
                let meant = |task: &Task| {
                    queue.is_none_or(|of| of == "*" || of == task.queue)
                        && task_type.is_none_or(|of| of == task.task_type)
                        && ids.as_ref().is_none_or(|ids| ids.contains(&task.id))
                };
                let (redriven, mut skipped) =
                    self.redrive(meant, max_tasks.map(|n| n as usize), *one_per_second);
                if let Some(ids) = ids {
                    skipped = ids.iter().copied().filter(|id| !redriven.contains(id)).collect();
                    skipped.sort_unstable();
                    skipped.dedup();
                }
                Answer::Redriven { redriven: redriven.len(), skipped }
            }
            Verb::Purge { state: "running", .. } => return Err(INVALID),
            Verb::Purge { state, queue, task_type, older_than } => {
                let before = older_than.map_or(Seconds::MAX, |age| self.now - age);
                Answer::Count(self.purge(
                    state,
                    |task| {
                        queue.is_none_or(|of| of == task.queue)
                            && task_type.is_none_or(|of| of == task.task_type)
                    },
                    before,
                ))
            }
            Verb::Pause(queue) => {
                self.queues.entry(queue).or_default().paused = true;
                Answer::Nothing
            }
            Verb::Resume(queue) => {
                self.queues.entry(queue).or_default().paused = false;
                Answer::Nothing
            }
            Verb::ConfigureQueue(queue, setting) => {
                let queue = self.queues.entry(queue).or_default();
                match setting {
                    QueueSetting::MaxRunning(n) => queue.max_running = *n,
                    QueueSetting::Rate(rated) => {
                        queue.rated = *rated;
                        queue.tokens.retain(|_| *rated);
                    }
                    QueueSetting::Lease(lease) => queue.lease = *lease,
                    QueueSetting::Kept(kept) => queue.keeps_nothing = !kept,
                }
                Answer::Nothing
            }
            Verb::ConfigureType(task_type, setting) => {
                let settings = self.types.entry(task_type).or_default();
                match setting {
                    TypeSetting::Queue(queue) => settings.queue = *queue,
                    TypeSetting::Priority(priority) => settings.priority = *priority,
                    TypeSetting::MaxRetries(max_retries) => settings.max_retries = *max_retries,
                    TypeSetting::Lease(lease) => settings.lease = *lease,
                    TypeSetting::BackoffBase(base) => settings.backoff_base = *base,
                }
                Answer::Nothing
            }
            Verb::Schedule(plan) => {
                self.schedule(*plan);
                Answer::Nothing
            }
            Verb::Unschedule(name) => Answer::Flag(self.schedules.remove(name).is_some()),
            Verb::RunSchedules => Answer::Count(self.run_schedules()),
            Verb::Pass(seconds) => {
                self.now += seconds;
                Answer::Nothing
            }
        })
    }
}
