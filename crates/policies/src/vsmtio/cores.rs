// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU is on which core.
//!
//! The paper leaves that to the kernel's load balancing and to swaps (the workload adjuster). Here a vCPU gets a core
//! when it is first seen: the one with the least weight, of several the one with the fewest siblings. Where VMs have
//! left, cores are filled again: once a period, one vCPU goes from a core to one of the same node that has less, if
//! that one then has no more than the core that the vCPU comes from. The paper's kernel does that in its load
//! balancing; the adjuster only swaps. Where cores cannot have equal numbers, vCPUs that compute change places
//! ([`super::turns`]). vCPUs that do not want to run ([`crate::wanting`]) count as no load: they keep their cores. One
//! that begins to compute goes at once to the core of its node with the least weight, if that is less than the others
//! on its own core weigh. A vCPU weighs no more than it can use: a hardware thread's part ([`usable`]). Otherwise it
//! would have a core nearly to itself, and others would crowd on the rest. A core belongs to the core-scheduling cookie
//! of its vCPUs; if all cores belong to other cookies, a vCPU has none and goes where it may.

use super::Vcpu;
use crate::usable;
use corun_model::{
    HostSeen, PcpuId, PcpuSet, SmtOrder, Snapshot, TaskId, TaskSeen, Topology, VmSeen,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A core: its hardware threads, for CPU-bound and for I/O-bound vCPUs.
#[derive(Clone, Debug)]
struct Core {
    threads: [PcpuId; 2],
    node: usize,
    /// The cookie that it is taken for, if any.
    cookie: Option<u64>,
}

/// What cores are made from. Other facts about a host, such as who wakes whom, may become known, or change, while vCPUs
/// keep their cores.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    topology: Topology,
    llcs: Vec<PcpuSet>,
    nodes: Vec<PcpuSet>,
    smt: Option<SmtOrder>,
}

impl Parts {
    fn of(host: &HostSeen) -> Self {
        Self {
            topology: host.topology,
            llcs: host.llcs.clone(),
            nodes: host.nodes.clone(),
            smt: host.smt,
        }
    }

    /// Is that still what the host is made of?
    fn are_of(&self, host: &HostSeen) -> bool {
        let same = self.topology == host.topology && self.smt == host.smt;
        same && self.llcs == host.llcs && self.nodes == host.nodes
    }
}

/// The cores of a host with two hardware threads each.
#[derive(Clone, Debug, Default)]
pub(super) struct Cores {
    of: Option<Parts>,
    all: Vec<Core>,
}

impl Cores {
    /// Learns what the host is made of; true if that has changed.
    pub fn know(&mut self, host: &HostSeen) -> bool {
        if self.of.as_ref().is_some_and(|of| of.are_of(host)) {
            return false;
        }
        self.of = Some(Parts::of(host));
        let core = |cpu: PcpuId| {
            let partner = host.partner(cpu).filter(|partner| cpu < *partner)?;
            Some(Core {
                threads: [cpu, partner],
                node: host.node(cpu),
                cookie: None,
            })
        };
        self.all = host.topology.all().filter_map(core).collect();
        true
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Its hardware threads: the CPU-bound vCPUs', the I/O-bound ones'.
    pub fn threads(&self, core: usize) -> [PcpuId; 2] {
        self.all[core].threads
    }

    /// Its NUMA node and cookie.
    pub fn group(&self, core: usize) -> (usize, u64) {
        let core = &self.all[core];
        (core.node, core.cookie.unwrap_or(0))
    }

    /// May a vCPU of this cookie that may run there and there have its home on it?
    pub fn admits(&self, core: usize, cookie: u64, allowed: &PcpuSet) -> bool {
        let core = &self.all[core];
        let may = |cpu: &PcpuId| allowed.contains(*cpu);
        core.threads.iter().all(may) && core.cookie.is_none_or(|whose| whose == cookie)
    }
}

/// The cookies of a host's VMs, by numbers that they keep as long as they are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Cookies {
    known: BTreeMap<u64, u32>,
    last: u32,
}

