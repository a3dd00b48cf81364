// SPDX-License-Identifier: GPL-2.0-only
//! What any party may ask the host.

use super::{
    Host, HostParams, Observer, Pcpu, Siblings, Stacking, Task, TaskState, Totals, VmMeters,
};
use crate::waits::Waits;
use corun_model::{Nanos, PcpuId, TaskId, VmId};

impl Host {
    /// The time, ns since the run began.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The machine.
    pub fn params(&self) -> &HostParams {
        &self.params
    }

    /// Tells the observer, if there is one, at the present time: `host.observe(|now, observer| …)`.
    /// Without one this is a branch, and `tell` is not run.
    #[inline]
    pub fn observe(&mut self, tell: impl FnOnce(Nanos, &mut dyn Observer)) {
        if let Some(observer) = &mut self.observer {
            tell(self.now, observer.as_mut());
        }
    }

    /// Number of pCPUs.
    pub fn pcpus(&self) -> usize {
        self.cpus.len()
    }

    /// Every pCPU in order.
    pub fn all_pcpus(&self) -> impl Iterator<Item = PcpuId> + use<> {
        self.params.topology.all()
    }

    /// Time between two ticks.
    pub fn tick_period(&self) -> Nanos {
        1_000_000_000 / Nanos::from(self.params.hz.clamp(1, 10_000))
    }

    /// The task that has `cpu`.
    pub fn current(&self, cpu: PcpuId) -> Option<TaskId> {
        self.cpus[cpu.index()].current
    }

    /// A task.
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// All tasks with their ids.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks
            .iter()
            .enumerate()
            .map(|(index, task)| (TaskId::from(index), task))
    }

    /// How long a guest that retains its context by itself may do so on the pCPU that `task` has, ns.
    pub fn retention_limit(&self, task: TaskId) -> Nanos {
        let cpu = self.tasks[task.index()].running_on();
        // The two hardware threads of a core never both retain contexts while a task waits there
        // (dispatcher/retention.h, where the host holds them).
        let both = |cpu: PcpuId| self.beside_retention(cpu) && self.core_waits(cpu);
        let gives_way = |cpu: PcpuId| self.cpus[cpu.index()].gives_way && !self.is_alone(task);
        let may = |cpu: &PcpuId| !both(*cpu) && !gives_way(*cpu);
        let cpu = cpu.filter(may);
        cpu.map_or(0, |cpu| self.cpus[cpu.index()].retention)
    }

    /// Do hardware threads of one core slow each other down?
    pub fn has_smt(&self) -> bool {
        self.smt.is_some()
    }

    /// When a task that has its pCPU begins to make progress there: the costs of beginning are over then.
    pub fn progress_begins(&self, task: TaskId) -> Nanos {
        self.tasks[task.index()].progress.when(0)
    }

    /// How much work a running task has done since it got its pCPU; 0 if it is not running.
    pub fn progress(&self, task: TaskId) -> Nanos {
        let task = &self.tasks[task.index()];
        task.running_on().map_or(0, |_| task.progress.at(self.now))
    }

    /// A task's accounts since the run began. These are what policies see, for which it makes no difference when
    /// measuring begins.
    pub(crate) fn totals_of_run(&self, task: TaskId) -> Totals {
        self.tasks[task.index()].earlier.plus(&self.totals(task))
    }

    /// A task's accounts up to now.
    pub fn totals(&self, task: TaskId) -> Totals {
        let task = &self.tasks[task.index()];
        let spent = self.now.saturating_sub(task.since);
        let mut totals = task.totals;
        match task.state {
            TaskState::Waiting => totals.wait += spent,
            TaskState::Ready => totals.ready += spent,
            TaskState::Running(_) => {
                totals.ran(spent, task.place);
                totals.did(task.unbooked(self.now), task.activity, task.place);
                let mut progress = task.progress;
                totals.lose(progress.advance(self.now));
            }
        }
        totals
    }

    /// Task switches on all pCPUs: a task starts where another one ran, or none did. Going idle does not
    /// count (it does in Linux' context switches).
    pub fn switches(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.switches).sum()
    }

    /// Switches between vCPUs on all pCPUs: a vCPU starts where the last vCPU was another one. Whether the pCPU idled
    /// in between, or ran tasks that are no vCPUs, does not matter.
    pub fn switches_between_vcpus(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.vcpus_followed).sum()
    }

    /// Time pCPUs spent idle, summed over them.
    pub fn idle(&self) -> Nanos {
        let idle = |cpu: &Pcpu| match cpu.current {
            Some(_) => cpu.idle,
            None => cpu.idle + self.now.saturating_sub(cpu.idle_since),
        };
        self.cpus.iter().map(idle).sum()
    }

    /// The meter of how far siblings run apart.
    pub fn siblings(&mut self) -> &mut Siblings {
        &mut self.siblings
    }

    /// The stacking meter.
    pub fn stacking(&mut self) -> &mut Stacking {
        &mut self.stacking
    }

    fn meters(&self, vm: VmId) -> Option<&VmMeters> {
        self.meters.get(vm.index())
    }

    /// How long the vCPUs of `vm` had a pCPU, each time they lost one that they still wanted.
    pub fn turns(&self, vm: VmId) -> Waits {
        let turns = self.meters(vm).map(|meters| &meters.turns);
        turns.cloned().unwrap_or_default()
    }

    /// How long the vCPUs of `vm` waited for a pCPU, each time that they were woken.
    pub fn wakeups(&self, vm: VmId) -> Waits {
        let wakeups = self.meters(vm).map(|meters| &meters.wakeups);
        wakeups.cloned().unwrap_or_default()
    }

    /// How long the vCPUs of `vm` waited for a pCPU, each time they got one.
    pub fn ready_waits(&self, vm: VmId) -> Waits {
        let mut all = self.wakeups(vm);
        if let Some(meters) = self.meters(vm) {
            all.add(&meters.losses);
        }
        all
    }
}
