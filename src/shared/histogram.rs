//! Durations by size, from which medians and percentiles are read.

/// Four classes for each doubling: a class is 19 % wide, so a percentile is right within 10 %.
const A_DOUBLING: f64 = 4.0;
const CLASSES: usize = 128;
/// The first class is everything up to here; the last one begins at 42 days.
const SMALLEST: f64 = 0.001;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Histogram([u32; CLASSES]);

impl Histogram {
    pub const NONE: Histogram = Histogram([0; CLASSES]);

    pub fn add(&mut self, seconds: f64) {
        // `as` saturates; below the first class the logarithm is negative, and NaN becomes 0.
        let class = ((seconds / SMALLEST).log2() * A_DOUBLING).ceil() as usize;
        let count = &mut self.0[class.min(CLASSES - 1)];
        *count = count.saturating_add(1);
    }

    /// Takes away what an earlier state of this histogram had.
    pub fn subtract(&mut self, earlier: &Histogram) {
        for (count, before) in self.0.iter_mut().zip(&earlier.0) {
            *count = count.saturating_sub(*before);
        }
    }

    /// How many durations there are.
    pub fn count(&self) -> i64 {
        self.0.iter().map(|count| i64::from(*count)).sum()
    }

    /// The duration that this share of all is not longer than, in seconds; None if there are none.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        if total == 0 {
            return None;
        }
        let rank = share * total as f64;
        let mut below = 0.0;
        for (class, count) in self.0.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= rank {
                let (low, high) = (lower(class), upper(class));
                return Some(low + (high - low) * ((rank - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        None
    }
}

fn upper(class: usize) -> f64 {
    SMALLEST * (class as f64 / A_DOUBLING).exp2()
}

fn lower(class: usize) -> f64 {
    if class == 0 { 0.0 } else { upper(class - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_within_a_tenth() {
        let mut histogram = Histogram::NONE;
        assert_eq!(histogram.percentile(0.5), None);
        for at in 1..=1_000 {
            histogram.add(f64::from(at) * 0.01);
        }
        for (share, right) in [(0.5, 5.0), (0.95, 9.5), (0.1, 1.0)] {
            let read = histogram.percentile(share).unwrap_or_default();
            assert!((read / right - 1.0).abs() < 0.1, "{share}: {read}");
        }
    }

    #[test]
    fn extremes_have_a_class() {
        let mut histogram = Histogram::NONE;
        for seconds in [0.0, -1.0, f64::NAN, 1e-9, f64::INFINITY, 1e12] {
            histogram.add(seconds);
        }
        assert!(histogram.percentile(0.5).is_some_and(|median| median <= 0.001));
        let before = histogram;
        histogram.add(60.0);
        histogram.subtract(&before);
        assert!(histogram.percentile(0.5).is_some_and(|median| (50.0..70.0).contains(&median)));
    }
}
