// SPDX-License-Identifier: GPL-2.0-only
//! One run: host, scheduler and load brought together by the event loop.

use crate::control::Control;
use crate::device::net::ClientOutcome;
use crate::host::{
    Counter, Event, Happening, Host, HostParams, Instant, Lane, MOST_SIBLINGS, Observer, Order,
    SiblingSkew, Standstill, TaskState, Totals,
};
use crate::load::{Achieved, DeviceOutcome, Load, Offered};
use crate::sched::HostScheduler;
use crate::waits::Waits;
use crate::watch::{Recognition, Watch};
use corun_model::{Nanos, PcpuId, PcpuSet, Status, TaskId, VmId};
use corun_policies::Policy;
use corun_policies::vsmtio::CPU_BOUND;
use std::collections::BTreeMap;

/// How long a task was kept from pCPUs, or pCPUs were kept from others for it.
#[derive(Clone, Copy, Debug, Default)]
struct KeptBack {
    /// By its gang.
    co_stopped: Nanos,
    /// By a quota.
    throttled: Nanos,
    /// For how long pCPUs were held for it.
    held: Nanos,
}

impl KeptBack {
    fn since(self, before: Self) -> Self {
        Self {
            co_stopped: self.co_stopped.saturating_sub(before.co_stopped),
            throttled: self.throttled.saturating_sub(before.throttled),
            held: self.held.saturating_sub(before.held),
        }
    }
}

/// A run under way.
pub struct Simulation {
    host: Host,
    sched: Box<dyn HostScheduler>,
    load: Box<dyn Load>,
    policy: Option<Control>,
    measured_from: Nanos,
    /// How long each task had been kept back when the warm-up ended.
    kept_back_before: Vec<KeptBack>,
    /// When VMs were left alone by the policy, by their ids.
    left_alone: BTreeMap<VmId, LeftAlone>,
    events: u64,
    watch: Watch,
}

/// When a policy did not carry out what it decided for a VM, because it found that it did not understand what the VM
/// does. ns since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftAlone {
    /// From when until when; `None`: until the end of the run.
    pub spans: Vec<(Nanos, Option<Nanos>)>,
}

/// What a run showed, after its warm-up.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Length of the measured part, ns.
    pub measured: Nanos,
    /// Shares of (runqueue × time) with n sibling vCPUs on the runqueue; index 0 is "at most one".
    pub stacking: [f64; MOST_SIBLINGS + 1],
    /// Times a vCPU was given a pCPU.
    pub vcpu_switches: u64,
    /// Times a pCPU changed its task.
    pub switches: u64,
    /// Times a pCPU got a vCPU after a different one, whatever ran there in between.
    pub switches_between_vcpus: u64,
    /// Events simulated, warm-up included.
    pub events: u64,
    /// Share of pCPU time that was idle.
    pub idle_share: f64,
    /// Per VM, in the order of their ids.
    pub vms: Vec<VmOutcome>,
    /// The host's devices.
    pub devices: Vec<DeviceOutcome>,
    /// Clients in the scenario's order, then channels.
    pub clients: Vec<ClientOutcome>,
    /// Every task's name, whether it is a vCPU, and its accounts.
    pub tasks: Vec<(String, bool, Totals)>,
}

/// What happened to one VM.
#[derive(Clone, Debug)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Its vCPUs' accounts, vCPU 0 first.
    pub vcpus: Vec<Totals>,
    /// How long its vCPUs waited for a pCPU, each time.
    pub ready_waits: Waits,
    /// Those waits that began with a wake-up; the others began with losing a pCPU.
    pub wakeups: Waits,
    /// How long they had one, each time they lost it and still wanted it.
    pub turns: Waits,
    /// As what the policy recognised its vCPUs, and what it did with them.
    pub recognised: Recognition,
    /// How far its vCPUs ran apart.
    pub siblings: SiblingSkew,
    /// Time its vCPUs were ready but held back so that siblings could catch up; summed, ns.
    pub co_stopped: Nanos,
    /// Time its vCPUs wanted a pCPU and were kept from one by a quota; summed, ns. It is part of their ready time.
    pub throttled: Nanos,
    /// Time in which pCPUs were held for its halted vCPUs; summed, ns.
    pub held: Nanos,
    /// When its policy left it alone.
    pub left_alone: LeftAlone,
    /// What its workload achieved.
    pub achieved: Achieved,
}

