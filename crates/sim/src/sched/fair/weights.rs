// SPDX-License-Identifier: GPL-2.0-only
//! Weights: of tasks among themselves, and of VMs that have one (`cpu.weight`).
//!
//! A task of weight 100 is one of nice 0: 2^20 in the kernel's fixed-point unit. Where a VM has a
//! weight, Linux schedules a group entity per pCPU whose share of the group's weight follows the
//! group's load there. Flattened, that gives each vCPU its part of the VM's weight; as in Linux a
//! vCPU learns of its new part when it is queued and at the ticks it is on a pCPU. Unlike Linux, the
//! hierarchy costs no extra slice level.
//!
//! Where members of a group share a pCPU, that is not quite the kernel's sum: its one entity there weighs no more when two
//! are queued at once that seldom are (`calc_group_shares()`). Here each counts by itself; docs/limits.md says how much
//! that is, and that a member whose quota is used up goes on counting in the groups around.
//!
//! cgroups around those of VMs divide their weights likewise, level by level: what a member counts is its
//! part of its group's weight, times that group's part of the weight of the one around it. A group is a member
//! of the one around it while any of its own wants to run. An idle group (`cpu.idle`) weighs 3, and is
//! preempted by all that is not idle ([`ranks`](super::ranks)). Helpers of a VM, such as iothreads, count one by
//! one, as in the root; in its quota they are.
//!
//! What the siblings count for differs. 2.6.33 (`tg_shares_up()`) goes by those that want to run at the moment. Later
//! kernels (`calc_group_shares()`) go by load averages, so that a sibling that sleeps for a moment keeps its part: a
//! vCPU that wakes while its siblings wait for it counts little more than when all of them run. What it counts scales
//! the granularity of wake-up preemption (`wakeup_gran()`), but not the credit of sleepers (`place_entity()`): vCPUs of
//! VMs of many vCPUs hardly ever preempt those of others when they wake. Not so in 2.6.33: there the granularity goes
//! by how long a task runs until it wakes another (`adaptive_gran()`), of which a group entity has no account, so that
//! its own is 0 and it preempts any task that is ahead of it.

use super::decay::{Average, Decay, FULL};
use crate::load::{Cgroup, Cgroups};
use corun_model::Nanos;

/// The weight of a task of nice 0 (`NICE_0_LOAD` on 64 bits).
pub(crate) const NICE_0: u64 = 1 << 20;

/// The least weight of a group (`scale_load(MIN_SHARES)`), and of its part on a pCPU. In later kernels than
/// 2.6.33 a part may be less (`calc_group_shares()`), but virtual time goes by `scale_load_down()`, which
/// makes at least 2 of it, which is as much (26cf52229efc, 5.7; before it was half as much).
pub(crate) const LEAST: u64 = 2 << 10;

/// What an idle group weighs (`scale_load(WEIGHT_IDLEPRIO)`).
const IDLE: u64 = 3 << 10;

/// What a cgroup weighs, in the kernel's unit.
pub(crate) fn weight_of(group: &Cgroup) -> u64 {
    match group.idle {
        true => IDLE,
        false => scaled(group.weight),
    }
}

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

/// A cgroup as a scheduling group: a VM's own, or one around such.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// Its weight; `None`: its vCPUs count one by one.
    pub(crate) weight: Option<u64>,
    /// The sum of the own weights of its vCPUs that are ready or running, and of the groups within of which any is.
    pub(crate) active: u64,
    /// The average of that over time (`tg->load_avg`); `None`: shares go by the moment.
    pub(crate) load: Option<Average>,
    /// The group around it.
    pub(crate) within: Option<usize>,
    /// Share of time that any of its own was active, of [`FULL`]: looked at only if there is one around it.
    queued: Average,
}

impl Group {
    /// A group with nobody in it, whose shares go by averages or by the moment.
    pub(crate) fn new(weight: Option<u64>, averages: bool) -> Self {
        Self {
            weight,
            active: 0,
            load: (averages && weight.is_some()).then(Average::default),
            within: None,
            queued: Average::default(),
        }
    }

    /// Has it a weight?
    pub(crate) fn is_group(&self) -> bool {
        self.weight.is_some()
    }

