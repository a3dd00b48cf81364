// SPDX-License-Identifier: GPL-2.0-only
//! Weights: of tasks among themselves, and of VMs that have one (`cpu.weight`).
//!
//! A task of weight 100 is one of nice 0: 2^20 in the kernel's fixed-point unit. Where a VM has a
//! weight, Linux schedules a group entity per pCPU whose share of the group's weight follows the
//! group's load there. Flattened, that gives each vCPU its part of the VM's weight; as in Linux a
//! vCPU learns of its new part when it is queued and at the ticks it is on a pCPU. Unlike Linux, the
//! hierarchy costs no extra slice level.
//!
//! Where members of a group share a pCPU, that is not quite the kernel's sum: the group's one entity there weighs no
//! more when two members are queued at once that seldom are (`calc_group_shares()`). Here each counts by itself;
//! docs/limits.md says how much that is.
//!
//! cgroups around those of VMs divide their weights likewise, level by level: what a member counts is its
//! part of its group's weight, times that group's part of the weight of the one around it. In the order of a pCPU's
//! runqueue that ends with the innermost group that contains all tasks there: the groups around it are common to all,
//! and decide nothing ([`levels`](super::levels)). Loads are parts of everything. A group is a member of the one around
//! it while any of its own members wants to run. vCPUs that a quota keeps out (*held*) go on counting within the cgroup
//! whose quota that is, where the kernel's averages stand still; but that cgroup loses their part of its weight in the
//! one around it, where `throttle_cfs_rq()` takes its entity off the runqueue. An idle group (`cpu.idle`) weighs 3, and
//! is preempted by everything that is not idle ([`ranks`](super::ranks)). Helpers of a VM, such as iothreads, count one
//! by one, as in the root, but its quota includes them.
//!
//! How siblings count differs between kernels. 2.6.33 (`tg_shares_up()`) goes by those that want to run at the moment.
//! Later kernels (`calc_group_shares()`) go by load averages, so that a sibling that sleeps for a moment keeps its
//! part: a vCPU that wakes while its siblings wait for it counts little more than when all of them run. What it counts
//! scales the granularity of wake-up preemption (`wakeup_gran()`), but not the credit of sleepers (`place_entity()`):
//! vCPUs of VMs of many vCPUs hardly ever preempt those of others when they wake. Not so in 2.6.33: there the
//! granularity follows how long a task runs until it wakes another (`adaptive_gran()`). That is not recorded for a
//! group entity, so its own granularity is 0 and it preempts any task that is ahead of it.

use super::decay::{Average, Decay, FULL};
use crate::load::{Cgroup, Cgroups};
use corun_model::Nanos;

/// The weight of a task of nice 0 (`NICE_0_LOAD` on 64 bits).
pub(crate) const NICE_0: u64 = 1 << 20;

/// The least weight of a group (`scale_load(MIN_SHARES)`), and of its part on a pCPU. In later kernels than
/// 2.6.33 a part may be less (`calc_group_shares()`), but virtual time uses `scale_load_down()`, which raises it to at
/// least 2, the same weight (26cf52229efc, 5.7; before it was half as much).
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

/// A cgroup as a scheduling group: a VM's own, or one around VMs'.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// Its weight; `None`: its vCPUs count one by one.
    pub(crate) weight: Option<u64>,
    /// The sum of the own weights of its vCPUs that are ready or running, and of the groups within that have such
    /// vCPUs.
    pub(crate) active: u64,
    /// The average of that over time (`tg->load_avg`); `None`: shares go by the moment.
    pub(crate) load: Option<Average>,
    /// The group around it.
    pub(crate) within: Option<usize>,
    /// The share of its weight that counts around it, over time, of [`FULL`]: used only if there is a group around it.
    queued: Average,
    /// How many vCPUs are active in it or in groups within, except those that a quota within keeps out; and how many of
    /// these its own quota keeps out.
    tasks: u32,
    held: u32,
}

impl Group {
    /// A group without members, whose shares go by averages or by the moment.
    pub(crate) fn new(weight: Option<u64>, averages: bool) -> Self {
        Self {
            weight,
            active: 0,
            load: (averages && weight.is_some()).then(Average::default),
            within: None,
            queued: Average::default(),
            tasks: 0,
            held: 0,
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
            let shown = self.shown(FULL);
            self.queued.advance(shown, now, decay);
        }
    }

