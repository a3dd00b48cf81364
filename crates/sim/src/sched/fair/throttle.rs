// SPDX-License-Identifier: GPL-2.0-only
//! Throttling: tasks of a cgroup that has used its quota up leave their runqueues, and come back.
//!
//! Linux takes the cgroup's entity off the runqueue of a pCPU (`throttle_cfs_rq()`), and with it all tasks that are
//! queued there within; they stay where they are, so that neither a wake-up nor balancing moves them
//! (`throttled_lb_pair()`), and their averages stand still. Meanwhile the entity's weight in the cgroup around it falls
//! to the others. Here, where each task is on its pCPU's runqueue itself
//! ([`weights`](super::weights)), each is taken off it, *parked*. It comes back as the entity does: as if it woke up
//! there (`ENQUEUE_WAKEUP` in `unthrottle_cfs_rq()`), but without preempting any task, unless the pCPU idles. A task
//! that wakes up where its cgroup is throttled is parked as well.
//!
//! When: the pCPU that finds its current task's cgroup without runtime, at a tick or whenever time is
//! charged, is to schedule, and throttles it before it picks. The accounts are [`bandwidth`](super::bandwidth)'s.
//!
//! Simplified: ghosts of a cgroup that is throttled are let go, as if what they owe had worn off; until 6.18
//! a task in the kernel waits with the locks it holds, which no vCPU does here.

use super::bandwidth::{Ask, Bandwidth, Leaf, Pool, Timer};
use super::{Fair, Join, Leave, Order};
use crate::host::Host;
use crate::load::{Cgroups, Quota};
use corun_model::{Nanos, PcpuId, TaskId};

/// Distinguishes timers of quotas from those that end slices: the cgroup is in the lower half.
const PERIOD: u64 = 1 << 40;
const SLACK: u64 = 1 << 41;

/// A task that is kept out of its runqueue.
#[derive(Clone, Copy, Debug)]
struct Parked {
    cpu: PcpuId,
    by: Pool,
    since: Nanos,
    /// Why it will join the runqueue.
    why: Join,
}

/// What is known about a task.
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// The cgroup that it is in, if a quota applies there.
    leaf: Option<Leaf>,
    parked: Option<Parked>,
    /// How long it was parked before, in all.
    spent: Nanos,
}

/// A host's quotas, and the tasks that they keep waiting.
#[derive(Debug)]
pub(super) struct Quotas {
    bandwidth: Bandwidth,
    /// The quota of each single vCPU, by VM.
    of_vcpus: Vec<Option<Quota>>,
    tasks: Vec<Limited>,
}

impl Quotas {
    /// The quotas of these cgroups, if there are any.
    pub(super) fn of(cgroups: &Cgroups, pcpus: usize, interleave: bool) -> Option<Box<Self>> {
        let bandwidth = Bandwidth::of(cgroups, pcpus, interleave)?;
        Some(Box::new(Self {
            bandwidth,
            of_vcpus: cgroups.of_vcpus.clone(),
            tasks: Vec::new(),
        }))
    }

    /// One more task, in the cgroup of this VM: a vCPU of it, or a helper.
    pub(super) fn add(&mut self, vm: Option<usize>, is_vcpu: bool) {
        let own = vm.filter(|_| is_vcpu);
        let own = own.and_then(|vm| self.of_vcpus.get(vm).copied().flatten());
        let leaf = match (vm, own) {
            (Some(vm), Some(quota)) => Some(self.bandwidth.add_vcpu(vm, quota)),
            _ => vm.filter(|&vm| !self.bandwidth.path(vm).is_empty()),
        };
        self.tasks.push(Limited {
            leaf,
            parked: None,
            spent: 0,
        });
    }

    /// The cgroup of a task that has a quota around it.
    fn leaf(&self, task: TaskId) -> Option<Leaf> {
        self.tasks[task.index()].leaf
    }

    /// How long `task` was kept waiting so far.
    pub(super) fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        let it = &self.tasks[task.index()];
        let present = it.parked.map_or(0, |parked| now - parked.since);
        it.spent + present
    }

    /// Does a quota keep `task` waiting?
    pub(super) fn is_parked(&self, task: TaskId) -> bool {
        self.tasks[task.index()].parked.is_some()
    }

    fn park(&mut self, task: TaskId, parked: Parked) {
        self.tasks[task.index()].parked = Some(parked);
        self.bandwidth.park(task, parked.by, parked.cpu);
    }

    /// How many cgroups out from that of the task's VM `pool` is; `None`: it is the task's own within that.
    fn level(&self, task: TaskId, pool: Pool) -> Option<usize> {
        let leaf = self.tasks[task.index()].leaf;
        leaf.map_or(Some(0), |leaf| self.bandwidth.level(leaf, pool))
    }

    /// `task` is not parked any more.
    fn end_parked(&mut self, task: TaskId, now: Nanos) -> Option<Parked> {
        let it = &mut self.tasks[task.index()];
        let parked = it.parked.take();
        it.spent += parked.map_or(0, |parked| now - parked.since);
        parked
    }
}

