// SPDX-License-Identifier: GPL-2.0-only
//! What a policy may change of the fair class while it runs: what a vCPU counts among its siblings,
//! what its VM counts against others, and on which pCPU it is.
//!
//! When weights change, a group's average follows at once, in proportion, and its queued members
//! when they are told, as in `reweight_entity()` and `sched_group_set_shares()`.

use super::decay::FULL;
use super::weights::LEAST;
use super::{Fair, Order};
use crate::host::Host;
use corun_model::{Nanos, PcpuId, TaskId};

impl<O: Order> Fair<O> {
    /// The order of the runqueues.
    pub(crate) fn order(&mut self) -> &mut O {
        &mut self.order
    }

    /// The current task of `cpu`, if any is fair.
    pub(crate) fn current(&self, cpu: PcpuId) -> Option<TaskId> {
        self.books.rq(cpu).current
    }

    /// The runqueue that `task` is on.
    pub(crate) fn queue_of(&self, task: TaskId) -> Option<PcpuId> {
        self.books.task(task).on
    }

    /// All members of the runqueue of `cpu`, the current one included.
    pub(crate) fn members(&self, cpu: PcpuId) -> impl Iterator<Item = TaskId> {
        let first = self.books.members(cpu, true);
        std::iter::successors(first, |task| self.books.next_member(*task, true))
    }

    /// The current task's time that is not charged yet.
    pub(crate) fn uncharged(&self, task: TaskId, now: Nanos) -> Nanos {
        let runs = |cpu: &PcpuId| self.books.rq(*cpu).current == Some(task);
        let on = self.books.task(task).on.filter(runs);
        on.map_or(0, |cpu| now.saturating_sub(self.books.rq(cpu).charged))
    }

    /// `task` weighs `own` among its siblings from now on, in the kernel's unit. True if that changes the weight.
    pub(crate) fn set_own_weight(&mut self, task: TaskId, own: u64, now: Nanos) -> bool {
        let own = own.max(LEAST);
        let member = self.books.task(task);
        let (old, vm) = (member.own, member.vm);
        let active = member.on.is_some() || member.frozen;
        if old == own {
            return false;
        }
        self.books.age_task(task, now);
        if let Some(group) = vm.and_then(|vm| self.groups.get_mut(vm)) {
            group.age(now, self.books.decay());
            if active {
                group.active = (group.active + own).saturating_sub(old);
            }
            if let Some(load) = &mut group.load {
                let queued = u128::from(self.books.tasks[task.index()].queued.value);
                let part = |own: u64| (u128::from(own) * queued / u128::from(FULL)) as u64;
                load.value = (load.value + part(own)).saturating_sub(part(old));
            }
        }
        self.books.task_mut(task).own = own;
        true
    }

    /// VM number `vm` weighs so much from now on, if it has a weight; in the kernel's unit. True if that changes it.
    pub(crate) fn set_group_weight(&mut self, vm: usize, weight: u64) -> bool {
        self.groups.set_weight(vm, weight.max(LEAST))
    }

    /// A queued task learns what it counts by now.
    pub(crate) fn learn_weight(&mut self, task: TaskId, now: Nanos) {
        if let Some(cpu) = self.books.task(task).on {
            self.update(cpu, now);
            self.refresh_weight(task, now);
        }
    }

    /// What `task` counts on its runqueue.
    #[cfg(test)]
    pub(crate) fn weight_of(&self, task: TaskId) -> u64 {
        self.books.task(task).weight
    }

    /// Is `cpu` fit for `task` to be queued on: may `task` use it, and is no sibling there?
    pub(crate) fn has_room(&self, task: TaskId, cpu: PcpuId) -> bool {
        let member = self.books.task(task);
        let sibling = |other: TaskId| other != task && self.books.task(other).vm == member.vm;
        member.given.contains(cpu) && !(member.vm.is_some() && self.members(cpu).any(sibling))
    }

    /// Would `task` find no fewer tasks on any other pCPU with room for it than on `cpu`?
    pub(crate) fn is_least_crowded(&self, task: TaskId, cpu: PcpuId) -> bool {
        let crowd = self.books.rq(cpu).all();
        let emptier = |other: &PcpuId| self.books.rq(*other).all() < crowd;
        let all = (0..self.books.rqs.len()).map(PcpuId::from);
        !all.filter(emptier).any(|other| self.has_room(task, other))
    }

    /// Moves the ready `task`, which has no pCPU, to the runqueue of `to`.
    pub(crate) fn bring(&mut self, host: &mut Host, task: TaskId, to: PcpuId) {
        if let Some(from) = self.books.task(task).on {
            self.end_idling(to, host.now());
            self.move_task(host, task, from, to, false);
        }
    }

    /// Takes the pCPU `cpu` from its current task, which stays ready, and moves that to `to`.
    pub(crate) fn bring_current(&mut self, host: &mut Host, cpu: PcpuId, to: PcpuId) {
        let now = host.now();
        self.update(cpu, now);
        if let Some(task) = self.books.rq(cpu).current {
            self.set_current(cpu, None, now);
            self.bring(host, task, to);
        }
    }
}