impl LeftAlone {
    /// When the policy first left the VM alone.
    pub fn from(&self) -> Option<Nanos> {
        self.spans.first().map(|(from, _)| *from)
    }

    /// When it took the VM up again, the last time.
    pub fn until(&self) -> Option<Nanos> {
        self.spans.iter().rev().find_map(|(_, until)| *until)
    }

    /// Notes whether the VM is left alone at this time.
    fn look(&mut self, now: Nanos, alone: bool) {
        match self.spans.last_mut() {
            Some((_, until @ None)) if !alone => *until = Some(now),
            Some((_, None)) => {}
            _ if alone => self.spans.push((now, None)),
            _ => {}
        }
    }
}

/// Shows a policy's state on the timeline.
fn tell_status(now: Nanos, observer: &mut dyn Observer, status: &Status) {
    for vm in &status.vms {
        let borrowed = vm.loan.max(0).unsigned_abs();
        let lent = vm.loan.min(0).unsigned_abs();
        observer.counter(now, Counter::Enforced(vm.vm), u64::from(vm.enforced));
        observer.counter(now, Counter::Borrowed(vm.vm), borrowed);
        observer.counter(now, Counter::Lent(vm.vm), lent);
        for vcpu in &vm.vcpus {
            observer.counter(now, Counter::Weight(vcpu.task), u64::from(vcpu.weight));
            observer.counter(now, Counter::Latency(vcpu.task), vcpu.latency);
        }
    }
}

impl Simulation {
    /// A run reports its progress each time after this many events.
    pub const HEARD_EVERY: u64 = 1 << 16;

    /// Assembles a run; nothing happens yet.
    pub fn new(
        params: HostParams,
        mut sched: Box<dyn HostScheduler>,
        load: Box<dyn Load>,
        observer: Option<Box<dyn Observer>>,
    ) -> Self {
        let everywhere = PcpuSet::first(params.topology.pcpus());
        let mut host = Host::new(params, observer);
        sched.know_vms(&load.vms());
        sched.know_cgroups(&load.cgroups());
        for mut spec in load.tasks() {
            let usable = spec.allowed.and(&everywhere);
            spec.allowed = if usable.is_empty() {
                everywhere
            } else {
                usable
            };
            let task = host.add_task(spec);
            sched.add(&mut host, task);
        }
        Self {
            host,
            sched,
            load,
            policy: None,
            measured_from: 0,
            kept_back_before: Vec::new(),
            left_alone: BTreeMap::new(),
            events: 0,
            watch: Watch::default(),
        }
    }

    /// Lets `policy` steer the scheduler, from the start and at the end of each of its periods.
    #[must_use]
    pub fn with_policy(mut self, policy: Box<dyn Policy>) -> Self {
        self.policy = Some(Control::new(policy));
        self
    }

    /// As [`Simulation::try_run`], for runs that are known to end: tests and fixed demands.
    ///
    /// # Panics
    /// If virtual time stands still.
    pub fn run(self, warm_up: Nanos, end: Nanos, progress: impl FnMut(Nanos)) -> Outcome {
        match self.try_run(warm_up, end, progress) {
            Ok(outcome) => outcome,
            #[allow(clippy::panic)] // says so above
            Err(standstill) => panic!("{standstill}"),
        }
    }

