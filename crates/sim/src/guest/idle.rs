// SPDX-License-Identifier: GPL-2.0-only
//! What an idle vCPU does: halt (and let the host poll or block), poll itself, or keep its context
//! on the hardware thread.
//!
//! - *Halt*: HLT exits to the host, where KVM may poll for a while ([`HaltPollParams`](super::HaltPollParams)) before
//!   the vCPU's thread blocks.
//! - *Poll* (`idle=poll`): the guest spins in its idle loop; the host sees a busy vCPU.
//! - *Retention*: MONITOR/MWAIT without an exit (QEMU `-overcommit cpu-pm=on`): the context stays on
//!   the hardware thread, which does nothing, so its SMT sibling has the core to itself. A timeout
//!   may end it, after which the vCPU halts (vSMT-IO, dissertation §3.4.2).
//!
//! To the host's scheduler a polling or retaining vCPU is running: it can be preempted, and goes on idling when it is
//! back.

use super::Timer;
use super::halt_polling::PollWindow;
use super::vcpu::Mode;
use super::vm::Vm;
use crate::event_queue::EventId;
use crate::host::{Activity, Counter, Host};
use corun_model::Nanos;

/// How a guest idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleMode {
    /// HLT: the guest leaves it to the host. Every Linux guest unless told otherwise.
    Halt,
    /// The guest's idle loop polls (kernel parameter `idle=poll`).
    Poll,
    /// MONITOR/MWAIT without an exit, for at most so many ns at a time; 0: without limit.
    Retention(Nanos),
    /// The same, for as long as the host sets for the pCPU (vSMT-IO's changed idle loop): a
    /// policy's retention timeout. If it sets none: HLT.
    Told,
}

/// An idle vCPU that has its pCPU nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idling {
    /// In the guest's polling loop.
    Polling,
    /// In MWAIT, at most until that time.
    Retaining { until: Nanos },
    /// Halted, and KVM polls for it until that time.
    HaltPolling { until: Nanos },
}

/// What a vCPU's idling needs to know.
#[derive(Debug, Default)]
pub(super) struct IdleState {
    /// How it idles on its pCPU, if it does.
    pub idling: Option<Idling>,
    /// When it executed HLT, if it has not run since.
    halted_at: Option<Nanos>,
    /// How long KVM polls for it.
    window: PollWindow,
    /// Another task is to have the pCPU, as soon as the poll is over (`need_resched()`).
    wanted: bool,
    timer: Option<EventId>,
}

impl Vm {
    /// Books how long a vCPU had no thread.
    pub(super) fn book_idle(&mut self, now: Nanos, vcpu: u32) {
        if let Some(since) = &mut self.vcpus[vcpu as usize].idle_since {
            self.stats.idle += now - std::mem::replace(since, now);
        }
    }

    /// The vCPU has nothing to do.
    pub(super) fn idle(&mut self, host: &mut Host, vcpu: u32) {
        self.vcpus[vcpu as usize]
            .idle_since
            .get_or_insert(host.now());
        match self.params.idle {
            IdleMode::Halt => self.halt(host, vcpu),
            IdleMode::Poll => self.stay(host, vcpu, Idling::Polling, Activity::IdlePolling),
            IdleMode::Retention(0) => {
                let idling = Idling::Retaining { until: Nanos::MAX };
                self.stay(host, vcpu, idling, Activity::Retention);
            }
            IdleMode::Retention(limit) => self.retain(host, vcpu, limit),
            IdleMode::Told => match host.retention_limit(self.vcpus[vcpu as usize].task) {
                0 => self.halt(host, vcpu),
                limit => self.retain(host, vcpu, limit),
            },
        }
    }

    /// It keeps its context on the hardware thread for `limit` at most.
    fn retain(&mut self, host: &mut Host, vcpu: u32, limit: Nanos) {
        let until = host.now() + limit;
        self.stay(host, vcpu, Idling::Retaining { until }, Activity::Retention);
        self.time_out_at(host, vcpu, until);
    }

    /// HLT: the host polls for a wake-up or blocks the vCPU.
    pub(super) fn halt(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.idle_state.halted_at = Some(host.now());
        let window = slot.idle_state.window.now();
        if window > 0 && (self.halt_poll.shared || host.is_alone(slot.task)) {
            let until = host.now() + window;
            self.stay(
                host,
                vcpu,
                Idling::HaltPolling { until },
                Activity::HaltPolling,
            );
            self.time_out_at(host, vcpu, until);
        } else {
            self.leave_pcpu(host, vcpu);
        }
    }

