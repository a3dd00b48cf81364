// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF's rules, each named for the kernel's function (kernel/sched/fair.c): where a task is placed, how long the
//! current one is protected, which task is next, what becomes of ghosts.

use super::EevdfOrder;
use crate::sched::eevdf::queue::{Entity, Sums};
use crate::sched::fair::virtual_time;
use corun_model::{Nanos, PcpuId, TaskId, time::US};

/// `normalized_sysctl_sched_base_slice` of 6.15 and later.
const NORMALIZED_BASE_SLICE: Nanos = 700 * US;

/// Protects the current task for `slice` from now at most (`update_protect_slice()`).
pub(super) fn shorten(entity: &mut Entity, slice: Nanos) {
    let end = entity.vruntime + virtual_time(slice, entity.weight);
    entity.protected = entity.protected.min(end);
}

impl EevdfOrder {
    /// `entity_lag()`: how far `task`, a member or ghost, is behind the average of `cpu`, within the limits.
    pub(super) fn lag(&self, cpu: PcpuId, task: TaskId) -> i64 {
        let (entity, queue) = (self.entity(task), &self.queues[cpu.index()]);
        let most = match self.params.longest_bounds_lag {
            true => queue.longest().unwrap_or(entity.slice) + self.tick,
            false => (2 * entity.slice).max(self.tick),
        };
        let limit = virtual_time(most, entity.weight);
        let lag = queue.sums.average() - entity.vruntime;
        lag.clamp(-limit, limit)
    }

    /// The lag a ghost goes on with (`update_entity_lag()`, `DELAY_ZERO`): no credit for having waited, and
    /// in 7.1 no more debt than it had to begin with.
    pub(super) fn lag_of_ghost(&self, cpu: PcpuId, task: TaskId) -> i64 {
        let lag = match self.params.settles_ghosts {
            true => self.lag(cpu, task).max(self.entity(task).lag),
            false => self.lag(cpu, task),
        };
        lag.min(0)
    }

    /// `place_entity()`: vruntime and deadline from the lag.
    pub(super) fn put(&mut self, cpu: PcpuId, task: TaskId, new: bool) {
        let sums = self.queues[cpu.index()].sums;
        let params = self.params;
        let entity = &mut self.entities[task.index()];
        let lag = match params.place_lag {
            true => sums.inflated(entity.lag, entity.weight),
            false => 0,
        };
        entity.vruntime = sums.average() - lag;
        if std::mem::take(&mut entity.relative_deadline) {
            entity.deadline += entity.vruntime;
            return;
        }
        let slice = match new && params.place_deadline_initial {
            true => entity.virtual_slice() / 2,
            false => entity.virtual_slice(),
        };
        entity.deadline = entity.vruntime + slice;
    }

    /// May the current task run on in spite of others (`protect_slice()`)?
    pub(super) fn protected(&self, task: TaskId) -> bool {
        let entity = self.entity(task);
        let asked = self.params.run_to_parity || self.params.protect_shortest;
        asked && entity.vruntime < entity.protected
    }

    /// `set_protect_slice()`. Since 6.17 it is not without effect if `RUN_TO_PARITY` is off.
    pub(super) fn protect(&mut self, cpu: PcpuId, task: TaskId) {
        let own = self.entity(task).slice;
        let least = match (self.params.protect_shortest, self.params.run_to_parity) {
            (false, _) => own,
            (true, true) => self.queues[cpu.index()].shortest().unwrap_or(own),
            (true, false) => NORMALIZED_BASE_SLICE,
        };
        let entity = &mut self.entities[task.index()];
        entity.protected = entity.deadline;
        if least < own {
            shorten(entity, least);
        }
    }

    /// `__pick_eevdf()`, which may answer with a ghost.
    pub(super) fn best(&self, cpu: PcpuId, protect: bool) -> Option<TaskId> {
        let queue = &self.queues[cpu.index()];
        let current = queue.current.filter(|&task| self.eligible(cpu, task));
        if protect && let Some(current) = current.filter(|&task| self.protected(task)) {
            return Some(current);
        }
        let found = self
            .forest
            .find(queue.tree, |vruntime| queue.sums.eligible(vruntime));
        match (found, current) {
            (Some(found), Some(current)) => {
                let sooner = self.entity(current).deadline < self.entity(found).deadline;
                Some(if sooner { current } else { found })
            }
            (found, current) => found.or(current),
        }
    }

    /// `pick_next_entity()`: the task that is next; ghosts that would be picked before it are taken
    /// off.
    pub(super) fn next_of(&mut self, cpu: PcpuId, protect: bool) -> Option<TaskId> {
        if protect && let Some(next) = self.favourite(cpu) {
            return Some(next);
        }
        loop {
            let best = self.best(cpu, protect)?;
            if self.ghosts[best.index()].is_none() {
                return Some(best);
            }
            self.release_ghost(cpu, best);
        }
    }

