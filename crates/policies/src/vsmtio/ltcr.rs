// SPDX-License-Identifier: GPL-2.0-only
//! LTCR, long term context retention: how long may a context stay (vSMT-IO, dissertation §3.4.2,
//! Algorithm 1)?
//!
//! A halted vCPU that keeps its hardware thread runs again as soon as its I/O is done, and leaves the core to the SMT
//! sibling meanwhile; but a hardware thread that is kept for too long is wasted. So each core has a timeout, and every
//! few periods tries whether 10 % more, or less, serves both kinds: the CPU-bound vCPUs (instructions per run time) and
//! the I/O-bound ones (retentions per second).
//!
//! Our reading of what the paper leaves open: The base of a comparison is the last sample at the
//! present timeout. Retentions count however they end: a vCPU that waits retains once, and halts when its time is up,
//! so that there are as many retentions as completed waits. If only retentions that ended with the awaited event
//! counted, a longer timeout would always seem to gain, and would rise while less and less is done. A gain within the
//! noise does not count ([`Bounds::margin`]). A core without a vCPU of either kind that can be compared stays as it is.
//! Where neither direction helps, several times in a row, it is tried less often.

use corun_model::{Nanos, TaskId};
use std::collections::BTreeMap;

/// A speed-up of 1.
pub const ONE: u64 = 1_000;
/// After this many failed pairs of tests, pauses begin (our reading).
pub(super) const FAILS: u32 = 3;
/// The longest pause, periods: 1.6 s of 100 ms (our reading).
pub(super) const LONGEST_PAUSE: u32 = 16;

/// The range in which a timeout moves, and what counts as a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least timeout, ns.
    pub least: Nanos,
    /// The longest, ns.
    pub most: Nanos,
    /// By how much a step changes it, percent.
    pub step: u32,
    /// Gains up to this are noise, percent.
    pub margin: u32,
}

/// What the vCPUs of a core achieved in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Performance {
    /// CPU-bound vCPUs: instructions per ms of run time.
    pub cpu: BTreeMap<TaskId, u64>,
    /// I/O-bound vCPUs: retentions, whichever way they ended, per 1000 s.
    pub io: BTreeMap<TaskId, u64>,
}

