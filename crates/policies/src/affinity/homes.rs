// SPDX-License-Identifier: GPL-2.0-only
//! The homes of vCPUs: their assignment to pCPUs and its improvement.
//!
//! A new vCPU goes to the pCPU where the fewest siblings live; of several, to the one where the fewest vCPUs live; of
//! these, to the one on whose SMT sibling the fewest live. So it prefers idle cores to idle hardware threads, as the
//! dispatcher does for free placement (`dispatcher/crowding.h`). Then single vCPUs move as long as that takes siblings
//! apart, or evens out loads without bringing any together, or evens out cores without harm to either. The first kind
//! of move lowers the sum of squares of sibling counts, the second lowers that of loads and keeps the first, the third
//! lowers that of cores' loads and keeps both: so it ends. Where affinity excludes nothing, no two pCPUs then differ by
//! more than one vCPU, nor by more than one of any VM.

use corun_model::{PcpuId, PcpuSet, Snapshot, TaskId, VmId};
use std::collections::BTreeMap;

/// A vCPU with a home.
#[derive(Clone, Copy, Debug)]
struct Resident {
    vm: VmId,
    allowed: PcpuSet,
    home: PcpuId,
}

/// Numbers by pCPU; beyond the end, 0.
#[derive(Clone, Debug, Default)]
struct Counts(Vec<u32>);

impl Counts {
    fn at(&self, cpu: PcpuId) -> u32 {
        self.0.get(cpu.index()).copied().unwrap_or(0)
    }

    fn add(&mut self, cpu: PcpuId, change: i32) {
        if self.0.len() <= cpu.index() {
            self.0.resize(cpu.index() + 1, 0);
        }
        let count = &mut self.0[cpu.index()];
        *count = count.saturating_add_signed(change);
    }
}

/// The homes of all vCPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    residents: BTreeMap<TaskId, Resident>,
    /// How many vCPUs live on each pCPU: of all VMs, and of each VM.
    load: Counts,
    siblings: BTreeMap<VmId, Counts>,
    /// The SMT sibling of each pCPU, where a core has two hardware threads.
    partners: Vec<Option<PcpuId>>,
}

/// The fewest vCPUs that live on any pCPU, and on any core.
#[derive(Clone, Copy, Debug)]
struct Least {
    pcpu: u32,
    core: u32,
}

impl Homes {
    /// The home of a vCPU; `None` if there is no pCPU it may use.
    pub(super) fn of(&self, task: TaskId) -> Option<PcpuId> {
        self.residents.get(&task).map(|resident| resident.home)
    }

    /// How many vCPUs live on the SMT sibling of `cpu`, by these counts.
    fn beside(&self, cpu: PcpuId, counts: &Counts) -> u32 {
        let partner = self.partners.get(cpu.index()).copied().flatten();
        partner.map_or(0, |partner| counts.at(partner))
    }

    /// vCPUs that live on the core of `cpu`.
    fn core(&self, cpu: PcpuId) -> u32 {
        self.load.at(cpu) + self.beside(cpu, &self.load)
    }

    /// Gives every vCPU of `seen` a home, and forgets the others.
    pub(super) fn settle(&mut self, seen: &Snapshot) {
        let host: PcpuSet = seen.host.topology.all().collect();
        self.partners = host.iter().map(|cpu| seen.host.partner(cpu)).collect();
        self.keep_valid(seen, &host);
        for vm in &seen.vms {
            for vcpu in &vm.vcpus {
                self.move_in(vcpu.task, vm.vm, vcpu.allowed.and(&host));
            }
        }
        while self.improve(&host) {}
    }

    /// Keeps the homes whose vCPU still exists and may still live there.
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
        self.load = Counts::default();
        self.siblings.clear();
        for resident in self.residents.values() {
            let siblings = self.siblings.entry(resident.vm).or_default();
            siblings.add(resident.home, 1);
            self.load.add(resident.home, 1);
        }
    }

    /// A vCPU without a home gets one.
    fn move_in(&mut self, task: TaskId, vm: VmId, allowed: PcpuSet) {
        if self.residents.contains_key(&task) {
            return;
        }
        let nobody = Counts::default();
        let siblings = self.siblings.get(&vm).unwrap_or(&nobody);
        let crowd = |&home: &PcpuId| {
            let here = (siblings.at(home), self.load.at(home));
            let beside = (self.beside(home, &self.load), self.beside(home, siblings));
            (here, beside, home)
        };
        let Some(home) = allowed.iter().min_by_key(crowd) else {
            return;
        };
        let resident = Resident { vm, allowed, home };
        self.residents.insert(task, resident);
        self.siblings.entry(vm).or_default().add(home, 1);
        self.load.add(home, 1);
    }

    /// Moves a vCPU that has a better home, if there is one.
    fn improve(&mut self, host: &PcpuSet) -> bool {
        let least = Least {
            pcpu: host.iter().map(|cpu| self.load.at(cpu)).min().unwrap_or(0),
            core: host.iter().map(|cpu| self.core(cpu)).min().unwrap_or(0),
        };
        let better = |(&task, resident): (&TaskId, &Resident)| {
            self.better_home(resident, least).map(|to| (task, to))
        };
        let Some((task, to)) = self.residents.iter().find_map(better) else {
            return false;
        };
        self.relocate(task, to);
        true
    }

    /// The first better home of a vCPU; no pCPU and no core has fewer residents than `least`.
    fn better_home(&self, resident: &Resident, least: Least) -> Option<PcpuId> {
        let siblings = self.siblings.get(&resident.vm)?;
        let (here, load) = (siblings.at(resident.home), self.load.at(resident.home));
        let core = self.core(resident.home);
        if here < 2 && load < least.pcpu + 2 && core < least.core + 2 {
            return None; // alone, and nowhere would loads be evened out
        }
        let is_better = |&to: &PcpuId| {
            let (there, others) = (siblings.at(to), self.load.at(to));
            let evens_cores = load == others + 1 && core >= self.core(to) + 2;
            here >= there + 2 || (here == there + 1 && (load >= others + 2 || evens_cores))
        };
        resident.allowed.iter().find(is_better)
    }

    fn relocate(&mut self, task: TaskId, to: PcpuId) {
        let Some(resident) = self.residents.get_mut(&task) else {
            return;
        };
        let (vm, from) = (resident.vm, resident.home);
        resident.home = to;
        let siblings = self.siblings.entry(vm).or_default();
        for (home, change) in [(from, -1), (to, 1)] {
            self.load.add(home, change);
            siblings.add(home, change);
        }
    }
}
