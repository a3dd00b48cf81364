// SPDX-License-Identifier: GPL-2.0-only
//! Does a vCPU want to run?
//!
//! VMs have vCPUs that their guests do not use. A policy that divided a host by the number of vCPUs would leave parts of
//! it to those, while others share the rest. The kernel's load balancing goes by what is runnable, too.
//!
//! What counts is a fading mean over four periods or so: a vCPU that begins to compute counts from the next decision
//! on, one that wakes up for a moment now and then does not, and one that computes now and then does not come and go.

use corun_model::{Nanos, Parameter, Value};

/// All of a period.
pub(crate) const FULL: u32 = 10_000;
/// From this mean on a vCPU wants to run, in ten-thousandths: a twentieth of a pCPU.
const BEGINS: u32 = FULL / 20;
/// Below this it does not any more.
const ENDS: u32 = FULL / 50;

/// When a vCPU counts, for all policies that divide a host among vCPUs.
pub(crate) fn constants() -> Vec<Parameter> {
    let part = |path, meaning, value: u32, source| {
        let percent = f64::from(value) * 100.0 / f64::from(FULL);
        Parameter::fixed(path, meaning, Value::Number(percent, "%"), source)
    };
    vec![
        part(
            "corun_policies::wanting::BEGINS",
            "a vCPU wants to run if it does so for this part of the last four periods or so",
            BEGINS,
            "assumed: one that begins to compute counts from the next decision on, one that wakes up for a moment does not",
        ),
        part(
            "corun_policies::wanting::ENDS",
            "and no more below this",
            ENDS,
            "assumed: well below the former, so that none comes and goes",
        ),
    ]
}

/// Whether a vCPU wants to run. One that has not been seen yet does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanting {
    mean: u32,
    counts: bool,
}

impl Default for Wanting {
    fn default() -> Self {
        Self {
            mean: BEGINS,
            counts: true,
        }
    }
}

impl Wanting {
    /// It wanted to run in this [`part()`] of a period; true if it has begun to.
    pub fn note(&mut self, part: u32) -> bool {
        let did = self.counts;
        self.mean = self.mean - self.mean / 4 + part.min(FULL) / 4;
        self.counts = self.mean >= if did { ENDS } else { BEGINS };
        self.counts && !did
    }

    /// Does it?
    pub fn counts(self) -> bool {
        self.counts
    }
}

/// The part of `all` that `wanted` is, both in ns. Called for each vCPU in each period: without a long division.
pub(crate) fn part(wanted: Nanos, all: Nanos) -> u32 {
    let one = (all / u64::from(FULL)).max(1);
    (wanted / one).min(u64::from(FULL)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a vCPU counts after each of these periods, in per cent.
    fn counts(periods: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let mut it = Wanting::default();
        let after = |percent: u32| {
            it.note(percent * FULL / 100);
            it.counts()
        };
        periods.into_iter().map(after).collect()
    }

    #[test]
    fn parts_of_a_period() {
        let of = |wanted, all| part(wanted, all);
        assert_eq!([of(0, 0), of(0, 30_000_000), of(7, 7)], [0, 0, 7]);
        assert_eq!([of(600_000, 30_000_000), of(30, 30)], [200, 30]);
        assert_eq!(
            [of(u64::MAX, u64::MAX), of(30_000_000, 30_000_000)],
            [FULL; 2]
        );
    }

    #[test]
    fn one_that_never_ran_is_left_out_after_four_periods() {
        assert_eq!(counts([0; 5]), [true, true, true, false, false]);
    }

    #[test]
    fn one_that_begins_to_compute_counts_from_the_next_decision_on() {
        let begins = [0, 0, 0, 0, 0, 25, 100, 100];
        assert_eq!(counts(begins)[4..], [false, true, true, true]);
        let mut it = Wanting::default();
        let news = begins.map(|percent| it.note(percent * FULL / 100));
        assert_eq!(news.iter().position(|news| *news), Some(5));
        assert_eq!(news.iter().filter(|news| **news).count(), 1);
    }

    #[test]
    fn neither_short_wakeups_nor_short_sleeps_make_a_difference() {
        let wakes = counts((0..100).map(|at| if at % 10 == 9 { 12 } else { 0 }));
        assert!(wakes[10..].iter().all(|counts| !counts));
        let sleeps = counts((0..100).map(|at| if at % 10 == 0 { 100 } else { 0 }));
        assert!(sleeps.iter().all(|counts| *counts));
        // Nor does a little load: a vCPU that counted still does, and one that did not still does not.
        assert!(counts([3; 50]).iter().all(|counts| *counts));
        let little = counts([[0; 10].as_slice(), &[4; 50]].concat());
        assert!(little[10..].iter().all(|counts| !counts));
    }
}