    /// It keeps its pCPU while it idles.
    fn stay(&mut self, host: &mut Host, vcpu: u32, idling: Idling, activity: Activity) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.idle_state.idling = Some(idling);
        host.no_step(slot.task);
        host.set_activity(slot.task, activity);
        self.tell_activity(host, vcpu);
    }

    fn time_out_at(&mut self, host: &mut Host, vcpu: u32, at: Nanos) {
        let timer = host.load_timer(at, Timer::Idle.token(self.id, vcpu));
        self.vcpus[vcpu as usize].idle_state.timer = Some(timer);
    }

    /// The vCPU's thread blocks until it is woken.
    pub(super) fn leave_pcpu(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.mode = Mode::Halted;
        host.block(slot.task);
        self.tell_thread(host, vcpu);
    }

    /// A poll or retention has lasted as long as it may.
    pub(super) fn idled_enough(&mut self, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.idle_state.timer = None;
        match slot.idle_state.idling {
            // If it was preempted meanwhile, it finds out when it runs again.
            Some(_) if slot.mode == Mode::Running => self.dirty.push(vcpu),
            _ => {}
        }
    }

    /// KVM stops polling for a vCPU without success.
    pub(super) fn stop_halt_poll(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &self.vcpus[vcpu as usize];
        if slot.polled_for() && slot.mode == Mode::Running {
            let halted_at = slot.idle_state.halted_at;
            self.end_idling(host, vcpu);
            // It stays halted, now without its pCPU.
            let state = &mut self.vcpus[vcpu as usize].idle_state;
            (state.halted_at, state.wanted) = (halted_at, false);
            self.leave_pcpu(host, vcpu);
        }
    }

    /// Another task wants the pCPU that `vcpu` has: KVM stops polling, unless it is set to go on,
    /// and a retention that the host limits is over.
    pub(super) fn crowded(&mut self, host: &mut Host, vcpu: u32) {
        let now = host.now();
        match &mut self.vcpus[vcpu as usize].idle_state.idling {
            Some(Idling::Retaining { until }) if self.params.idle == IdleMode::Told => {
                *until = now;
                self.dirty.push(vcpu);
            }
            _ if !self.halt_poll.shared => self.end_poll(host, vcpu),
            _ => {}
        }
    }

    /// The scheduler wants the pCPU: KVM stops polling for `vcpu` (`kvm_vcpu_can_poll()`), whose
    /// thread blocks; or it polls to the end and gives way then.
    pub(super) fn end_poll(&mut self, host: &mut Host, vcpu: u32) {
        self.settle(host, vcpu);
        match self.halt_poll.shared && self.halt_poll.to_end {
            true => self.vcpus[vcpu as usize].idle_state.wanted = true,
            false => self.stop_halt_poll(host, vcpu),
        }
    }

    /// The poll has caught its wake-up: a task that wanted the pCPU meanwhile gets it before the
    /// guest goes on.
    fn give_way(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        if std::mem::take(&mut slot.idle_state.wanted)
            && let Some(cpu) = host.task(slot.task).running_on()
        {
            host.resched(cpu, Some(cpu));
        }
    }

    /// Something has come for an idling vCPU, or it goes on otherwise.
    fn end_idling(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        self.stats.halt_polls += u64::from(slot.polled_for());
        slot.idle_state.idling = None;
        if let Some(timer) = slot.idle_state.timer.take() {
            host.cancel(timer);
        }
        host.set_activity(slot.task, Activity::Work);
    }

    /// The vCPU runs in the guest again; if it was halted, KVM learns from how long it was.
    pub(super) fn resumed(&mut self, host: &mut Host, vcpu: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        let Some(since) = slot.idle_state.halted_at.take() else {
            return;
        };
        let window = &mut slot.idle_state.window;
        let before = window.now();
        window.learn(host.now() - since, &self.halt_poll);
        let (task, limit) = (slot.task, window.now());
        if limit != before {
            host.observe(|now, o| o.counter(now, Counter::PollLimit(task), limit));
        }
    }

    /// Is a running vCPU awake? One that idles wakes up if something has come for it, and goes on
    /// idling, or gives its pCPU up, if not.
    pub(super) fn awake(&mut self, host: &mut Host, vcpu: u32) -> bool {
        let slot = &self.vcpus[vcpu as usize];
        let Some(idling) = slot.idle_state.idling else {
            return true;
        };
        // A vCPU whose thread has halted for a lock does not idle: a thread that waits behind that
        // one does not wake it.
        let waits = slot.current.is_none() && !slot.queue.is_empty();
        let called = !slot.pending.is_empty() || waits;
        match idling {
            _ if called => {
                self.stats.halt_poll_hits += u64::from(slot.polled_for());
                let retained = matches!(idling, Idling::Retaining { .. });
                self.vcpus[vcpu as usize].kept += u64::from(retained);
                self.end_idling(host, vcpu);
                self.resumed(host, vcpu);
                self.give_way(host, vcpu);
                return true;
            }
            Idling::HaltPolling { until } if until <= host.now() => {
                self.stop_halt_poll(host, vcpu);
            }
            Idling::Retaining { until } if until <= host.now() => {
                self.end_idling(host, vcpu);
                self.halt(host, vcpu);
            }
            _ => {}
        }
        false
    }
}
