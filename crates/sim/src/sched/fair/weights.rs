// SPDX-License-Identifier: GPL-2.0-only
//! Weights: of tasks among themselves, and of VMs that have one (`cpu.weight`).
//!
//! A task of weight 100 is one of nice 0: 2^20 in the kernel's fixed-point unit. Where a VM has a
//! weight, Linux schedules a group entity per pCPU whose share of the group's weight follows the
//! group's load there. Flattened, that gives each vCPU its part of the VM's weight; as in Linux a
//! vCPU learns of its new part when it is queued and at the ticks it is on a pCPU. Unlike Linux, the
//! hierarchy costs no extra slice level.
//!
//! What the siblings count for differs. 2.6.33 (`tg_shares_up()`) goes by those that want to run at
//! the moment. Later kernels (`calc_group_shares()`) go by load averages, so that a sibling that
//! sleeps for a moment keeps its part: a vCPU that wakes while its siblings wait for it counts little
//! more than when all of them run. What it counts scales the granularity of wake-up preemption
//! (`wakeup_gran()`), but not the credit of sleepers (`place_entity()`): vCPUs of VMs of many vCPUs
//! hardly ever preempt those of others when they wake. Not so in 2.6.33: there the granularity goes by how
//! long a task runs until it wakes another (`adaptive_gran()`), of which a group entity has no account,
//! so that its own is 0 and it preempts whoever is ahead of it.

use super::decay::{Average, Decay, FULL};
use corun_model::Nanos;

/// The weight of a task of nice 0 (`NICE_0_LOAD` on 64 bits).
pub(crate) const NICE_0: u64 = 1 << 20;

/// The least weight of a group (`scale_load(MIN_SHARES)`), and of its part on a pCPU. In later kernels than
/// 2.6.33 a part may be less (`calc_group_shares()`), but virtual time goes by `scale_load_down()`, which
/// makes at least 2 of it, which is as much (26cf52229efc, 5.7; before it was half as much).
pub(crate) const LEAST: u64 = 2 << 10;

/// A task's or VM's weight in the kernel's unit.
pub(crate) fn scaled(weight: u32) -> u64 {
    (u64::from(weight) * NICE_0 / 100).max(LEAST)
}

/// How far the virtual time of a task of `weight` goes in `time`.
pub(crate) fn virtual_time(time: Nanos, weight: u64) -> i64 {
    if weight == NICE_0 {
        return time as i64;
    }
    (u128::from(time) * u128::from(NICE_0) / u128::from(weight.max(1))) as i64
}

/// The time a task of `weight` needs to go `delta` in virtual time, rounded up; 0 if it is over.
pub(crate) fn real_time(delta: i64, weight: u64) -> Nanos {
    let delta = u128::from(delta.max(0) as u64);
    (delta * u128::from(weight)).div_ceil(u128::from(NICE_0)) as Nanos
}

/// A VM as a scheduling group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// Its weight; `None`: its vCPUs count one by one.
    pub(crate) weight: Option<u64>,
    /// The sum of the own weights of its vCPUs that are ready or running.
    pub(crate) active: u64,
    /// The average of that over time (`tg->load_avg`); `None`: shares go by the moment.
    pub(crate) load: Option<Average>,
}

impl Group {
    /// A group with nobody in it, whose shares go by averages or by the moment.
    pub(crate) fn new(weight: Option<u64>, averages: bool) -> Self {
        Self {
            weight,
            active: 0,
            load: (averages && weight.is_some()).then(Average::default),
        }
    }

    /// Has it a weight?
    pub(crate) fn is_group(&self) -> bool {
        self.weight.is_some()
    }

    /// A vCPU of weight `own` shows up for the first time: it counts as if it had always run.
    pub(crate) fn begin(&mut self, own: u64) {
        if let Some(load) = &mut self.load {
            load.value += own;
        }
    }

    /// Brings the average up to date. Call before `active` changes and before it is read.
    pub(crate) fn age(&mut self, now: Nanos, decay: &Decay) {
        if let Some(load) = &mut self.load {
            load.advance(self.active, now, decay);
        }
    }

