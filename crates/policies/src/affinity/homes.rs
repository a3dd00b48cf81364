// SPDX-License-Identifier: GPL-2.0-only
//! Who lives where: the assignment of vCPUs to pCPUs and its improvement.
//!
//! New vCPUs go where fewest siblings live, and there where fewest vCPUs live. Then single vCPUs move
//! as long as that takes siblings apart, or evens out loads without bringing any together. The first
//! kind of move lowers the sum of squares of sibling counts, the second lowers that of loads and
//! keeps the first: it ends. Where affinity excludes nothing, no two pCPUs then differ by more than
//! one vCPU, nor by more than one of any VM.

use corun_model::{PcpuId, PcpuSet, Snapshot, TaskId, VmId};
use std::collections::BTreeMap;

/// A vCPU with a home.
#[derive(Clone, Copy, Debug)]
struct Resident {
    vm: VmId,
    allowed: PcpuSet,
    home: PcpuId,
}

/// The homes of all vCPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    residents: BTreeMap<TaskId, Resident>,
    load: BTreeMap<PcpuId, u32>,
    siblings: BTreeMap<(VmId, PcpuId), u32>,
}

impl Homes {
    /// The home of a vCPU; `None` if there is no pCPU it may use.
    pub(super) fn of(&self, task: TaskId) -> Option<PcpuId> {
        self.residents.get(&task).map(|resident| resident.home)
    }

    /// Gives every vCPU of `seen` a home, and forgets the others.
    pub(super) fn settle(&mut self, seen: &Snapshot) {
        let host: PcpuSet = seen.host.topology.all().collect();
        self.keep_valid(seen, &host);
        for vm in &seen.vms {
            for vcpu in &vm.vcpus {
                self.move_in(vcpu.task, vm.vm, vcpu.allowed.and(&host));
            }
        }
        while self.improve() {}
    }

    /// Keeps those whose vCPU still exists and may still live there.
    fn keep_valid(&mut self, seen: &Snapshot, host: &PcpuSet) {
        let mut kept = BTreeMap::new();
        for vm in &seen.vms {
            for vcpu in &vm.vcpus {
                let old = self.residents.get(&vcpu.task).filter(|old| old.vm == vm.vm);
                let allowed = vcpu.allowed.and(host);
                if let Some(old) = old.filter(|old| allowed.contains(old.home)) {
                    kept.insert(vcpu.task, Resident { allowed, ..*old });
                }
            }
        }
        self.residents = kept;
        self.load.clear();
        self.siblings.clear();
        for resident in self.residents.values() {
            *self.load.entry(resident.home).or_default() += 1;
            *self
                .siblings
                .entry((resident.vm, resident.home))
                .or_default() += 1;
        }
    }

    /// A vCPU without a home gets one.
    fn move_in(&mut self, task: TaskId, vm: VmId, allowed: PcpuSet) {
        if self.residents.contains_key(&task) {
            return;
        }
        let crowd = |&home: &PcpuId| (self.siblings_at(vm, home), self.load_at(home), home);
        let Some(home) = allowed.iter().min_by_key(crowd) else {
            return;
        };
        let resident = Resident { vm, allowed, home };
        self.residents.insert(task, resident);
        *self.load.entry(home).or_default() += 1;
        *self.siblings.entry((vm, home)).or_default() += 1;
    }

    /// Moves a vCPU for whom there is a better home, if there is one.
    fn improve(&mut self) -> bool {
        let better = |(&task, resident): (&TaskId, &Resident)| {
            let found = resident
                .allowed
                .iter()
                .find(|&to| self.is_better(resident, to));
            found.map(|to| (task, to))
        };
        let Some((task, to)) = self.residents.iter().find_map(better) else {
            return false;
        };
        self.relocate(task, to);
        true
    }

    fn is_better(&self, resident: &Resident, to: PcpuId) -> bool {
        let siblings_here = self.siblings_at(resident.vm, resident.home);
        let siblings_there = self.siblings_at(resident.vm, to);
        let evens_out = self.load_at(resident.home) >= self.load_at(to) + 2;
        siblings_here >= siblings_there + 2 || (siblings_here == siblings_there + 1 && evens_out)
    }

    fn relocate(&mut self, task: TaskId, to: PcpuId) {
        let Some(resident) = self.residents.get_mut(&task) else {
            return;
        };
        let (vm, from) = (resident.vm, resident.home);
        resident.home = to;
        for (home, change) in [(from, -1), (to, 1)] {
            let load = self.load.entry(home).or_default();
            *load = load.saturating_add_signed(change);
            let siblings = self.siblings.entry((vm, home)).or_default();
            *siblings = siblings.saturating_add_signed(change);
        }
    }

    fn load_at(&self, cpu: PcpuId) -> u32 {
        self.load.get(&cpu).copied().unwrap_or(0)
    }

    fn siblings_at(&self, vm: VmId, cpu: PcpuId) -> u32 {
        self.siblings.get(&(vm, cpu)).copied().unwrap_or(0)
    }
}