impl Cookies {
    /// These are there now.
    pub fn know(&mut self, all: impl Iterator<Item = u64>) {
        let before = std::mem::take(&mut self.known);
        for cookie in all {
            let last = &mut self.last;
            let new = || {
                // 31 bits, without 0: more than a daemon ever sees.
                *last = *last % (u32::MAX >> 1) + 1;
                *last
            };
            let number = || before.get(&cookie).copied().unwrap_or_else(new);
            self.known.entry(cookie).or_insert_with(number);
        }
    }

    /// Are there several?
    pub fn matter(&self) -> bool {
        self.known.len() > 1
    }

    /// The number of one of them.
    pub fn number(&self, cookie: u64) -> u32 {
        self.known.get(&cookie).copied().unwrap_or(0)
    }
}

/// What is on a core while vCPUs get theirs.
#[derive(Clone, Debug, Default)]
struct Load {
    weight: u64,
    of: BTreeMap<usize, u32>,
}

impl Load {
    /// A vCPU of this VM, by the VM's place, is there.
    fn take(&mut self, vm: usize, weight: u64) {
        self.weight += weight;
        *self.of.entry(vm).or_default() += 1;
    }

    /// How many vCPUs of this VM are there.
    fn siblings(&self, vm: usize) -> u32 {
        self.of.get(&vm).copied().unwrap_or(0)
    }
}

/// Forgets vCPUs that have gone, and gives cores to those that have none (or may not use it any more) or begin to
/// compute; true if another one that had a core has a new one.
pub(super) fn settle(
    cores: &mut Cores,
    vcpus: &mut BTreeMap<TaskId, Vcpu>,
    seen: &Snapshot,
) -> bool {
    let mut loads = keep(cores, vcpus, seen);
    for (vm, of, task) in all(seen) {
        let seeks = |vcpu: &&mut Vcpu| vcpu.core.is_none() || vcpu.begins;
        let Some(vcpu) = vcpus.get_mut(&task.task).filter(seeks) else {
            continue;
        };
        let home = vcpu.core;
        let near =
            |core: usize| home.is_none_or(|home| cores.all[core].node == cores.all[home].node);
        let open = (0..cores.count())
            .filter(|&core| near(core) && cores.admits(core, of.cookie, &task.allowed));
        let least = |&core: &usize| {
            let load = &loads[core];
            (load.weight, Some(core) != home, load.siblings(vm), core)
        };
        let Some(core) = open.min_by_key(least) else {
            continue;
        };
        (vcpu.core, vcpu.begins) = (Some(core), false);
        cores.all[core].cookie = Some(of.cookie);
        if vcpu.wanting.counts() {
            loads[core].take(vm, vcpu.weight);
        }
    }
    even_out(cores, vcpus, &loads, seen)
}

/// All vCPUs, each with its VM and the VM's place among all.
fn all(seen: &Snapshot) -> impl Iterator<Item = (usize, &VmSeen, &TaskSeen)> {
    let vms = seen.vms.iter().enumerate();
    vms.flat_map(|(vm, of)| of.vcpus.iter().map(move |task| (vm, of, task)))
}

/// What is on each core of the vCPUs that had one, and may keep it.
fn keep(cores: &mut Cores, vcpus: &mut BTreeMap<TaskId, Vcpu>, seen: &Snapshot) -> Vec<Load> {
    let places: BTreeMap<TaskId, usize> = (all(seen).zip(0..))
        .map(|((_, _, task), at)| (task.task, at))
        .collect();
    let mut want = vec![true; all(seen).count()];
    vcpus.retain(|task, vcpu| {
        let place = places.get(task);
        if let Some(&at) = place {
            want[at] = vcpu.wanting.counts();
        }
        place.is_some()
    });
    cores.all.iter_mut().for_each(|core| core.cookie = None);
    let mut loads = vec![Load::default(); cores.count()];
    let (weights, most) = weights(&want, seen);
    for ((vm, of, task), weight) in all(seen).zip(weights) {
        let vcpu = vcpus.entry(task.task).or_default();
        vcpu.weight = weight.min(most);
        let kept = vcpu
            .core
            .filter(|&core| cores.admits(core, of.cookie, &task.allowed));
        vcpu.core = kept;
        if let Some(core) = kept {
            cores.all[core].cookie = Some(of.cookie);
            if vcpu.wanting.counts() && !vcpu.begins {
                loads[core].take(vm, vcpu.weight);
            }
        }
    }
    loads
}

