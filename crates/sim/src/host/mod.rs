// SPDX-License-Identifier: GPL-2.0-only
//! The modelled host: pCPUs, tasks, the clock, and what goes on between them.
//!
//! `Host` knows facts only: who runs where since when, what work is under way. Who *should* run is
//! the business of a [`HostScheduler`](crate::sched::HostScheduler), what tasks *want* that of a
//! [`Load`](crate::load::Load). Both act on the host through its methods; what concerns the other
//! one (a task blocks, a task wakes) is kept as an order until the caller has returned, so that
//! neither is called while it is at work.
//!
//! Work and time differ: a load orders work in ns of undisturbed progress; the host turns it into
//! time, with the cost of the switch before it, at the pace that the hardware allows.

mod activity;
mod costs;
mod hardware;
mod observer;
mod pacing;
mod siblings;
mod stacking;
mod task;
#[cfg(test)]
mod tests;

pub use activity::{Activity, Profile};
pub use costs::{Costs, parameters};
pub use hardware::{CacheParams, HardwareParams, SmtParams};
pub use observer::{Counter, Instant, Lane, Observer, Span, VcpuActivity};
pub use siblings::{SiblingSkew, Siblings};
pub use stacking::{MOST as MOST_SIBLINGS, Stacking};
pub use task::{Task, TaskSpec, TaskState, Totals};

use crate::engine::{EventId, EventQueue};
use crate::rng::Rng;
use crate::waits::Waits;
use corun_model::{Nanos, PcpuId, TaskId, Topology, VmId};
use hardware::{Caches, Pace, Progress, Smt};
use std::collections::VecDeque;

/// The machine and its kernel's clockwork.
#[derive(Clone, Debug)]
pub struct HostParams {
    /// Nodes, LLCs, cores, SMT threads.
    pub topology: Topology,
    /// Scheduler ticks per second on a busy pCPU, 1–10000. An idle pCPU has none.
    pub hz: u32,
    /// Are the ticks of the pCPUs spread over half a period? Linux did so until 2.6.38.
    pub tick_skew: bool,
    /// What scheduling costs.
    pub costs: Costs,
    /// What tasks that share hardware do to each other.
    pub hardware: HardwareParams,
}

/// What is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Resched(PcpuId),
    Tick(PcpuId),
    Step(TaskId),
    Switched(PcpuId),
    LoadTimer(u64),
    SchedTimer(u64),
    Policy,
    WarmUpOver,
}

/// What a load asked for that the scheduler must hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Wake {
        task: TaskId,
        waker: Option<PcpuId>,
    },
    Block(TaskId),
    Yield(TaskId),
    /// The host polls on behalf of this task, and another one wants its pCPU.
    Crowded(TaskId),
    /// A sibling waits for this task, which is ready, to flush its TLB.
    FlushIpi(TaskId),
}

/// A pCPU in the run.
#[derive(Debug)]
struct Pcpu {
    current: Option<TaskId>,
    /// The next reschedule, if one is due.
    resched: Option<(Nanos, EventId)>,
    tick: EventId,
    switches: u64,
    idle_since: Nanos,
    idle: Nanos,
    /// Ready and running tasks on its runqueue.
    tasks: u32,
    /// Until then its SMT siblings feel a switch.
    switching_until: Nanos,
    /// Is the end of that ordered?
    switched_ordered: bool,
}

/// The modelled host.
pub struct Host {
    params: HostParams,
    /// There if cores have more than one hardware thread and that is to be felt.
    smt: Option<Smt>,
    caches: Option<Caches>,
    now: Nanos,
    pub(crate) events: EventQueue<Event>,
    pub(crate) orders: VecDeque<Order>,
    cpus: Vec<Pcpu>,
    tasks: Vec<Task>,
    stacking: Stacking,
    siblings: Siblings,
    observer: Option<Box<dyn Observer>>,
    ready_waits: Vec<Waits>,
    /// How late timer interrupts of each pCPU come. Runs with different seeds share these streams:
    /// the host knows no seed, its load does.
    lateness: Vec<Rng>,
}

impl Host {
    pub(crate) fn new(params: HostParams, observer: Option<Box<dyn Observer>>) -> Self {
        let pcpus = params.topology.pcpus() as usize;
        let cpu = || Pcpu {
            current: None,
            resched: None,
            tick: EventId::NONE,
            switches: 0,
            idle_since: 0,
            idle: 0,
            tasks: 0,
            switching_until: 0,
            switched_ordered: false,
        };
        let shared = params.topology.threads_per_core() > 1;
        let caches = params.hardware.caches;
        Self {
            smt: params.hardware.smt.filter(|_| shared).map(Smt::new),
            caches: caches.map(|caches| Caches::new(caches, params.topology)),
            params,
            now: 0,
            events: EventQueue::default(),
            orders: VecDeque::new(),
            cpus: (0..pcpus).map(|_| cpu()).collect(),
            tasks: Vec::new(),
            stacking: Stacking::new(pcpus),
            siblings: Siblings::default(),
            observer,
            ready_waits: Vec::new(),
            lateness: (0..pcpus as u64)
                .map(|cpu| Rng::of(0, "timer interrupt", cpu))
                .collect(),
        }
    }

