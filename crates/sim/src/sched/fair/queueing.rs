// SPDX-License-Identifier: GPL-2.0-only
//! How a task joins a runqueue and leaves it: which weight and load it brings along and takes away, and where it is
//! counted (`enqueue_entity()`, `dequeue_entity()` and what they call).

use super::Fair;
use super::decay::{Average, FULL};
use super::order::{Join, Leave, Order};
use super::weights::Group;
use crate::host::Host;
use corun_model::{Nanos, PcpuId, TaskId};

impl<O: Order> Fair<O> {
    /// If the VM of `task` has a cgroup of its own: the siblings that are with `task` on that cgroup's runqueue on
    /// `cpu`, ghosts included.
    pub(super) fn siblings_beside(&self, task: TaskId, cpu: PcpuId) -> Option<Vec<TaskId>> {
        let vm = self.books.task(task).vm?;
        if !self.groups.get(vm).is_some_and(Group::is_group) {
            return None;
        }
        let is_here = |other: &TaskId| {
            let member = self.books.task(*other);
            *other != task && member.on.or(member.ghost) == Some(cpu)
        };
        let all = self.siblings.get(vm).into_iter().flatten();
        Some(all.copied().filter(is_here).collect())
    }

    /// A task that is on a runqueue learns what it counts in its VM at present.
    pub(super) fn refresh_weight(&mut self, task: TaskId, now: Nanos) {
        self.books.age_task(task, now);
        let member = self.books.task(task);
        let (own, queued, on) = (member.own, member.queued.value, member.on);
        let decay = self.books.decay();
        let Some(vm) = member.vm else {
            return;
        };
        let Some((inner, new)) = self.groups.part(vm, own, queued, now, decay) else {
            return;
        };
        let top = self.levels.as_ref().and_then(|levels| levels.top_of(task));
        let told = match top {
            None => new,
            Some(_) => self.groups.raise(vm, inner, top, now, decay).unwrap_or(new),
        };
        let member = self.books.task_mut(task);
        member.inner = inner;
        if std::mem::replace(&mut member.told, told) != told {
            self.order.reweigh(task, on, told);
        }
        let old = self.books.task(task).weight;
        if old == new {
            return;
        }
        let Some(cpu) = on else {
            self.books.task_mut(task).weight = new;
            return;
        };
        self.books.age_rq(cpu, now);
        let before = self.books.task(task).load();
        self.books.task_mut(task).weight = new;
        let after = self.books.task(task).load();
        let total = &mut self.books.weights[cpu.index()];
        *total = *total - old + new;
        let rq = self.books.rq_mut(cpu);
        rq.load.value = rq.load.value.saturating_sub(before) + after;
    }

    /// Puts `task` on the runqueue of `cpu`, unless a quota forbids that. Both pCPU and task are up to date.
    pub(super) fn attach(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId, why: Join) {
        if !self.stays_out(host, task, cpu, why) {
            self.join_queue(host, task, cpu, why);
        }
    }

    pub(super) fn join_queue(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId, why: Join) {
        self.enter_level(task, cpu, Some(why), host.now());
        self.order.join(cpu, task, why);
        self.books.link(task, cpu);
        let member = self.books.task_mut(task);
        (member.on, member.last) = (Some(cpu), Some(cpu));
        self.books.weights[cpu.index()] += self.books.task(task).weight;
        let rq = self.books.rq_mut(cpu);
        rq.nr += 1;
        let own = rq.nr;
        self.crowd(cpu, true);
        self.crowds.claim(cpu, own);
        self.count_idle(task, cpu, true);
        host.queue_on(task, cpu);
        self.keep_apart(task);
    }

    /// Takes `task` off the runqueue of `cpu`. Both pCPU and task are up to date.
    pub(super) fn detach(&mut self, task: TaskId, cpu: PcpuId, why: Leave, now: Nanos) {
        self.leave_queue(task, cpu, why, now);
        self.leave_quotas(task, cpu, now);
    }

    pub(super) fn leave_queue(&mut self, task: TaskId, cpu: PcpuId, why: Leave, now: Nanos) {
        self.order.leave(cpu, task, why);
        self.gangs.leaves(task, cpu, why);
        self.books.unlink(task, cpu);
        let member = self.books.task_mut(task);
        member.on = None;
        self.books.weights[cpu.index()] -= self.books.task(task).weight;
        let rq = self.books.rq_mut(cpu);
        rq.nr -= 1;
        if rq.current == Some(task) {
            rq.current = None;
        }
        let own = rq.nr;
        self.crowd(cpu, false);
        self.crowds.claim(cpu, own);
        self.count_idle(task, cpu, false);
        let stays_as_ghost = why == Leave::Sleeps && self.order.bound_to(task) == Some(cpu);
        if !stays_as_ghost {
            self.leave_level(task, now);
        }
    }

    /// The runqueue of `cpu` now has one task or ghost more, or one less.
    pub(super) fn crowd(&mut self, cpu: PcpuId, more: bool) {
        let new = self.books.rq(cpu).queued();
        let old = if more { new - 1 } else { new + 1 };
        self.overloaded |= more && new >= 2;
        self.crowds.change(cpu, old, new, &self.domains);
    }

    /// A vCPU becomes active in its VM, or stops being so.
    pub(super) fn count_in_group(&mut self, task: TaskId, joins: bool, now: Nanos) {
        let (vm, own) = (self.books.task(task).vm, self.books.task(task).own);
        let decay = self.books.decay();
        self.groups.count(vm, own, joins, now, decay);
    }

    /// Moves the load of a waking task to where it wakes up.
    pub(super) fn bring_load(&mut self, task: TaskId, cpu: PcpuId, new: bool, now: Nanos) {
        if new {
            let util = self.books.rq(cpu).util.value;
            let member = self.books.task_mut(task);
            member.queued = Average::starting_at(FULL, now);
            member.runnable = member.queued;
            member.util = Average::starting_at((FULL - util.min(FULL)) / 2, now);
            let (own, vm) = (member.own, member.vm);
            self.groups.begin(vm, own);
        }
        let member = self.books.task(task);
        let (mut part, last) = (member.part(), member.last);
        if new {
            // `post_init_entity_util_avg()`.
            part.runnable = part.util;
        }
        let moves = new || last != Some(cpu);
        let sleeper_counted = self.tuning.counts_sleepers();
        if let Some(last) = last.filter(|_| moves) {
            self.books.age_rq(last, now);
            let rq = self.books.rq_mut(last);
            rq.lose(&part);
            if sleeper_counted {
                rq.load.value = rq.load.value.saturating_sub(part.load);
            }
        }
        let rq = self.books.rq_mut(cpu);
        if moves {
            rq.gain(&part);
        }
        if moves || !sleeper_counted {
            rq.load.value += part.load;
        }
    }
}
