// SPDX-License-Identifier: GPL-2.0-only
//! Does a VM do in a period what was expected of it? If it fails to for some periods, Jupiter
//! leaves it alone (dissertation, §4.5.5).
//!
//! What Jupiter adjusts rests on the next period being like the last one. So each period it
//! predicts what every vCPU will use: what it used before, and at least its slice if it used up its
//! last one and wants more. A prediction is right if the errors of a VM's vCPUs add up to no more
//! than a tenth of their slices; a difference finer than scheduling can deal out is no error. After
//! five wrong predictions in a row the VM is left to plain balance; predictions go on, and after
//! five right ones Jupiter is on again.
//!
//! How a prediction is made and when it is right is our reading: the dissertation shows only when
//! Jupiter goes off and on. Here it is decided per VM, so that one erratic guest does not cost the
//! others what Jupiter does for them.

use corun_model::Nanos;

/// Differences that mean nothing: the smallest piece of time that scheduling deals out, or an
/// eighth of a slice where slices are small.
pub(super) fn tolerance(slice: Nanos, grain: Nanos) -> Nanos {
    grain.min(slice / 8)
}

/// A vCPU's period: what it was expected to use, what it used, and its slice, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub predicted: Nanos,
    pub used: Nanos,
    pub slice: Nanos,
}

/// Were the predictions for a VM's vCPUs right, up to `error` percent?
pub(super) fn is_right(vcpus: impl IntoIterator<Item = Outcome>, error: u32, grain: Nanos) -> bool {
    let (mut errors, mut slices) = (0, 0);
    for vcpu in vcpus {
        let off = vcpu.predicted.abs_diff(vcpu.used);
        errors += off.saturating_sub(tolerance(vcpu.slice, grain));
        slices += vcpu.slice;
    }
    errors * 100 <= slices * Nanos::from(error)
}

/// Whether Jupiter is on for a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    on: bool,
    /// Predictions in a row that speak against it.
    against: u32,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            on: true,
            against: 0,
        }
    }
}

impl Trust {
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// A prediction was right, or not; off after `wrong` (0: never), on again after `right`.
    pub fn learn(&mut self, is_right: bool, wrong: u32, right: u32) {
        if is_right == self.on {
            self.against = 0;
            return;
        }
        self.against += 1;
        let enough = if self.on { wrong } else { right };
        if self.against >= enough.max(1) && !(self.on && wrong == 0) {
            *self = Self {
                on: !self.on,
                against: 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    /// Figure 4.14 in periods of 100 ms: erratic from 6.0 to 7.0 s; off at 6.5, on again at 7.6 s.
    #[test]
    fn five_wrong_periods_turn_it_off_five_right_ones_on() {
        let mut trust = Trust::default();
        let mut changes = Vec::new();
        for end in 1..=80u32 {
            let was = trust.is_on();
            // The periods that end at 6.1 to 7.1 s are not what the ones before them were.
            trust.learn(!(61..=71).contains(&end), 5, 5);
            if trust.is_on() != was {
                changes.push(end);
            }
        }
        assert_eq!(changes, [65, 76]);
    }

    #[test]
    fn a_right_one_in_between_starts_the_count_anew() {
        let mut trust = Trust::default();
        for _ in 0..10 {
            (0..4).for_each(|_| trust.learn(false, 5, 5));
            trust.learn(true, 5, 5);
        }
        assert!(trust.is_on());
    }

    #[test]
    fn never_means_never() {
        let mut trust = Trust::default();
        (0..100).for_each(|_| trust.learn(false, 0, 5));
        assert!(trust.is_on());
    }

    #[test]
    fn a_tenth_of_the_slices_beyond_what_means_nothing_is_right() {
        let vcpu = |predicted, used| Outcome {
            predicted: predicted * MS,
            used: used * MS,
            slice: 40 * MS,
        };
        // Tolerance 3 ms each; errors beyond it up to 8 of 80 ms.
        assert!(is_right([vcpu(20, 31), vcpu(20, 23)], 10, 3 * MS));
        assert!(!is_right([vcpu(20, 32), vcpu(20, 23)], 10, 3 * MS));
        assert!(!is_right([vcpu(20, 31), vcpu(20, 16)], 10, 3 * MS));
    }
}
