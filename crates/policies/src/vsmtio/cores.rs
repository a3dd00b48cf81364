// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU is on which core.
//!
//! The paper leaves that to the kernel's load balancing and swaps (the workload adjuster). Here vCPUs
//! get a core when they are first seen: the one with least weight, of these the one with fewest siblings.
//! A vCPU weighs no more than it can use: a hardware thread's part ([`usable`]). With more, a core
//! would be nearly its own, and others would have too few.
//! A core belongs to the core-scheduling cookie of its vCPUs; if all belong to others, a vCPU has none
//! and goes where it may.

use super::Vcpu;
use crate::usable;
use corun_model::{HostSeen, PcpuId, PcpuSet, Snapshot, TaskId};
use std::collections::BTreeMap;

/// A core: its hardware threads, for CPU-bound and for I/O-bound vCPUs.
#[derive(Clone, Debug)]
struct Core {
    threads: [PcpuId; 2],
    node: u32,
    /// Whose it is, if anybody's.
    cookie: Option<u64>,
}

/// The cores of a host with two hardware threads each.
#[derive(Clone, Debug, Default)]
pub(super) struct Cores {
    host: Option<HostSeen>,
    all: Vec<Core>,
}

impl Cores {
    /// Learns what the host looks like; true if that is news.
    pub fn know(&mut self, host: &HostSeen) -> bool {
        if self.host.as_ref() == Some(host) {
            return false;
        }
        self.host = Some(host.clone());
        let core = |cpu: PcpuId| {
            let partner = host.partner(cpu).filter(|partner| cpu < *partner)?;
            Some(Core {
                threads: [cpu, partner],
                node: host.topology.node(cpu),
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
    pub fn group(&self, core: usize) -> (u32, u64) {
        let core = &self.all[core];
        (core.node, core.cookie.unwrap_or(0))
    }

    fn admits(&self, core: usize, cookie: u64, allowed: &PcpuSet) -> bool {
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
                // 31 bits, without 0: no daemon sees so many.
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

/// Forgets vCPUs that have gone, and gives cores to those that have none (or may not use it any more).
pub(super) fn settle(cores: &mut Cores, vcpus: &mut BTreeMap<TaskId, Vcpu>, seen: &Snapshot) {
    let all = || {
        seen.vms
            .iter()
            .enumerate()
            .flat_map(|(vm, of)| of.vcpus.iter().map(move |task| (vm, of, task)))
    };
    let alive: BTreeMap<TaskId, ()> = all().map(|(_, _, task)| (task.task, ())).collect();
    vcpus.retain(|task, _| alive.contains_key(task));
    cores.all.iter_mut().for_each(|core| core.cookie = None);
    let mut loads = vec![Load::default(); cores.count()];
    let weights = || seen.vms.iter().flat_map(usable::weights);
    let most = usable::most(weights(), seen.host.topology.pcpus());
    for ((vm, of, task), weight) in all().zip(weights()) {
        let vcpu = vcpus.entry(task.task).or_default();
        vcpu.weight = weight.min(most);
        let kept = vcpu
            .core
            .filter(|&core| cores.admits(core, of.cookie, &task.allowed));
        vcpu.core = kept;
        if let Some(core) = kept {
            cores.all[core].cookie = Some(of.cookie);
            loads[core].weight += vcpu.weight;
            *loads[core].of.entry(vm).or_default() += 1;
        }
    }
    for (vm, of, task) in all() {
        let Some(vcpu) = vcpus.get_mut(&task.task).filter(|vcpu| vcpu.core.is_none()) else {
            continue;
        };
        let siblings = |core: usize| loads[core].of.get(&vm).copied().unwrap_or(0);
        let open = (0..cores.count()).filter(|&core| cores.admits(core, of.cookie, &task.allowed));
        let Some(core) = open.min_by_key(|&core| (loads[core].weight, siblings(core), core)) else {
            continue;
        };
        vcpu.core = Some(core);
        cores.all[core].cookie = Some(of.cookie);
        loads[core].weight += vcpu.weight;
        *loads[core].of.entry(vm).or_default() += 1;
    }
}