/// What each vCPU weighs, and the most that counts: only those that `want` to run have parts of the host; all, if none
/// does.
fn weights(want: &[bool], seen: &Snapshot) -> (Vec<u64>, u64) {
    let mut weights = Vec::with_capacity(want.len());
    for vm in &seen.vms {
        let of = &want[weights.len()..][..vm.vcpus.len()];
        weights.extend(usable::weights_of_wanting(vm, of));
    }
    let none = !want.contains(&true);
    let wanting = weights.iter().zip(want).filter(|(_, want)| none || **want);
    let others = seen.others.iter().flat_map(usable::weights);
    let all = wanting.map(|(weight, _)| *weight).chain(others);
    let most = usable::most(all, seen.host.topology.pcpus());
    (weights, most)
}

/// Moves one vCPU to a core that has less, if one should move; true if so.
fn even_out(
    cores: &mut Cores,
    vcpus: &mut BTreeMap<TaskId, Vcpu>,
    loads: &[Load],
    seen: &Snapshot,
) -> bool {
    let mut on: Vec<Vec<(usize, &VmSeen, &TaskSeen)>> = vec![Vec::new(); cores.count()];
    let mut homes = vec![0; cores.count()];
    for one in all(seen) {
        let Some(vcpu) = vcpus.get(&one.2.task) else {
            continue;
        };
        if let Some(core) = vcpu.core {
            homes[core] += 1;
            on[core].extend(vcpu.wanting.counts().then_some(one));
        }
    }
    let mut rising: Vec<usize> = (0..cores.count()).collect();
    rising.sort_by_key(|&core| (loads[core].weight, core));
    let weight = |task: &TaskSeen| vcpus.get(&task.task).map_or(0, |vcpu| vcpu.weight);
    let lightest: Vec<Option<u64>> = (on.iter())
        .map(|of| of.iter().map(|(_, _, task)| weight(task)).min())
        .collect();
    // Moving half of the difference makes two cores alike.
    let most = |from: usize, to: usize| loads[from].weight.saturating_sub(loads[to].weight) / 2;
    let pairs = rising.iter().rev().flat_map(|&from| {
        let less = (rising.iter().map(move |&to| (from, to)))
            .take_while(|&(from, to)| lightest[from].is_some_and(|least| least <= most(from, to)));
        less.filter(|&(from, to)| cores.all[from].node == cores.all[to].node)
    });
    let mut moves = pairs.filter_map(|(from, to)| {
        let goes = (on[from].iter()).filter(|(_, of, task)| {
            weight(task) <= most(from, to) && cores.admits(to, of.cookie, &task.allowed)
        });
        let least = |(vm, _, task): &&(usize, &VmSeen, &TaskSeen)| {
            (Reverse(weight(task)), loads[to].siblings(*vm), task.task)
        };
        let (_, of, task) = goes.min_by_key(least)?;
        Some((task.task, of.cookie, from, to))
    });
    let Some((task, cookie, from, to)) = moves.next() else {
        return false;
    };
    if let Some(vcpu) = vcpus.get_mut(&task) {
        vcpu.core = Some(to);
    }
    cores.all[to].cookie = Some(cookie);
    if homes[from] == 1 {
        cores.all[from].cookie = None;
    }
    true
}