impl<O: Order> Fair<O> {
    /// The current task of `cpu` had it for `time`: charges that to the quotas around it.
    pub(super) fn charge_quotas(&mut self, task: TaskId, cpu: PcpuId, time: Nanos, now: Nanos) {
        if let Some(quotas) = &mut self.quotas
            && let Some(leaf) = quotas.leaf(task)
        {
            quotas.bandwidth.charge(leaf, cpu, time, now);
        }
    }

    /// Does a quota keep `task` from a pCPU?
    pub(crate) fn is_throttled(&self, task: TaskId) -> bool {
        let quotas = self.quotas.as_ref();
        quotas.is_some_and(|quotas| quotas.is_parked(task))
    }

    /// May `task` not be moved between the two (`throttled_lb_pair()`)?
    pub(super) fn is_held(&self, task: TaskId, from: PcpuId, to: PcpuId) -> bool {
        let Some(quotas) = &self.quotas else {
            return false;
        };
        let held = |leaf| [from, to].map(|cpu| quotas.bandwidth.is_throttled(leaf, cpu));
        let leaf = quotas.leaf(task);
        leaf.map(held).is_some_and(|it| it != [false; 2])
    }

    /// `task` is about to join the runqueue of `cpu`. If a cgroup around it is throttled there it is parked;
    /// true then.
    pub(super) fn stays_out(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        why: Join,
    ) -> bool {
        let now = host.now();
        let Some(quotas) = &mut self.quotas else {
            return false;
        };
        let Some(leaf) = quotas.leaf(task) else {
            return false;
        };
        let Some(by) = quotas.bandwidth.enter(leaf, cpu, now) else {
            return false;
        };
        // The task may have left a ghost there.
        self.order.let_go(cpu, task);
        self.leave_level(task, now);
        self.park(task, by, cpu, why, now);
        host.queue_on(task, cpu);
        true
    }

    /// `task` leaves the runqueue of `cpu`, not being throttled.
    pub(super) fn leave_quotas(&mut self, task: TaskId, cpu: PcpuId, now: Nanos) {
        if let Some(quotas) = &mut self.quotas
            && let Some(leaf) = quotas.leaf(task)
        {
            quotas.bandwidth.leave(leaf, cpu, now);
        }
    }

    /// `cpu` is about to pick another task than `task`, or `task` again: throttles cgroups without runtime left.
    pub(super) fn check_quotas(&mut self, task: Option<TaskId>, cpu: PcpuId, now: Nanos) {
        let Some(quotas) = &mut self.quotas else {
            return;
        };
        if let Some(leaf) = task.and_then(|task| quotas.leaf(task)) {
            for pool in quotas.bandwidth.check(leaf, cpu, now) {
                self.throttle(pool, cpu, now);
            }
        }
    }

    /// Takes all tasks of a cgroup off the runqueue of `cpu`.
    fn throttle(&mut self, pool: Pool, cpu: PcpuId, now: Nanos) {
        let mut next = self.books.members(cpu, false);
        while let Some(task) = next {
            next = self.books.next_member(task, false);
            let Some(quotas) = &mut self.quotas else {
                return;
            };
            let Some(leaf) = quotas.leaf(task) else {
                continue;
            };
            if !quotas.bandwidth.path(leaf).contains(&pool) {
                continue;
            }
            if self.books.task(task).ghost.is_some() {
                self.order.let_go(cpu, task);
                self.end_released(now);
                continue;
            }
            quotas.bandwidth.sink(leaf, pool, cpu, now);
            self.books.age_task(task, now);
            self.leave_queue(task, cpu, Leave::Throttled, now);
            self.park(task, pool, cpu, Join::Woken(cpu), now);
        }
    }

