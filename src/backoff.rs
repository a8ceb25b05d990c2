//! How long a task waits after a failure.

/// The settings of a task type, with the defaults of `taskq.configure_type`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Seconds after the first failure.
    pub base: f64,
    /// What each further wait is multiplied with.
    pub factor: f64,
    /// Seconds that no wait exceeds, before jitter.
    pub cap: f64,
    /// The largest share that is added at random.
    pub jitter: f64,
}

pub const DEFAULT: Backoff = Backoff { base: 30.0, factor: 2.0, cap: 6.0 * 3600.0, jitter: 0.1 };

impl Backoff {
    /// Seconds to wait after failure number `failure` (1 is the first), with a random number
    /// from 0 to 1: min(cap, base × factor^(failure-1)) × (1 + jitter × random). Floating point
    /// saturates at infinity, which the cap then cuts.
    pub fn wait(self, failure: i32, random: f64) -> f64 {
        // 0 × infinity is not a number; a base of 0 means no wait at all.
        let grown = if self.base == 0.0 { 0.0 } else { self.base * self.factor.powi(failure.max(1) - 1) };
        grown.min(self.cap) * (1.0 + self.jitter * random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Backoff = Backoff { jitter: 0.0, ..DEFAULT };

    #[test]
    fn doubles_from_thirty_seconds_up_to_six_hours() {
        let waits: Vec<f64> = (1..=12).map(|k| STEADY.wait(k, 0.5)).collect();
        assert_eq!(
            waits,
            [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0, 7680.0, 15360.0, 21600.0, 21600.0]
        );
    }

    #[test]
    fn never_shrinks_nor_overflows_with_any_failure_number() {
        let mut before = 0.0;
        for failure in (1..2_000).chain([i32::MAX - 1, i32::MAX]) {
            let wait = STEADY.wait(failure, 1.0);
            assert!(wait.is_finite() && wait >= before, "failure {failure}: {wait}");
            before = wait;
        }
    }

    /// S14: at every power of two, where integers and shifts would wrap, and with the bounds of every setting.
    #[test]
    fn s14_every_failure_number_has_a_wait_within_the_cap_and_its_jitter() {
        let century = 100.0 * 366.0 * 86_400.0;
        let failures: Vec<i32> = (0..31)
            .flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1])
            .chain([i32::MAX, i32::MIN, -1])
            .collect();
        for base in [0.0, 1e-6, 0.5, 30.0, century] {
            for factor in [1.0, 1.000_001, 2.0, 1_000.0] {
                for cap in [0.0, 1e-6, 21_600.0, century] {
                    for (jitter, random) in [(0.0, 1.0), (0.1, 0.5), (1.0, 1.0)] {
                        let backoff = Backoff { base, factor, cap, jitter };
                        for &failure in &failures {
                            let wait = backoff.wait(failure, random);
                            assert!(
                                (0.0..=cap * (1.0 + jitter)).contains(&wait),
                                "{backoff:?} {failure}: {wait}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn jitter_only_lengthens_and_by_its_share_at_most() {
        assert_eq!(DEFAULT.wait(1, 0.0), 30.0);
        assert_eq!(DEFAULT.wait(1, 1.0), 33.0);
    }

    #[test]
    fn odd_settings_stay_numbers() {
        assert_eq!(Backoff { base: 0.0, ..STEADY }.wait(5_000, 1.0), 0.0);
        assert_eq!(Backoff { factor: 1.0, ..STEADY }.wait(i32::MAX, 1.0), 30.0);
        assert_eq!(STEADY.wait(0, 1.0), 30.0);
        assert_eq!(STEADY.wait(i32::MIN, 1.0), 30.0);
    }
}
