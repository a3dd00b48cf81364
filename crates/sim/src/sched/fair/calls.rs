// SPDX-License-Identifier: GPL-2.0-only
//! Dynamic time-slice (DT) co-scheduling, as its paper did it to CFS: Sukwong and Kim, "Is
//! Co-scheduling Too Expensive for SMP VMs?", EuroSys 2011, §5.2.2 and Algorithm 3.
//!
//! In the paper vCPUs are placed by balance scheduling ([`siblings`](super::siblings)), so that a runqueue has at most
//! one vCPU of a VM. When CFS gives the first vCPU of a VM its turn, each pCPU on whose runqueue a sibling waits is
//! interrupted (`resched_cpu()`) and picks that sibling instead of the task with the least virtual runtime (the paper's
//! change to `pick_next_entity()`). Where siblings may share a runqueue, the one that is given its turn calls those on
//! other runqueues. There are no slots and no pCPU is kept free. Virtual runtime is charged as ever and nothing else is
//! kept account of, as in the paper.
//!
//! What the paper leaves open, as we read it:
//!
//! - *First* is a vCPU that is given a pCPU in fair order, which it did not have before, while no vCPU of its VM leads.
//!   It leads until its turn is over, or until its slice is over if nobody takes the pCPU from it then. Siblings may
//!   run already: Algorithm 3 calls those that do not. A vCPU that is called is not first, so a call makes no
//!   further calls.
//! - A call holds until the sibling is given the pCPU, blocks or is moved, or until the leader stops leading. It is
//!   answered once: how long the sibling then runs is up to CFS.
//! - Where two gangs are called to one pCPU, the lower virtual runtime goes first and the other call
//!   stays.
//! - Siblings that wake up later are not called: they were not runnable.
//! - Algorithm 3 calls every sibling, "only when the scheduler normally selects the first", and "as a result, we still
//!   preserve fairness among VMs". So a call waits while the sibling is ahead of a task there by more than 32 slices,
//!   as under corun's dispatcher (assumed: shares are kept in the long run). That bound is between gangs, each of which
//!   gains by its own calls what it loses by others'. Against a task that has no siblings, a call waits while the
//!   sibling is ahead by more than four slices: where ticks are in step, calls take each of that task's turns, and it
//!   stays behind without end, since it loses what it is owed when it sleeps or is moved. Against a task that woke and
//!   has not had a slice since, a call waits while the sibling is ahead by the granularity within which
//!   `pick_next_entity()` lets others say which should be next "if it's not unfair" (`wakeup_preempt_entity()`): what a
//!   sleeper is owed is bounded, so it would never get back what calls take from it. Without that rule, a VM that
//!   computes takes all its pCPUs back from a VM whose vCPUs wake each other as soon as one of those blocks.

use super::gang::State;
use super::{Fair, Order, RunqueueAccounts};
use crate::host::Host;
use corun_model::{Nanos, PcpuId, TaskId};

/// A sibling that is ahead by more slices than this is called in vain, as under corun's dispatcher
/// (dispatcher/gang_pick.h).
const LEAD: u64 = 32;
/// The same against a task that has no siblings. A tick rounds a turn up to two or three slices, which must not end
/// calls.
const LEAD_BESIDE_LONE: u64 = 4;

/// A VM whose siblings were called.
#[derive(Debug, Default)]
struct Gang {
    /// The vCPU that called, as long as its turn lasts, and until when at most.
    leader: Option<TaskId>,
    until: Nanos,
    /// The pCPUs called.
    at: Vec<PcpuId>,
}

/// The calls that are not answered yet.
#[derive(Debug)]
pub(super) struct Calls {
    /// By VM.
    gangs: Vec<Gang>,
    /// By pCPU, with their VMs.
    called: Vec<Vec<(usize, TaskId)>>,
    /// By task: the VM that it leads.
    leads: Vec<Option<usize>>,
    /// By task: it woke, and has not had a slice since.
    woken: Vec<bool>,
}

impl Calls {
    pub(super) fn new(pcpus: usize) -> Self {
        Self {
            gangs: Vec::new(),
            called: vec![Vec::new(); pcpus],
            leads: Vec::new(),
            woken: Vec::new(),
        }
    }

