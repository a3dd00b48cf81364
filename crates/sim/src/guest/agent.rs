// SPDX-License-Identifier: GPL-2.0-only
//! Programs in a guest against I/O inactivity: vMigrater and xBalloon.
//!
//! Problem: tenants cannot change the host, but they can change what their vCPUs are used for.
//! *vMigrater* (USENIX ATC 2018) moves I/O-bound tasks to vCPUs that are active; it decides here with
//! the very code of the daemon ([`corun_policies::vmigrater`]). *xBalloon* (Suo et al., "Preserving
//! I/O prioritization in virtualized OSes", SoCC 2017) keeps a vCPU's time for its I/O-bound tasks:
//! [`super::balloon`].
//!
//! Of vMigrater's parts only the kernel's side is modelled here. A heartbeat is a timer interrupt on
//! its vCPU and a switch to the monitor's thread and back: so it comes when the vCPU runs, and costs
//! it. Moves take effect as with `sched_setaffinity()` (`kernel/sched/core.c`): a task that waits on a runqueue is
//! moved at once; a sleeping task goes to its new vCPU when it wakes; a running task is taken off by its own vCPU's
//! stopper thread, which needs an interrupt: if the vCPU is descheduled, the task stays where it is until the vCPU is
//! back. A task that is no longer I/O-bound may go anywhere again.

use super::Timer;
use super::balloon::BalloonParams;
use super::interrupts::Interrupt;
use super::thread::Doing;
use super::vm::Vm;
use crate::host::Host;
use crate::load::AgentAchieved;
use crate::rng::Rng;
use corun_model::{Nanos, Parameter, Value};
use corun_policies::vmigrater::{Core, MigraterParams, Move, Why};

/// What a guest runs against I/O inactivity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// vMigrater.
    VMigrater(MigraterParams),
    /// xBalloon.
    XBalloon(BalloonParams),
}

/// Work of the monitor's thread per beat: two system calls (the clock, the timer), the decision.
const BEAT: Nanos = 1_000;
/// A BPF program at the beginning or end of a request.
const PROBE: Nanos = 200;
/// `sched_setaffinity()`: a system call that takes a runqueue's lock.
const MOVE: Nanos = 2_000;

/// What these agents cost.
pub fn parameters() -> Vec<Parameter> {
    let row = |key, meaning, value, source| {
        Parameter::new(key, meaning, Value::Time(value), source, "the default only")
    };
    vec![
        row(
            "corun_sim::guest::agent::BEAT",
            "a heartbeat's own work, besides its interrupt and two thread switches",
            BEAT,
            "assumed: two system calls of 0.2-0.5 us (lmbench) and as much for the decision",
        ),
        row(
            "corun_sim::guest::agent::PROBE",
            "a BPF program at a request's beginning or end",
            PROBE,
            "assumed: a map's update, some 100 ns, and the tracepoint",
        ),
        row(
            "corun_sim::guest::agent::MOVE",
            "moving a task by sched_setaffinity, besides interrupts",
            MOVE,
            "assumed: a system call that takes two runqueues' locks, of the order of a thread switch",
        ),
    ]
}

/// vMigrater in a VM's run.
#[derive(Debug)]
pub(super) struct Migrater {
    core: Core,
    /// The threads that it may move: those with I/O that are not bound to a vCPU.
    threads: Vec<u32>,
    /// When each vCPU's heart first beats.
    phases: Vec<Nanos>,
    /// Which vCPUs were idle when their hearts beat last.
    idle: Vec<bool>,
}

impl Migrater {
    pub fn new(params: MigraterParams, vcpus: u32, vm: u32, seed: u64) -> Self {
        let mut rng = Rng::of(seed, "heartbeat", u64::from(vm));
        let phase = |_| rng.between(0, params.heartbeat.max(1) - 1);
        Self {
            core: Core::new(params, vcpus),
            threads: Vec::new(),
            phases: (0..vcpus).map(phase).collect(),
            idle: vec![false; vcpus as usize],
        }
    }
}

