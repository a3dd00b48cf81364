// SPDX-License-Identifier: GPL-2.0-only
//! Distributions of waiting times, in bounded memory whatever the length of a run.
//!
//! Counters for logarithmic steps, as in HdrHistogram: times below 2048 ns are distinguished exactly, longer ones by
//! 1024 steps per power of two, which means three digits. HdrHistogram allocates all counters up to the longest time, a
//! third of a megabyte; there is a meter per VM, and most see times of only a few magnitudes. So counters come in pages
//! here, each made when a time first falls on it.

use corun_model::Nanos;

/// The longest time distinguished: an hour. Longer waits count as this.
const LONGEST: Nanos = 3_600_000_000_000;

/// Steps per power of two, as a power of two.
const STEPS: u32 = 10;

/// Counters per page: a cache line of them.
const PAGE: usize = 8;

/// Coarse steps per power of two: enough for a picture.
const COARSE: u64 = 8;

/// Times up to this are one coarse step, ns.
const SHORTEST: Nanos = 127;

/// The longest time in the coarse step of `time`. No fine step straddles two coarse ones.
fn coarse(time: Nanos) -> Nanos {
    if time <= SHORTEST {
        return SHORTEST;
    }
    let width = 1 << (time.ilog2() - COARSE.ilog2());
    (time / width + 1) * width - 1
}

/// How long something took, for many occurrences; ns, to three digits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Where the page for a range of times is, plus 1; 0: there is none.
    directory: Vec<u16>,
    pages: Vec<[u64; PAGE]>,
    count: u64,
    max: Nanos,
}

/// The number of the counter for a time.
fn counter(wait: Nanos) -> usize {
    let magnitude = (wait | (1 << STEPS)).ilog2() - STEPS;
    ((magnitude as usize) << STEPS) + (wait >> magnitude) as usize
}

/// The shortest time that a counter counts, and how many more it does.
fn times(counter: usize) -> (Nanos, Nanos) {
    let magnitude = (counter >> STEPS).saturating_sub(1);
    let steps = (counter - (magnitude << STEPS)) as Nanos;
    (steps << magnitude, (1 << magnitude) - 1)
}

impl Waits {
    /// Adds one time.
    pub fn record(&mut self, wait: Nanos) {
        let wait = wait.min(LONGEST);
        self.count_at(counter(wait), 1);
        self.max = self.max.max(wait);
    }

    /// Adds all times of another.
    pub fn add(&mut self, other: &Self) {
        for (shortest, _, count) in other.counted() {
            self.count_at(counter(shortest), count);
        }
        self.max = self.max.max(other.max);
    }

    fn count_at(&mut self, counter: usize, times: u64) {
        let (range, place) = (counter / PAGE, counter % PAGE);
        if self.directory.len() <= range {
            self.directory.resize(range + 1, 0);
        }
        if self.directory[range] == 0 {
            self.pages.push([0; PAGE]);
            self.directory[range] = self.pages.len() as u16;
        }
        self.pages[usize::from(self.directory[range]) - 1][place] += times;
        self.count += times;
    }

    /// Number of times recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The counters that counted something, in order: shortest time, how many more, how often.
    fn counted(&self) -> impl Iterator<Item = (Nanos, Nanos, u64)> {
        let ranges = self.directory.iter().enumerate();
        let pages = ranges.filter_map(|(range, &page)| {
            let page = self.pages.get(usize::from(page).checked_sub(1)?)?;
            Some((range * PAGE, page))
        });
        let counters = pages.flat_map(|(first, page)| (first..).zip(page));
        counters
            .filter(|(_, count)| **count > 0)
            .map(|(counter, &count)| {
                let (shortest, more) = times(counter);
                (shortest, more, count)
            })
    }

    /// How often times were how long, coarsely: [`COARSE`] equal steps per power of two. For each
    /// step that counted something the longest time in it, ns, and how many there were; ascending.
    pub fn by_length(&self) -> Vec<(Nanos, u64)> {
        let mut steps: Vec<(Nanos, u64)> = Vec::new();
        for (shortest, _, count) in self.counted() {
            let longest = coarse(shortest);
            match steps.last_mut() {
                Some((last, sum)) if *last == longest => *sum += count,
                _ => steps.push((longest, count)),
            }
        }
        steps
    }

    /// Mean, ns; 0 if nothing was recorded. A time counts as the middle of its step.
    pub fn mean(&self) -> f64 {
        let share = |(shortest, more, count): (Nanos, Nanos, u64)| {
            (shortest + more.div_ceil(2)) as f64 * count as f64 / self.count as f64
        };
        self.counted()
            .map(share)
            .fold(0.0, |sum, share| sum + share)
    }

    /// The time that `share` (0 to 1) of the records do not exceed, ns; 0 if there are none.
    pub fn quantile(&self, share: f64) -> Nanos {
        let wanted = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counted().find(|(_, _, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |(shortest, more, _)| shortest + more)
    }

    /// The longest time, ns, as the end of its step.
    pub fn max(&self) -> Nanos {
        if self.count == 0 {
            return 0;
        }
        let (shortest, more) = times(counter(self.max));
        shortest + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

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

    #[test]
    fn memory_is_bounded_by_how_much_times_differ() {
        let mut waits = Waits::default();
        (0..100_000u64).for_each(|n| waits.record(5_000_000 + n % 1000));
        assert_eq!(waits.pages.len(), 1);
        (0..LONGEST)
            .step_by(LONGEST as usize / 200_000)
            .for_each(|wait| waits.record(wait));
        (0..1u64 << 20).for_each(|wait| waits.record(wait));
        let all = counter(LONGEST) / PAGE + 1;
        assert!(
            waits.pages.len() <= all && all <= 34_816 / PAGE,
            "{} of {all}",
            waits.pages.len()
        );
    }

    proptest! {
        /// Coarse steps lose nothing, ascend, and are no wider than an eighth of what is in them.
        #[test]
        fn coarse_steps_count_everything_once(
            times in prop::collection::vec(prop_oneof![0u64..5000, 0u64..1 << 30, 0u64..1 << 50], 1..200),
            below in 0u64..1 << 32,
        ) {
            let mut waits = Waits::default();
            times.iter().for_each(|&time| waits.record(time));
            let steps = waits.by_length();
            prop_assert!(steps.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert_eq!(steps.iter().map(|step| step.1).sum::<u64>(), waits.count());
            let end = coarse(below);
            let within = times.iter().filter(|&&time| time.min(LONGEST) <= end).count() as u64;
            let counted = steps.iter().filter(|step| step.0 <= end).map(|step| step.1);
            prop_assert_eq!(counted.sum::<u64>(), within);
            prop_assert!(end >= below && end - below <= (below / COARSE).max(SHORTEST));
        }

        /// Checked against HdrHistogram.
        #[test]
        fn counts_as_hdr_histogram_does(
            times in prop::collection::vec(prop_oneof![0u64..5000, 0u64..1 << 30, 0u64..1 << 50], 1..200),
            share in 0.001f64..1.0,
        ) {
            let mut waits = Waits::default();
            let mut reference = Histogram::<u64>::new_with_bounds(1, LONGEST, 3).unwrap();
            for &time in &times {
                waits.record(time);
                reference.saturating_record(time.min(LONGEST));
            }
            prop_assert_eq!(waits.count(), reference.len());
            prop_assert_eq!(waits.mean(), reference.mean());
            prop_assert_eq!(waits.max(), reference.max());
            for share in [share, 0.5, 0.99, 1.0] {
                prop_assert_eq!(waits.quantile(share), reference.value_at_quantile(share));
            }
        }
    }
}
