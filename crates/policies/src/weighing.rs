// SPDX-License-Identifier: GPL-2.0-only
//! What VMs weigh against each other, with the cgroups that enclose them taken into account.
//!
//! A cgroup divides what it has among its members by their weights, level by level. So two VMs of weight 100 are not
//! alike if one is in a slice of weight 10, and a policy that divides a host among VMs has to know. A VM weighs what
//! the outermost cgroup around it does, times its part of that at each level further in.
//!
//! As in the dispatcher (dispatcher/group.h), members that want to run have a part. Here these are the VMs that wanted
//! to run within the last second: policies move vCPUs by weights, and should not do so each time that a VM pauses. Left
//! out: members that are not VMs, which policies do not see, and that a VM may be unable to use its part.

use corun_model::time::SEC;
use corun_model::{Nanos, Parameter, Quota, Snapshot, Value, VmId, VmSeen};
use std::collections::{BTreeMap, BTreeSet};

/// Each unit of a cgroup's weight is this many parts.
pub const PARTS: u64 = 1000;

/// What a cgroup with `cpu.idle` weighs in such parts: `WEIGHT_IDLEPRIO`, 3 where `cpu.weight` of 100 is 1024.
pub const IDLE: u64 = 3 * 100 * PARTS / 1024;

/// For how long a VM counts after it wanted to run last (chosen).
const PAUSE: Nanos = SEC;

/// A VM does not count as wanting to run if each of its vCPUs wants to for less than one in this many parts of a period
/// (chosen: a guest's kernel does something now and then, even if nobody uses it).
const LITTLE: u64 = 32;

/// Which VMs count when a host is divided, for all policies that divide it.
pub(crate) fn constants() -> Vec<Parameter> {
    vec![
        Parameter::fixed(
            "corun_policies::weighing::PAUSE",
            "a VM keeps its part of a host for this long after it last wanted to run",
            Value::Time(PAUSE),
            "assumed: policies move vCPUs by weights, and should not each time that a VM pauses",
        ),
        Parameter::fixed(
            "corun_policies::weighing::LITTLE",
            "a VM whose vCPUs each want to run for less than one part in so many of a period does not",
            Value::Number(LITTLE as f64, "as divisor"),
            "assumed: a guest's kernel does something now and then, even if nobody uses it",
        ),
    ]
}

/// A cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its id, which no other cgroup has.
    pub id: u64,
    /// What it weighs in its own, in [`PARTS`]; above 0.
    pub weight: u64,
    /// pCPU time that it may have in a second, ns; above 0. `None`: as much as there is.
    pub quota: Option<Nanos>,
}

impl Cgroup {
    /// How much in a second is this pCPU `time` in each `period`? Both are above 0.
    pub fn per_second(time: Nanos, period: Nanos) -> Nanos {
        let time = u128::from(time) * u128::from(SEC) / u128::from(period.max(1));
        u64::try_from(time).unwrap_or(u64::MAX).max(1)
    }
}

/// Where a VM is in the tree of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The cgroups around it except for the root, the outermost first.
    pub around: Vec<Cgroup>,
    /// Has the VM the innermost of these to itself? If not, its vCPUs are members of that one, beside others.
    pub own: bool,
}

impl Place {
    /// The quotas that hold there.
    fn quotas(&self) -> impl Iterator<Item = Quota> {
        let quota = |cgroup: &Cgroup| {
            let (of, time) = (cgroup.id, cgroup.quota?);
            Some(Quota { of, time })
        };
        self.around.iter().filter_map(quota)
    }
}

/// Notes for each VM which quotas hold for it, by its place.
pub fn limit<'a>(seen: &mut Snapshot, place: &dyn Fn(VmId) -> Option<&'a Place>) {
    for vm in seen.vms.iter_mut().chain(&mut seen.others) {
        vm.quotas.clear();
        vm.quotas
            .extend(place(vm.vm).into_iter().flat_map(Place::quotas));
    }
}

/// Works out weights, period by period.
#[derive(Debug, Default)]
pub struct Weighing {
    /// All VMs, in the order in which they were seen last: mostly the same ones in each period, so that nothing is built
    /// anew for them.
    members: Vec<Member>,
}

/// What is known of a VM.
#[derive(Debug)]
struct Member {
    vm: VmId,
    /// When it wanted to run last.
    wanted: Nanos,
    /// What divides the host's time on the way down to it, the outermost first; empty: nothing that is known.
    path: Vec<Cgroup>,
}

/// Which members share what within cgroups.
#[derive(Default)]
struct Shares {
    /// Members that want to run.
    wanting: BTreeSet<u64>,
    /// What these weigh together within each cgroup.
    sums: BTreeMap<u64, u64>,
}

