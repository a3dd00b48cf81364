// SPDX-License-Identifier: GPL-2.0-only
//! CFS that a policy steers, as Jupiter does: the dissertation builds it into CFS, in Linux 4.19
//! (ch. 4).
//!
//! It is balance scheduling on CFS (`cfs-balance`), and without a plan decides exactly as that does: vCPUs are "laid
//! out on the cores in a way to prevent the vCPU stacking problem" (§4.5). Of a plan it carries out what Jupiter asks
//! for, which the dissertation calls "straight-forward and system-dependent" (§4.4.1):
//!
//!   * *shares* are the weights of vCPUs within their VM's group, as if each had its own nice value
//!     there: they divide the group's weight, which stays the same;
//!   * *loans* change the group's weight: the plan says how much of it a VM has. If the VM has no weight of its own,
//!     its vCPUs' weights change, which their shares already express;
//!   * *rescheduling latencies*: see below;
//!   * *homes* are where swapped vCPUs belong. They are moved there when the plan says so (`migrate_swap()`), a running
//!     one as soon as its pCPU has taken an interrupt; later they wake up there unless a sibling is there or another
//!     pCPU has fewer tasks. Load balancing may move them on, as it may any task. A sibling in the way puts the move
//!     off to the next wake-up;
//!   * a VM that the plan leaves alone is treated by CFS as any other again.
//!
//! "Rescheduling latency is the parameter determining when a vCPU can be scheduled after it becomes `ready`"; Linux has
//! one for all vCPUs, to be made private (§4.4.1). In CFS that is the wake-up granularity: how far a vCPU that runs may
//! be ahead of one that wakes before it loses its pCPU. So first, each vCPU has its own granularity, with CFS's
//! conversion to virtual time by its weight. In a VM of 16 runnable vCPUs with one weight, each weighs a sixteenth: a
//! granularity of 4 ms counts as 64, and a sleeper's credit is 12, so none preempts, and each waits for a tick. One of
//! 0.5 ms counts as 8. Second, the latency is a bound, if it is lower than the one that vCPUs begin with: a vCPU that
//! woke up that long ago is picked next. The granularity alone cannot keep the latency that DASL sets, since it
//! compares what vCPUs have had, not how long they waited; and that vCPUs "have waited a long time exceeding their
//! rescheduling latencies" counts as a conflict for RCR. With both, streamcluster alongside fft does 5.4 times as much
//! as under `cfs-balance`, with the granularity alone 4.5 times.
//!
//! Both hold while the vCPU has some of its period's slice left; afterwards it gets what CFS gives
//! to any vCPU, and waits its turn. Slices begin with the plan, that is, with the period. A vCPU
//! that lost its pCPU before its turn was over has its bound, too, but no timer enforces it; the
//! vCPU is only preferred when its pCPU picks next. Otherwise vCPUs that compute would take each
//! other's pCPU every half a millisecond: three times as many switches for nothing.
//!
//! What the policy sees (`Turns`): a vCPU is *depleted* when a tick ends its turn
//! (`check_preempt_tick()`), *preempted* when it loses its pCPU otherwise, to one that woke or was
//! due, *late* when it starts later than its latency allows. A vCPU that yields is neither. Wakers
//! are the siblings that ran on the pCPU that the wake-up came from.

mod claims;
mod record;
#[cfg(test)]
mod tests;

use super::order::CfsOrder;
use super::{CfsParams, Siblings, fair};
use crate::host::{Host, HostParams, TaskState};
use crate::load::{Cgroups, VmInfo};
use crate::sched::HostScheduler;
use crate::sched::fair::{Fair, scaled, weight_of};
use claims::Claims;
use corun_model::{Doing, Nanos, PcpuId, Plan, TaskId, Turns};
use record::Record;

/// A host whose CFS keeps siblings apart and carries out a policy's weights, latencies and homes.
pub struct SteeredCfs {
    fair: Fair<CfsOrder>,
    claims: Vec<Claims>,
    records: Vec<Record>,
    /// What VMs weigh without loans, in the kernel's unit.
    weights: Vec<Option<u64>>,
}

/// Distinguishes the timer of a vCPU's promise from those of CFS itself: the task is in the lower
/// half.
const PROMISE: u64 = 1 << 32;