    /// How late the next timer interrupt of `cpu` is.
    pub(crate) fn lateness(&mut self, cpu: PcpuId) -> Nanos {
        self.lateness[cpu.index()].between(0, self.params.costs.timer)
    }

    // --- facts ---

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

    /// How much work a running task has done since it got its pCPU; 0 if it is not running.
    pub fn progress(&self, task: TaskId) -> Nanos {
        let task = &self.tasks[task.index()];
        task.running_on().map_or(0, |_| task.progress.at(self.now))
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
                totals.run += spent;
                let mut progress = task.progress;
                totals.lose(progress.advance(self.now));
            }
        }
        totals
    }

    /// Task switches on all pCPUs: a task starts where another one ran, or none. Going idle does not
    /// count.
    pub fn switches(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.switches).sum()
    }

    /// Time pCPUs spent idle, summed over them.
    pub fn idle(&self) -> Nanos {
        let idle = |cpu: &Pcpu| match cpu.current {
            Some(_) => cpu.idle,
            None => cpu.idle + self.now.saturating_sub(cpu.idle_since),
        };
        self.cpus.iter().map(idle).sum()
    }

    /// The stacking meter.
    pub fn stacking(&mut self) -> &mut Stacking {
        &mut self.stacking
    }

    /// The meter of how far siblings run apart.
    pub fn siblings(&mut self) -> &mut Siblings {
        &mut self.siblings
    }

    // --- for schedulers ---

    /// Asks `cpu` to schedule: at once if `from` is that pCPU itself, else after an IPI, and after
    /// waking up if it idles.
    pub fn resched(&mut self, cpu: PcpuId, from: Option<PcpuId>) {
        let costs = self.params.costs;
        let slot = &self.cpus[cpu.index()];
        let delay = match (from == Some(cpu), slot.current) {
            (true, _) => 0,
            (false, Some(_)) => costs.ipi,
            (false, None) => costs.ipi + costs.idle_wake,
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

    /// Calls the scheduler's `timer` with `token` at time `at`.
    pub fn sched_timer(&mut self, at: Nanos, token: u64) -> EventId {
        self.events
            .schedule(at.max(self.now), Event::SchedTimer(token))
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

    fn tell_stacked(&mut self) {
        if let Some(observer) = &mut self.observer {
            let stacked = self.stacking.stacked();
            observer.counter(self.now, Counter::StackedRunqueues, stacked);
        }
    }

    /// A task has come to the runqueue of `cpu`.
    fn joined(&mut self, cpu: PcpuId) {
        let slot = &mut self.cpus[cpu.index()];
        slot.tasks += 1;
        if let Some(current) = slot.current
            && self.tasks[current.index()].activity == Activity::HaltPolling
        {
            self.orders.push_back(Order::Crowded(current));
        }
    }

    /// Is `task` the only one on the runqueue of its pCPU (`single_task_running`)?
    pub fn is_alone(&self, task: TaskId) -> bool {
        let home = self.tasks[task.index()].home;
        home.is_some_and(|cpu| self.cpus[cpu.index()].tasks == 1)
    }

    // --- for loads ---

    /// `task`, which is running, calls [`Load::step`](crate::load::Load::step) at time `at`,
    /// whatever progress it makes until then. Replaces an earlier order.
    pub fn step_at(&mut self, task: TaskId, at: Nanos) {
        let now = self.now;
        let slot = &mut self.tasks[task.index()];
        if slot.running_on().is_none() {
            return;
        }
        // Not before the switch to it is paid.
        (slot.due, slot.due_at) = (Nanos::MAX, at.max(now).max(slot.progress.when(0)));
        self.schedule_step(task);
    }

    /// `task`, which is running, calls [`Load::step`](crate::load::Load::step) after `work` ns of
    /// progress from now. Replaces an earlier order.
    pub fn step_after(&mut self, task: TaskId, work: Nanos) {
        let slot = &mut self.tasks[task.index()];
        if slot.running_on().is_none() {
            return;
        }
        slot.due = slot.progress.at(self.now).saturating_add(work);
        slot.due_at = Nanos::MAX;
        self.schedule_step(task);
    }

    /// Forgets the work ordered for `task`: it runs until it is stopped or ordered anew.
    pub fn no_step(&mut self, task: TaskId) {
        let slot = &mut self.tasks[task.index()];
        (slot.due, slot.due_at) = (Nanos::MAX, Nanos::MAX);
        self.schedule_step(task);
    }

    /// What `task` works on from now on: its working set and mix of cycles.
    pub fn set_profile(&mut self, task: TaskId, profile: Profile) {
        let slot = &mut self.tasks[task.index()];
        if slot.profile.replace(profile) != Some(profile) {
            self.changed(task);
        }
    }

    /// What `task`, which is running, does with its hardware thread from now on.
    pub fn set_activity(&mut self, task: TaskId, activity: Activity) {
        let slot = &mut self.tasks[task.index()];
        if std::mem::replace(&mut slot.activity, activity) != activity {
            self.changed(task);
        }
    }

    /// `task`, which is running, does not want its pCPU any more.
    pub fn block(&mut self, task: TaskId) {
        self.orders.push_back(Order::Block(task));
    }

    /// `task` wants a pCPU. `waker` is the pCPU that the wake-up comes from, if one does.
    pub fn wake(&mut self, task: TaskId, waker: Option<PcpuId>) {
        self.orders.push_back(Order::Wake { task, waker });
    }

    /// A sibling waits for `task`, which is ready, to flush its TLB.
    pub fn flush_ipi(&mut self, task: TaskId) {
        self.orders.push_back(Order::FlushIpi(task));
    }

    /// `task`, which is running, lets others go first (a pause-loop exit).
    pub fn yield_pcpu(&mut self, task: TaskId) {
        self.orders.push_back(Order::Yield(task));
    }

    /// Calls [`Load::timer`](crate::load::Load::timer) with `token` at time `at`.
    pub fn load_timer(&mut self, at: Nanos, token: u64) -> EventId {
        self.events
            .schedule(at.max(self.now), Event::LoadTimer(token))
    }

    // --- for the simulation ---

    pub(crate) fn add_task(&mut self, spec: TaskSpec) -> TaskId {
        let id = TaskId::from(self.tasks.len());
        self.observe(|_, observer| observer.task(id, &spec));
        self.tasks.push(Task::new(spec));
        id
    }

    pub(crate) fn advance(&mut self, now: Nanos) {
        debug_assert!(now >= self.now, "time goes back from {} to {now}", self.now);
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
        if let Some(vcpu) = slot.spec.vcpu {
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
        // The runqueue it was on last is not the one it is on now.
        self.tasks[task.index()].home = None;
        self.enter(task, TaskState::Ready);
        let slot = &mut self.tasks[task.index()];
        slot.totals.wakeups += 1;
        slot.ready_since = self.now;
        true
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
        self.enter(task, state);
        self.tasks[task.index()].ready_since = self.now;
        let slot = &mut self.cpus[cpu.index()];
        slot.current = None;
        slot.idle_since = self.now;
        self.switching(cpu, self.now + self.params.costs.switch);
        Some((cpu, done))
    }

    /// A ready task gets the free pCPU `cpu`.
    pub(crate) fn put_on(&mut self, task: TaskId, cpu: PcpuId) {
        self.queue_on(task, cpu);
        let last = self.tasks[task.index()].last_ran;
        self.enter(task, TaskState::Running(cpu));
        if let Some(last) = last.filter(|last| *last != cpu) {
            self.observe(|now, observer| {
                observer.instant(now, Lane::Task(task), Instant::Migration(last));
            });
        }
        let costs = self.params.costs;
        let slot = &mut self.tasks[task.index()];
        let migrates = slot.last_ran.is_some_and(|last| last != cpu);
        let starts = self.now + costs.switch + if migrates { costs.migration } else { 0 };
        slot.totals.switches += 1;
        slot.totals.migrations += u64::from(migrates);
        slot.last_ran = Some(cpu);
        let waited = self.now - slot.ready_since;
        if let Some(vm) = slot.vm() {
            if self.ready_waits.len() <= vm.index() {
                self.ready_waits.resize_with(vm.index() + 1, Waits::default);
            }
            self.ready_waits[vm.index()].record(waited);
        }
        let slot = &mut self.cpus[cpu.index()];
        slot.current = Some(task);
        slot.idle += self.now - slot.idle_since;
        slot.switches += 1;
        self.tasks[task.index()].progress = Progress::new(starts, Pace::FULL);
        self.work_begins(task, cpu);
        let pace = self.pace(task, cpu);
        self.tasks[task.index()].progress = Progress::new(starts, pace);
        self.switching(cpu, starts);
        self.start_tick(cpu);
    }

    /// How long the vCPUs of `vm` waited for a pCPU, each time they got one.
    pub fn ready_waits(&self, vm: VmId) -> Waits {
        self.ready_waits
            .get(vm.index())
            .cloned()
            .unwrap_or_default()
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

    /// A tick of `cpu` is here; is it busy, so that the scheduler should hear of it?
    pub(crate) fn tick_due(&mut self, cpu: PcpuId) -> bool {
        self.cpus[cpu.index()].tick = EventId::NONE;
        let busy = self.cpus[cpu.index()].current.is_some();
        if busy {
            self.start_tick(cpu);
        }
        busy
    }

    /// The warm-up is over: all accounts start again.
    pub(crate) fn reset_accounts(&mut self) {
        let now = self.now;
        for task in &mut self.tasks {
            task.settle(now);
            task.totals = Totals::default();
        }
        for cpu in &mut self.cpus {
            cpu.switches = 0;
            cpu.idle = 0;
            cpu.idle_since = now;
        }
        self.stacking.reset(now);
        self.siblings.reset(now);
        self.ready_waits.clear();
    }

    pub(crate) fn finish(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.finish(self.now);
        }
    }
}