impl Vm {
    /// The agent's program starts.
    pub(super) fn start_agent(&mut self, host: &mut Host) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let threads = self.block.iter().flat_map(|block| block.io_threads());
        let free = threads.filter(|thread| !self.threads[*thread as usize].pinned);
        migrater.threads = free.collect();
        for thread in &migrater.threads {
            let vcpu = self.threads[*thread as usize].vcpu;
            migrater
                .core
                .task_appeared(u64::from(*thread), vcpu, 0, host.now());
        }
        let first = self.params.first_vcpu(self.vcpus.len() as u32);
        for (vcpu, phase) in (0..).zip(&migrater.phases).skip(first as usize) {
            let token = Timer::Heartbeat.token(self.id, vcpu);
            host.load_timer(host.now() + phase, token);
        }
    }

    /// A heartbeat's timer went off. A tracepoint of the guest tells the daemon whether the vCPU idled until then: a
    /// vCPU that the host polls for, or that polls itself, idles; a vCPU that has halted for a lock does not.
    pub(super) fn heartbeat_due(&mut self, host: &mut Host, vcpu: u32) {
        if let Some(migrater) = &mut self.migrater {
            migrater.idle[vcpu as usize] = self.vcpus[vcpu as usize].idle();
        }
        self.post(host, vcpu, Interrupt::Heartbeat, None);
    }

    /// The monitor's thread runs on `vcpu`.
    pub(super) fn heartbeat(&mut self, host: &mut Host, vcpu: u32) {
        let Some(mut migrater) = self.migrater.take() else {
            return;
        };
        let now = host.now();
        if migrater.idle[vcpu as usize] {
            migrater.core.woke_up(vcpu, now);
        }
        let task = self.vcpus[vcpu as usize].task;
        let stolen = (self.params.steal_time).then(|| host.totals_of_run(task).ready);
        migrater.core.heartbeat(vcpu, now, stolen);
        let rest = match migrater.idle[vcpu as usize] {
            true => migrater.core.idled(vcpu),
            false => 0,
        };
        let next = now + migrater.core.params().heartbeat + rest;
        host.load_timer(next, Timer::Heartbeat.token(self.id, vcpu));
        self.agent_works(vcpu, BEAT + 2 * self.params.thread_switch);
        self.look_around(vcpu, &mut migrater, now);
        for it in migrater.core.decide(now) {
            self.migrate(host, vcpu, it);
        }
        self.migrater = Some(migrater);
    }

    fn agent_works(&mut self, vcpu: u32, work: Nanos) {
        self.vcpus[vcpu as usize].overhead += work;
        self.stats.agent.work += work;
    }

    /// Tells vMigrater where the tasks that the kernel places are, and which of the others may
    /// leave.
    fn look_around(&mut self, vcpu: u32, migrater: &mut Migrater, now: Nanos) {
        let mut released = 0;
        for thread in &migrater.threads {
            let state = &mut self.threads[*thread as usize];
            let task = u64::from(*thread);
            if state.doing == Doing::Exited {
                migrater.core.task_gone(task);
            } else if state.home.is_none() {
                migrater.core.task_located(task, state.vcpu, now);
            } else if migrater.core.io_bound(task) == Some(false) {
                state.home = None;
                released += 1;
            }
        }
        self.agent_works(vcpu, released * MOVE);
    }

    /// The running vCPU `by` sets a task's affinity to one vCPU.
    fn migrate(&mut self, host: &mut Host, by: u32, it: Move) {
        let thread = it.task as u32;
        self.agent_works(by, MOVE);
        let agent = &mut self.stats.agent;
        *match it.why {
            Why::Push => &mut agent.pushed,
            Why::Pull => &mut agent.pulled,
            Why::Soon => &mut agent.soon,
            Why::Spread => &mut agent.spread,
        } += 1;
        let state = &mut self.threads[thread as usize];
        state.home = Some(it.to);
        state.moving.get_or_insert(host.now());
        let on = state.vcpu;
        if state.doing == Doing::Off || on == it.to {
            return;
        }
        self.settle(host, on);
        if self.vcpus[on as usize].queue.remove(thread) {
            self.arrive_at(host, thread, it.to, by);
        } else if on == by {
            self.vcpus[on as usize].need_resched = true;
        } else {
            self.send_ipi(host, by, on, Interrupt::Resched);
        }
    }

    /// Does the running thread of `vcpu` have to leave it? Then the vCPU's stopper thread takes it
    /// off.
    pub(super) fn depart(&mut self, host: &mut Host, vcpu: u32, thread: u32) -> bool {
        let home = self.threads[thread as usize].home;
        let Some(to) = home.filter(|home| *home != vcpu) else {
            return false;
        };
        let slot = &mut self.vcpus[vcpu as usize];
        slot.current = None;
        slot.overhead += 2 * self.params.thread_switch;
        self.arrive_at(host, thread, to, vcpu);
        true
    }

    /// A thread that has left its runqueue comes to another.
    pub(super) fn arrive_at(&mut self, host: &mut Host, thread: u32, to: u32, by: u32) {
        self.settle(host, to);
        self.move_to(thread, to);
        self.enqueue(host, thread, to, by);
    }

    /// A request of the thread begins or ends, seen by a probe on the running `vcpu`.
    pub(super) fn probe(&mut self, host: &Host, vcpu: u32, thread: u32, begins: bool) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let (task, now) = (u64::from(thread), host.now());
        match begins {
            true => migrater.core.io_started(task, now),
            false => migrater.core.io_ended(task, now),
        }
        self.agent_works(vcpu, PROBE);
    }

    /// What its agent did; `None` if it has none.
    pub(super) fn agent_achieved(&self) -> Option<AgentAchieved> {
        self.params.agent.map(|_| self.stats.agent.clone())
    }
}
