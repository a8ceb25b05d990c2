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

pub fn pause(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds));
}