/// The mean of the speed-ups of vCPUs that are in both, where [`ONE`] is 1; `None` if there are none.
pub fn speed_up(base: &BTreeMap<TaskId, u64>, new: &BTreeMap<TaskId, u64>) -> Option<u64> {
    let mut sum = 0u128;
    let mut count = 0u128;
    for (task, &before) in base.iter().filter(|(_, before)| **before > 0) {
        if let Some(&after) = new.get(task) {
            sum += u128::from(after) * u128::from(ONE) / u128::from(before);
            count += 1;
        }
    }
    let mean = sum.checked_div(count)?;
    Some(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// Where Algorithm 1 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Line 4: a sample at the present timeout …
    BaseUp,
    /// … line 5: and one at 10 % more.
    TestUp,
    /// Line 8: again at the present one …
    BaseDown,
    /// … line 10: and at 10 % less.
    TestDown,
}

/// The timeout of a core.
#[derive(Clone, Debug)]
pub struct Ltcr {
    desired: Nanos,
    effective: Nanos,
    phase: Phase,
    base: Performance,
    failed: u32,
    /// Periods between two pairs of tests, and how many of them are left.
    pause: u32,
    left: u32,
}

impl Ltcr {
    /// Begins with `initial`, ns.
    pub fn new(initial: Nanos) -> Self {
        Self {
            desired: initial,
            effective: initial,
            phase: Phase::BaseUp,
            base: Performance::default(),
            failed: 0,
            pause: 0,
            left: 0,
        }
    }

    /// T_e: the timeout in force, ns.
    pub fn effective(&self) -> Nanos {
        self.effective
    }

    /// T_d: the timeout that has proved best so far, ns.
    pub fn desired(&self) -> Nanos {
        self.desired
    }

    /// A period is over, in which the vCPUs of the core achieved `seen` under [`Ltcr::effective`].
    pub fn step(&mut self, seen: Performance, bounds: &Bounds) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        match self.phase {
            Phase::BaseUp => self.test(seen, self.up(bounds), Phase::TestUp, Phase::BaseDown),
            Phase::BaseDown => {
                self.test(seen, self.down(bounds), Phase::TestDown, Phase::BaseUp);
                // There is no shorter timeout, and longer ones do not help: that completes the pair of tests.
                if self.phase == Phase::BaseUp {
                    self.both_failed();
                }
            }
            Phase::TestUp => match self.better(&seen, bounds) {
                Some(true) => self.accept(),
                Some(false) => self.go_back(Phase::BaseDown),
                None => self.go_back(Phase::BaseUp),
            },
            Phase::TestDown => match self.better(&seen, bounds) {
                Some(true) => self.accept(),
                Some(false) => {
                    self.go_back(Phase::BaseUp);
                    self.both_failed();
                }
                None => self.go_back(Phase::BaseUp),
            },
        }
    }

    fn up(&self, bounds: &Bounds) -> Nanos {
        let longer = self.desired * Nanos::from(100 + bounds.step) / 100;
        longer.min(bounds.most)
    }

    fn down(&self, bounds: &Bounds) -> Nanos {
        let shorter = self.desired * Nanos::from(100 - bounds.step.min(100)) / 100;
        shorter.max(bounds.least)
    }

    /// A base has been sampled: `timeout` is in force for a period, if it differs from the present one.
    fn test(&mut self, seen: Performance, timeout: Nanos, test: Phase, without: Phase) {
        if seen.cpu.is_empty() || seen.io.is_empty() {
            return;
        }
        self.base = seen;
        let other = timeout != self.desired;
        self.effective = timeout;
        self.phase = if other { test } else { without };
    }

    /// Did both kinds gain? `None`: unknown.
    fn better(&self, seen: &Performance, bounds: &Bounds) -> Option<bool> {
        let cpu = speed_up(&self.base.cpu, &seen.cpu)?;
        let io = speed_up(&self.base.io, &seen.io)?;
        let bar = ONE + ONE * u64::from(bounds.margin) / 100;
        Some(cpu > bar && io > bar)
    }

    fn accept(&mut self) {
        self.desired = self.effective;
        self.phase = Phase::BaseUp;
        self.failed = 0;
        self.pause = 0;
    }

    fn go_back(&mut self, phase: Phase) {
        self.effective = self.desired;
        self.phase = phase;
    }

    fn both_failed(&mut self) {
        self.failed += 1;
        if self.failed >= FAILS {
            self.pause = (self.pause * 2).clamp(1, LONGEST_PAUSE);
            self.left = self.pause;
        }
    }
}

