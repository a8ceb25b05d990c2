//! What the board shows, as `taskq._board()` returns it, and what follows from it. Times are seconds: those of
//! curves since 1970, all others ages, or how long until then.

use serde::Deserialize;
use std::collections::HashMap;

#[derive(Deserialize)]
pub struct Board {
    pub database: String,
    pub version: String,
    pub at_text: String,
    /// How many seconds the rates and run times are about.
    pub window: f64,
    pub exact: bool,
    /// Each moment of the last hour: when, the queue, its ready tasks; None if nobody knows.
    pub hour: Vec<(f64, Option<String>, Option<f64>)>,
    /// The last day, all queues together.
    pub day: Vec<(f64, Option<f64>)>,
    pub pairs: Vec<Pair>,
    pub running: Vec<Running>,
    /// None where nobody keeps count.
    pub running_in_all: Option<i64>,
    pub health: Vec<Check>,
    pub alerts: Vec<Alert>,
    pub alerts_in_all: usize,
    pub errors: Vec<Error>,
    pub duties: Vec<Duty>,
    pub queues: Vec<Queue>,
    pub queues_in_all: usize,
    pub totals: Totals,
    pub dead: Vec<Dead>,
    pub dead_in_all: usize,
    pub workers: Vec<Worker>,
    pub workers_in_all: usize,
}

/// What a queue and task type did in the window.
#[derive(Deserialize)]
pub struct Pair {
    pub queue: String,
    pub task_type: String,
    pub enqueued: f64,
    pub started: f64,
    pub succeeded: f64,
    pub failed: f64,
    /// Succeeded, dead or cancelled.
    pub ended: f64,
    pub waiting_p50: Option<f64>,
    pub waiting_p95: Option<f64>,
    pub run_p50: Option<f64>,
    pub run_p95: Option<f64>,
}

#[derive(Deserialize)]
pub struct Running {
    pub id: i64,
    pub queue: String,
    pub task_type: String,
    pub worker: String,
    pub attempt: i32,
    pub cancel_requested: bool,
    pub running_for: f64,
    pub lease_left: f64,
}

#[derive(Deserialize)]
pub struct Check {
    pub check: String,
    pub ok: bool,
    pub value: Option<String>,
    pub limit: Option<String>,
    pub advice: Option<String>,
}

#[derive(Deserialize)]
pub struct Alert {
    pub id: i64,
    pub kind: String,
    pub queue: Option<String>,
    pub value: i64,
    pub limit: i64,
    pub detail: Option<String>,
    pub acknowledged_by: Option<String>,
    pub age: f64,
}

#[derive(Deserialize)]
pub struct Error {
    pub queue: String,
    pub task_type: String,
    pub error: String,
    pub tasks: i64,
    pub runs: i64,
    pub dead: i64,
    pub first: Option<f64>,
    pub last: Option<f64>,
    pub id: i64,
}

#[derive(Deserialize)]
pub struct Duty {
    pub duty: String,
    pub every: f64,
    pub rows: Option<i64>,
    pub error: Option<String>,
    pub age: Option<f64>,
}

#[derive(Deserialize)]
pub struct Queue {
    pub queue: String,
    pub ready: i64,
    pub scheduled: i64,
    pub running: i64,
    pub blocked: i64,
    pub dead: i64,
    pub oldest: Option<f64>,
    pub paused_for: Option<f64>,
    pub paused_by: Option<String>,
    /// Tasks a second that the workers take from it while it has a backlog.
    pub start_rate: Option<f64>,
}

#[derive(Deserialize)]
pub struct Totals {
    pub ready: i64,
    pub scheduled: i64,
    pub running: i64,
    pub blocked: i64,
    pub dead: i64,
    pub oldest: Option<f64>,
}

#[derive(Deserialize)]
pub struct Dead {
    pub queue: String,
    pub task_type: String,
    pub letters: i64,
    pub age: f64,
    pub error: Option<String>,
    pub redrive: String,
}

#[derive(Deserialize)]
pub struct Worker {
    pub worker: String,
    /// None: all.
    pub queues: Option<Vec<String>>,
    pub claims: i64,
    pub claimed: i64,
    pub seen: f64,
    pub last_got: Option<f64>,
}

/// The sums of several pairs; durations are averaged with the weight of the tasks that they are about.
#[derive(Default, Clone, Copy)]
pub struct Flow {
    pub enqueued: f64,
    pub started: f64,
    pub succeeded: f64,
    pub failed: f64,
    pub ended: f64,
    waiting: Mean,
    waiting_slow: Mean,
    run: Mean,
    run_slow: Mean,
}

#[derive(Default, Clone, Copy)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value.filter(|_| weight > 0.0) {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn value(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

impl Flow {
    pub fn add(&mut self, pair: &Pair) {
        self.enqueued += pair.enqueued;
        self.started += pair.started;
        self.succeeded += pair.succeeded;
        self.failed += pair.failed;
        self.ended += pair.ended;
        self.waiting.add(pair.waiting_p50, pair.started);
        self.waiting_slow.add(pair.waiting_p95, pair.started);
        self.run.add(pair.run_p50, pair.succeeded);
        self.run_slow.add(pair.run_p95, pair.succeeded);
    }

