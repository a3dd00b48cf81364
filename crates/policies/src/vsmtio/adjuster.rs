// SPDX-License-Identifier: GPL-2.0-only
//! The workload adjuster keeps cores mixed (vSMT-IO, dissertation §3.4.4).
//!
//! Retention beside computing needs vCPUs of both kinds on a core. Where the retention rates of a core's vCPUs hardly
//! differ (small standard deviation), one of them is swapped for one on the core whose mean rate is furthest away: on
//! both cores, the vCPU ranked in the middle.
//!
//! The paper's "pre-set threshold" is 3 percentage points in the published code. Our reading of
//! what it leaves open: the middle of n is rank n/2, rounded down, from 0; the partner's mean must
//! be further away than twice the threshold; partners are in the same NUMA node and of the same core-scheduling cookie.
//! vCPUs that may not run on the other core are passed over: the middle one is that of the rest. If the core whose
//! rates are most alike has no such partner, the next one is looked at, since cores of other nodes and cookies are
//! independent of it. And a swap must leave the two cores more mixed than they were: otherwise two cores of one vCPU
//! each would swap for ever.

use super::rass::FULL;
use corun_model::TaskId;

/// A core as the adjuster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// vCPUs are swapped among cores of the same group: node and cookie.
    pub group: (usize, u64),
    /// Its vCPUs and their retention rates.
    pub vcpus: Vec<(TaskId, u32)>,
}

impl Rates {
    fn mean(&self) -> u64 {
        let sum: u64 = self.vcpus.iter().map(|&(_, rate)| u64::from(rate)).sum();
        sum / (self.vcpus.len() as u64).max(1)
    }

    /// Standard deviation, ten-thousandths, rounded down.
    pub fn deviation(&self) -> u64 {
        let count = (self.vcpus.len() as u64).max(1);
        let rates = || self.vcpus.iter().map(|&(_, rate)| u64::from(rate));
        let (sum, squares) = (
            rates().sum::<u64>(),
            rates().map(|rate| rate * rate).sum::<u64>(),
        );
        ((squares * count - sum * sum) / (count * count)).isqrt()
    }

    /// Of those that `may` leave, the vCPU ranked in the middle, the highest rate first.
    fn middle(&self, may: impl Fn(TaskId) -> bool) -> Option<(TaskId, u32)> {
        let mut ranked = self.vcpus.clone();
        ranked.retain(|&(task, _)| may(task));
        ranked.sort_by_key(|&(task, rate)| (FULL.saturating_sub(rate), task));
        ranked.get(ranked.len() / 2).copied()
    }

    /// The same with `comes` in the place of `goes`.
    fn with(&self, goes: (TaskId, u32), comes: (TaskId, u32)) -> Self {
        let place = |&vcpu: &(TaskId, u32)| if vcpu == goes { comes } else { vcpu };
        Self {
            group: self.group,
            vcpus: self.vcpus.iter().map(place).collect(),
        }
    }

    /// Are the two cores more mixed together, once `own` of this one is swapped for `others` of `other`?
    fn mixes(&self, own: (TaskId, u32), other: &Self, others: (TaskId, u32)) -> bool {
        let (here, there) = (self.with(own, others), other.with(others, own));
        here.deviation() + there.deviation() > self.deviation() + other.deviation()
    }
}

