//! What a piece of the keeper's work cost, so that it can rest in proportion.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Time that is spent waiting (for a disk, a lock, or a processor that others use) is no load: it counts only as
/// one part in so many, lest work that waited for long is begun again at once.
const WAITING: u32 = 50;
/// Work rests so many times as long as it cost: 65 is 1.5 % of a core.
const REST: u32 = 65;
/// But no longer than this: a duty that is later than its interval and a minute raises an alert.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Work that goes on.
pub struct Effort {
    begin: Instant,
    processor: Duration,
}

impl Effort {
    pub fn begin() -> Self {
        Effort { begin: Instant::now(), processor: processor_time() }
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Duration {
        (processor_time().saturating_sub(self.processor)).max(self.begin.elapsed() / WAITING)
    }
}

/// How long work that cost so much rests, counted from its begin.
pub fn rest(cost: Duration) -> Duration {
    (cost * REST).min(LONGEST_REST)
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_costs_a_small_part_and_who_works_all() {
        let waits = Effort::begin();
        std::thread::sleep(Duration::from_millis(200));
        assert!(waits.cost() < Duration::from_millis(100), "{:?}", waits.cost());
        assert!(waits.cost() >= Duration::from_millis(4), "{:?}", waits.cost());
        let works = Effort::begin();
        while processor_time() - works.processor < Duration::from_millis(100) {}
        assert!(works.cost() >= Duration::from_millis(100));
    }
}