    /// A vCPU, or group within, of weight `own` shows up for the first time: it counts as if it had always run.
    /// True if it is the first of all.
    fn begin(&mut self, own: u64) -> bool {
        if let Some(load) = &mut self.load {
            load.value += own;
        }
        std::mem::replace(&mut self.queued.value, FULL) == 0
    }

    /// Brings the average up to date. Call before `active` changes and before it is read.
    pub(crate) fn age(&mut self, now: Nanos, decay: &Decay) {
        if let Some(load) = &mut self.load {
            load.advance(self.active, now, decay);
        }
        if self.within.is_some() {
            let queued = if self.active > 0 { FULL } else { 0 };
            self.queued.advance(queued, now, decay);
        }
    }

    /// A member of weight `own` becomes active, or stops being so. True if it is the first, or was the last.
    fn count(&mut self, own: u64, joins: bool) -> bool {
        let before = self.active;
        self.active = match joins {
            true => before + own,
            false => before.saturating_sub(own),
        };
        (before == 0) != (self.active == 0)
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

/// All groups of a host: those of VMs, in their order, and those around them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: Vec<Group>,
    averages: bool,
}

impl Groups {
    /// VMs of these weights, whose shares go by averages or by the moment.
    pub(crate) fn of(weights: impl Iterator<Item = Option<u64>>, averages: bool) -> Self {
        let all = weights.map(|weight| Group::new(weight, averages));
        Self {
            all: all.collect(),
            averages,
        }
    }

    /// VMs whose cgroups are among these have those ones' weights, within those around them.
    pub(crate) fn know_cgroups(&mut self, cgroups: &Cgroups) {
        let vms = self.all.len();
        let group = |of: &Cgroup| Group {
            within: of.within.map(|at| vms + at),
            ..Group::new(Some(weight_of(of)), self.averages)
        };
        for (vm, own) in self.all.iter_mut().enumerate() {
            if let Some(of) = cgroups.of_vm(vm) {
                *own = group(of);
            }
        }
        self.all.extend(cgroups.all.iter().map(group));
    }

    pub(crate) fn get(&self, vm: usize) -> Option<&Group> {
        self.all.get(vm)
    }

    pub(crate) fn get_mut(&mut self, vm: usize) -> Option<&mut Group> {
        self.all.get_mut(vm)
    }

    /// A vCPU of weight `own` shows up for the first time in its VM.
    pub(crate) fn begin(&mut self, vm: Option<usize>, own: u64) {
        let (mut at, mut own) = (vm, own);
        while let Some(group) = at.and_then(|at| self.all.get_mut(at)) {
            if !group.begin(own) {
                break;
            }
            (at, own) = (group.within, group.weight.unwrap_or(0));
        }
    }

    /// A vCPU of weight `own` becomes active in its VM, or stops being so.
    pub(crate) fn count(
        &mut self,
        vm: Option<usize>,
        own: u64,
        joins: bool,
        now: Nanos,
        decay: &Decay,
    ) {
        let (mut at, mut own) = (vm, own);
        while let Some(group) = at.and_then(|at| self.all.get_mut(at)) {
            group.age(now, decay);
            if !group.count(own, joins) {
                break;
            }
            (at, own) = (group.within, group.weight.unwrap_or(0));
        }
    }

    /// What a vCPU of weight `own` counts on the host, being active in its VM, if it was on a runqueue for
    /// `queued` of [`FULL`] of the time.
    pub(crate) fn part(
        &mut self,
        vm: usize,
        own: u64,
        queued: u64,
        now: Nanos,
        decay: &Decay,
    ) -> Option<u64> {
        let group = self.all.get_mut(vm)?;
        group.age(now, decay);
        let mut part = group.part(own, queued);
        let mut inner = *group;
        while let Some(group) = inner.within.and_then(|at| self.all.get_mut(at)) {
            let weight = inner.weight.unwrap_or(LEAST);
            group.age(now, decay);
            let outer = group.part(weight, inner.queued.value);
            part = (u128::from(part) * u128::from(outer) / u128::from(weight)) as u64;
            inner = *group;
        }
        Some(part.max(LEAST))
    }

