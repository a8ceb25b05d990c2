//! Waiting for what must come to pass.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until it is so; fails with `what` after so many seconds.
pub fn eventually(what: &str, seconds: u64, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// The shortest of so many times: a machine that is busy with something else does not draw out each of them.
pub fn quickest(times: u32, measure: impl FnMut() -> Duration) -> Duration {
    std::iter::repeat_with(measure).take(times as usize).min().expect("a time")
}

pub fn pause(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds));
}