    pub fn of<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> Flow {
        let mut flow = Flow::default();
        pairs.into_iter().for_each(|pair| flow.add(pair));
        flow
    }

    /// Of the runs that came to an end, the share that failed.
    pub fn failure_share(&self) -> Option<f64> {
        let runs = self.succeeded + self.failed;
        (runs > 0.0).then(|| self.failed / runs)
    }

    /// Median and 95th percentile.
    pub fn waiting(&self) -> (Option<f64>, Option<f64>) {
        (self.waiting.value(), self.waiting_slow.value())
    }

    pub fn run(&self) -> (Option<f64>, Option<f64>) {
        (self.run.value(), self.run_slow.value())
    }
}

/// What becomes of a backlog if everything goes on as it was in the window.
#[derive(Debug, PartialEq)]
pub enum Forecast {
    Empty,
    Paused,
    /// Nobody took a task of it.
    Stands,
    Grows,
    /// Empty after so many seconds.
    In(f64),
}

impl Queue {
    /// `arrivals`: tasks a second.
    pub fn forecast(&self, arrivals: f64) -> Forecast {
        if self.ready == 0 {
            return Forecast::Empty;
        }
        if self.paused_for.is_some() {
            return Forecast::Paused;
        }
        match self.start_rate.filter(|rate| *rate > 0.0) {
            None => Forecast::Stands,
            Some(rate) if rate <= arrivals => Forecast::Grows,
            Some(rate) => Forecast::In(self.ready as f64 / (rate - arrivals)),
        }
    }
}

/// A running task needs a look: its lease is over, or it runs much longer than its type usually does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oddity {
    Stuck,
    Long,
    None,
}

/// So many times the 95th percentile of its type's run time is unusual.
const LONG: f64 = 3.0;

impl Board {
    pub fn flows(&self) -> HashMap<&str, Flow> {
        let mut flows: HashMap<&str, Flow> = HashMap::new();
        for pair in &self.pairs {
            flows.entry(&pair.queue).or_default().add(pair);
        }
        flows
    }

    /// The backlog of each moment of the last hour: of all queues, or of one.
    pub fn hour_of(&self, queue: Option<&str>) -> Vec<(f64, Option<f64>)> {
        let mut curve: Vec<(f64, Option<f64>)> = Vec::new();
        for (at, of, ready) in &self.hour {
            if curve.last().is_none_or(|(last, _)| last < at) {
                // A moment that is known and says nothing of the queue: there were none.
                curve.push((*at, ready.map(|_| 0.0)));
            }
            if let (Some((_, sum)), Some(ready)) = (curve.last_mut(), ready)
                && (queue.is_none() || of.as_deref() == queue)
            {
                *sum = Some(sum.unwrap_or(0.0) + ready);
            }
        }
        curve
    }

    pub fn oddity(&self, task: &Running) -> Oddity {
        if task.lease_left < 0.0 {
            return Oddity::Stuck;
        }
        let of_type = |pair: &&Pair| pair.queue == task.queue && pair.task_type == task.task_type;
        let usual = self.pairs.iter().find(of_type).and_then(|pair| pair.run_p95);
        if usual.is_some_and(|usual| task.running_for > usual * LONG && task.running_for > 1.0) {
            Oddity::Long
        } else {
            Oddity::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(ready: i64, start_rate: Option<f64>) -> Queue {
        Queue {
            queue: "q".to_owned(),
            ready,
            scheduled: 0,
            running: 0,
            blocked: 0,
            dead: 0,
            oldest: None,
            paused_for: None,
            paused_by: None,
            start_rate,
        }
    }

    #[test]
    fn a_backlog_empties_by_what_is_left_of_the_rate() {
        assert_eq!(queue(0, None).forecast(5.0), Forecast::Empty);
        assert_eq!(queue(100, None).forecast(0.0), Forecast::Stands);
        assert_eq!(queue(100, Some(2.0)).forecast(2.0), Forecast::Grows);
        assert_eq!(queue(100, Some(3.0)).forecast(1.0), Forecast::In(50.0));
        let paused = Queue { paused_for: Some(1.0), ..queue(100, Some(3.0)) };
        assert_eq!(paused.forecast(1.0), Forecast::Paused);
    }

    #[test]
    fn durations_have_the_weight_of_their_tasks() {
        let pair = |succeeded: f64, run: Option<f64>| Pair {
            queue: "q".to_owned(),
            task_type: "t".to_owned(),
            enqueued: 0.0,
            started: 0.0,
            succeeded,
            failed: 1.0,
            ended: 0.0,
            waiting_p50: None,
            waiting_p95: None,
            run_p50: run,
            run_p95: run,
        };
        let flow = Flow::of(&[pair(1.0, Some(4.0)), pair(3.0, Some(8.0)), pair(0.0, None)]);
        assert_eq!(flow.run(), (Some(7.0), Some(7.0)));
        assert_eq!(flow.waiting(), (None, None));
        assert_eq!(flow.failure_share(), Some(3.0 / 7.0));
        assert_eq!(Flow::default().failure_share(), None);
    }
}