impl Weighing {
    /// Notes for each VM what it weighs and which quotas hold for it, by its place.
    pub fn weigh<'a>(&mut self, seen: &mut Snapshot, place: &dyn Fn(VmId) -> Option<&'a Place>) {
        self.update_members(seen);
        limit(seen, place);
        let mut shares = Shares::default();
        for (member, vm) in self.members.iter_mut().zip(seen.all()) {
            if wants(vm) {
                member.wanted = seen.now;
            }
            member.set_path(vm, place(vm.vm));
            if seen.now.saturating_sub(member.wanted) < PAUSE {
                shares.add(&member.path);
            }
        }
        let all = seen.vms.iter_mut().chain(&mut seen.others);
        for (vm, member) in all.zip(&self.members) {
            vm.effective = shares.weight(&member.path);
        }
    }

    /// VMs come and go. A new VM counts as wanting to run at first.
    fn update_members(&mut self, seen: &Snapshot) {
        let here = || seen.all().map(|vm| vm.vm);
        if self.members.iter().map(|member| member.vm).eq(here()) {
            return;
        }
        let before = std::mem::take(&mut self.members).into_iter();
        let mut before: BTreeMap<VmId, Member> = before.map(|it| (it.vm, it)).collect();
        let new = |vm| Member {
            vm,
            wanted: seen.now,
            path: Vec::new(),
        };
        self.members = here()
            .map(|vm| before.remove(&vm).unwrap_or_else(|| new(vm)))
            .collect();
    }
}

impl Member {
    /// Where the VM has no cgroup to itself, its vCPUs together are a member of the innermost one.
    fn set_path(&mut self, vm: &VmSeen, place: Option<&Place>) {
        self.path.clear();
        let Some(place) = place else {
            return;
        };
        self.path.extend_from_slice(&place.around);
        if !place.own && !self.path.is_empty() {
            let weights = vm.vcpus.iter().map(|vcpu| u64::from(vcpu.weight));
            self.path.push(Cgroup {
                id: u64::MAX - u64::from(vm.vm.0),
                weight: (weights.sum::<u64>() * PARTS).max(1),
                quota: None,
            });
        }
    }
}

impl Shares {
    /// A VM with this path wants to run.
    fn add(&mut self, path: &[Cgroup]) {
        self.wanting
            .extend(path.first().map(|outermost| outermost.id));
        for pair in path.windows(2) {
            if self.wanting.insert(pair[1].id) {
                *self.sums.entry(pair[0].id).or_default() += pair[1].weight;
            }
        }
    }

    /// What a VM with this path weighs.
    fn weight(&self, path: &[Cgroup]) -> Option<u64> {
        let mut weight = path.first()?.weight;
        for pair in path.windows(2) {
            let (around, member) = (pair[0], pair[1]);
            let others = self.sums.get(&around.id).copied().unwrap_or(0);
            // A VM that sleeps is weighed as if it did not.
            let own = u64::from(!self.wanting.contains(&member.id)) * member.weight;
            weight = weight * member.weight / (others + own).max(1);
        }
        Some(weight.max(1))
    }
}

