// SPDX-License-Identifier: GPL-2.0-only
//! Demand-based co-scheduling in time, "urgent vCPU first", as the authors' kernel does it to CFS: Kim et al.,
//! "Demand-based coordinated scheduling for SMP VMs", ASPLOS 2013, and its published code
//! (hwanju/demand-cosched, `CONFIG_BALANCE_SCHED` in kernel/sched_fair.c of Linux 3.1). In space it is
//! load-conscious balance scheduling ([`siblings`](super::siblings)).
//!
//! A vCPU that a sibling waits for becomes urgent. It joins its runqueue's queue of urgent vCPUs and its pCPU is
//! rescheduled at once, whatever the wake-up granularity says (`urgent_queue`, `enqueue_urgent_entity()`). A pick takes
//! the first urgent vCPU whose lead over the task that would be next in fair order is below a bound of virtual runtime
//! (`can_urgently_preempt()`), and lets it run for its urgent time: until that is used up nobody takes the pCPU from it
//! (`should_delay_resched()`), and then a timer does, if another vCPU is urgent there or it was not its turn
//! (`set_urgent_tslice()`). If the vCPU gives the pCPU up before, yielding to a sibling that it spins for, or is moved
//! while it waits, what is left is kept for its next turn (`put_urgent_entity()`). Virtual runtime is charged as ever,
//! and the lead outlasts the vCPU's sleep: a vCPU whose siblings wake each other all the time reaches the bound and
//! then waits for its turn.
//!
//! The authors' kernel sees interrupts in KVM. A vCPU that is to flush its TLB becomes urgent. A vCPU that sends a
//! reschedule IPI, as after releasing a lock, is urgent without being queued: it has its pCPU, and for a moment nobody
//! takes that away (*delayed preemption*). The vCPU that the IPI wakes waits as ever. corun's own `cosched-demand`
//! makes the woken vCPU urgent instead, since a host's dispatcher sees which vCPU is woken; it does not delay the end
//! of the waker's turn.
//!
//! As we read it where the code leaves it open or is at odds with itself:
//!
//! - In the code the bound compares group entities. Here a vCPU's virtual runtime is that of its VM on this pCPU,
//!   weights being parts of the VM's ([`weights`](super::weights)); so the bound also holds for vCPUs of VMs without a
//!   weight.
//! - Urgent time adds up to the limit until the vCPU waits or has its turn in fair order. In the code, the limit is
//!   that of one stay on the pCPU.
//! - An urgent vCPU that fair order picks leaves the queue of urgent vCPUs. In the code, it stays in it, and has the
//!   pCPU a second time for nothing.

use super::{Leave, Order};
use corun_model::{Boost, Nanos, PcpuId, TaskId};

/// A task's urgent time: what is left of it, and what it has used of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grant {
    left: Nanos,
    spent: Nanos,
}

/// Which vCPUs are urgent.
#[derive(Debug)]
pub(super) struct Urgency {
    boost: Boost,
    /// By task.
    grants: Vec<Grant>,
    /// By pCPU: the vCPUs that wait for it and are urgent, in the order of becoming so.
    queues: Vec<Vec<TaskId>>,
    /// By pCPU: is the vCPU that has it yielding?
    yields: Vec<bool>,
}

impl Urgency {
    pub(super) fn new(boost: Boost, pcpus: usize) -> Self {
        Self {
            boost,
            grants: Vec::new(),
            queues: vec![Vec::new(); pcpus],
            yields: vec![false; pcpus],
        }
    }

    pub(super) fn add(&mut self) {
        self.grants.push(Grant::default());
    }

    /// `task`, which has a pCPU, has woken a sibling.
    pub(super) fn wakes(&mut self, task: TaskId) {
        let grant = &mut self.grants[task.index()];
        let allowed = self.boost.limit.saturating_sub(grant.spent);
        grant.left = grant.left.max(self.boost.wake).min(allowed);
    }

    /// A sibling waits for `task`, which is ready on `cpu`, to flush its TLB. Does the model see that, and is `task`
    /// urgent?
    pub(super) fn awaited(&mut self, task: TaskId, cpu: PcpuId) -> bool {
        self.boost.sees_flushes && self.urge(task, cpu, self.boost.flush)
    }

    fn urge(&mut self, task: TaskId, cpu: PcpuId, time: Nanos) -> bool {
        let grant = &mut self.grants[task.index()];
        let allowed = self.boost.limit.saturating_sub(grant.spent);
        let queue = &mut self.queues[cpu.index()];
        if time == 0 || allowed == 0 || queue.contains(&task) {
            return false;
        }
        grant.left = grant.left.max(time).min(allowed);
        queue.push(task);
        true
    }

    /// `task` had its pCPU for `time`.
    pub(super) fn charge(&mut self, task: TaskId, time: Nanos) {
        let grant = &mut self.grants[task.index()];
        let used = time.min(grant.left);
        grant.left -= used;
        grant.spent += used;
    }

    /// The vCPU that has `cpu` yields it at the next pick, however urgent.
    pub(super) fn yields(&mut self, cpu: PcpuId) {
        self.yields[cpu.index()] = true;
    }

