// SPDX-License-Identifier: GPL-2.0-only
//! Distributions of waiting times, in bounded memory whatever the length of a run.

use corun_model::Nanos;
use hdrhistogram::Histogram;

/// The longest time told apart: an hour. Longer waits count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// How long something took, many times; ns, to three digits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Made by the first record: most meters never see one.
    histogram: Option<Histogram<u64>>,
}

impl Waits {
    /// Adds one time.
    pub fn record(&mut self, wait: Nanos) {
        if self.histogram.is_none() {
            self.histogram = Histogram::new_with_bounds(1, LONGEST, 3).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(wait);
        }
    }

    /// Adds all times of another.
    pub fn add(&mut self, other: &Self) {
        match (&mut self.histogram, &other.histogram) {
            (Some(histogram), Some(other)) => {
                // All have the same bounds, so this cannot fail.
                let _ = histogram.add(other);
            }
            (None, Some(other)) => self.histogram = Some(other.clone()),
            (_, None) => {}
        }
    }

    /// Number of times recorded.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Mean, ns; 0 if nothing was recorded.
    pub fn mean(&self) -> f64 {
        self.histogram.as_ref().map_or(0.0, Histogram::mean)
    }

    /// The time that `share` (0 to 1) of the records do not exceed, ns; 0 if there are none.
    pub fn quantile(&self, share: f64) -> Nanos {
        self.histogram
            .as_ref()
            .map_or(0, |histogram| histogram.value_at_quantile(share))
    }

    /// The longest time, ns.
    pub fn max(&self) -> Nanos {
        self.histogram.as_ref().map_or(0, Histogram::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_to_three_digits() {
        let mut waits = Waits::default();
        assert_eq!((waits.count(), waits.quantile(0.5)), (0, 0));
        (1..=1000).for_each(|n| waits.record(n * 1000));
        assert_eq!(waits.count(), 1000);
        let median = waits.quantile(0.5);
        assert!((499_000..=501_000).contains(&median), "{median}");
        let mut both = Waits::default();
        both.add(&Waits::default());
        both.add(&waits);
        both.add(&waits);
        assert_eq!((both.count(), both.max()), (2000, waits.max()));
        waits.record(u64::MAX);
        assert!(waits.max() >= LONGEST);
    }
}