    /// Parks `task`, which is on no runqueue.
    fn park(&mut self, task: TaskId, by: Pool, cpu: PcpuId, why: Join, now: Nanos) {
        if !self.tuning.counts_sleepers() {
            let load = self.books.task(task).load();
            let rq = self.books.rq_mut(cpu);
            rq.load.value = rq.load.value.saturating_sub(load);
        }
        self.books.task_mut(task).last = Some(cpu);
        let since = now;
        if let Some(quotas) = &mut self.quotas {
            let parked = Parked {
                cpu,
                by,
                since,
                why,
            };
            let level = quotas.level(task, by);
            quotas.park(task, parked);
            self.hold_in_groups(task, level, true, now);
        }
    }

    /// The cgroup that is `level` cgroups out from that of the task's VM withdraws what `task` counts around it, or
    /// gives it back. A cgroup that the task has to itself within the VM's (`None`) does so in the VM's, as if the vCPU
    /// slept.
    fn hold_in_groups(&mut self, task: TaskId, level: Option<usize>, held: bool, now: Nanos) {
        let Some(level) = level else {
            self.count_in_group(task, !held, now);
            return;
        };
        if held {
            self.books.age_task(task, now);
            self.books.task_mut(task).frozen = true;
        }
        let vm = self.books.task(task).vm;
        let decay = self.books.decay();
        self.groups.hold(vm, level, held, now, decay);
    }

    /// A cgroup is not throttled on `cpu` any more (`unthrottle_cfs_rq()`).
    fn unthrottle(&mut self, host: &mut Host, pool: Pool, cpu: PcpuId) {
        let now = host.now();
        self.update(cpu, now);
        let Some(quotas) = &mut self.quotas else {
            return;
        };
        let freed = quotas.bandwidth.unthrottle(pool, cpu);
        for task in freed {
            self.unpark(host, task, pool, cpu);
        }
        let rq = self.books.rq(cpu);
        if rq.current.is_none() && rq.nr > 0 {
            host.resched(cpu, None);
        }
    }

    /// `task`, which `inner` kept out of the runqueue of `cpu`, joins it unless a cgroup around keeps it out.
    fn unpark(&mut self, host: &mut Host, task: TaskId, inner: Pool, cpu: PcpuId) {
        let now = host.now();
        let Some(quotas) = &mut self.quotas else {
            return;
        };
        let (Some(leaf), Some(parked)) = (quotas.leaf(task), quotas.end_parked(task, now)) else {
            return;
        };
        let level = quotas.level(task, inner);
        if let Some(by) = quotas.bandwidth.rise(leaf, inner, cpu, now) {
            let outer = quotas.level(task, by);
            let since = now;
            quotas.park(
                task,
                Parked {
                    by,
                    since,
                    ..parked
                },
            );
            self.hold_in_groups(task, level, false, now);
            self.hold_in_groups(task, outer, true, now);
            return;
        }
        self.hold_in_groups(task, level, false, now);
        self.books.thaw(task, now);
        self.refresh_weight(task, now);
        if !self.tuning.counts_sleepers() {
            let load = self.books.task(task).load();
            self.books.rq_mut(cpu).load.value += load;
        }
        self.join_queue(host, task, cpu, parked.why);
    }

    /// Does what the accounts ask for. `here` is the pCPU where that happens, if it is one; if it `picks` anyway, it
    /// need not be asked to.
    pub(super) fn answer_quotas(&mut self, host: &mut Host, here: Option<PcpuId>, picks: bool) {
        let Some(quotas) = &mut self.quotas else {
            return;
        };
        for ask in quotas.bandwidth.asks() {
            match ask {
                Ask::Resched(cpu) if picks && here == Some(cpu) => {}
                Ask::Resched(cpu) => host.resched(cpu, here),
                Ask::Set(timer, at) => {
                    let token = match timer {
                        Timer::Period(pool) => PERIOD | pool as u64,
                        Timer::Slack(pool) => SLACK | pool as u64,
                    };
                    host.sched_timer(at, token);
                }
            }
        }
    }

    /// A timer fired: if it is one of quotas, true.
    pub(super) fn quota_timer(&mut self, host: &mut Host, token: u64) -> bool {
        let Some(quotas) = &mut self.quotas else {
            return false;
        };
        let pool = token as u32 as Pool;
        let freed = match token & (PERIOD | SLACK) {
            PERIOD => quotas.bandwidth.period_over(pool),
            SLACK => quotas.bandwidth.slack_over(pool, host.now()),
            _ => return false,
        };
        for cpu in freed {
            self.unthrottle(host, pool, cpu);
        }
        self.answer_quotas(host, None, false);
        true
    }
}
