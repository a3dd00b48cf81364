// SPDX-License-Identifier: GPL-2.0-only
//! What the simulation does to the host: tasks get pCPUs and leave them, ticks come.

use super::hardware::{Pace, Progress};
use super::{Event, Host, Instant, Lane, Task, TaskSpec, TaskState, Totals, VmMeters, Waker};
use crate::event_queue::EventId;
use corun_model::{Nanos, PcpuId, TaskId, VmId};

impl Host {
    /// A VM's meters, which are created with its first time.
    fn meters_of(&mut self, vm: VmId) -> &mut VmMeters {
        if self.meters.len() <= vm.index() {
            self.meters.resize_with(vm.index() + 1, VmMeters::default);
        }
        &mut self.meters[vm.index()]
    }

    pub(crate) fn add_task(&mut self, spec: TaskSpec) -> TaskId {
        let id = TaskId::from(self.tasks.len());
        self.observe(|_, observer| observer.task(id, &spec));
        self.tasks.push(Task::new(spec));
        id
    }

    pub(crate) fn advance(&mut self, now: Nanos) {
        debug_assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        if now > self.now {
            self.moment_over();
        }
        self.now = now;
    }

    pub(crate) fn resched_done(&mut self, cpu: PcpuId) {
        self.cpus[cpu.index()].resched = None;
    }

    /// Sets a task's state, books what it did until now and tells the observer.
    fn enter(&mut self, task: TaskId, state: TaskState) {
        let slot = &mut self.tasks[task.index()];
        slot.settle(self.now);
        let old = std::mem::replace(&mut slot.state, state);
        if let Some(vcpu) = slot.vcpu() {
            self.siblings.change(vcpu, state, self.now);
        }
        if let Some(observer) = &mut self.observer {
            observer.state(self.now, task, slot, old);
        }
    }

    /// A waiting task becomes ready; false if it was not waiting.
    pub(crate) fn make_ready(&mut self, task: TaskId) -> bool {
        if self.tasks[task.index()].state != TaskState::Waiting {
            return false;
        }
        // It is no longer on the runqueue it was on last.
        self.tasks[task.index()].home = None;
        self.enter(task, TaskState::Ready);
        let slot = &mut self.tasks[task.index()];
        slot.totals.wakeups += 1;
        slot.ready_since = self.now;
        true
    }

    /// Reports that `by` made a task ready.
    pub(crate) fn tell_woken(&mut self, task: TaskId, by: Option<Waker>) {
        if let Some(observer) = &mut self.observer {
            observer.woken(self.now, task, &self.tasks[task.index()], by);
        }
    }

    /// The scheduler is done with a wake-up; reports it if the task was put on no runqueue.
    pub(crate) fn wakeup_over(&mut self, task: TaskId) {
        let slot = &self.tasks[task.index()];
        if let Some(observer) = &mut self.observer
            && slot.runqueue().is_none()
        {
            observer.put_aside(self.now, task, slot);
        }
    }

    /// The running task leaves its pCPU, for [`TaskState::Waiting`] or [`TaskState::Ready`].
    /// Returns the pCPU and the work it did there.
    pub(crate) fn take_off(&mut self, task: TaskId, state: TaskState) -> Option<(PcpuId, Nanos)> {
        let cpu = self.tasks[task.index()].running_on()?;
        let done = self.progress(task);
        self.work_ends(task, cpu);
        self.no_step(task);
        if state == TaskState::Waiting {
            let slot = &self.tasks[task.index()];
            if let Some(home) = slot.home {
                self.cpus[home.index()].tasks -= 1;
                if let Some(vm) = slot.vm() {
                    self.stacking.change(vm, home, false, self.now);
                    self.tell_stacked();
                }
            }
        }
        if state == TaskState::Ready {
            self.turn_ends(task);
        }
        self.enter(task, state);
        let slot = &mut self.tasks[task.index()];
        slot.ready_since = self.now;
        slot.preempted = state == TaskState::Ready;
        let slot = &mut self.cpus[cpu.index()];
        slot.current = None;
        slot.idle_since = self.now;
        slot.governor.idles(self.now);
        self.switching(cpu, self.now + self.params.costs.switch);
        Some((cpu, done))
    }

