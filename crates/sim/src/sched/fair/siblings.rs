// SPDX-License-Identifier: GPL-2.0-only
//! Sibling vCPUs on different pCPUs, done as the balance-scheduling paper did it: within Linux' own
//! scheduler, by its affinity masks and nothing else (Sukwong and Kim, EuroSys 2011, §5.2).
//!
//! *Balance scheduling* sets the mask (`cpus_allowed`) of a vCPU before a runqueue is chosen for it:
//! all pCPUs but those whose runqueues hold a sibling. The paper's aim is "that no two vCPU siblings
//! are in the same runqueue", and the balancer heeds masks, too; so here the masks of all queued
//! siblings follow each move. *Affinity-based scheduling* binds each vCPU once (`virsh vcpupin`),
//! with equally many vCPUs on each pCPU and siblings on different ones.
//!
//! A vCPU for which that leaves no pCPU may use all those that it may use anyway.
//!
//! *Load-conscious balance scheduling* (Kim et al., ASPLOS 2013, §4; `try_to_balance_affine()` of its
//! published code) sets the mask of a vCPU that wakes up: the pCPUs that are light, and of those the ones without a
//! sibling if there are any. A pCPU is light if its weight is at most so many percent of the mean. If wake-up placement
//! chooses a pCPU outside the mask, the vCPU goes to the lightest pCPU of the mask near the last one
//! (`select_fallback_rq()`). The balancer heeds no such mask (`can_migrate_task()`,
//! `is_fair_balsched()`): siblings may come together again when load says so.

use super::{Fair, Order};
use corun_model::{PcpuId, PcpuSet, TaskId};

/// What the host does about sibling vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Siblings {
    /// Nothing: Linux.
    #[default]
    Free,
    /// Balance scheduling.
    Apart,
    /// Affinity-based scheduling.
    Bound,
    /// Load-conscious balance scheduling: up to which weight a pCPU is light, percent of the mean.
    Light(u32),
}

impl<O: Order> Fair<O> {
    /// A task has been added: it may be a vCPU with siblings. Even where siblings are not kept apart they may be called
    /// together ([`Gangs`](super::Gangs)).
    pub(super) fn know_sibling(&mut self, task: TaskId, pcpus: u32) {
        let member = self.books.task(task);
        let Some(vm) = member.vm else {
            return;
        };
        if self.siblings.len() <= vm {
            self.siblings.resize(vm + 1, Vec::new());
        }
        if self.tuning.siblings == Siblings::Bound {
            let allowed = member.given;
            let home = self.home_for(vm, &allowed, pcpus);
            if let Some(home) = home {
                let mut bound = PcpuSet::default();
                bound.insert(home);
                self.books.task_mut(task).allowed = bound;
            }
            self.homes.push((vm, home));
        }
        self.siblings[vm].push(task);
    }

    /// The pCPU with the fewest vCPUs, and if possible without a sibling; of several, one on the core with the fewest
    /// vCPUs, as an administrator who pins vCPUs by hand fills cores before hardware threads.
    fn home_for(&self, vm: usize, allowed: &PcpuSet, pcpus: u32) -> Option<PcpuId> {
        let at = |cpu| (self.homes.iter()).filter(move |(_, home)| *home == Some(cpu));
        let crowd = |cpu: PcpuId| {
            let stacked = at(cpu).any(|(other, _)| *other == vm);
            let core = self.domains.core_of(cpu).map(PcpuId);
            (stacked, at(cpu).count(), core.flat_map(at).count())
        };
        let open = allowed.iter().filter(|cpu| cpu.0 < pcpus);
        open.min_by_key(|cpu| crowd(*cpu))
    }

    /// Sets the masks of a vCPU that is about to be queued or has just been queued, and of its
    /// queued siblings.
    pub(super) fn keep_apart(&mut self, task: TaskId) {
        let Some(vm) = self.books.task(task).vm else {
            return;
        };
        match self.tuning.siblings {
            Siblings::Apart => {}
            Siblings::Light(percent) => return self.admit_light(task, vm, percent),
            Siblings::Free | Siblings::Bound => return,
        }
        let siblings = std::mem::take(&mut self.siblings[vm]);
        for this in &siblings {
            let member = self.books.task(*this);
            let (mut open, on) = (member.given, member.on);
            if on.is_none() && *this != task {
                continue;
            }
            let others = siblings.iter().filter(|other| *other != this);
            for cpu in others.filter_map(|other| self.books.task(*other).on) {
                open.remove(cpu);
            }
            let stays = on.is_none_or(|cpu| open.contains(cpu));
            let member = self.books.task_mut(*this);
            member.allowed = match stays && !open.is_empty() {
                true => open,
                false => member.given,
            };
        }
        self.siblings[vm] = siblings;
    }
    /// The same for load-conscious balance scheduling: the mask holds only until the vCPU has been
    /// queued.
    fn admit_light(&mut self, task: TaskId, vm: usize, percent: u32) {
        let member = self.books.task(task);
        let (given, queued) = (member.given, member.on.is_some());
        let allowed = if queued {
            given
        } else {
            self.light(&given, vm, percent)
        };
        self.books.task_mut(task).allowed = allowed;
    }

    /// Of the pCPUs `given`, those that are light, and without a vCPU of `vm` if there are such.
    fn light(&self, given: &PcpuSet, vm: usize, percent: u32) -> PcpuSet {
        let pcpus = self.books.rqs.len() as u32;
        let open = || given.iter().filter(|cpu| cpu.0 < pcpus);
        let total: u128 = open().map(|cpu| u128::from(self.books.weight(cpu))).sum();
        let count = open().count() as u128;
        let is_light = |cpu: &PcpuId| {
            u128::from(self.books.weight(*cpu)) * 100 * count <= total * u128::from(percent)
        };
        let light: PcpuSet = open().filter(is_light).collect();
        let mut apart = light;
        for sibling in &self.siblings[vm] {
            if let Some(cpu) = self.books.task(*sibling).on {
                apart.remove(cpu);
            }
        }
        [apart, light, *given]
            .into_iter()
            .find(|set| !set.is_empty())
            .unwrap_or(*given)
    }

    /// Of the pCPUs that a task may use at present, the one of least weight on the node of `near`,
    /// else anywhere.
    pub(super) fn lightest(&self, task: TaskId, near: PcpuId) -> PcpuId {
        let pcpus = self.books.rqs.len() as u32;
        let node = self.domains.node_of(near);
        let open = self.books.task(task).allowed;
        let open = open.iter().filter(|cpu| cpu.0 < pcpus);
        open.min_by_key(|cpu| (!node.contains(&cpu.0), self.books.weight(*cpu)))
            .unwrap_or(near)
    }
}