impl SteeredCfs {
    /// CFS with these settings on this host; siblings are kept apart, whatever these say.
    pub fn new(params: CfsParams, host: &HostParams) -> Self {
        let apart = CfsParams {
            siblings: Siblings::Apart,
            ..params
        };
        Self {
            fair: fair(apart, host),
            claims: Vec::new(),
            records: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// The time `task` had a pCPU in all.
    fn ran(&mut self, task: TaskId, now: Nanos) -> Nanos {
        self.fair.order().total(task) + self.fair.uncharged(task, now)
    }

    /// The private latency of `task`, while it has some of its slice left.
    fn latency(&mut self, task: TaskId, now: Nanos) -> Option<Nanos> {
        let ran = self.ran(task, now);
        self.claims[task.index()].latency_after(ran)
    }

    /// `task` begins to be ready, with this private latency. If it was `woken`, its pCPU picks anew when that is over.
    fn becomes_ready(
        &mut self,
        host: &mut Host,
        task: TaskId,
        latency: Option<Nanos>,
        woken: bool,
    ) {
        let now = host.now();
        let claims = &mut self.claims[task.index()];
        let promise = claims.promise(latency);
        claims.due = promise.map(|promise| now.saturating_add(promise));
        let at = claims.due.filter(|_| woken);
        let timer = at.map(|due| host.sched_timer(due, PROMISE | u64::from(task.0)));
        host.cancel(claims.set_timer(timer));
    }

    /// `task` is not ready any more.
    fn ends_ready(&mut self, host: &mut Host, task: TaskId) -> Option<Nanos> {
        let claims = &mut self.claims[task.index()];
        host.cancel(claims.set_timer(None));
        claims.due.take()
    }

    /// Of the tasks that wait on `cpu` and are due, the one that was due first.
    fn most_overdue(&self, cpu: PcpuId, now: Nanos) -> Option<TaskId> {
        let overdue = |task: TaskId| {
            let due = self.claims[task.index()].due.filter(|due| *due <= now)?;
            Some((due, task))
        };
        self.fair
            .members(cpu)
            .filter_map(overdue)
            .min()
            .map(|it| it.1)
    }

    /// `task` goes home if siblings stay apart.
    fn send_home(&mut self, host: &mut Host, task: TaskId) {
        let claims = &self.claims[task.index()];
        let (Some(home), Some(here)) = (claims.home, self.fair.queue_of(task)) else {
            return;
        };
        if home == here || !self.fair.has_room(task, home) {
            return;
        }
        match self.fair.current(here) == Some(task) {
            true => {
                self.claims[task.index()].leaves = true;
                host.resched(here, None);
            }
            false => self.fair.bring(host, task, home),
        }
    }

    /// Before `cpu` picks: its current task may have to go home, and a waiting task may be due.
    fn prepare(&mut self, host: &mut Host, cpu: PcpuId) {
        let now = host.now();
        if let Some(task) = self.fair.current(cpu) {
            let claims = &mut self.claims[task.index()];
            if std::mem::take(&mut claims.leaves)
                && let Some(home) = claims.home
                && self.fair.has_room(task, home)
            {
                self.fair.bring_current(host, cpu, home);
            }
        }
        if let Some(task) = self.most_overdue(cpu, now) {
            self.fair.order().promise(cpu, task);
        }
    }

    /// `old` lost `cpu` to `next`; either may be `None`.
    fn switched(&mut self, host: &mut Host, old: Option<TaskId>, over: bool, next: Option<TaskId>) {
        let now = host.now();
        if let Some(task) = old {
            let record = &mut self.records[task.index()];
            let cut_short = record.lost(over);
            if cut_short {
                let latency = self.latency(task, now);
                self.becomes_ready(host, task, latency, false);
            }
        }
        if let Some(task) = next {
            let due = self.ends_ready(host, task);
            self.records[task.index()].began(due, now);
        }
    }

    /// Sets weights as the plan says. Tasks whose weight does not change are left alone, so that no
    /// decision about them changes.
    fn weigh(&mut self, plan: &Plan, now: Nanos) {
        let mut changed = Vec::new();
        for wanted in &plan.vms {
            let vm = wanted.vm.index();
            if let Some(weight) = self.weights.get(vm).copied().flatten()
                && self
                    .fair
                    .set_group_weight(vm, claims::of_vm(wanted, weight))
            {
                changed.push(wanted.vm);
            }
        }
        // All changes of vCPUs that share a weight are made before the part of each is worked out.
        let tasks = || (0..self.claims.len()).map(TaskId::from);
        for task in tasks() {
            let claims = &self.claims[task.index()];
            if self.fair.set_own_weight(task, claims.weight(), now) {
                changed.extend(claims.vm);
            }
        }
        for task in tasks() {
            if (self.claims[task.index()].vm).is_some_and(|vm| changed.contains(&vm)) {
                self.fair.learn_weight(task, now);
            }
        }
    }
}

impl HostScheduler for SteeredCfs {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        self.weights = vms.iter().map(|vm| vm.weight.map(scaled)).collect();
        self.fair.know_vms(vms);
    }

    fn know_cgroups(&mut self, groups: &Cgroups) {
        for (vm, weight) in self.weights.iter_mut().enumerate() {
            *weight = groups.of_vm(vm).map(weight_of).or(*weight);
        }
        self.fair.know_cgroups(groups);
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        self.fair.add(host, task);
        let known = host.task(task);
        self.claims
            .push(Claims::new(scaled(known.spec.weight), known.vm()));
        self.records.push(Record::default());
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let now = host.now();
        let by = waker.and_then(|cpu| host.current(cpu));
        let vm = host.task(task).vm();
        let sibling = by.filter(|by| *by != task && vm.is_some() && host.task(*by).vm() == vm);
        self.records[task.index()].woken(sibling, now);
        let latency = self.latency(task, now);
        let home = self.claims[task.index()].home;
        let home = home.filter(|home| {
            self.fair.has_room(task, *home) && self.fair.is_least_crowded(task, *home)
        });
        let order = self.fair.order();
        order.set_granularity(task, latency);
        order.bind(task, home);
        self.becomes_ready(host, task, latency, true);
        self.fair.wake(host, task, waker);
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        self.claims[task.index()].leaves = false;
        self.records[task.index()].yields = false;
        self.fair.block(host, task, cpu);
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let old = self.fair.current(cpu);
        let over = self.fair.order().turn_is_over(cpu);
        self.prepare(host, cpu);
        let next = self.fair.pick(host, cpu);
        if next != old {
            let stays = old.filter(|task| self.fair.queue_of(*task) == Some(cpu));
            self.switched(host, stays, over, next);
        }
        next
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        self.fair.tick(host, cpu);
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        if token & PROMISE == 0 {
            return self.fair.timer(host, token);
        }
        let task = TaskId(token as u32);
        let Some(claims) = self.claims.get_mut(task.index()) else {
            return;
        };
        claims.timer_fired();
        if host.task(task).state == TaskState::Ready
            && let Some(cpu) = self.fair.queue_of(task)
        {
            host.resched(cpu, Some(cpu));
        }
    }

    fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        self.fair.throttled(now, task)
    }