    /// The running `task` loses its pCPU although it wants it.
    fn turn_ends(&mut self, task: TaskId) {
        let slot = &self.tasks[task.index()];
        let turn = self.now - slot.since;
        if let Some(vm) = slot.vm() {
            self.meters_of(vm).turns.record(turn);
        }
    }

    /// A ready task gets the free pCPU `cpu`.
    pub(crate) fn put_on(&mut self, task: TaskId, cpu: PcpuId) {
        self.queue_on(task, cpu);
        let last = self.tasks[task.index()].last_ran;
        let second = !cpu
            .0
            .is_multiple_of(self.params.topology.threads_per_core());
        self.tasks[task.index()].place.second = second;
        self.enter(task, TaskState::Running(cpu));
        if let Some(last) = last.filter(|last| *last != cpu) {
            self.observe(|now, observer| {
                observer.instant(now, Lane::Task(task), Instant::Migration(last));
            });
        }
        let costs = self.params.costs;
        let slot = &mut self.tasks[task.index()];
        let migrates = slot.last_ran.is_some_and(|last| last != cpu);
        let mut starts = self.now + costs.switch;
        if migrates {
            starts += costs.migration;
        }
        let woken = !std::mem::take(&mut slot.preempted);
        if !woken {
            starts += costs.preemption;
        }
        slot.totals.switches += 1;
        slot.totals.migrations += u64::from(migrates);
        slot.last_ran = Some(cpu);
        let waited = self.now - slot.ready_since;
        if let Some(vm) = slot.vm() {
            let meters = self.meters_of(vm);
            match woken {
                true => meters.wakeups.record(waited),
                false => meters.losses.record(waited),
            }
        }
        let exit = self.idle_exit(cpu);
        let slot = &mut self.cpus[cpu.index()];
        slot.governor.wakes(self.now, exit);
        slot.current = Some(task);
        slot.idle += self.now - slot.idle_since;
        slot.switches += 1;
        if self.tasks[task.index()].vm().is_some() {
            let before = slot.last_vcpu.replace(task);
            slot.vcpus_followed += u64::from(before.is_some_and(|before| before != task));
        }
        self.tasks[task.index()].progress = Progress::new(starts, Pace::FULL);
        self.tasks[task.index()].counted = 0;
        self.work_begins(task, cpu);
        let pace = self.pace(task, cpu);
        self.tasks[task.index()].progress = Progress::new(starts, pace);
        self.switching(cpu, starts);
        self.start_tick(cpu);
    }

    /// The next tick of `cpu` on its grid. Ticks of an idle pCPU end by not being renewed.
    fn start_tick(&mut self, cpu: PcpuId) {
        if self.cpus[cpu.index()].tick != EventId::NONE {
            return;
        }
        let period = self.tick_period();
        let skew = match self.params.tick_skew {
            true => period / 2 / self.cpus.len() as u64 * u64::from(cpu.0),
            false => 0,
        };
        let next = (self.now.saturating_sub(skew) / period + 1) * period + skew;
        let at = next + self.lateness(cpu);
        self.cpus[cpu.index()].tick = self.events.schedule(at, Event::Tick(cpu));
    }

    /// A tick of `cpu` is due; is the pCPU busy, so that the scheduler should be told?
    pub(crate) fn tick_due(&mut self, cpu: PcpuId) -> bool {
        self.cpus[cpu.index()].tick = EventId::NONE;
        let busy = self.cpus[cpu.index()].current.is_some();
        if busy {
            self.start_tick(cpu);
        }
        busy
    }

    /// The policy considers `task` CPU-bound from now on, or not.
    pub(crate) fn take_for_computing(&mut self, task: TaskId, computes: bool) {
        let now = self.now;
        let task = &mut self.tasks[task.index()];
        if task.place.computes != computes {
            task.settle(now);
            task.place.computes = computes;
        }
    }

    /// The warm-up is over: all accounts start again.
    pub(crate) fn reset_accounts(&mut self) {
        let now = self.now;
        for task in &mut self.tasks {
            task.settle(now);
            task.earlier = task.earlier.plus(&task.totals);
            task.totals = Totals::default();
        }
        for cpu in &mut self.cpus {
            cpu.switches = 0;
            cpu.vcpus_followed = 0;
            cpu.idle = 0;
            cpu.idle_since = now;
        }
        self.stacking.reset(now);
        self.siblings.reset(now);
        self.meters.clear();
    }

    pub(crate) fn finish(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.finish(self.now);
        }
    }
}
