// SPDX-License-Identifier: GPL-2.0-only
//! The host's side of the hardware model: when the pace of a running task changes, and what that
//! does to the work it ordered.
//!
//! Paces are updated when something happens to a pCPU that shares its core: a task comes or goes,
//! changes its activity, or a switch is over. Where nothing is shared nothing is updated.

use super::hardware::{Caches, ONE, Pace, Seen};
use super::{Activity, Event, Host};
use crate::event_queue::EventId;
use crate::workload::Mix;
use corun_model::{Nanos, PcpuId, TaskId};

impl Host {
    /// The other hardware threads of the core of `cpu`.
    pub(super) fn smt_siblings(&self, cpu: PcpuId) -> impl Iterator<Item = PcpuId> + use<> {
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

    /// The pace of `task` on `cpu` at present.
    pub(super) fn pace(&self, task: TaskId, cpu: PcpuId) -> Pace {
        let mut pace = Pace::FULL;
        if let Some(smt) = &self.smt {
            let does = self.does(task);
            let slower = |other| smt.slowdown(does, self.seen(other)) - ONE;
            pace.smt += self.smt_siblings(cpu).map(slower).sum::<u64>();
        }
        if let Some(caches) = self.caches_of(task) {
            pace.cache = caches.extra(cpu);
        }
        pace
    }

    /// The caches, if the task has said what it does to them.
    fn caches_of(&self, task: TaskId) -> Option<&Caches> {
        let says = self.tasks[task.index()].profile.is_some();
        self.caches.as_ref().filter(|_| says)
    }

    /// `task` begins to work on `cpu`, or begins other work.
    pub(super) fn work_begins(&mut self, task: TaskId, cpu: PcpuId) {
        let slot = &self.tasks[task.index()];
        let Some(profile) = slot.profile.filter(|_| slot.activity.touches_memory()) else {
            return;
        };
        if let Some(caches) = &mut self.caches {
            caches.start(cpu, &profile, slot.progress.at(self.now));
        }
    }

    /// The work that `task` did on `cpu` ends.
    pub(super) fn work_ends(&mut self, task: TaskId, cpu: PcpuId) {
        self.count_instructions(task);
        let slot = &self.tasks[task.index()];
        let progress = slot.progress.at(self.now);
        if slot.profile.is_some()
            && let Some(caches) = &mut self.caches
        {
            let lines = caches.stop(cpu, progress, self.now);
            self.count_lines(task, lines);
            self.repace_disturbed();
        }
    }

    /// Running tasks that lost lines to others go on at another pace.
    fn repace_disturbed(&mut self) {
        while let Some(cpu) = self.caches.as_mut().and_then(Caches::disturbed) {
            self.repace(cpu);
        }
    }

    /// Something that sets the pace of the task on `cpu` may have changed.
    pub(super) fn repace(&mut self, cpu: PcpuId) {
        let Some(task) = self.cpus[cpu.index()].current else {
            return;
        };
        let pace = self.pace(task, cpu);
        let slot = &mut self.tasks[task.index()];
        let same = pace == slot.progress.pace();
        if same && slot.profile.is_none() {
            return;
        }
        if !same {
            slot.book(self.now);
            let lost = slot.progress.change(self.now, pace);
            slot.totals.lose(lost);
        }
        self.schedule_step(task);
    }

    /// What a task does, or what its work is like, has changed.
    pub(super) fn changed(&mut self, task: TaskId) {
        let slot = &self.tasks[task.index()];
        let matters = self.smt.is_some() || slot.profile.is_some();
        if let Some(cpu) = slot.running_on().filter(|_| matters) {
            self.work_ends(task, cpu);
            self.work_begins(task, cpu);
            self.repace(cpu);
            self.felt(cpu);
        }
    }

    /// (Re)schedules the end of the work a running task has ordered, or the next time before that
    /// at which its caches are to be looked at.
    pub(super) fn schedule_step(&mut self, task: TaskId) {
        let slot = &self.tasks[task.index()];
        let look = self.caches_of(task).zip(slot.running_on());
        let look = look.map_or(Nanos::MAX, |(caches, cpu)| caches.next(cpu));
        let by_work = match slot.due.min(look) {
            Nanos::MAX => Nanos::MAX,
            work => slot.progress.when(work),
        };
        // No work at all was done as soon as the task began.
        let at = by_work.min(slot.due_at).max(self.now);
        if at == Nanos::MAX {
            self.events.cancel(slot.step);
            self.tasks[task.index()].step = EventId::NONE;
        } else if !self.events.reschedule(slot.step, at) {
            self.tasks[task.index()].step = self.events.schedule(at, Event::Step(task));
        }
    }

    /// A running task has reached the point that was waited for; is the work that it ordered done?
    pub(crate) fn step_done(&mut self, task: TaskId) -> bool {
        let slot = &mut self.tasks[task.index()];
        slot.step = EventId::NONE;
        let progress = slot.progress.at(self.now);
        let done = progress >= slot.due || self.now >= slot.due_at;
        if done {
            (slot.due, slot.due_at) = (Nanos::MAX, Nanos::MAX);
        }
        if let (Some(cpu), Some(_)) = (slot.running_on(), slot.profile) {
            if let Some(caches) = &mut self.caches
                && caches.next(cpu) <= progress
            {
                caches.book(cpu, progress, self.now);
            }
            self.repace(cpu);
            self.repace_disturbed();
        }
        done
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
        // The task that begins to run here also feels those that are still switching then.
        for other in self.smt_siblings(cpu) {
            self.await_switched(other);
        }
    }

    /// Orders an event for the end of switching on `cpu`, if it is switching and none is ordered.
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
