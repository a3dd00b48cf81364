// SPDX-License-Identifier: GPL-2.0-only
//! The guest's scheduler: which thread has a vCPU.
//!
//! After Linux's CFS: sleepers get half a latency of credit, and a woken thread preempts one that is
//! ahead by more than the wake-up granularity. Where a woken thread goes is decided in [`super::placing`];
//! [`super::balancing`] moves those that do not sleep.

use super::interrupts::Interrupt;
use super::thread::Doing;
use super::vcpu::Mode;
use super::vm::Vm;
use crate::host::{Host, Span};
use crate::sched::fair::FULL;

/// Which thread has the vCPU.
pub(super) enum Picked {
    Same(u32),
    Switched,
    Idle,
    /// Threads wait, but xBalloon lets the vCPU sleep.
    Asleep,
}

impl Vm {
    /// Settles which thread runs next on `vcpu`.
    pub(super) fn pick(&mut self, host: &mut Host, vcpu: u32) -> Picked {
        let slot = &mut self.vcpus[vcpu as usize];
        if let Some(thread) = slot.current {
            let state = &self.threads[thread as usize];
            if !slot.need_resched || state.preempt_off > 0 {
                return Picked::Same(thread);
            }
            slot.need_resched = false;
            if self.depart(host, vcpu, thread) {
                return Picked::Switched;
            }
            if !self.favoured(thread)
                && let Some(picked) = self.inflate(host, vcpu)
            {
                self.requeue(vcpu, thread);
                return picked;
            }
            let slot = &mut self.vcpus[vcpu as usize];
            if slot.queue.is_empty() {
                return Picked::Same(thread);
            }
            self.requeue(vcpu, thread);
            match self.next(vcpu) {
                Some(next) if next == thread => {
                    self.vcpus[vcpu as usize].current = Some(thread);
                    return Picked::Same(thread);
                }
                Some(next) => {
                    self.tell_begin(host, thread, Span::Runnable, 0);
                    self.give(host, vcpu, next);
                }
                None => return Picked::Idle,
            }
            return Picked::Switched;
        }
        match self.next(vcpu).or_else(|| self.pull(vcpu)) {
            Some(next) => {
                if !self.favoured(next)
                    && let Some(picked) = self.inflate(host, vcpu)
                {
                    let vruntime = self.threads[next as usize].vruntime;
                    self.vcpus[vcpu as usize].queue.add(vruntime, next);
                    return picked;
                }
                self.give(host, vcpu, next);
                Picked::Switched
            }
            None => Picked::Idle,
        }
    }

    /// The running thread of `vcpu` waits for its turn.
    fn requeue(&mut self, vcpu: u32, thread: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.queue
            .add(self.threads[thread as usize].vruntime, thread);
        slot.current = None;
    }

    /// Takes out the thread whose turn it is on `vcpu`: the first, or the first that xBalloon favours.
    fn next(&mut self, vcpu: u32) -> Option<u32> {
        let favoured = match self.balloon {
            Some(_) => {
                let favoured = |thread: u32| self.favoured(thread);
                let found = self.vcpus[vcpu as usize].queue.first_of(favoured);
                found.filter(|thread| self.vcpus[vcpu as usize].queue.remove(*thread))
            }
            None => None,
        };
        favoured.or_else(|| self.vcpus[vcpu as usize].queue.pop())
    }

    fn give(&mut self, host: &mut Host, vcpu: u32, thread: u32) {
        self.tell_end(host, thread, Span::Runnable, 0);
        self.book_idle(host.now(), vcpu);
        let slot = &mut self.vcpus[vcpu as usize];
        slot.idle_since = None;
        slot.current = Some(thread);
        slot.tlb_loaded = true;
        slot.need_resched = false;
        slot.overhead += self.params.thread_switch;
        let state = &mut self.threads[thread as usize];
        state.ran = 0;
        if state.home == Some(vcpu)
            && let Some(since) = state.moving.take()
        {
            self.stats.agent.costs.record(host.now() - since);
        }
        self.stats.thread_switches += 1;
        self.arm_tick(host, vcpu);
    }

