// SPDX-License-Identifier: GPL-2.0-only
//! A VM in the run: what its vCPUs do while they have a pCPU.
//!
//! A running vCPU is always doing one of three things: kernel work that must be done first
//! (`overhead`), work of its thread, or spinning. [`Vm::plan`] orders a step at the end of it; at
//! that step, or when something concerns a running vCPU, [`Vm::attend`] books the progress made and
//! goes on until something takes time again. What one vCPU does to another (an IPI, a lock handed
//! over) only sets flags and puts the other on the list of vCPUs to attend to, so there is no
//! recursion.

use super::agent::Migrater;
use super::balloon::BalloonParams;
use super::barrier::{Barrier, SpinBarrier};
use super::block::Block;
use super::condition::Condition;
use super::condition_barrier::ConditionBarrier;
use super::group::Group;
use super::mutex::Mutex;
use super::net::Sockets;
use super::queue::Queue;
use super::scheduling::Picked;
use super::spinlock::SpinLock;
use super::spinning::Yielding;
use super::tell::Told;
use super::thread::{Doing, Thread};
use super::vcpu::{Mode, Vcpu};
use super::{GuestParams, HaltPollParams, LockKind, Stats, Timer};
use crate::host::{Activity, Happening, Host, Instant, Lane};
use crate::sched::fair::Decay;
use corun_model::Nanos;
use std::collections::BTreeSet;
use std::ops::Range;

/// The most by which KVM widens the window of pause-loop exits, as a factor: from 4096 to 2^32 cycles
/// (`ple_window_max`).
const WIDEST: Nanos = 1 << 20;

/// A VM in the run.
#[derive(Debug)]
pub(super) struct Vm {
    pub id: u32,
    pub params: GuestParams,
    /// How the host polls for its halted vCPUs.
    pub halt_poll: HaltPollParams,
    pub vcpus: Vec<Vcpu>,
    pub threads: Vec<Thread>,
    pub locks: Vec<SpinLock>,
    pub mutexes: Vec<Mutex>,
    /// Groups, by the number of the mutex of the same name.
    pub groups: Vec<Group>,
    pub barriers: Vec<Barrier>,
    pub spin_barriers: Vec<SpinBarrier>,
    pub condition_barriers: Vec<ConditionBarrier>,
    pub queues: Vec<Queue>,
    pub conditions: Vec<Condition>,
    /// Its disk and what is under way there.
    pub block: Option<Block>,
    /// vMigrater, if it runs.
    pub migrater: Option<Box<Migrater>>,
    /// xBalloon, if it runs.
    pub balloon: Option<BalloonParams>,
    pub net: Sockets,
    /// When each timer was last due; at first: at the start.
    pub timers: Vec<Nanos>,
    pub stats: Stats,
    pub decay: Decay,
    /// Its ticks come at this time modulo their period: VMs boot at different times.
    pub tick_phase: Nanos,
    /// When each thread begins; empty: all at once, with the run.
    pub begins: Vec<Nanos>,
    /// Has a thread begun?
    pub begun: bool,
    /// The vCPU that a spinning one yielded to last.
    pub favoured: u32,
    /// Running vCPUs to attend to before the event is over.
    pub dirty: Vec<u32>,
    /// What observers are told about it.
    pub told: Told,
}

/// How a vCPU goes on after a thread did something.
pub(super) enum Flow {
    /// See what is next.
    Again,
    /// The thread is at something that takes time.
    Busy,
    /// The vCPU halted.
    Off,
}

impl Vm {
    /// The run begins; its threads do so now or later.
    pub fn start(&mut self, host: &mut Host) {
        self.tell_names(host);
        if self.begins.is_empty() {
            return self.begin_threads(host, 0..self.threads.len());
        }
        for (index, at) in (0..).zip(&self.begins) {
            self.threads[index as usize].doing = Doing::Off;
            host.load_timer(*at, Timer::Begin.token(self.id, index));
        }
    }

