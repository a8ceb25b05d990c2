//! Durations counted since the server started, in the buckets that metrics show.
//!
//! The `Histogram` beside it is finer, and begins anew with each sample: medians come from there. A metric
//! must never fall, and its buckets must stay what they are.

/// The largest duration of each bucket but the last, which has no end; in seconds.
pub const BOUNDS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buckets {
    counts: [i64; BOUNDS.len() + 1],
    /// Of all durations, in seconds.
    pub sum: f64,
}

impl Buckets {
    pub const NONE: Buckets = Buckets { counts: [0; BOUNDS.len() + 1], sum: 0.0 };

    pub fn add(&mut self, seconds: f64) {
        // A clock that was set back gives a negative duration, and a sum must not fall.
        let seconds = seconds.max(0.0);
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }

    pub fn count(&self) -> i64 {
        self.counts.iter().sum()
    }

    /// How many durations were not longer than each of the bounds.
    pub fn cumulative(&self) -> Vec<i64> {
        let within = self.counts.iter().take(BOUNDS.len());
        within
            .scan(0, |so_far, count| {
                *so_far += count;
                Some(*so_far)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_all_buckets_that_it_fits() {
        let mut buckets = Buckets::NONE;
        for seconds in [0.005, 0.01, 0.02, 0.3, 7_200.0] {
            buckets.add(seconds);
        }
        let cumulative = buckets.cumulative();
        assert_eq!(cumulative.len(), BOUNDS.len());
        assert_eq!(cumulative[..6], [2, 3, 3, 3, 3, 4], "a bound belongs to its bucket");
        assert_eq!((cumulative[13], buckets.count()), (4, 5));
        assert!((buckets.sum - 7_200.335).abs() < 1e-9);
    }

    #[test]
    fn nothing_makes_it_fall() {
        let mut buckets = Buckets::NONE;
        for seconds in [-5.0, f64::NAN, 0.0] {
            buckets.add(seconds);
        }
        assert_eq!((buckets.sum, buckets.count(), buckets.cumulative()[0]), (0.0, 3, 3));
    }
}
