// SPDX-License-Identifier: GPL-2.0-only
//! The host's side of the hardware model: when the pace of a running task changes, and what that
//! does to the work it ordered.
//!
//! Paces are looked at when something happens to a pCPU that shares its core: a task comes or goes,
//! changes its activity, or a switch is over. Where nothing is shared nothing is looked at.

use super::hardware::{ONE, Pace, Seen};
use super::{Activity, Event, Host};
use crate::engine::EventId;
use crate::workload::Mix;
use corun_model::{Nanos, PcpuId, TaskId};

impl Host {
    /// The other hardware threads of the core of `cpu`.
    fn smt_siblings(&self, cpu: PcpuId) -> impl Iterator<Item = PcpuId> + use<> {
        let threads = self.params.topology.threads_per_core();
        let first = self.params.topology.core(cpu) * threads;
        (first..first + threads)
            .map(PcpuId)
            .filter(move |other| *other != cpu)
    }

    /// What a task does with its hardware thread.
    fn does(&self, task: TaskId) -> (Activity, Mix) {
        let task = &self.tasks[task.index()];
        let mix = task.profile.and_then(|profile| profile.mix);
        (task.activity, mix.unwrap_or(Mix::TYPICAL))
    }

    /// What the SMT siblings of `cpu` see of it.
    fn seen(&self, cpu: PcpuId) -> Seen {
        let slot = &self.cpus[cpu.index()];
        match slot.current {
            _ if self.now < slot.switching_until => Seen::Switching,
            None => Seen::Idle,
            Some(task) => {
                let (activity, mix) = self.does(task);
                Seen::Busy(activity, mix)
            }
        }
    }

    /// The pace of `task` on `cpu` as things are.
    pub(super) fn pace(&self, task: TaskId, cpu: PcpuId) -> Pace {
        let Some(smt) = &self.smt else {
            return Pace::FULL;
        };
        let does = self.does(task);
        let slower = |other| smt.slowdown(does, self.seen(other)) - ONE;
        let sum: u64 = self.smt_siblings(cpu).map(slower).sum();
        Pace {
            smt: ONE + sum,
            ..Pace::FULL
        }
    }

    /// Something that sets the pace of the task on `cpu` may have changed.
    pub(super) fn repace(&mut self, cpu: PcpuId) {
        let Some(task) = self.cpus[cpu.index()].current else {
            return;
        };
        let pace = self.pace(task, cpu);
        let slot = &mut self.tasks[task.index()];
        if pace == slot.progress.pace() {
            return;
        }
        let lost = slot.progress.change(self.now, pace);
        slot.totals.lose(lost);
        self.schedule_step(task);
    }

    /// What a task does, or what its work is like, is not what it was.
    pub(super) fn changed(&mut self, task: TaskId) {
        if let Some(cpu) = self.tasks[task.index()].running_on() {
            self.repace(cpu);
            self.felt(cpu);
        }
    }

    /// (Re)schedules the end of the work a running task has ordered.
    pub(super) fn schedule_step(&mut self, task: TaskId) {
        let slot = &self.tasks[task.index()];
        self.events.cancel(slot.step);
        self.tasks[task.index()].step = match slot.due {
            Nanos::MAX => EventId::NONE,
            due => self
                .events
                .schedule(slot.progress.when(due), Event::Step(task)),
        };
    }

    /// What `cpu` does changed: its SMT siblings feel it.
    pub(super) fn felt(&mut self, cpu: PcpuId) {
        if self.smt.is_some() {
            self.smt_siblings(cpu).for_each(|other| self.repace(other));
        }
    }

    /// `cpu` is busy switching until then: from one task to another, to idle or from it.
    pub(super) fn switching(&mut self, cpu: PcpuId, until: Nanos) {
        if self.smt.is_none() {
            return;
        }
        let slot = &mut self.cpus[cpu.index()];
        slot.switching_until = slot.switching_until.max(until);
        if self
            .smt_siblings(cpu)
            .any(|other| self.current(other).is_some())
        {
            self.await_switched(cpu);
        }
        self.felt(cpu);
        // Those that still switch when this one begins to run are felt by it, too.
        for other in self.smt_siblings(cpu) {
            self.await_switched(other);
        }
    }

    /// Orders an event for the end of switching on `cpu`, if it is and none is ordered.
    fn await_switched(&mut self, cpu: PcpuId) {
        let slot = &mut self.cpus[cpu.index()];
        if self.now < slot.switching_until && !slot.switched_ordered {
            slot.switched_ordered = true;
            let at = slot.switching_until;
            self.events.schedule(at, Event::Switched(cpu));
        }
    }

    /// The end of switching on `cpu` that was ordered is here; it may have been put off since.
    pub(crate) fn switched(&mut self, cpu: PcpuId) {
        self.cpus[cpu.index()].switched_ordered = false;
        self.await_switched(cpu);
        self.felt(cpu);
    }
}
