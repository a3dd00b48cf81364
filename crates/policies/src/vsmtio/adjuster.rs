// SPDX-License-Identifier: GPL-2.0-only
//! The workload adjuster keeps cores mixed (vSMT-IO, dissertation §3.4.4).
//!
//! Retention beside computing needs vCPUs of both kinds on a core. Where the retention rates of a core's
//! vCPUs hardly differ (small standard deviation), one of them is swapped for one of the core whose mean
//! rate is furthest away: on both, the vCPU ranked in the middle.
//!
//! The paper's "pre-set threshold" is 3 percentage points in the published code. What it leaves open is
//! read so: the middle of n is rank n/2, rounded down, from 0; the partner's mean must be further away
//! than twice the threshold; partners are in the same NUMA node and of the same core-scheduling cookie.

use super::rass::FULL;
use corun_model::TaskId;

/// A core as the adjuster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// vCPUs are swapped among cores of the same group: node and cookie.
    pub group: (u32, u64),
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

    /// The vCPU ranked in the middle, the highest rate first.
    pub fn middle(&self) -> Option<TaskId> {
        let mut ranked = self.vcpus.clone();
        ranked.sort_by_key(|&(task, rate)| (FULL.saturating_sub(rate), task));
        ranked.get(ranked.len() / 2).map(|&(task, _)| task)
    }
}

/// The vCPUs that are to be swapped, if any; `threshold` in ten-thousandths.
pub fn swap(cores: &[Rates], threshold: u32) -> Option<(TaskId, TaskId)> {
    let threshold = u64::from(threshold);
    let occupied = || {
        cores
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.vcpus.is_empty())
    };
    let (at, core) = occupied().min_by_key(|(at, core)| (core.deviation(), *at))?;
    if core.deviation() >= threshold {
        return None;
    }
    let away = |other: &Rates| other.mean().abs_diff(core.mean());
    let (_, partner) = occupied()
        .filter(|(other, it)| *other != at && it.group == core.group)
        .max_by_key(|(other, it)| (away(it), std::cmp::Reverse(*other)))?;
    let worth = away(partner) > 2 * threshold;
    worth
        .then_some(core.middle().zip(partner.middle()))
        .flatten()
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

    #[test]
    fn a_deviation_by_hand() {
        assert_eq!(core(0, &[2, 4, 4, 4, 5, 5, 7, 9]).deviation(), 2);
        assert_eq!(core(0, &[]).deviation(), 0);
    }

    proptest! {
        /// What is swapped is on two cores of one group, of which one is homogeneous.
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