    /// VM number `vm` weighs so much from now on, if it has a weight. True if that is another one than before.
    pub(crate) fn set_weight(&mut self, vm: usize, weight: u64) -> bool {
        let Some(group) = self.all.get_mut(vm) else {
            return false;
        };
        let Some(own) = group.weight.as_mut() else {
            return false;
        };
        let old = std::mem::replace(own, weight);
        let around = group.within.filter(|_| group.active > 0);
        if let Some(outer) = around.and_then(|at| self.all.get_mut(at)) {
            outer.active = (outer.active + weight).saturating_sub(old);
        }
        old != weight
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
            ..Group::default()
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
                ..Group::default()
            };
            group.age(slept, &decay);
            own as f64 / group.part(own, FULL) as f64
        };
        let soon = after(500_000);
        assert!(15.8 < soon && soon < 16.0, "1 / {soon}");
        assert!((after(1_000_000_000) - 1.0).abs() < 1e-3);
    }

    /// Groups 2 and 3 are around VM 0 and both VMs: VM 0 is in an inner slice of weight 300 of one that weighs 200,
    /// VM 1 in the outer one.
    fn nested(averages: bool) -> Groups {
        let group = |weight, within| Cgroup {
            weight,
            idle: false,
            quota: None,
            within,
        };
        let cgroups = Cgroups {
            all: vec![
                group(200, None),
                group(300, Some(0)),
                group(100, Some(1)),
                group(100, Some(0)),
            ],
            of_vms: vec![Some(2), Some(3)],
        };
        let mut groups = Groups::of([None; 2].into_iter(), averages);
        groups.know_cgroups(&cgroups);
        groups
    }

    /// Two vCPUs of VM 0 have the inner slice to themselves, which has 3/4 of the outer one's 200: 75 each. VM 1's
    /// one has the other 50. Without that one VM 0 has all 200.
    #[test]
    fn each_level_has_its_part_of_the_one_around() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(false);
        for (vm, joins) in [(0, true), (0, true), (1, true)] {
            groups.count(Some(vm), own, joins, 0, &decay);
        }
        let active: Vec<u64> = groups.all.iter().map(|group| group.active / own).collect();
        assert_eq!(active, [2, 1, 4, 1, 0, 0]);
        let mut part = |vm| groups.part(vm, own, FULL, 0, &decay).unwrap() * 100 / own;
        assert_eq!([part(0), part(1)], [75, 50]);
        groups.count(Some(1), own, false, 0, &decay);
        assert_eq!(groups.part(0, own, FULL, 0, &decay), Some(own));
        groups.count(Some(0), own, false, 0, &decay);
        groups.count(Some(0), own, false, 0, &decay);
        assert!(groups.all.iter().all(|group| group.active == 0));
    }

    /// By averages it comes to the same for those that have always run, and one that slept for a second has left.
    #[test]
    fn nested_shares_by_averages() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(true);
        for vm in [0, 0, 1] {
            groups.begin(Some(vm), own);
            groups.count(Some(vm), own, true, 0, &decay);
        }
        let mut part = |vm, now| groups.part(vm, own, FULL, now, &decay).unwrap() * 100 / own;
        assert_eq!([part(0, 0), part(1, 0)], [75, 50]);
        assert_eq!([part(0, SEC), part(1, SEC)], [75, 50]);
        groups.count(Some(1), own, false, SEC, &decay);
        let soon = groups.part(0, own, FULL, SEC + MS, &decay).unwrap();
        let later = groups.part(0, own, FULL, 2 * SEC, &decay).unwrap();
        assert!(
            soon * 100 / own < 77 && later * 100 / own >= 99,
            "{soon} {later}"
        );
    }

    #[test]
    fn an_idle_group_weighs_3() {
        let group = |idle| Cgroup {
            weight: 100,
            idle,
            quota: None,
            within: None,
        };
        assert_eq!(weight_of(&group(true)), 3 * scaled(100) / 1024);
        assert_eq!(weight_of(&group(false)), scaled(100));
    }

    /// Loans of a policy change what a VM counts among those around it.
    #[test]
    fn a_new_weight_counts_in_the_slice() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(false);
        groups.count(Some(0), own, true, 0, &decay);
        groups.count(Some(1), own, true, 0, &decay);
        assert!(groups.set_weight(1, 3 * own));
        assert!(!groups.set_weight(1, 3 * own));
        let mut part = |vm| groups.part(vm, own, FULL, 0, &decay).unwrap() * 100 / own;
        assert_eq!([part(0), part(1)], [100, 100]);
    }
}
