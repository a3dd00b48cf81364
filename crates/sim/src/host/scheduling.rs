// SPDX-License-Identifier: GPL-2.0-only
//! What schedulers tell the host and ask it for.

use super::{Activity, Counter, Event, Host, Order, TaskState};
use crate::event_queue::EventId;
use crate::load::Offered;
use corun_model::{Nanos, PcpuId, TaskId};

impl Host {
    /// Asks `cpu` to schedule: at once if `from` is that pCPU itself, else after an IPI, and after
    /// waking up if it idles.
    pub fn resched(&mut self, cpu: PcpuId, from: Option<PcpuId>) {
        let costs = self.params.costs;
        let slot = &self.cpus[cpu.index()];
        let delay = match (from == Some(cpu), slot.current) {
            (true, _) => 0,
            (false, Some(_)) => costs.ipi,
            (false, None) => costs.ipi + self.idle_exit(cpu),
        };
        let at = self.now.saturating_add(delay);
        if let Some((due, event)) = slot.resched {
            if due > at {
                self.events.reschedule(event, at);
                self.cpus[cpu.index()].resched = Some((at, event));
            }
            return;
        }
        let event = self.events.schedule(at, Event::Resched(cpu));
        self.cpus[cpu.index()].resched = Some((at, event));
    }

    /// What the idle `cpu` needs to get going. A core sleeps no deeper than its least idle hardware
    /// thread.
    pub(super) fn idle_exit(&self, cpu: PcpuId) -> Nanos {
        let states = &self.params.idle_states;
        if states.is_empty() {
            return self.params.costs.idle_wake;
        }
        let mut siblings = self.smt_siblings(cpu);
        let state = match siblings.any(|other| self.cpus[other.index()].current.is_some()) {
            true => states.first().copied(),
            false => {
                let governor = &self.cpus[cpu.index()].governor;
                governor.state(states, self.now, self.tick_period())
            }
        };
        state.map_or(self.params.costs.idle_wake, |state| state.exit)
    }

    /// Guests that retain their contexts by themselves may do so on `cpu` for so long at a time, or
    /// until another task wants to run there if it `gives_way`.
    pub fn retain_on(&mut self, cpu: PcpuId, limit: Nanos, gives_way: bool) {
        let slot = &mut self.cpus[cpu.index()];
        let before = std::mem::replace(&mut slot.retention, limit);
        slot.gives_way = gives_way;
        if limit != before {
            self.observe(|now, o| o.counter(now, Counter::RetentionLimit(cpu), limit));
        }
    }

    /// Calls the scheduler's `timer` with `token` at time `at`.
    pub fn sched_timer(&mut self, at: Nanos, token: u64) -> EventId {
        self.events
            .schedule(at.max(self.now), Event::SchedTimer(token))
    }

    /// Puts a timer off to time `at`, or brings it forward; false if it has fired.
    pub fn put_off(&mut self, timer: EventId, at: Nanos) -> bool {
        self.events.reschedule(timer, at.max(self.now))
    }

    /// Takes a timer back; nothing happens if it has fired.
    pub fn cancel(&mut self, timer: EventId) {
        self.events.cancel(timer);
    }

    /// The scheduler put a ready task on the runqueue of `cpu`.
    pub fn queue_on(&mut self, task: TaskId, cpu: PcpuId) {
        let now = self.now;
        let slot = &mut self.tasks[task.index()];
        let old = if slot.state == TaskState::Waiting {
            None
        } else {
            slot.home
        };
        if old == Some(cpu) {
            return;
        }
        slot.home = Some(cpu);
        if let Some(observer) = &mut self.observer {
            observer.queued(now, task, slot, old, cpu);
        }
        let vm = slot.vm();
        if let Some(old) = old {
            self.cpus[old.index()].tasks -= 1;
        }
        self.joined(cpu);
        let Some(vm) = vm else { return };
        if let Some(old) = old {
            self.stacking.change(vm, old, false, now);
        }
        self.stacking.change(vm, cpu, true, now);
        self.tell_stacked();
    }

    /// May the scheduler be asked to let `to` go before a task that runs on `cpu`? What
    /// `yield_to()` checks first.
    pub(crate) fn yields_help(&self, cpu: PcpuId, to: TaskId) -> Offered {
        let other = self.task(to);
        let Some(there) = other.runqueue().filter(|_| other.state == TaskState::Ready) else {
            return Offered::Refused;
        };
        let alone = |cpu: PcpuId| self.cpus[cpu.index()].tasks <= 1;
        match alone(cpu) && alone(there) {
            true => Offered::Pointless,
            false => Offered::Taken,
        }
    }

    pub(super) fn tell_stacked(&mut self) {
        if let Some(observer) = &mut self.observer {
            let stacked = self.stacking.stacked();
            observer.counter(self.now, Counter::StackedRunqueues, stacked);
        }
    }

    /// A task has come to the runqueue of `cpu`.
    pub(super) fn joined(&mut self, cpu: PcpuId) {
        let slot = &mut self.cpus[cpu.index()];
        slot.tasks += 1;
        let Some(current) = slot.current else { return };
        let gives_way = match self.tasks[current.index()].activity {
            Activity::HaltPolling => true,
            Activity::Retention => {
                (slot.gives_way || self.beside_retention(cpu)) && self.retains_as_told(cpu)
            }
            _ => false,
        };
        if gives_way {
            self.orders.push_back(Order::Crowded(current));
        }
    }

    /// Does the task on `cpu` retain its context there, for as long as the policy says?
    fn retains_as_told(&self, cpu: PcpuId) -> bool {
        let slot = &self.cpus[cpu.index()];
        let retains = |task: TaskId| self.tasks[task.index()].activity == Activity::Retention;
        slot.retention > 0 && slot.current.is_some_and(retains)
    }

    /// Is a context retained, as told, on an SMT sibling of `cpu`?
    pub(super) fn beside_retention(&self, cpu: PcpuId) -> bool {
        let mut others = self.smt_siblings(cpu);
        others.any(|other| self.retains_as_told(other))
    }

    /// Does a task wait for a hardware thread of the core of `cpu`?
    pub(super) fn core_waits(&self, cpu: PcpuId) -> bool {
        let waits = |cpu: PcpuId| {
            let slot = &self.cpus[cpu.index()];
            slot.tasks > u32::from(slot.current.is_some())
        };
        waits(cpu) || self.smt_siblings(cpu).any(waits)
    }

    /// The task on `cpu` if the host polls on its behalf.
    pub(crate) fn polled_on(&self, cpu: PcpuId) -> Option<TaskId> {
        let polled = |task: &TaskId| self.tasks[task.index()].activity == Activity::HaltPolling;
        self.current(cpu).filter(polled)
    }

    /// Is `task` the only one on the runqueue of its pCPU (`single_task_running`)?
    pub fn is_alone(&self, task: TaskId) -> bool {
        let home = self.tasks[task.index()].home;
        home.is_some_and(|cpu| self.cpus[cpu.index()].tasks == 1)
    }
}
