//! Schedules: tasks that come by the clock.

use crate::machine::*;
use crate::verbs::*;

/// An occurrence that is older when a round comes to it was missed.
const IN_TIME: Seconds = 60;

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub plan: Plan,
    pub next_run_at: Option<Seconds>,
    pub last: Option<(Seconds, Id)>,
    pub missed: usize,
}

impl Machine {
    /// The next run is the first one from now on; where only the task changes, it stays what it was, unless that is
    /// missed already. The same plan again changes nothing.
    pub fn schedule(&mut self, plan: Plan) {
        let period = plan.minutes * 60;
        let following = (!plan.paused).then_some((self.now / period + 1) * period);
        let Some(schedule) = self.schedules.get_mut(plan.name) else {
            self.schedules
                .insert(plan.name, Schedule { plan, next_run_at: following, last: None, missed: 0 });
            return;
        };
        let same_times = schedule.plan.minutes == plan.minutes
            && schedule.next_run_at.is_some_and(|at| at >= self.now - IN_TIME);
        if schedule.plan != plan && (plan.paused || !same_times) {
            schedule.next_run_at = following;
        }
        schedule.plan = plan;
    }

    /// Enqueues what is due, each occurrence once; of those that were missed, what the schedule says.
    pub fn run_schedules(&mut self) -> usize {
        let mut due: Vec<(Seconds, Name)> = self
            .schedules
            .iter()
            .filter_map(|(name, schedule)| {
                schedule.next_run_at.filter(|at| *at <= self.now).map(|at| (at, *name))
            })
            .collect();
        due.sort_unstable();
        for (next_run_at, name) in &due {
            let Schedule { plan, mut last, mut missed, .. } = self.schedules[name];
            let period = plan.minutes * 60;
            let occurrences: Vec<Seconds> = (*next_run_at..=self.now).step_by(period as usize).collect();
            let late = occurrences.iter().filter(|at| **at < self.now - IN_TIME).count();
            let kept = late.min(match plan.missed {
                Missed::RunOnce => 1,
                Missed::Skip => 0,
                Missed::RunAll => MAX_MISSED,
            });
            missed += late - kept;
            for at in &occurrences[late - kept..] {
                let new = NewTask {
                    task_type: plan.task_type,
                    payload: plan.payload,
                    headers: Headers::Occurrence(name, *at),
                    queue: None,
                    priority: None,
                    when: When::RunAt(*at),
                    max_retries: None,
                    unique: None,
                    group: None,
                };
                last = self.enqueue(&new).ok().and_then(|(id, _)| id).map(|id| (*at, id));
            }
            let next_run_at = Some(next_run_at + occurrences.len() as Seconds * period);
            self.schedules.insert(name, Schedule { plan, next_run_at, last, missed });
        }
        due.len()
    }
}