    pub(super) fn add(&mut self) {
        self.leads.push(None);
        self.woken.push(false);
    }

    /// Notes that `task` wakes, or has had a slice.
    pub(super) fn is_woken(&mut self, task: TaskId, woken: bool) {
        self.woken[task.index()] = woken;
    }

    /// Is it fair to all others on `cpu` if `task` goes first because it is called?
    fn is_fair(
        &self,
        task: TaskId,
        cpu: PcpuId,
        order: &impl Order,
        books: &RunqueueAccounts,
        alone: impl Fn(TaskId) -> bool,
    ) -> bool {
        let mut others = std::iter::successors(books.members(cpu, true), |&member| {
            books.next_member(member, true)
        });
        !others.any(|other| {
            let slices = match self.woken[other.index()] {
                true => 0,
                false if alone(other) => LEAD_BESIDE_LONE,
                false => LEAD,
            };
            other != task && order.is_far_ahead(cpu, task, other, slices)
        })
    }

    /// The vCPU that is called to `cpu`, if that is fair; of several the one that is furthest behind. `alone`: does a
    /// task have no siblings?
    pub(super) fn first(
        &self,
        cpu: PcpuId,
        order: &impl Order,
        books: &RunqueueAccounts,
        now: Nanos,
        alone: impl Fn(TaskId) -> bool,
    ) -> Option<TaskId> {
        let called = self.called[cpu.index()].iter();
        let called = called.filter(|(vm, _)| now < self.gangs[*vm].until);
        let called = called.map(|(_, task)| *task);
        let called = called.filter(|task| self.is_fair(*task, cpu, order, books, &alone));
        called.min_by_key(|task| order.lead(cpu, *task))
    }

    /// `task` is given `cpu`, or leaves its runqueue.
    pub(super) fn answered(&mut self, task: TaskId, cpu: PcpuId) {
        self.called[cpu.index()].retain(|(_, called)| *called != task);
    }

    /// The turn of `task` is over: if it leads, its calls end.
    pub(super) fn turn_ends(&mut self, task: TaskId) {
        let Some(vm) = self.leads[task.index()].take() else {
            return;
        };
        let gang = &mut self.gangs[vm];
        gang.leader = None;
        for cpu in gang.at.drain(..) {
            self.called[cpu.index()].retain(|(of, _)| *of != vm);
        }
    }

    /// Does a vCPU of the VM lead it?
    fn is_led(&self, vm: usize, now: Nanos) -> bool {
        let led = |gang: &Gang| gang.leader.is_some() && now < gang.until;
        self.gangs.get(vm).is_some_and(led)
    }

    /// `task` leads the VM until `until`.
    fn begin(&mut self, vm: usize, task: TaskId, until: Nanos) {
        if self.gangs.len() <= vm {
            self.gangs.resize_with(vm + 1, Gang::default);
        }
        if let Some(old) = self.gangs[vm].leader {
            self.turn_ends(old);
        }
        self.gangs[vm].leader = Some(task);
        self.gangs[vm].until = until;
        self.leads[task.index()] = Some(vm);
    }

    fn call(&mut self, vm: usize, task: TaskId, cpu: PcpuId) {
        self.called[cpu.index()].push((vm, task));
        self.gangs[vm].at.push(cpu);
    }
}

impl<O: Order> Fair<O> {
    /// CFS gives `task` its turn on `cpu`. If it is the first of its VM, those siblings that wait are
    /// called.
    pub(super) fn call_siblings(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        let State::Dynamic(calls) = &mut self.gangs else {
            return;
        };
        let (now, vm) = (host.now(), self.books.task(task).vm);
        let Some(vm) = vm.filter(|vm| !calls.is_led(*vm, now)) else {
            return;
        };
        let until = now.saturating_add(self.order.slice(cpu, task));
        calls.begin(vm, task, until);
        for sibling in &self.siblings[vm] {
            let waits = |there: &PcpuId| self.books.rq(*there).current != Some(*sibling);
            // Siblings on `cpu` itself are about to lose it, or wait for it as `task` did.
            let there = self.books.task(*sibling).on.filter(|there| *there != cpu);
            if let Some(there) = there.filter(waits) {
                calls.call(vm, *sibling, there);
                host.resched(there, Some(cpu));
            }
        }
    }
}