    /// May `woken` end the protection of `current` (`do_preempt_short()` of 6.12)?
    pub(super) fn short_enough(&self, cpu: PcpuId, woken: TaskId, current: TaskId) -> bool {
        let (new, old) = (self.entity(woken), self.entity(current));
        self.params.preempt_short
            && new.slice < old.slice
            && self.eligible(cpu, woken)
            && (new.deadline < old.deadline || !self.eligible(cpu, current))
    }

    /// A ghost is gone: it sleeps with its lag.
    pub(super) fn release_ghost(&mut self, cpu: PcpuId, task: TaskId) {
        let lag = self.lag_of_ghost(cpu, task);
        self.quit(cpu, task);
        self.entities[task.index()].lag = lag;
        self.ghosts[task.index()] = None;
        self.queues[cpu.index()].ghosts -= 1;
        self.released.push(task);
    }

    /// A ghost wakes up (`requeue_delayed_entity()`).
    pub(super) fn revive_ghost(&mut self, cpu: PcpuId, task: TaskId) {
        self.ghosts[task.index()] = None;
        let queue = &mut self.queues[cpu.index()];
        queue.ghosts -= 1;
        queue.nr += 1;
        let (lag, own) = (self.lag_of_ghost(cpu, task), self.entity(task).vruntime);
        let present = self.queues[cpu.index()].sums.average() - own;
        // Placed anew if its lag has changed; until 7.0 only if it was positive.
        let placed = match self.params.settles_ghosts {
            true => lag != present,
            false => present > 0,
        };
        if placed {
            self.quit(cpu, task);
            self.entities[task.index()].lag = lag;
            self.put(cpu, task, false);
            self.enter(cpu, task);
        }
    }

    /// `yield_task_fair()` of the current `task`, if all others on the pCPU are on its own `cfs_rq`.
    pub(super) fn yield_to_all(&mut self, cpu: PcpuId, task: TaskId) {
        let eligible = self.eligible(cpu, task);
        if self.params.forfeits_on_yield && !eligible {
            return;
        }
        let entity = &mut self.entities[task.index()];
        if self.params.forfeits_on_yield {
            let delta = (entity.deadline - entity.vruntime).max(0);
            entity.vruntime += delta;
            self.queues[cpu.index()].sums.advance(entity.weight, delta);
        }
        entity.deadline += entity.virtual_slice();
        entity.protected = entity.vruntime;
    }

    /// The same on a group's `cfs_rq` together with `siblings`, while tasks from outside the group are on the pCPU.
    /// What `task` forfeits falls to the siblings, so that the group as a whole has had no more than before; and the
    /// one of them that is next there goes on with the group's slice, as `pick_next_entity()` does on the way down.
    pub(super) fn yield_within(&mut self, cpu: PcpuId, task: TaskId, siblings: &[TaskId]) {
        let mut group = Sums::default();
        for member in siblings.iter().chain([&task]) {
            group.add(self.entity(*member));
        }
        let own = *self.entity(task);
        if self.params.forfeits_on_yield {
            if !group.eligible(own.vruntime) {
                return;
            }
            let rest = (own.deadline - own.vruntime).max(0);
            let part = i128::from(rest) * i128::from(own.weight) / i128::from(group.weight());
            let gain = part as i64;
            for member in siblings.iter().chain([&task]) {
                self.shift(cpu, *member, -gain);
            }
            self.entities[task.index()].vruntime += rest;
            self.queues[cpu.index()].sums.advance(own.weight, rest);
        }
        let entity = &mut self.entities[task.index()];
        entity.deadline += entity.virtual_slice();
        entity.protected = entity.vruntime;
        let mut group = Sums::default();
        for member in siblings.iter().chain([&task]) {
            group.add(self.entity(*member));
        }
        let may = |member: &&TaskId| group.eligible(self.entity(**member).vruntime);
        let all = siblings.iter().chain([&task]).filter(may);
        let next = all.min_by_key(|member| self.entity(**member).deadline);
        if let Some(&next) = next.filter(|next| **next != task) {
            self.quit(cpu, next);
            let entity = &mut self.entities[next.index()];
            entity.deadline = entity.deadline.min(own.deadline);
            self.enter(cpu, next);
        }
    }

    /// `task`, a member or ghost, has had `by` more in virtual time, and is due as much later.
    fn shift(&mut self, cpu: PcpuId, task: TaskId, by: i64) {
        let is_current = self.queues[cpu.index()].current == Some(task);
        if !is_current {
            self.quit(cpu, task);
        }
        let entity = &mut self.entities[task.index()];
        entity.vruntime += by;
        entity.deadline += by;
        let weight = entity.weight;
        match is_current {
            true => self.queues[cpu.index()].sums.advance(weight, by),
            false => self.enter(cpu, task),
        }
    }
}