    /// The part of `all` that falls to the vCPUs that are active and not held.
    fn shown(&self, all: u64) -> u64 {
        match self.tasks - self.held {
            0 => 0,
            there => (u128::from(all) * u128::from(there) / u128::from(self.tasks)) as u64,
        }
    }

    /// What it counts at present in the group around it.
    fn counts(&self) -> u64 {
        self.shown(self.weight.unwrap_or(0))
    }

    /// A member that counted `member.0` counts `member.1` from now on, and there are so many vCPUs more or less.
    /// Returns what the group itself counted until now, and counts from now on.
    fn change(
        &mut self,
        member: (u64, u64),
        change: Change,
        now: Nanos,
        decay: &Decay,
    ) -> (u64, u64) {
        let mut new = *self;
        match change {
            Change::Joins => new.tasks += 1,
            Change::Leaves => new.tasks -= 1,
            Change::Held => new.held += 1,
            Change::Freed => new.held -= 1,
        }
        let own = (self.counts(), new.counts());
        if member.0 != member.1 || self.within.is_some() && own.0 != own.1 {
            self.age(now, decay);
        }
        self.active = (self.active + member.1).saturating_sub(member.0);
        (self.tasks, self.held) = (new.tasks, new.held);
        own
    }

    /// What a vCPU of weight `own`, which is among the active ones, counts. It was on a
    /// runqueue for `queued` of [`FULL`] of the time.
    pub(crate) fn part(&self, own: u64, queued: u64) -> u64 {
        self.part_of(own, own, queued)
    }

    /// What a member of weight `own` would count if all of that weight were there, while only
    /// `present` is.
    fn part_of(&self, own: u64, present: u64, queued: u64) -> u64 {
        let Some(weight) = self.weight else {
            return own;
        };
        let all = match &self.load {
            None => self.active,
            Some(load) => {
                let mine = u128::from(own) * u128::from(queued) / u128::from(FULL);
                load.value.saturating_sub(mine as u64) + present
            }
        };
        let part = u128::from(weight) * u128::from(own) / u128::from(all.max(present).max(1));
        (part as u64).max(LEAST)
    }
}