    /// Puts these threads on their runqueues and wakes the vCPUs that they are on.
    pub fn begin_threads(&mut self, host: &mut Host, threads: Range<usize>) {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.timers.fill(host.now());
        }
        let mut vcpus = BTreeSet::new();
        for index in threads {
            let thread = &mut self.threads[index];
            thread.doing = Doing::Next;
            let queue = &mut self.vcpus[thread.vcpu as usize].queue;
            queue.add(thread.vruntime, index as u32);
            vcpus.insert(thread.vcpu);
        }
        for index in vcpus {
            let vcpu = &mut self.vcpus[index as usize];
            match vcpu.mode {
                Mode::Halted => {
                    vcpu.mode = Mode::Ready;
                    host.wake(vcpu.task, None);
                }
                // It is ready already, because of another thread or a packet.
                Mode::Ready => {}
                Mode::Running => self.dirty.push(index),
            }
        }
        if first {
            self.start_agent(host);
        }
    }

    /// `vcpu` got a pCPU.
    pub fn run(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        debug_assert_eq!(slot.mode, Mode::Ready);
        slot.mode = Mode::Running;
        slot.started = false;
        slot.booked = 0;
        slot.yielding = Yielding::No;
        slot.widened = 0;
        if slot.idle_state.idling.is_some() {
            // It was preempted while it idled: it sees what has come once the switch is charged.
            let task = slot.task;
            self.tell_activity(host, vcpu);
            return host.step_after(task, 0);
        }
        self.resumed(host, vcpu);
        let slot = &mut self.vcpus[vcpu as usize];
        let computes = slot.current.is_some_and(|thread| {
            matches!(
                self.threads[thread as usize].doing,
                Doing::Computing(_) | Doing::Busy { .. }
            )
        });
        let plain = slot.pending.is_empty() && !slot.need_resched && !slot.receive.polling;
        if plain && (computes || slot.overhead > 0) {
            self.plan(host, vcpu);
        } else {
            // Nothing happens before the switch is charged.
            host.step_after(slot.task, 0);
        }
    }

    /// `vcpu` lost its pCPU after `done` ns of progress.
    pub fn stop(&mut self, vcpu: u32, done: Nanos) {
        debug_assert_eq!(self.vcpus[vcpu as usize].mode, Mode::Running);
        self.settle_at(vcpu, done);
        let slot = &mut self.vcpus[vcpu as usize];
        slot.mode = Mode::Ready;
        slot.started = false;
        slot.booked = 0;
    }

    /// What was planned for `vcpu` is done.
    pub fn step(&mut self, host: &mut Host, vcpu: u32) {
        self.vcpus[vcpu as usize].started = true;
        self.attend(host, vcpu);
        self.attend_all(host);
    }

    /// Attends to all vCPUs that something happened to.
    pub fn attend_all(&mut self, host: &mut Host) {
        while let Some(vcpu) = self.dirty.pop()
            && !host.stands_still()
        {
            self.attend(host, vcpu);
        }
        self.note_inactivity(host.now());
        #[cfg(debug_assertions)]
        self.check();
    }

    fn attend(&mut self, host: &mut Host, vcpu: u32) {
        if self.vcpus[vcpu as usize].mode != Mode::Running {
            return;
        }
        self.settle(host, vcpu);
        if self.vcpus[vcpu as usize].started {
            self.advance(host, vcpu);
        } else {
            host.step_after(self.vcpus[vcpu as usize].task, 0);
        }
    }

    /// Books the progress of a running vCPU up to now.
    pub fn settle(&mut self, host: &Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        if slot.mode == Mode::Running {
            let progress = host.progress(slot.task);
            slot.started |= progress > 0;
            self.settle_at(vcpu, progress);
        }
    }

    fn settle_at(&mut self, vcpu: u32, progress: Nanos) {
        let slot = &mut self.vcpus[vcpu as usize];
        let work = progress.saturating_sub(slot.booked);
        slot.booked = progress;
        if work > 0 {
            // It has left kvm_vcpu_on_spin() without losing its pCPU.
            slot.yielding = Yielding::No;
        }
        if slot.idle_state.idling.is_some() {
            // Time that passes while it idles is no thread's work.
            self.stats.idling += work;
            return;
        }
        let kernel = work.min(slot.overhead);
        slot.overhead -= kernel;
        slot.rescheduling = slot.rescheduling.saturating_sub(kernel);
        self.stats.kernel += kernel;
        let work = work - kernel;
        let Some(thread) = slot.current else { return };
        if work > 0 {
            let thread = &mut self.threads[thread as usize];
            let spun = thread.book(work);
            slot.queue.reached(thread.vruntime);
            self.stats.spin += spun;
            self.stats.work += work - spun;
        }
    }

    /// Goes on with a running vCPU, all settled, until something takes time.
    fn advance(&mut self, host: &mut Host, vcpu: u32) {
        if !self.awake(host, vcpu) {
            return;
        }
        loop {
            if host.happens(Happening::Guest(self.vcpus[vcpu as usize].task)) {
                return; // the run is given up
            }
            self.take_interrupts(host, vcpu);
            if self.vcpus[vcpu as usize].overhead > 0 {
                return self.plan(host, vcpu);
            }
            if self.softirq(host, vcpu) {
                continue;
            }
            let thread = match self.pick(host, vcpu) {
                Picked::Same(thread) => thread,
                Picked::Switched => continue,
                Picked::Idle => return self.idle(host, vcpu),
                Picked::Asleep => return self.leave_pcpu(host, vcpu),
            };
            match self.go_on(host, vcpu, thread) {
                Flow::Again => {}
                Flow::Busy => return self.plan(host, vcpu),
                Flow::Off => return,
            }
        }
    }

    /// Lets a vCPU's thread go on.
    fn go_on(&mut self, host: &mut Host, vcpu: u32, thread: u32) -> Flow {
        let state = &mut self.threads[thread as usize];
        match state.doing {
            Doing::Computing(0) => {
                state.doing = Doing::Next;
                Flow::Again
            }
            Doing::Computing(_) => Flow::Busy,
            Doing::Spinning {
                lock,
                since,
                granted,
            } => self.spin(host, vcpu, thread, lock, since, granted),
            Doing::AtSpinBarrier {
                barrier,
                round,
                spin,
            } => self.spin_at_barrier(host, vcpu, thread, (barrier, round, spin)),
            Doing::AtConditionBarrier { barrier, spin } => {
                self.meet(host, vcpu, thread, barrier, Some(spin))
            }
            Doing::InGroup { group, spin, tells } => {
                self.spin_in_group(host, vcpu, thread, (group, spin, tells))
            }
            Doing::Busy { until } if until > host.now() => Flow::Busy,
            Doing::Busy { .. } => {
                state.doing = Doing::Next;
                Flow::Again
            }
            Doing::Flushing { .. } => self.await_flushes(host, vcpu, thread),
            Doing::Next => self.execute(host, vcpu, thread),
            Doing::Off | Doing::Exited => {
                debug_assert!(false, "thread {thread} runs but is {:?}", state.doing);
                self.vcpus[vcpu as usize].current = None;
                Flow::Again
            }
        }
    }

    /// A thread spins in the kernel: did the CPU notice (PLE)? Intel's CPUs detect that in ring 0
    /// only.
    pub fn pause_loop(&mut self, host: &mut Host, vcpu: u32, thread: u32) -> Flow {
        let window = self.ple_window(vcpu);
        let state = &mut self.threads[thread as usize];
        if let Some(window) = window
            && state.ple_spun >= window
        {
            state.ple_spun = 0;
            self.stats.pause_loop_exits += 1;
            let slot = &mut self.vcpus[vcpu as usize];
            slot.pause_exits += 1;
            slot.widened = slot.widened.saturating_add(1);
            slot.overhead += host.params().costs.exit;
            let task = slot.task;
            host.observe(|now, observer| {
                observer.instant(now, Lane::Task(task), Instant::PauseLoopExit);
            });
            host.pause_exit(task);
        }
        Flow::Busy
    }

    /// How long `vcpu` may spin at present before it leaves the guest (`grow_ple_window()`), if the CPU detects
    /// spinning.
    fn ple_window(&self, vcpu: u32) -> Option<Nanos> {
        let window = self.params.ple_window?;
        let widened = self.vcpus[vcpu as usize].widened;
        let times = Nanos::from(self.params.ple_grow).saturating_pow(widened);
        Some(window.saturating_mul(times.min(WIDEST)))
    }

    /// Orders a step at the end of what the vCPU is doing.
    fn plan(&mut self, host: &mut Host, vcpu: u32) {
        self.tell_activity(host, vcpu);
        let slot = &self.vcpus[vcpu as usize];
        let thread = slot.current.map(|thread| &self.threads[thread as usize]);
        let spins = slot.overhead == 0 && thread.is_some_and(Thread::spins);
        host.set_activity(
            slot.task,
            match (spins, slot.rescheduling) {
                (true, _) => Activity::Spinning,
                (false, 0) => Activity::Work,
                (false, _) => Activity::Rescheduling,
            },
        );
        if let Some(profile) = thread.and_then(|thread| thread.profile) {
            host.set_profile(slot.task, profile);
        }
        let until = match (slot.overhead, thread) {
            (0, Some(thread)) => match thread.doing {
                Doing::Computing(left) => Some(left),
                Doing::Busy { until } => {
                    return host.step_at(slot.task, until);
                }
                _ => self.spin_limit(thread),
            },
            (0, None) => None,
            (overhead, _) if slot.rescheduling == 0 => Some(overhead),
            _ => Some(slot.rescheduling),
        };
        match until {
            Some(work) => host.step_after(slot.task, work),
            None => host.no_step(slot.task),
        }
    }

    /// How long a thread may spin before something happens, if anything does.
    fn spin_limit(&self, thread: &Thread) -> Option<Nanos> {
        match thread.doing {
            // Without PAUSE: no pause-loop exits.
            Doing::AtConditionBarrier { spin, .. } | Doing::InGroup { spin, .. } => {
                return Some(spin.saturating_sub(thread.spun));
            }
            Doing::AtSpinBarrier { spin, .. } => {
                return Some(spin?.saturating_sub(thread.spun));
            }
            _ => {}
        }
        let ple = self
            .ple_window(thread.vcpu)
            .map(|window| window.saturating_sub(thread.ple_spun));
        let may_halt = self.params.lock == LockKind::Paravirtual
            && matches!(thread.doing, Doing::Spinning { .. })
            && !thread.steals;
        let halt = may_halt.then(|| self.params.pv_spin.saturating_sub(thread.spun));
        match (ple, halt) {
            (Some(ple), Some(halt)) => Some(ple.min(halt)),
            (one, other) => one.or(other),
        }
    }

    /// Books the progress of all running vCPUs.
    pub fn settle_all(&mut self, host: &Host) {
        for vcpu in 0..self.vcpus.len() as u32 {
            self.settle(host, vcpu);
            self.book_idle(host.now(), vcpu);
        }
    }

    /// Every thread is in exactly one place, and locks know their holders.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let mut places = vec![0u32; self.threads.len()];
        for vcpu in &self.vcpus {
            let here = vcpu.queue.iter().chain(vcpu.current);
            here.for_each(|thread| places[thread as usize] += 1);
            let queued_only = vcpu.current.is_none() && !vcpu.idle();
            assert!(
                !(vcpu.mode == Mode::Halted && queued_only),
                "a halted vCPU has threads to run"
            );
        }
        for (thread, places) in self.threads.iter().zip(places) {
            let off = matches!(thread.doing, Doing::Off | Doing::Exited);
            assert_eq!(places, u32::from(!off), "a thread {:?}", thread.doing);
        }
        for lock in &self.locks {
            lock.check(&self.threads);
        }
    }
}