    /// Runs until `end`, measuring from `warm_up` on. `progress` is told how far the run is, every
    /// [`Simulation::HEARD_EVERY`] events and at the end.
    ///
    /// # Errors
    /// [`Standstill`] if virtual time does not go on, so that `end` would never come.
    pub fn try_run(
        mut self,
        warm_up: Nanos,
        end: Nanos,
        mut progress: impl FnMut(Nanos),
    ) -> Result<Outcome, Standstill> {
        self.host.events.schedule(warm_up, Event::WarmUpOver);
        self.steer();
        self.load.start(&mut self.host);
        self.carry_out();
        while let Some((at, event)) = self.host.events.pop_until(end) {
            self.host.advance(at);
            let endless = self.host.happens(Happening::from(&event));
            self.handle(event);
            self.carry_out();
            if endless || self.host.stands_still() {
                return Err(self.host.standstill(|token| self.load.timer_is(token)));
            }
            self.events += 1;
            if self.events.is_multiple_of(Self::HEARD_EVERY) {
                progress(at);
            }
        }
        self.host.advance(end);
        self.host.finish();
        progress(end);
        Ok(self.outcome())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Resched(cpu) => {
                self.host.resched_done(cpu);
                if !self.polled_gives_way(cpu) {
                    self.schedule(cpu);
                }
            }
            Event::Tick(cpu) => {
                if self.host.tick_due(cpu) {
                    self.sched.tick(&mut self.host, cpu);
                }
            }
            Event::Step(task) => {
                if self.host.step_done(task) {
                    self.load.step(&mut self.host, task);
                }
            }
            Event::Switched(cpu) => self.host.switched(cpu),
            Event::LoadTimer(token) => self.load.timer(&mut self.host, token),
            Event::SchedTimer(token) => self.sched.timer(&mut self.host, token),
            Event::Policy => self.steer(),
            Event::WarmUpOver => {
                self.measured_from = self.host.now();
                self.kept_back_before = self.kept_back();
                self.host.reset_accounts();
                self.watch.begin();
                self.load.settle(&self.host);
                self.load.reset(self.host.now());
            }
        }
    }

    /// Lets the policy look at the host and say what should hold; sets the next time.
    fn steer(&mut self) {
        let Some(control) = &mut self.policy else {
            return;
        };
        let plan = control.decide(&self.host, self.sched.as_ref(), self.load.as_ref());
        self.watch
            .decided(&self.host, &plan, |id| control.recognised(id));
        for index in 0..self.host.tasks().count() {
            let id = TaskId::from(index);
            // vSMT-IO lends second hardware threads to these.
            let computes = control.recognised(id) == Some(CPU_BOUND);
            self.host.take_for_computing(id, computes);
        }
        let next = self.host.now().saturating_add(control.period());
        let status = control.status();
        for vm in &status.vms {
            let known = self.left_alone.entry(vm.vm).or_default();
            known.look(self.host.now(), !vm.enforced);
        }
        self.host.observe(|now, observer| {
            observer.instant(now, Lane::Host, Instant::PolicyDecision);
            tell_status(now, observer, &status);
        });
        self.sched.apply(&mut self.host, &plan);
        self.host.events.schedule(next, Event::Policy);
    }

    /// Carries out what loads have ordered, in order.
    fn carry_out(&mut self) {
        while let Some(order) = self.host.orders.pop_front() {
            if self.host.happens(Happening::from(&order)) {
                return;
            }
            match order {
                Order::Wake { task, by } => {
                    if self.host.make_ready(task) {
                        self.host.tell_woken(task, by);
                        let waker = by.map(|by| by.cpu);
                        self.sched.wake(&mut self.host, task, waker);
                        self.host.wakeup_over(task);
                    }
                }
                Order::Block(task) => {
                    if let Some((cpu, _)) = self.host.take_off(task, TaskState::Waiting) {
                        self.sched.block(&mut self.host, task, cpu);
                        self.schedule(cpu);
                    }
                }
                Order::Crowded(task) => {
                    if self.host.task(task).running_on().is_some() {
                        self.load.crowded(&mut self.host, task);
                    }
                }
                Order::FlushIpi(task) => {
                    if self.host.task(task).state == TaskState::Ready {
                        self.sched.flush_ipi(&mut self.host, task);
                    }
                }
                Order::PauseExit(task) => {
                    if let Some(cpu) = self.host.task(task).running_on() {
                        self.pause_exit(task, cpu);
                    }
                }
            }
        }
    }

    /// The CPU noticed that `task`, running on `cpu`, spins.
    fn pause_exit(&mut self, task: TaskId, cpu: PcpuId) {
        let sched = self.sched.as_mut();
        if !sched.directs_yields() {
            sched.yield_pcpu(&mut self.host, task, cpu, None);
            return;
        }
        let mut offer = |host: &mut Host, to| match host.yields_help(cpu, to) {
            Offered::Taken if !sched.yield_pcpu(host, task, cpu, Some(to)) => Offered::Refused,
            looked => looked,
        };
        self.load.on_spin(&mut self.host, task, &mut offer);
    }

    /// `cpu` is to schedule. If the host polls there for a task, that task blocks, and the scheduler decides without
    /// it; or the host polls on, and asks again later. False if there is no such task, or if something came for it in
    /// this very moment.
    fn polled_gives_way(&mut self, cpu: PcpuId) -> bool {
        let Some(task) = self.host.polled_on(cpu) else {
            return false;
        };
        self.load.end_poll(&mut self.host, task);
        self.carry_out();
        self.host.current(cpu) != Some(task) || self.host.polled_on(cpu) == Some(task)
    }

    /// Lets the scheduler decide for `cpu` and carries out its decision.
    fn schedule(&mut self, cpu: PcpuId) {
        let next = self.sched.pick(&mut self.host, cpu);
        let current = self.host.current(cpu);
        if next == current {
            return;
        }
        if let Some(task) = current
            && let Some((_, done)) = self.host.take_off(task, TaskState::Ready)
        {
            self.load.stop(&mut self.host, task, done);
        }
        if let Some(task) = next {
            self.host.put_on(task, cpu);
            self.load.run(&mut self.host, task);
        }
    }

    /// How long each task was kept back so far.
    fn kept_back(&self) -> Vec<KeptBack> {
        let now = self.host.now();
        let of = |(id, _)| KeptBack {
            co_stopped: self.sched.co_stopped(now, id),
            throttled: self.sched.throttled(now, id),
            held: self.sched.turns(&self.host, id, Nanos::MAX).retained,
        };
        self.host.tasks().map(of).collect()
    }

    fn outcome(mut self) -> Outcome {
        let now = self.host.now();
        self.load.settle(&self.host);
        let measured = now.saturating_sub(self.measured_from);
        let stacking = self.host.stacking().shares(now);
        let infos = self.load.vms();
        let mut vms: Vec<VmOutcome> = infos
            .into_iter()
            .enumerate()
            .map(|(index, info)| VmOutcome {
                name: info.name,
                vcpus: Vec::new(),
                ready_waits: self.host.ready_waits(VmId::from(index)),
                wakeups: self.host.wakeups(VmId::from(index)),
                turns: self.host.turns(VmId::from(index)),
                recognised: self.watch.take(index),
                siblings: self.host.siblings().skew(VmId::from(index), now),
                co_stopped: 0,
                throttled: 0,
                held: 0,
                left_alone: (self.left_alone.get(&VmId::from(index)).cloned()).unwrap_or_default(),
                achieved: self.load.achieved(VmId::from(index), now),
            })
            .collect();
        let kept_back = self.kept_back();
        let mut tasks = Vec::new();
        let mut vcpu_switches = 0;
        for (id, task) in self.host.tasks() {
            let totals = self.host.totals(id);
            if let Some(vm) = task.vm() {
                let before = self.kept_back_before.get(id.index()).copied();
                let kept_back = kept_back[id.index()].since(before.unwrap_or_default());
                let vm = &mut vms[vm.index()];
                vm.vcpus.push(totals);
                vm.co_stopped += kept_back.co_stopped;
                vm.throttled += kept_back.throttled;
                vm.held += kept_back.held;
                vcpu_switches += totals.switches;
            }
            tasks.push((task.spec.name.clone(), task.vm().is_some(), totals));
        }
        let capacity = measured as f64 * self.host.pcpus() as f64;
        let idle = self.host.idle() as f64;
        Outcome {
            measured,
            stacking,
            vcpu_switches,
            switches: self.host.switches(),
            switches_between_vcpus: self.host.switches_between_vcpus(),
            events: self.events,
            idle_share: if capacity > 0.0 { idle / capacity } else { 0.0 },
            vms,
            devices: self.load.devices(),
            clients: self.load.clients(now),
            tasks,
        }
    }
}
