// SPDX-License-Identifier: GPL-2.0-only
//! Sibling vCPUs on different pCPUs, done as the balance-scheduling paper did it: to Linux' own
//! scheduler, by its affinity masks and nothing else (Sukwong and Kim, EuroSys 2011, §5.2).
//!
//! *Balance scheduling* sets the mask (`cpus_allowed`) of a vCPU before a runqueue is chosen for it:
//! all pCPUs but those whose runqueues hold a sibling. The paper's aim is "that no two vCPU siblings
//! are in the same runqueue", and the balancer heeds masks, too; so here the masks of all queued
//! siblings follow each move. *Affinity-based scheduling* binds each vCPU once (`virsh vcpupin`),
//! with equally many vCPUs on each pCPU and siblings on different ones.
//!
//! A vCPU for which that leaves no pCPU may use all those that it may use anyway.

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
}

impl<O: Order> Fair<O> {
    /// A task has been added: it may be a vCPU, with siblings.
    pub(super) fn know_sibling(&mut self, task: TaskId, pcpus: u32) {
        let member = self.books.task(task);
        let Some(vm) = member.vm.filter(|_| self.tuning.siblings != Siblings::Free) else {
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

    /// The pCPU with the fewest vCPUs, and without a sibling if there is one.
    fn home_for(&self, vm: usize, allowed: &PcpuSet, pcpus: u32) -> Option<PcpuId> {
        let crowd = |cpu: PcpuId| {
            let here = self.homes.iter().filter(|(_, home)| *home == Some(cpu));
            let stacked = here.clone().any(|(other, _)| *other == vm);
            (stacked, here.count())
        };
        let open = allowed.iter().filter(|cpu| cpu.0 < pcpus);
        open.min_by_key(|cpu| crowd(*cpu))
    }

    /// Sets the masks of a vCPU that is about to be queued or has been, and of its queued siblings.
    pub(super) fn keep_apart(&mut self, task: TaskId) {
        if self.tuning.siblings != Siblings::Apart {
            return;
        }
        let Some(vm) = self.books.task(task).vm else {
            return;
        };
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
}
