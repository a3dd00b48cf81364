// SPDX-License-Identifier: GPL-2.0-only
//! xBalloon: a vCPU that has nothing but computing to do sleeps, to save its time for when I/O
//! comes (Suo et al., "Preserving I/O prioritization in virtualized OSes", SoCC 2017).
//!
//! Problem: compute-bound tasks use up the vCPU's share of its pCPU while the I/O-bound task waits for its disk or for
//! a message; when that arrives, the vCPU is descheduled. xBalloon's process has a priority between the two kinds of
//! tasks: it runs when only computing is left, and then makes the hypervisor put the vCPU to sleep. An event for the
//! vCPU wakes it. In each period of 30 ms it may sleep for as long as the vCPU has no claim to its pCPU; then the
//! computing goes on. Whether the credit is kept for the sleeper is up to the host scheduler: Xen's Credit keeps it,
//! CFS up to half a latency.
//!
//! Of xBalloon's two parts this is the one for the short term. The one for the long term, which charges tasks that
//! compute for the time on the clock, stolen time included, is not modelled: here I/O-bound threads go before them
//! whenever they are ready.
//!
//! The administrator says which programs are I/O-bound (xBalloon's code has their names); here
//! those are the threads that read or write, and those that take messages from a port (`request`).

use super::Timer;
use super::interrupts::Interrupt;
use super::scheduling::Picked;
use super::thread::Doing;
use super::vm::Vm;
use crate::event_queue::EventId;
use crate::host::Host;
use corun_model::time::MS;
use corun_model::{Nanos, Parameter, Value};

/// Its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalloonParams {
    /// Its period, ns.
    pub period: Nanos,
    /// How much of each period a vCPU may sleep, percent: what it has no claim to, that is, 100 less its share of its
    /// pCPU. At most 100.
    pub sleep: u32,
}

impl Default for BalloonParams {
    fn default() -> Self {
        Self {
            period: 30 * MS,
            sleep: 50,
        }
    }
}

/// The system call of xBalloon's process that makes the hypercall. A switch to that process comes first; the
/// hypercall's exit is part of the host's switch.
const CALL: Nanos = 500;

/// The table of its settings.
pub fn parameters() -> Vec<Parameter> {
    let default = BalloonParams::default();
    vec![
        Parameter::new(
            "corun_sim::guest::balloon::CALL",
            "xBalloon: the system call that has its vCPU sleep, besides a thread switch and the host's",
            Value::Time(CALL),
            "lmbench: system calls of 0.2-0.5 us",
            "the default only",
        ),
        Parameter::new(
            "corun_sim::guest::BalloonParams::period",
            "xBalloon: period in which a vCPU's sleep is limited",
            Value::Time(default.period),
            "Suo et al., SoCC 2017: Xen's accounting period",
            "the default only",
        ),
        Parameter::new(
            "vm.*.guest.balloon_sleep",
            "xBalloon: how much of a period a vCPU may sleep",
            Value::Number(f64::from(default.sleep), "%"),
            "Suo et al., SoCC 2017: 100 % less the vCPU's share, here of two per pCPU",
            "50 to 88 %",
        ),
    ]
}

/// A vCPU's balloon.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balloon {
    /// Since when it has been asleep although there is computing to do; an interrupt wakes it.
    since: Option<Nanos>,
    /// xBalloon's process runs, to put it to sleep.
    runs: bool,
    timer: Option<EventId>,
    /// The period it slept in last, and how long.
    period: u64,
    slept: Nanos,
}

impl Balloon {
    pub fn asleep(&self) -> bool {
        self.since.is_some()
    }
}

impl Vm {
    /// Is the thread one of those that xBalloon's administrator named, in a guest with xBalloon?
    pub(super) fn favoured(&self, thread: u32) -> bool {
        self.balloon.is_some() && (self.threads[thread as usize].serves || self.has_file(thread))
    }

    /// Does the thread read or write?
    fn has_file(&self, thread: u32) -> bool {
        let block = self.block.as_ref();
        block.is_some_and(|block| block.file_of(thread).is_some())
    }

    /// Is the thread asleep until its disk has answered, or until a message comes?
    fn waits_for_io(&self, thread: u32) -> bool {
        let state = &self.threads[thread as usize];
        let called = || self.block.as_ref().is_some_and(|it| it.waits(thread));
        state.doing == Doing::Off && (state.code.is_at_request() || called())
    }

    /// Only computing is left on `vcpu`: should it sleep for the I/O that is to come? If so, xBalloon's process runs
    /// first and puts it to sleep.
    pub(super) fn inflate(&mut self, host: &mut Host, vcpu: u32) -> Option<Picked> {
        let params = self.balloon?;
        let here = |thread: u32| self.threads[thread as usize].vcpu == vcpu;
        let mut threads = 0..self.threads.len() as u32;
        if !threads.any(|thread| here(thread) && self.waits_for_io(thread)) {
            return None;
        }
        let now = host.now();
        let balloon = &mut self.vcpus[vcpu as usize].balloon;
        let period = now / params.period.max(1);
        if balloon.period != period {
            (balloon.period, balloon.slept) = (period, 0);
        }
        let most = params.period * Nanos::from(params.sleep.min(100)) / 100;
        if balloon.slept >= most {
            return None;
        }
        if !std::mem::replace(&mut balloon.runs, true) {
            let work = CALL + self.params.thread_switch;
            self.vcpus[vcpu as usize].overhead += work;
            self.stats.agent.work += work;
            return Some(Picked::Switched);
        }
        balloon.since = Some(now);
        let end = now + most - balloon.slept;
        let timer = host.load_timer(end, Timer::Balloon.token(self.id, vcpu));
        self.vcpus[vcpu as usize].balloon.timer = Some(timer);
        Some(Picked::Asleep)
    }

    /// A vCPU has slept as long as it may.
    pub(super) fn balloon_due(&mut self, host: &mut Host, vcpu: u32) {
        self.vcpus[vcpu as usize].balloon.timer = None;
        self.post(host, vcpu, Interrupt::Kick, None);
    }

    /// Something has come for the vCPU: if it sleeps or is about to, that ends.
    pub(super) fn deflate(&mut self, host: &mut Host, vcpu: u32) {
        let balloon = &mut self.vcpus[vcpu as usize].balloon;
        balloon.runs = false;
        let Some(since) = balloon.since.take() else {
            return;
        };
        let slept = host.now() - since;
        balloon.slept += slept;
        self.stats.agent.ballooned += slept;
        if let Some(timer) = balloon.timer.take() {
            host.cancel(timer);
        }
    }
}
