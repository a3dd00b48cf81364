// SPDX-License-Identifier: GPL-2.0-only
//! RASS, retention aware symbiotic scheduling: which of a core's vCPUs are I/O-bound (vSMT-IO,
//! dissertation §3.4.3, unbalanced scheduling)?
//!
//! At the end of each period the vCPUs of a core are ranked by their retention rates, the share of the period that they
//! spent in retention. From the top of the ranking on they are I/O-bound, until both classes weigh as nearly the same
//! as possible; each class has a hardware thread of the core, so that retention beside computing is the rule. Rates are
//! in ten-thousandths.
//!
//! Our reading of ties: of vCPUs with equal rates, one that was I/O-bound stays so; of two cuts
//! that are equally near, the one with fewer I/O-bound vCPUs is taken. So a vCPU that is alone on
//! its core is CPU-bound. Those that do nothing but compute then exchange their classes
//! ([`super::turns`]).

use corun_model::{Nanos, TaskId};

/// A retention rate of 100 %.
pub const FULL: u32 = 10_000;

/// A vCPU as it is ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The vCPU.
    pub task: TaskId,
    /// What it weighs; 0: it does not want to run, and goes where its rank puts it.
    pub weight: u64,
    /// Its retention rate.
    pub rate: u32,
    /// Was it I/O-bound until now?
    pub was_io: bool,
}

/// The retention rate of a vCPU that spent `retained` of `period` in retention, both ns.
pub fn rate(retained: Nanos, period: Nanos) -> u32 {
    let share = u128::from(retained.min(period)) * u128::from(FULL) / u128::from(period.max(1));
    share as u32
}

/// How much of its `wait`, ns, a vCPU with this number of wake-ups would have spent in retention with this timeout. The
/// host holds hardware threads for I/O-bound vCPUs only: if only time held counted, no other vCPU would ever become
/// I/O-bound.
pub fn hidden(wait: Nanos, wakeups: u64, timeout: Nanos) -> Nanos {
    wait.min(wakeups.saturating_mul(timeout))
}

/// If more than one part in this many of a vCPU's run time is retention, its guest retains.
pub(super) const RETAINS: u64 = 2;
/// From then on, more than one part in this many is enough.
pub(super) const STILL_RETAINS: u64 = 10;

/// Does a vCPU that was `dormant` for this part of its `run` time, ns, retain its context by itself? More than half
/// says so. From then on its turns are only as long as the timeout, and events come during the turns of others: more
/// than a tenth is enough (our reading: the paper's guests end retentions themselves).
pub fn retains(until_now: bool, dormant: Nanos, run: Nanos) -> bool {
    match until_now {
        true => run == 0 || dormant > run / STILL_RETAINS,
        false => dormant > run / RETAINS,
    }
}

/// A weight, compensated for retention in proportion to the rate.
pub fn compensated(weight: u64, rate: u32) -> u64 {
    weight + weight * u64::from(rate) / u64::from(FULL)
}

/// Ranks the vCPUs of a core; returns how many of them, the first ones, are I/O-bound.
pub fn split(vcpus: &mut [Ranked]) -> usize {
    vcpus.sort_by_key(|it| (std::cmp::Reverse(it.rate), !it.was_io, it.task));
    let total: u64 = vcpus.iter().map(|it| it.weight).sum();
    let mut io = 0;
    let mut best = (total, 0);
    for (at, vcpu) in vcpus.iter().enumerate() {
        io += vcpu.weight;
        let difference = io.abs_diff(total - io);
        if difference < best.0 {
            best = (difference, at + 1);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;
    use proptest::prelude::*;

    fn vcpu((task, &(weight, rate)): (usize, &(u64, u32))) -> Ranked {
        Ranked {
            task: TaskId::from(task),
            weight,
            rate,
            was_io: false,
        }
    }

    /// The I/O-bound ones of vCPUs of these weights and rates.
    fn io(of: &[(u64, u32)]) -> Vec<u32> {
        let mut all: Vec<Ranked> = of.iter().enumerate().map(vcpu).collect();
        let count = split(&mut all);
        all[..count].iter().map(|it| it.task.0).collect()
    }

    #[test]
    fn the_most_retaining_half_by_weight_is_io_bound() {
        assert_eq!(io(&[(1, 10), (1, 4000), (1, 20), (1, 900)]), [1, 3]);
        // One that weighs as much as the others together has a hardware thread to itself.
        assert_eq!(io(&[(300, 4000), (100, 10), (100, 900), (100, 0)]), [0]);
        assert_eq!(io(&[(300, 5), (100, 10), (100, 900), (100, 20)]), [2, 3, 1]);
    }

    #[test]
    fn a_lone_vcpu_is_cpu_bound_and_two_are_one_of_each() {
        assert!(io(&[(100, 9000)]).is_empty());
        assert!(io(&[]).is_empty());
        assert_eq!(io(&[(100, 9000), (100, 9001)]), [1]);
    }

    #[test]
    fn who_does_not_want_to_run_is_on_no_side_of_the_balance() {
        assert_eq!(io(&[(100, 4000), (100, 0), (100, 0), (0, 0)]), [0]);
        assert_eq!(io(&[(0, 9000), (100, 4000), (100, 0), (0, 10)]), [0, 1]);
        assert!(io(&[(0, 10), (0, 0), (100, 0)]).is_empty());
    }

    #[test]
    fn of_equals_the_one_that_was_io_bound_stays_it() {
        let mut all: Vec<Ranked> = [(1, 0), (1, 0)].iter().enumerate().map(vcpu).collect();
        all[1].was_io = true;
        assert_eq!((split(&mut all), all[0].task), (1, TaskId(1)));
    }

    #[test]
    fn long_waits_are_retained_up_to_the_timeout() {
        assert_eq!(hidden(80 * MS, 800, MS), 80 * MS);
        assert_eq!(hidden(80 * MS, 8, MS), 8 * MS);
        assert_eq!((hidden(80 * MS, 0, MS), hidden(0, 8, MS)), (0, 0));
    }

    #[test]
    fn a_vcpu_known_to_retain_is_known_for_longer() {
        assert!(retains(false, 51, 100) && !retains(false, 50, 100));
        assert!(retains(true, 11, 100) && !retains(true, 10, 100));
        // A vCPU that did not run shows nothing new.
        assert!(retains(true, 0, 0) && !retains(false, 0, 0));
    }

    #[test]
    fn rates_and_compensation() {
        assert_eq!((rate(25 * MS, 100 * MS), rate(0, 0)), (2_500, 0));
        assert_eq!(rate(200 * MS, 100 * MS), FULL);
        assert_eq!((compensated(100, 2_500), compensated(100, 0)), (125, 100));
    }

    proptest! {
        /// No CPU-bound vCPU retains more than an I/O-bound one, and no other cut divides the
        /// weight more evenly.
        #[test]
        fn as_evenly_as_can_be(of in prop::collection::vec((0u64..1000, 0u32..=FULL), 0..12)) {
            let mut all: Vec<Ranked> = of.iter().enumerate().map(vcpu).collect();
            let cut = split(&mut all);
            let least = all[..cut].iter().map(|it| it.rate).min().unwrap_or(FULL);
            prop_assert!(all[cut..].iter().all(|it| it.rate <= least));
            let weight = |part: &[Ranked]| part.iter().map(|it| it.weight).sum::<u64>();
            let difference = |cut: usize| weight(&all[..cut]).abs_diff(weight(&all[cut..]));
            prop_assert!((0..=all.len()).all(|other| difference(cut) <= difference(other)));
        }
    }
}
