// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts to vCPUs: ticks, timers, reschedule IPIs, kicks, disks, packets.
//!
//! A vCPU takes interrupts only while it has a pCPU. For a vCPU that is ready but descheduled they
//! stay pending, whatever waits for them in the guest; a halted vCPU is woken by them.

use super::vcpu::Mode;
use super::vm::Vm;
use crate::host::{Host, Instant, Lane, Span};
use corun_model::Nanos;
use corun_model::PcpuId;

/// What an interrupt tells a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Tick,
    /// A thread's sleep is over.
    Timer(u32),
    /// A reschedule IPI.
    Resched,
    /// A paravirtual lock is free.
    Kick,
    /// Flush the TLB; that thread waits for it.
    Flush {
        asked_by: u32,
    },
    /// The disk is done with this request.
    Block(u32),
    /// Packets have arrived.
    Net,
    /// The retransmission timer of a connection.
    TcpTimer(u32),
    /// vMigrater's monitor is due.
    Heartbeat,
}

impl Vm {
    /// Delivers an interrupt to `vcpu`: now, when it runs again, or by waking it.
    pub(super) fn post(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        interrupt: Interrupt,
        from: Option<PcpuId>,
    ) {
        self.deflate(host, vcpu);
        let target = &mut self.vcpus[vcpu as usize];
        target.pending.push(interrupt);
        if matches!(interrupt, Interrupt::Block(_) | Interrupt::Net) {
            target.io_events += 1;
            let task = target.task;
            host.observe(|now, observer| {
                observer.instant(now, Lane::Task(task), Instant::DeviceInterrupt);
            });
        }
        match target.mode {
            Mode::Running => self.dirty.push(vcpu),
            Mode::Ready if matches!(interrupt, Interrupt::Flush { .. }) => {
                host.flush_ipi(target.task);
            }
            Mode::Ready => {}
            Mode::Halted => {
                target.mode = Mode::Ready;
                target.woken = true;
                host.wake(target.task, from);
            }
        }
    }

    /// An IPI from the running vCPU `by`, which pays for sending it.
    pub(super) fn send_ipi(&mut self, host: &mut Host, by: u32, to: u32, interrupt: Interrupt) {
        let wakes = self.vcpus[to as usize].mode == Mode::Halted;
        let sender = &mut self.vcpus[by as usize];
        sender.overhead += self.params.ipi;
        if wakes && host.has_smt() {
            sender.rescheduling += self.params.ipi;
        }
        let (from, task) = (host.task(sender.task).running_on(), sender.task);
        let target = self.vcpus[to as usize].task;
        host.observe(|now, observer| {
            observer.instant(now, Lane::Task(task), Instant::Ipi(target));
        });
        self.post(host, to, interrupt, from);
    }

    /// The running vCPU takes what is pending.
    pub(super) fn take_interrupts(&mut self, host: &mut Host, vcpu: u32) {
        if self.vcpus[vcpu as usize].pending.is_empty() {
            return;
        }
        if std::mem::take(&mut self.vcpus[vcpu as usize].woken) && host.has_smt() {
            // A tick may have come first: the work that counts as rescheduling is part of what is
            // charged below.
            let first = match self.vcpus[vcpu as usize].pending.first() {
                Some(Interrupt::Tick) => self.params.tick.min(self.params.interrupt),
                _ => self.params.interrupt,
            };
            self.vcpus[vcpu as usize].rescheduling += first;
        }
        let mut list = std::mem::take(&mut self.vcpus[vcpu as usize].pending);
        for interrupt in list.drain(..) {
            self.vcpus[vcpu as usize].overhead += match interrupt {
                Interrupt::Tick => self.params.tick,
                Interrupt::Flush { .. } => self.params.interrupt + self.params.flush,
                _ => self.params.interrupt,
            };
            match interrupt {
                Interrupt::Tick => self.tick(host, vcpu),
                Interrupt::Timer(thread) => {
                    self.tell_end(host, thread, Span::Sleep, 0);
                    self.wake(host, thread, vcpu);
                }
                Interrupt::Resched => self.vcpus[vcpu as usize].need_resched = true,
                Interrupt::Kick => {}
                Interrupt::Flush { asked_by } => self.flushed(vcpu, asked_by),
                Interrupt::Block(request) => self.request_done(host, vcpu, request),
                Interrupt::Net => self.vcpus[vcpu as usize].receive.polling = true,
                Interrupt::TcpTimer(endpoint) => self.rto(host, vcpu, endpoint),
                Interrupt::Heartbeat => self.heartbeat(host, vcpu),
            }
        }
        // No vCPU interrupts itself, so the (empty) list goes back with its memory.
        self.vcpus[vcpu as usize].pending = list;
    }

    /// A sleep timer fired, on the vCPU where the thread went to sleep.
    pub(super) fn sleep_over(&mut self, host: &mut Host, thread: u32) {
        let vcpu = self.threads[thread as usize].vcpu;
        self.post(host, vcpu, Interrupt::Timer(thread), None);
    }

    /// A tick timer fired. A vCPU without a thread is tickless.
    pub(super) fn tick_due(&mut self, host: &mut Host, vcpu: u32) {
        let target = &mut self.vcpus[vcpu as usize];
        target.tick_armed = false;
        if target.current.is_some() {
            self.post(host, vcpu, Interrupt::Tick, None);
        }
    }

    /// Arms the next tick on the VM's grid, if none is.
    pub(super) fn arm_tick(&mut self, host: &mut Host, vcpu: u32) {
        if std::mem::replace(&mut self.vcpus[vcpu as usize].tick_armed, true) {
            return;
        }
        let period = self.params.tick_period();
        let since = host.now().saturating_sub(self.tick_phase);
        let next: Nanos = (since / period + 1) * period + self.tick_phase;
        let token = super::Timer::Tick.token(self.id, vcpu);
        host.load_timer(next, token);
    }

    /// The scheduler's tick: has the thread had its slice, and is any runqueue too long?
    fn tick(&mut self, host: &mut Host, vcpu: u32) {
        let Some(thread) = self.vcpus[vcpu as usize].current else {
            return;
        };
        self.arm_tick(host, vcpu);
        let waiting = self.vcpus[vcpu as usize].queue.len() as Nanos;
        let slice = (self.params.latency / (waiting + 1)).max(self.params.min_granularity);
        let due = waiting > 0 && self.threads[thread as usize].ran >= slice;
        // In a new period xBalloon may let the vCPU sleep again.
        if due || self.balloon.is_some() {
            self.vcpus[vcpu as usize].need_resched = true;
        }
        self.balance(host, vcpu);
    }
}