    /// Gives a thread that is on no runqueue to another vCPU, its virtual time adjusted to the
    /// runqueue there.
    pub(super) fn move_to(&mut self, thread: u32, to: u32) {
        let state = &mut self.threads[thread as usize];
        if state.vcpu == to {
            return;
        }
        let old = self.vcpus[state.vcpu as usize].queue.least();
        let new = self.vcpus[to as usize].queue.least();
        state.vruntime = (state.vruntime + new).saturating_sub(old);
        state.vcpu = to;
    }

    /// Wakes a thread from the running vCPU `by`.
    pub(super) fn wake(&mut self, host: &mut Host, thread: u32, by: u32) {
        self.wake_as(host, thread, by, false);
    }

    /// The same if a pipe or socket has something to read: the kernel then assumes that the waker is about to wait.
    pub(super) fn wake_sync(&mut self, host: &mut Host, thread: u32, by: u32) {
        self.wake_as(host, thread, by, true);
    }

    fn wake_as(&mut self, host: &mut Host, thread: u32, by: u32, sync: bool) {
        debug_assert_eq!(self.threads[thread as usize].doing, Doing::Off);
        self.tell_begin(host, thread, Span::Runnable, 0);
        let to = self.place(thread, by, sync, host.now());
        self.settle(host, to);
        self.move_to(thread, to);
        let slot = &self.vcpus[to as usize];
        let state = &mut self.threads[thread as usize];
        if let Some(since) = &mut state.moving {
            *since = host.now();
        }
        let credit = slot.queue.least().saturating_sub(self.params.latency / 2);
        state.vruntime = state.vruntime.max(credit);
        state.load.advance(0, host.now(), &self.decay);
        state.doing = Doing::Next;
        self.enqueue(host, thread, to, by);
    }

    /// A thread that can run comes to the runqueue of `to`, because of the running vCPU `by`.
    pub(super) fn enqueue(&mut self, host: &mut Host, thread: u32, to: u32, by: u32) {
        let favoured = self.favoured(thread);
        let vruntime = self.threads[thread as usize].vruntime;
        let current = self.vcpus[to as usize].current;
        let preempts = current.is_some_and(|current| {
            let ahead = self.threads[current as usize].vruntime;
            let by_order = ahead > vruntime + self.params.wakeup_granularity;
            by_order || (favoured && !self.favoured(current))
        });
        let slot = &mut self.vcpus[to as usize];
        let was_idle = slot.idle();
        slot.queue.add(vruntime, thread);
        if to == by {
            slot.need_resched |= preempts;
        } else if was_idle && slot.halted() {
            self.send_ipi(host, by, to, Interrupt::Resched);
        } else if was_idle && slot.mode == Mode::Running && slot.idle_state.idling.is_some() {
            // `to` watches its flags, by polling or MWAIT: no interrupt is needed.
            self.dirty.push(to);
        } else if preempts && !slot.need_resched {
            slot.need_resched = true;
            self.send_ipi(host, by, to, Interrupt::Resched);
        }
    }

    /// The first vCPU for threads that are not bound to one.
    pub(super) fn first_vcpu(&self) -> u32 {
        self.params.first_vcpu(self.vcpus.len() as u32)
    }

    /// The running thread of `vcpu` waits from now on.
    pub(super) fn block(&mut self, host: &Host, vcpu: u32, thread: u32, doing: Doing) {
        debug_assert_eq!(self.vcpus[vcpu as usize].current, Some(thread));
        self.vcpus[vcpu as usize].current = None;
        let state = &mut self.threads[thread as usize];
        state.load.advance(FULL, host.now(), &self.decay);
        state.doing = doing;
    }
}