/// What happens to a vCPU in a group.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// It becomes active there, or stops being so.
    Joins,
    Leaves,
    /// The group's quota keeps it out, or does not any more.
    Held,
    Freed,
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

    /// VMs whose cgroups are among these get the cgroups' weights, within the groups around them.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
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
        let (change, member) = match joins {
            true => (Change::Joins, (0, own)),
            false => (Change::Leaves, (own, 0)),
        };
        self.change_from(vm, member, change, now, decay);
    }

    /// The quota of the group that is `level` groups out from the VM's own keeps one of the VM's active vCPUs out, or
    /// does not any more. It goes on counting in that group and those within, but not in those around.
    pub(crate) fn hold(
        &mut self,
        vm: Option<usize>,
        level: usize,
        held: bool,
        now: Nanos,
        decay: &Decay,
    ) {
        let (own, around) = match held {
            true => (Change::Held, Change::Leaves),
            false => (Change::Freed, Change::Joins),
        };
        let mut at = vm;
        for _ in 0..level {
            at = at.and_then(|at| self.all.get(at)?.within);
        }
        if let Some(group) = at.and_then(|at| self.all.get_mut(at)) {
            let member = group.change((0, 0), own, now, decay);
            let within = group.within;
            self.change_from(within, member, around, now, decay);
        }
    }

    /// A member of a group that counted `member.0` in it counts `member.1` from now on: changes the group and those
    /// around it.
    fn change_from(
        &mut self,
        mut at: Option<usize>,
        mut member: (u64, u64),
        change: Change,
        now: Nanos,
        decay: &Decay,
    ) {
        while let Some(group) = at.and_then(|at| self.all.get_mut(at)) {
            member = group.change(member, change, now, decay);
            at = group.within;
        }
    }

    /// What a vCPU of weight `own` counts in its VM, being active there, and on the host, if it was on a runqueue for
    /// `queued` of [`FULL`] of the time.
    pub(crate) fn part(
        &mut self,
        vm: usize,
        own: u64,
        queued: u64,
        now: Nanos,
        decay: &Decay,
    ) -> Option<(u64, u64)> {
        let group = self.all.get_mut(vm)?;
        group.age(now, decay);
        let part = group.part(own, queued);
        Some((part, self.raise(vm, part, None, now, decay)?))
    }

    /// What a vCPU that counts so much in its VM counts in group `top`, or on the host.
    pub(crate) fn raise(
        &mut self,
        vm: usize,
        mut part: u64,
        top: Option<usize>,
        now: Nanos,
        decay: &Decay,
    ) -> Option<u64> {
        let mut inner = *self.all.get(vm)?;
        while let Some(at) = inner.within.filter(|at| Some(*at) != top) {
            let Some(group) = self.all.get_mut(at) else {
                break;
            };
            let weight = inner.weight.unwrap_or(LEAST);
            group.age(now, decay);
            // None of it counts if the vCPU that is asked about is held, too: then as if all came back.
            let present = Some(inner.counts()).filter(|&it| it > 0);
            let outer = group.part_of(weight, present.unwrap_or(weight), inner.queued.value);
            part = (u128::from(part) * u128::from(outer) / u128::from(weight)) as u64;
            inner = *group;
        }
        Some(part.max(LEAST))
    }

    /// VM number `vm` weighs so much from now on, if it has a weight. True if that changes its weight.
    pub(crate) fn set_weight(&mut self, vm: usize, weight: u64) -> bool {
        let Some(group) = self.all.get_mut(vm) else {
            return false;
        };
        let before = group.counts();
        let Some(own) = group.weight.as_mut() else {
            return false;
        };
        let old = std::mem::replace(own, weight);
        let after = group.counts();
        if let Some(outer) = group.within.and_then(|at| self.all.get_mut(at)) {
            outer.active = (outer.active + after).saturating_sub(before);
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
            ..Cgroups::default()
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

    /// `calc_group_shares()`: the others of 16 vCPUs slept for half a millisecond, which hardly shows; after a second
    /// it is as if they had never existed.
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
            ..Cgroups::default()
        };
        let mut groups = Groups::of([None; 2].into_iter(), averages);
        groups.know_cgroups(&cgroups);
        groups
    }

    /// Two vCPUs of VM 0 have the inner slice to themselves, which has 3/4 of the outer one's 200: 75 each. VM 1's vCPU
    /// has the other 50. Without VM 1, VM 0 has all 200.
    #[test]
    fn each_level_has_its_part_of_the_one_around() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(false);
        for (vm, joins) in [(0, true), (0, true), (1, true)] {
            groups.count(Some(vm), own, joins, 0, &decay);
        }
        let active: Vec<u64> = groups.all.iter().map(|group| group.active / own).collect();
        assert_eq!(active, [2, 1, 4, 1, 0, 0]);
        let mut part = |vm| groups.part(vm, own, FULL, 0, &decay).unwrap().1 * 100 / own;
        assert_eq!([part(0), part(1)], [75, 50]);
        groups.count(Some(1), own, false, 0, &decay);
        assert_eq!(groups.part(0, own, FULL, 0, &decay), Some((own / 2, own)));
        groups.count(Some(0), own, false, 0, &decay);
        groups.count(Some(0), own, false, 0, &decay);
        assert!(groups.all.iter().all(|group| group.active == 0));
    }

    /// By averages the result is the same for vCPUs that have always run, and one that slept for a second counts as
    /// gone.
    #[test]
    fn nested_shares_by_averages() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(true);
        for vm in [0, 0, 1] {
            groups.begin(Some(vm), own);
            groups.count(Some(vm), own, true, 0, &decay);
        }
        let mut part = |vm, now| groups.part(vm, own, FULL, now, &decay).unwrap().1 * 100 / own;
        assert_eq!([part(0, 0), part(1, 0)], [75, 50]);
        assert_eq!([part(0, SEC), part(1, SEC)], [75, 50]);
        groups.count(Some(1), own, false, SEC, &decay);
        let soon = groups.part(0, own, FULL, SEC + MS, &decay).unwrap().1;
        let later = groups.part(0, own, FULL, 2 * SEC, &decay).unwrap().1;
        assert!(
            soon * 100 / own < 77 && later * 100 / own >= 99,
            "{soon} {later}"
        );
    }

    /// A quota holds VM 0, whose vCPUs are on two pCPUs: what it counts in the inner slice goes with each, what that
    /// counts in the outer one with both. Within the VM nothing changes.
    #[test]
    fn a_held_vcpu_counts_in_its_own_group_only() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(false);
        for vm in [0, 0, 1] {
            groups.count(Some(vm), own, true, 0, &decay);
        }
        let seen = |groups: &mut Groups| {
            let mut part = |vm| groups.part(vm, own, FULL, 0, &decay).unwrap().1 * 100 / own;
            let parts = [part(0), part(1)];
            let active = groups.all.iter().map(|group| group.active * 2 / own);
            (parts, active.collect::<Vec<u64>>())
        };
        let before = seen(&mut groups);
        assert_eq!(before, ([75, 50], vec![4, 2, 8, 2, 0, 0]));
        groups.hold(Some(0), 0, true, 0, &decay);
        assert_eq!(seen(&mut groups), ([150, 50], vec![4, 2, 8, 1, 0, 0]));
        groups.hold(Some(0), 0, true, 0, &decay);
        let (parts, active) = seen(&mut groups);
        assert_eq!((parts[1], active), (200, vec![4, 2, 2, 0, 0, 0]));
        for _ in 0..2 {
            groups.hold(Some(0), 0, false, 0, &decay);
        }
        assert_eq!(seen(&mut groups), before);
        // The inner slice's quota: within the slice both go on counting.
        for held in [true, true, false, false] {
            groups.hold(Some(0), 1, held, 0, &decay);
            assert_eq!(groups.all[3].active, own);
        }
        assert_eq!(seen(&mut groups), before);
    }

    /// By averages what a held VM counts in the slice wears off, and what its vCPUs count within it
    /// does not.
    #[test]
    fn the_average_of_a_held_vm_wears_off_around_it() {
        let (own, decay) = (scaled(100), Decay::new());
        let mut groups = nested(true);
        for vm in [0, 0, 1] {
            groups.begin(Some(vm), own);
            groups.count(Some(vm), own, true, 0, &decay);
        }
        for _ in 0..2 {
            groups.hold(Some(0), 0, true, 0, &decay);
        }
        let mut other = |now| groups.part(1, own, FULL, now, &decay).unwrap().1 * 100 / own;
        assert_eq!(other(0), 50);
        assert!(other(SEC) >= 199);
        groups.all[0].age(SEC, &decay);
        assert!(groups.all[0].load.unwrap().value.abs_diff(2 * own) < own / 100);
        for _ in 0..2 {
            groups.hold(Some(0), 0, false, SEC, &decay);
        }
        let mut part = |vm| groups.part(vm, own, FULL, 3 * SEC, &decay).unwrap().1 * 100 / own;
        assert!(part(0).abs_diff(75) <= 1 && part(1).abs_diff(50) <= 1);
    }

    /// A quota on a VM that is in no slice: while it holds, no vCPU counts differently, to the last bit.
    #[test]
    fn without_a_group_around_nothing_changes() {
        let (own, decay) = (scaled(100), Decay::new());
        let seen = |holds: bool| {
            let mut groups = Groups::of([Some(own), Some(3 * own)].into_iter(), true);
            for vm in [0, 0, 0, 1] {
                groups.begin(Some(vm), own);
                groups.count(Some(vm), own, true, 0, &decay);
            }
            let mut parts = Vec::new();
            for step in 1..100 {
                let now = step * 777_777;
                if holds && step % 5 > 2 {
                    groups.hold(Some(0), 0, step % 5 == 3, now, &decay);
                }
                groups.count(Some(0), own, step % 2 == 0, now, &decay);
                if step % 3 == 0 {
                    parts.push([0, 1].map(|vm| groups.part(vm, own, FULL / 2, now, &decay)));
                }
            }
            parts
        };
        assert_eq!(seen(true), seen(false));
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
        let mut part = |vm| groups.part(vm, own, FULL, 0, &decay).unwrap().1 * 100 / own;
        assert_eq!([part(0), part(1)], [100, 100]);
    }
}