    /// The vCPU that gets `cpu` before fair order is asked: the `current` task if it is urgent, else the first urgent
    /// vCPU that is not too far ahead.
    pub(super) fn first(
        &mut self,
        cpu: PcpuId,
        current: Option<TaskId>,
        order: &impl Order,
    ) -> Option<TaskId> {
        let yields = std::mem::take(&mut self.yields[cpu.index()]);
        let urgent = |task: &TaskId| !yields && self.grants[task.index()].left > 0;
        let near = |task: &TaskId| order.lead(cpu, *task) < self.boost.lead as i64;
        let mut queue = self.queues[cpu.index()].iter().copied();
        current.filter(urgent).or_else(|| queue.find(near))
    }

    /// Fair order gives `task` its turn. It first uses what is left of its urgent time.
    pub(super) fn has_its_turn(&mut self, task: TaskId) {
        let grant = &mut self.grants[task.index()];
        if grant.left == 0 {
            grant.spent = 0;
        }
    }

    /// `task` is given `cpu`.
    pub(super) fn starts(&mut self, task: TaskId, cpu: PcpuId) {
        self.queues[cpu.index()].retain(|urgent| *urgent != task);
    }

    /// `task` leaves the runqueue of `cpu`. If it goes to wait, its sibling got what it wanted.
    pub(super) fn leaves(&mut self, task: TaskId, cpu: PcpuId, why: Leave) {
        self.starts(task, cpu);
        if why == Leave::Sleeps {
            self.grants[task.index()] = Grant::default();
        }
    }

    /// After which time the `current` task of `cpu` must give way, being urgent; `None`: when fair
    /// order says so.
    pub(super) fn stops_after(
        &self,
        cpu: PcpuId,
        current: TaskId,
        order: &impl Order,
    ) -> Option<Nanos> {
        let left = self.grants[current.index()].left;
        let out_of_turn = || order.lead(cpu, current) >= 0;
        let others = !self.queues[cpu.index()].is_empty();
        (left > 0 && (others || out_of_turn())).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::cfs::{CfsParams, fair};
    use crate::testing::host;
    use corun_model::time::US;

    const TASK: TaskId = TaskId(0);
    const CPU: PcpuId = PcpuId(0);

    fn urgency() -> Urgency {
        let mut urgency = Urgency::new(Boost::default(), 1);
        urgency.add();
        urgency
    }

    /// A vCPU that is asked for again and again is urgent for 500 us, then no more until it has had
    /// its turn.
    #[test]
    fn urgent_time_adds_up_to_the_limit() {
        let mut urgency = urgency();
        let mut total = 0;
        while urgency.awaited(TASK, CPU) {
            urgency.starts(TASK, CPU);
            assert_eq!(urgency.grants[0].left, 100 * US);
            urgency.charge(TASK, 150 * US);
            total += 100 * US;
        }
        assert_eq!(total, 500 * US);
        urgency.has_its_turn(TASK);
        assert!(urgency.awaited(TASK, CPU));
    }

    /// Urgent time that is left when a vCPU loses the pCPU is there when it has it again; being asked for meanwhile
    /// fills it up.
    #[test]
    fn what_is_left_is_kept_for_the_next_turn() {
        let mut urgency = urgency();
        assert!(urgency.awaited(TASK, CPU));
        assert!(!urgency.awaited(TASK, CPU), "it is in the queue already");
        urgency.starts(TASK, CPU);
        urgency.charge(TASK, 30 * US);
        urgency.leaves(TASK, CPU, Leave::Moves);
        urgency.has_its_turn(TASK);
        let (left, spent) = (70 * US, 30 * US);
        assert_eq!(urgency.grants[0], Grant { left, spent });
        assert!(urgency.awaited(TASK, CPU));
        let left = 100 * US;
        assert_eq!(urgency.grants[0], Grant { left, spent });
        urgency.leaves(TASK, CPU, Leave::Sleeps);
        assert_eq!(urgency.grants[0], Grant::default());
        assert!(urgency.queues[0].is_empty());
    }

    /// A vCPU that wakes siblings all the time is kept for 500 us, then no more until it has had
    /// its turn.
    #[test]
    fn a_vcpu_that_wakes_siblings_is_kept_for_no_longer_than_the_limit() {
        let mut urgency = urgency();
        for _ in 0..10 {
            urgency.wakes(TASK);
            urgency.charge(TASK, 60 * US);
        }
        let (left, spent) = (0, 500 * US);
        assert_eq!(urgency.grants[0], Grant { left, spent });
        urgency.has_its_turn(TASK);
        urgency.wakes(TASK);
        let (left, spent) = (100 * US, 0);
        assert_eq!(urgency.grants[0], Grant { left, spent });
    }

    #[test]
    fn the_urgent_keep_their_pcpu_unless_they_yield_it() {
        let host = host("1n1l1c1t", 1000);
        let order = fair(CfsParams::preset("4.x", 1).unwrap(), &host).order;
        let mut urgency = urgency();
        urgency.wakes(TASK);
        assert_eq!(urgency.first(CPU, Some(TASK), &order), Some(TASK));
        urgency.yields(CPU);
        assert_eq!(urgency.first(CPU, Some(TASK), &order), None);
        assert_eq!(urgency.first(CPU, Some(TASK), &order), Some(TASK));
    }

    #[test]
    fn without_a_boost_nobody_is_urgent() {
        let boost = Boost {
            wake: 0,
            sees_flushes: false,
            ..Boost::default()
        };
        let mut urgency = Urgency::new(boost, 1);
        urgency.add();
        urgency.wakes(TASK);
        assert_eq!(urgency.grants[0], Grant::default());
        assert!(!urgency.awaited(TASK, CPU), "flushes are not seen");
    }
}