/// Did it want to run in the period?
fn wants(vm: &VmSeen) -> bool {
    vm.vcpus.iter().any(|vcpu| {
        let wanted = vcpu.run + vcpu.ready;
        wanted * LITTLE > wanted + vcpu.wait
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;
    use corun_model::time::MS;

    fn cgroup(id: u64, weight: u64) -> Cgroup {
        Cgroup {
            id,
            weight: weight * PARTS,
            quota: None,
        }
    }

    fn in_own(around: &[Cgroup]) -> Place {
        Place {
            around: around.to_vec(),
            own: true,
        }
    }

    /// What VMs in these places weigh if those that are not in `sleeps` want to run: `pause` after a time in which all
    /// did.
    fn weighed(places: &[Place], sleeps: &[usize], pause: Nanos) -> Vec<Option<u64>> {
        let mut weighing = Weighing::default();
        let mut weighs = |now: Nanos, sleeps: &[usize]| -> Vec<Option<u64>> {
            let mut seen = snapshot(4, &vec![2; places.len()]);
            seen.now = now;
            for (at, vm) in seen.vms.iter_mut().enumerate() {
                let run = if sleeps.contains(&at) { MS } else { 60 * MS };
                for vcpu in &mut vm.vcpus {
                    (vcpu.run, vcpu.wait) = (run, 100 * MS - run);
                }
            }
            weighing.weigh(&mut seen, &|vm| places.get(vm.index()));
            seen.vms.iter().map(|vm| vm.effective).collect()
        };
        weighs(SEC, &[]);
        weighs(SEC + pause, sleeps)
    }

    #[test]
    fn a_slice_divides_its_weight() {
        let (light, heavy) = (cgroup(1, 100), cgroup(2, 900));
        let places = [
            in_own(&[light, cgroup(3, 100)]),
            in_own(&[light, cgroup(4, 300)]),
            in_own(&[heavy, cgroup(5, 10)]),
            in_own(&[cgroup(6, 200)]),
            Place::default(),
        ];
        let all = [
            Some(25_000),
            Some(75_000),
            Some(900_000),
            Some(200_000),
            None,
        ];
        assert_eq!(weighed(&places, &[], 0), all);
        // A VM that pauses counts for a second more, then its part is the others'; it is weighed as if it were back.
        assert_eq!(weighed(&places, &[0], SEC - 1), all);
        let paused = [
            Some(25_000),
            Some(100_000),
            Some(900_000),
            Some(200_000),
            None,
        ];
        assert_eq!(weighed(&places, &[0], SEC), paused);
    }

    /// What is kept from period to period goes with the VM, wherever it is listed.
    #[test]
    fn vms_come_go_and_change_places() {
        let slice = cgroup(1, 400);
        let places = [10, 11, 12].map(|id| in_own(&[slice, cgroup(id, 100)]));
        let mut weighing = Weighing::default();
        let mut weighs = |now: Nanos, vms: &[u32], others: &[u32]| {
            let mut seen = snapshot(4, &[2; 3]);
            let all = seen.vms;
            let of = |vms: &[u32]| vms.iter().map(|&at| all[at as usize].clone()).collect();
            (seen.vms, seen.others) = (of(vms), of(others));
            seen.now = now;
            for vm in seen.vms.iter_mut().chain(&mut seen.others) {
                // All but the second one sleep.
                let run = if vm.vm.0 == 1 { 60 * MS } else { 0 };
                for vcpu in &mut vm.vcpus {
                    (vcpu.run, vcpu.wait) = (run, 100 * MS - run);
                }
            }
            weighing.weigh(&mut seen, &|vm| places.get(vm.index()));
            let weight = |vm: &VmSeen| (vm.vm.0, vm.effective.unwrap_or(0));
            seen.all().map(weight).collect::<Vec<_>>()
        };
        let (half, third) = (200_000, 400_000 / 3);
        assert_eq!(weighs(0, &[0, 1], &[]), [(0, half), (1, half)]);
        // One comes half a second later, and two are no longer the policy's.
        let later = weighs(SEC / 2, &[2], &[1, 0]);
        assert_eq!(later, [(2, third), (1, third), (0, third)]);
        // The first sleeps for a second by now, the last does not yet.
        let all = weighs(SEC, &[0, 1, 2], &[]);
        assert_eq!(all, [(0, third), (1, half), (2, half)]);
        // One that comes again is a new one.
        assert_eq!(weighs(SEC, &[1, 2], &[]), [(1, half), (2, half)]);
        let again = weighs(SEC, &[0, 1, 2], &[]);
        assert_eq!(again, [(0, third), (1, third), (2, third)]);
    }

    #[test]
    fn levels_multiply_and_idle_ones_weigh_next_to_nothing() {
        let idle = |id| Cgroup {
            weight: IDLE,
            ..cgroup(id, 1)
        };
        let outer = cgroup(1, 1000);
        let places = [
            in_own(&[outer, cgroup(2, 100), cgroup(3, 300)]),
            in_own(&[outer, cgroup(2, 100), cgroup(4, 100)]),
            in_own(&[outer, cgroup(5, 400), idle(6)]),
            in_own(&[idle(7)]),
            in_own(&[idle(8), cgroup(9, 10_000)]),
        ];
        let weights = weighed(&places, &[], 0);
        let expected = [150_000, 50_000, 800_000, IDLE, IDLE].map(Some);
        assert_eq!(weights, expected);
        assert_eq!(IDLE, 292);
    }

    #[test]
    fn quotas_are_those_of_all_cgroups_around() {
        let limited = |id, quota| Cgroup {
            quota: Some(quota),
            ..cgroup(id, 100)
        };
        let outer = limited(1, 2 * SEC);
        let shared = Place {
            around: vec![outer, cgroup(2, 100)],
            own: false,
        };
        let places = [
            in_own(&[outer, cgroup(2, 100), limited(3, SEC / 2)]),
            shared,
            in_own(&[cgroup(4, 100)]),
        ];
        let mut seen = snapshot(4, &[1; 4]);
        seen.others = seen.vms.split_off(2);
        for _ in 0..2 {
            Weighing::default().weigh(&mut seen, &|vm| places.get(vm.index()));
            let quotas = |vm: &VmSeen| -> Vec<(u64, Nanos)> {
                vm.quotas
                    .iter()
                    .map(|quota| (quota.of, quota.time))
                    .collect()
            };
            let all: Vec<_> = seen.all().map(quotas).collect();
            let outer = (1, 2 * SEC);
            assert_eq!(
                all,
                [vec![outer, (3, SEC / 2)], vec![outer], vec![], vec![]]
            );
        }
        let per_second = Cgroup::per_second;
        assert_eq!(per_second(50_000, 100_000), SEC / 2);
        assert_eq!(
            (per_second(1, 2 * SEC), per_second(u64::MAX, 1)),
            (1, u64::MAX)
        );
    }

    #[test]
    fn vcpus_in_a_cgroup_of_several_vms_are_its_members() {
        let shared = Place {
            around: vec![cgroup(1, 100)],
            own: false,
        };
        let beside = in_own(&[cgroup(1, 100), cgroup(2, 600)]);
        let weights = weighed(&[shared.clone(), shared, beside], &[], 0);
        assert_eq!(weights, [20_000, 20_000, 60_000].map(Some));
    }
}
