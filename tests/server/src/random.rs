//! Random choices that a failing test can name.

use std::time::{SystemTime, UNIX_EPOCH};

/// A small generator (xorshift). Tests print the seed: cargo shows it when they fail.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A seed from the clock, or from TASKQ_TEST_SEED to repeat a run.
    pub fn seed() -> u64 {
        let seed =
            std::env::var("TASKQ_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_millis() as u64)
            });
        println!("TASKQ_TEST_SEED={seed}");
        seed
    }

    /// From 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