    /// What a vCPU of weight `own`, which is among the active ones, counts. It was on a
    /// runqueue for `queued` of [`FULL`] of the time.
    pub(crate) fn part(&self, own: u64, queued: u64) -> u64 {
        let Some(weight) = self.weight else {
            return own;
        };
        let all = match &self.load {
            None => self.active,
            Some(load) => {
                let mine = u128::from(own) * u128::from(queued) / u128::from(FULL);
                load.value.saturating_sub(mine as u64) + own
            }
        };
        let part = u128::from(weight) * u128::from(own) / u128::from(all.max(own).max(1));
        (part as u64).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Cgroup, Cgroups, Pattern, Patterns, Quota};
    use crate::sched::HostScheduler;
    use crate::sched::cfs::{Cfs, CfsParams, SteeredCfs};
    use crate::sched::eevdf::{Eevdf, EevdfParams};
    use crate::sched::rr::{Rr, RrParams};
    use crate::testing::{host, run_shares};
    use crate::{Outcome, Simulation};
    use corun_model::time::{MS, SEC};

    /// VM 0 of one vCPU has a weight, VM 1 of two none but a `cpu.max`, which gives it a cgroup.
    fn beside_an_implied_weight(sched: impl HostScheduler + 'static) -> Outcome {
        let hogs = [(0, 0), (1, 0), (1, 1)].map(|vcpu| Pattern::hog(Some(vcpu)));
        let quota = Quota {
            time: 200 * MS,
            period: 100 * MS,
            burst: 0,
        };
        let group = |quota| Cgroup {
            weight: 100,
            idle: false,
            quota,
            within: None,
        };
        let cgroups = Cgroups {
            all: vec![group(None), group(Some(quota))],
            of_vms: vec![Some(0), Some(1)],
        };
        let load = Patterns::new(hogs.to_vec(), &[Some(100), None], 1).in_cgroups(cgroups);
        let host = host("1n1l1c1t", 1000);
        Simulation::new(host, Box::new(sched), Box::new(load), None).run(SEC, 21 * SEC, |_| {})
    }

    #[test]
    fn a_cgroup_of_which_no_weight_is_said_has_100() {
        let host = host("1n1l1c1t", 1000);
        let cfs = CfsParams::preset("4.x", 1).unwrap();
        let eevdf = EevdfParams::preset("6.12", 1).unwrap();
        let rr = RrParams::default();
        for outcome in [
            beside_an_implied_weight(Cfs::new(cfs, &host)),
            beside_an_implied_weight(SteeredCfs::new(cfs, &host)),
            beside_an_implied_weight(Eevdf::new(eevdf, &host)),
            beside_an_implied_weight(Rr::new(rr, cfs, &host)),
        ] {
            let shares = run_shares(&outcome);
            assert!((shares[0] - 0.5).abs() < 0.02, "{shares:?}");
        }
    }

    #[test]
    fn virtual_time_by_weight() {
        assert_eq!(virtual_time(1000, scaled(100)), 1000);
        assert_eq!(virtual_time(1000, scaled(200)), 500);
        assert_eq!(real_time(500, scaled(200)), 1000);
        assert_eq!(real_time(-5, scaled(200)), 0);
    }

    #[test]
    fn a_group_shares_its_weight() {
        let own = scaled(100);
        let mut group = Group {
            weight: Some(scaled(200)),
            active: 4 * own,
            load: None,
        };
        assert_eq!(group.part(own, 0), own / 2);
        assert_eq!(Group::default().part(own, 0), own);
        // By averages: it has run for a long time, and so have the others, or two of them.
        group.load = Some(Average::starting_at(4 * own, 0));
        assert_eq!(group.part(own, FULL), own / 2);
        group.load = Some(Average::starting_at(3 * own, 0));
        assert_eq!(group.part(own, FULL), own * 2 / 3);
    }

    /// `calc_group_shares()`: the others of 16 vCPUs slept for half a millisecond, which hardly shows;
    /// after a second it is as if they had never been.
    #[test]
    fn siblings_that_sleep_count_for_a_while() {
        let own = scaled(100);
        let decay = Decay::new();
        let after = |slept: Nanos| {
            let mut group = Group {
                weight: Some(own),
                active: own,
                load: Some(Average::starting_at(16 * own, 0)),
            };
            group.age(slept, &decay);
            own as f64 / group.part(own, FULL) as f64
        };
        let soon = after(500_000);
        assert!(15.8 < soon && soon < 16.0, "1 / {soon}");
        assert!((after(1_000_000_000) - 1.0).abs() < 1e-3);
    }
}