/// By how much a retention of `length` is better than descheduling and rescheduling the vCPU, which takes `switches`:
/// for the I/O, pCPU time saved; for the computation on the SMT sibling, work done in the longer of the two times,
/// where `beside_switches` is the percentage of its speed that it has beside switches (dissertation §3.4.2 with Table
/// 3.2). ns; negative: worse.
pub fn reward(length: Nanos, switches: Nanos, beside_switches: u32) -> [i64; 2] {
    let signed = |time: Nanos| i64::try_from(time).unwrap_or(i64::MAX);
    let lost = switches * u64::from(100 - beside_switches.min(100)) / 100;
    // Time kept beyond that of the switches is lost to a task that could have used the hardware thread.
    let unused = length.saturating_sub(switches);
    [
        signed(switches) - signed(length),
        signed(lost) - signed(unused),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds {
        least: 50 * US,
        most: 5 * MS,
        step: 10,
        margin: 1,
    };

    fn seen(cpu: u64, io: u64) -> Performance {
        Performance {
            cpu: BTreeMap::from([(TaskId(0), cpu)]),
            io: BTreeMap::from([(TaskId(1), io)]),
        }
    }

    #[test]
    fn both_must_gain_and_an_accepted_rise_takes_two_periods() {
        let mut ltcr = Ltcr::new(MS);
        ltcr.step(seen(100, 100), &BOUNDS);
        assert_eq!((ltcr.effective(), ltcr.desired()), (1_100 * US, MS));
        ltcr.step(seen(110, 110), &BOUNDS);
        assert_eq!((ltcr.effective(), ltcr.desired()), (1_100 * US, 1_100 * US));
        ltcr.step(seen(110, 110), &BOUNDS);
        // One of them gains, the other does not.
        ltcr.step(seen(140, 110), &BOUNDS);
        assert_eq!(ltcr.effective(), 1_100 * US);
        ltcr.step(seen(100, 100), &BOUNDS);
        assert_eq!(ltcr.effective(), 990 * US);
        ltcr.step(seen(103, 103), &BOUNDS);
        assert_eq!(ltcr.desired(), 990 * US);
    }

    #[test]
    fn a_gain_within_the_margin_is_none() {
        let mut ltcr = Ltcr::new(MS);
        for (cpu, io) in [(1000, 1000), (1010, 1010), (1000, 1000), (1010, 1500)] {
            ltcr.step(seen(cpu, io), &BOUNDS);
        }
        assert_eq!((ltcr.desired(), ltcr.effective()), (MS, MS));
    }

    #[test]
    fn without_one_of_the_kinds_nothing_is_tried() {
        let mut ltcr = Ltcr::new(MS);
        let one_kind = Performance {
            io: BTreeMap::new(),
            ..seen(100, 0)
        };
        for _ in 0..10 {
            ltcr.step(one_kind.clone(), &BOUNDS);
            assert_eq!(ltcr.effective(), MS);
        }
        // Nor is it judged if they have gone in the middle of a test.
        ltcr.step(seen(100, 100), &BOUNDS);
        assert_ne!(ltcr.effective(), MS);
        ltcr.step(one_kind, &BOUNDS);
        assert_eq!((ltcr.desired(), ltcr.effective()), (MS, MS));
    }

    #[test]
    fn what_fails_again_and_again_is_tried_less_often() {
        let mut ltcr = Ltcr::new(MS);
        let mut tried = Vec::new();
        for period in 0..200u32 {
            let before = ltcr.effective();
            ltcr.step(seen(100, 100), &BOUNDS);
            if before == MS && ltcr.effective() > MS {
                tried.push(period);
            }
        }
        let gaps: Vec<u32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..7], [4, 4, 5, 6, 8, 12, 20]);
        assert_eq!(gaps[7..], vec![20; gaps.len() - 7]);
    }

    /// At a bound there is one direction only: if that does not help, the pair of tests has failed.
    #[test]
    fn at_a_bound_it_tries_less_often_too() {
        for (bound, rests) in [(BOUNDS.least, 3), (BOUNDS.most, 3)] {
            let mut ltcr = Ltcr::new(bound);
            let mut tried = Vec::new();
            for period in 0..200u32 {
                let before = ltcr.effective();
                ltcr.step(seen(100, 100), &BOUNDS);
                if before == bound && ltcr.effective() != bound {
                    tried.push(period);
                }
            }
            let gaps: Vec<u32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let pauses = [0, 0, 1, 2, 4, 8, 16, 16].map(|pause| rests + pause);
            assert_eq!(gaps[..8], pauses, "{bound}");
        }
    }

    #[test]
    fn no_longer_than_the_switches_it_is_always_rewarding() {
        let all = |length| reward(length, 5 * US, 32).map(|gain| gain >= 0);
        assert_eq!((all(US), all(5 * US)), ([true; 2], [true; 2]));
        assert_eq!(all(5 * US + 1), [false, true]);
        assert_eq!(all(9 * US), [false; 2]);
    }

    proptest! {
        /// Whatever is seen, timeouts stay within their bounds, and the one in force is the desired one
        /// or one step from it.
        #[test]
        fn within_bounds(periods in prop::collection::vec((0u64..4, 0u64..4), 1..300)) {
            let mut ltcr = Ltcr::new(3 * MS);
            for (cpu, io) in periods {
                ltcr.step(seen(cpu, io), &BOUNDS);
                let range = BOUNDS.least..=BOUNDS.most;
                prop_assert!(range.contains(&ltcr.desired()) && range.contains(&ltcr.effective()));
                let near = [ltcr.desired(), ltcr.up(&BOUNDS), ltcr.down(&BOUNDS)];
                prop_assert!(near.contains(&ltcr.effective()));
            }
        }
    }
}