/// The vCPUs that are to be swapped, if any; `threshold` in ten-thousandths; `may`: may this vCPU run on that core?
pub fn swap(
    cores: &[Rates],
    threshold: u32,
    may: impl Fn(TaskId, usize) -> bool,
) -> Option<(TaskId, TaskId)> {
    let threshold = u64::from(threshold);
    let occupied = || {
        cores
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.vcpus.is_empty())
    };
    let mut alike: Vec<(u64, usize, &Rates)> = occupied()
        .map(|(at, core)| (core.deviation(), at, core))
        .filter(|(deviation, ..)| *deviation < threshold)
        .collect();
    alike.sort_by_key(|&(deviation, at, _)| (deviation, at));
    let means: Vec<u64> = cores.iter().map(Rates::mean).collect();
    alike.into_iter().find_map(|(_, at, core)| {
        let away = |other: usize| means[other].abs_diff(means[at]);
        let (there, partner) = occupied()
            .filter(|(other, it)| *other != at && it.group == core.group)
            .max_by_key(|(other, _)| (away(*other), std::cmp::Reverse(*other)))
            .filter(|(other, _)| away(*other) > 2 * threshold)?;
        let own = core.middle(|task| may(task, there))?;
        let others = partner.middle(|task| may(task, at))?;
        let worth = core.mixes(own, partner, others);
        worth.then_some((own.0, others.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn core(first: u32, rates: &[u32]) -> Rates {
        let tasks = (first..).map(TaskId);
        Rates {
            group: (0, 0),
            vcpus: tasks.zip(rates.iter().copied()).collect(),
        }
    }

    fn swap(cores: &[Rates], threshold: u32) -> Option<(TaskId, TaskId)> {
        super::swap(cores, threshold, |_, _| true)
    }

    #[test]
    fn two_alike_cores_swap_their_middle_ones() {
        let io = core(0, &[5000, 5200, 4900, 5100]);
        let cpu = core(10, &[0, 300, 20, 10]);
        let mixed = core(20, &[6000, 0, 5000, 100]);
        // Ranked 5200, 5100, 5000, 4900: rank 2; and 300, 20, 10, 0: rank 2.
        let cores = [mixed, io.clone(), cpu];
        assert_eq!(swap(&cores, 300), Some((TaskId(0), TaskId(13))));
        assert_eq!(swap(&[io.clone(), io], 300), None);
    }

    #[test]
    fn neither_across_nodes_nor_cookies_nor_for_little() {
        let io = core(0, &[5000, 5000]);
        let cpu = core(10, &[0, 0]);
        assert!(swap(&[io.clone(), cpu.clone()], 300).is_some());
        for group in [(1, 0), (0, 7)] {
            let elsewhere = Rates {
                group,
                ..cpu.clone()
            };
            assert_eq!(swap(&[io.clone(), elsewhere], 300), None);
        }
        assert_eq!(swap(&[core(0, &[600, 600]), cpu.clone()], 300), None);
        assert!(swap(&[core(0, &[602, 602]), cpu], 300).is_some());
        assert_eq!(swap(&[], 300), None);
        assert_eq!(swap(&[core(0, &[]), io], 300), None);
    }

    /// If one node's cores stay all alike, that is no reason to leave another node's as they are.
    #[test]
    fn one_with_nobody_to_swap_with_keeps_no_other_from_it() {
        let elsewhere = Rates {
            group: (1, 0),
            ..core(0, &[0, 0])
        };
        let (io, cpu) = (core(10, &[5000, 5100]), core(20, &[0, 100]));
        let swapped = swap(&[elsewhere, io, cpu], 300);
        assert_eq!(swapped, Some((TaskId(10), TaskId(20))));
    }

    /// One vCPU on each core cannot be mixed, and three on two cores are once.
    #[test]
    fn nobody_is_swapped_to_and_fro() {
        assert_eq!(swap(&[core(0, &[5000]), core(10, &[0])], 300), None);
        let before = [core(0, &[5000, 5000]), core(10, &[0])];
        assert_eq!(swap(&before, 300), Some((TaskId(1), TaskId(10))));
        assert_eq!(swap(&[core(0, &[5000, 0]), core(10, &[5000])], 300), None);
    }

    #[test]
    fn a_vcpu_that_may_not_leave_is_passed_over() {
        let cores = [core(0, &[5000, 5200, 4900, 5100]), core(10, &[0, 0])];
        let without = |bound: u32| super::swap(&cores, 300, |task, _| task.0 != bound);
        assert_eq!(without(99), Some((TaskId(11), TaskId(0))));
        // Ranked 5200, 5100, 4900.
        assert_eq!(without(0), Some((TaskId(11), TaskId(3))));
        assert_eq!(without(11), Some((TaskId(10), TaskId(0))));
        let none = super::swap(&cores, 300, |_, there| there == 0);
        assert_eq!(none, None);
    }

    #[test]
    fn a_deviation_by_hand() {
        assert_eq!(core(0, &[2, 4, 4, 4, 5, 5, 7, 9]).deviation(), 2);
        assert_eq!(core(0, &[]).deviation(), 0);
    }

    proptest! {
        /// Swapped vCPUs are on two cores of one group, one of which is homogeneous.
        #[test]
        fn swaps_are_between_cores(rates in prop::collection::vec(prop::collection::vec(0u32..=FULL, 0..6), 0..6)) {
            let cores: Vec<Rates> = rates.iter().enumerate().map(|(at, rates)| core(10 * at as u32, rates)).collect();
            if let Some((one, other)) = swap(&cores, 300) {
                prop_assert_ne!(one.0 / 10, other.0 / 10);
                prop_assert!(cores[one.0 as usize / 10].deviation() < 300);
            }
        }
    }
}