    fn directs_yields(&self) -> bool {
        self.fair.directs_yields()
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool {
        let yields = self.fair.yield_pcpu(host, task, cpu, to);
        self.records[task.index()].yields |= yields;
        yields
    }

    fn turns(&self, host: &Host, task: TaskId, since: Nanos) -> Turns {
        let (doing, cpu) = match host.task(task).state {
            TaskState::Waiting => (Doing::Waiting, host.task(task).last_ran()),
            TaskState::Ready if self.fair.is_throttled(task) => {
                (Doing::Waiting, host.task(task).runqueue())
            }
            TaskState::Ready => (Doing::Ready, host.task(task).runqueue()),
            TaskState::Running(cpu) => (Doing::Running, Some(cpu)),
        };
        Turns {
            doing,
            cpu,
            ..self.records[task.index()].turns(since)
        }
    }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        let now = host.now();
        let mut moved = Vec::new();
        for task in (0..self.claims.len()).map(TaskId::from) {
            let ran = self.ran(task, now);
            let claims = &mut self.claims[task.index()];
            let home = claims.home;
            let leaves_alone = claims.hear(plan, task, ran);
            if claims.home.is_some() && claims.home != home {
                moved.push(task);
            }
            if leaves_alone {
                self.ends_ready(host, task);
                self.fair.order().set_granularity(task, None);
            }
        }
        self.weigh(plan, now);
        for task in moved {
            self.send_home(host, task);
        }
    }
}
