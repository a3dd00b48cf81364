// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling on the fair class: when a vCPU runs depends on its siblings.
//!
//! The papers measured co-scheduling as patches of Linux' CFS. How much co-scheduling gains depends on the scheduler it
//! is added to: where VMs are scheduling groups of many vCPUs, a vCPU that wakes waits for a tick
//! ([`weights`](super::weights)); under corun's own dispatcher it does not. So these two exist here as well, in CFS's
//! order, with its placement and its balancing:
//!
//! - [`calls`](super::calls): dynamic time-slice co-scheduling. The first sibling that gets its turn
//!   calls the others that are ready.
//! - [`urgent`](super::urgent): demand-based co-scheduling. A vCPU that a sibling waits for goes
//!   first for a short time, and a vCPU that wakes a sibling is not preempted for as long a time.
//!
//! Both only choose which task is next: time is charged as ever, so that a vCPU that got some out of turn has less
//! later. The fair class asks them through this module.

use super::calls::Calls;
use super::urgent::Urgency;
use super::{Fair, Leave, Order};
use crate::host::Host;
use corun_model::{Boost, Nanos, PcpuId, TaskId};

/// How siblings come to run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gangs {
    /// Not at all: Linux.
    #[default]
    None,
    /// Dynamic time-slice co-scheduling.
    Dynamic,
    /// Demand-based co-scheduling.
    Demand(Boost),
}

/// What has to be remembered for that.
#[derive(Debug)]
pub(super) enum State {
    None,
    Dynamic(Calls),
    Demand(Urgency),
}

impl State {
    pub(super) fn new(gangs: Gangs, pcpus: usize) -> Self {
        match gangs {
            Gangs::None => Self::None,
            Gangs::Dynamic => Self::Dynamic(Calls::new(pcpus)),
            Gangs::Demand(boost) => Self::Demand(Urgency::new(boost, pcpus)),
        }
    }

    /// One more task.
    pub(super) fn add(&mut self) {
        match self {
            Self::None => {}
            Self::Dynamic(calls) => calls.add(),
            Self::Demand(urgency) => urgency.add(),
        }
    }

    /// `task` had a pCPU for `time`.
    pub(super) fn charge(&mut self, task: TaskId, time: Nanos) {
        if let Self::Demand(urgency) = self {
            urgency.charge(task, time);
        }
    }

    /// The current task of `cpu` lets others go first.
    pub(super) fn yields(&mut self, cpu: PcpuId) {
        if let Self::Demand(urgency) = self {
            urgency.yields(cpu);
        }
    }

    /// `task` wakes.
    pub(super) fn wakes(&mut self, task: TaskId) {
        if let Self::Dynamic(calls) = self {
            calls.is_woken(task, true);
        }
    }

    /// The slice of `task` is over.
    pub(super) fn slice_is_over(&mut self, task: TaskId) {
        if let Self::Dynamic(calls) = self {
            calls.is_woken(task, false);
        }
    }

    /// `task` leaves the runqueue of `cpu`.
    pub(super) fn leaves(&mut self, task: TaskId, cpu: PcpuId, why: Leave) {
        match self {
            Self::None => {}
            Self::Dynamic(calls) => {
                calls.answered(task, cpu);
                calls.turn_ends(task);
            }
            Self::Demand(urgency) => urgency.leaves(task, cpu, why),
        }
    }

    /// `cpu` goes from `old` to `next`.
    pub(super) fn switches(&mut self, cpu: PcpuId, old: Option<TaskId>, next: Option<TaskId>) {
        match self {
            Self::None => {}
            Self::Dynamic(calls) => {
                if let Some(old) = old {
                    calls.turn_ends(old);
                }
                if let Some(next) = next {
                    calls.answered(next, cpu);
                }
            }
            Self::Demand(urgency) => {
                if let Some(next) = next {
                    urgency.starts(next, cpu);
                }
            }
        }
    }
}

impl<O: Order> Fair<O> {
    /// The task that has its turn on `cpu`, in fair order or ahead of it.
    pub(super) fn whose_turn(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let current = self.books.rq(cpu).current;
        match &mut self.gangs {
            State::None => self.order.pick(cpu),
            State::Dynamic(calls) => {
                let alone = |task: TaskId| match self.books.task(task).vm {
                    Some(vm) => self.siblings[vm].len() == 1,
                    None => true,
                };
                let called = calls.first(cpu, &self.order, &self.books, host.now(), alone);
                if called.is_some() {
                    return called;
                }
                let next = self.order.pick(cpu)?;
                if current != Some(next) {
                    self.call_siblings(host, next, cpu);
                }
                Some(next)
            }
            State::Demand(urgency) => {
                if let Some(urgent) = urgency.first(cpu, current, &self.order) {
                    return Some(urgent);
                }
                let next = self.order.pick(cpu)?;
                urgency.has_its_turn(next);
                Some(next)
            }
        }
    }

    /// `task`, a vCPU, was woken from pCPU `waker`. Notes it if a sibling that runs there did that.
    pub(super) fn woken_by_sibling(&mut self, task: TaskId, waker: Option<PcpuId>) {
        let State::Demand(urgency) = &mut self.gangs else {
            return;
        };
        let by = waker.and_then(|here| self.books.rq(here).current);
        let vm = |task: TaskId| self.books.task(task).vm;
        let siblings = |by: &TaskId| *by != task && vm(*by).is_some() && vm(*by) == vm(task);
        if let Some(by) = by.filter(siblings) {
            urgency.wakes(by);
        }
    }

    /// A sibling waits for the ready `task` to flush its TLB.
    pub(super) fn flush_awaited(&mut self, host: &mut Host, task: TaskId) {
        let State::Demand(urgency) = &mut self.gangs else {
            return;
        };
        let member = self.books.task(task);
        if let (Some(cpu), Some(_)) = (member.on, member.vm)
            && urgency.awaited(task, cpu)
        {
            host.resched(cpu, None);
        }
    }

    /// The time after which the current task of `cpu` is to be stopped because of co-scheduling.
    pub(super) fn gang_stops_after(&self, cpu: PcpuId) -> Option<Nanos> {
        match (&self.gangs, self.books.rq(cpu).current) {
            (State::Demand(urgency), Some(current)) => {
                urgency.stops_after(cpu, current, &self.order)
            }
            _ => None,
        }
    }
}
