// SPDX-License-Identifier: GPL-2.0-only
//! Statements that have to do with the clock rather than with work: sleep, every, timer, busy, yield.

use super::Timer;
use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use corun_model::Nanos;

impl Vm {
    /// The thread leaves its vCPU for `length`, and up to the timer slack longer.
    pub(super) fn sleep(&mut self, host: &mut Host, vcpu: u32, thread: u32, length: Nanos) {
        let at = host.now() + length + self.params.timer_slack;
        host.load_timer(at, Timer::Sleep.token(self.id, thread));
        self.tell_begin(host, thread, Span::Sleep, 0);
        self.block(host, vcpu, thread, Doing::Off);
    }

    /// Sleeps until a period after it was last due here; a thread that is late goes on at once and
    /// is due a period from now (like rt-app's relative timers). Each thread has a period of its
    /// own here.
    pub(super) fn every(&mut self, host: &mut Host, vcpu: u32, thread: u32, period: Nanos) {
        let now = host.now();
        let state = &mut self.threads[thread as usize];
        let here = state.code.place();
        let place = match state.due.iter().position(|(place, _)| *place == here) {
            Some(place) => place,
            None => {
                state.due.push((here, now));
                state.due.len() - 1
            }
        };
        state.code.done();
        let due = &mut state.due[place].1;
        *due = (*due + period).max(now);
        let left = *due - now;
        if left > 0 {
            self.sleep(host, vcpu, thread, left);
        }
    }

    /// Sleeps until the timer, moved on by its period, is due. A thread that is late goes on at
    /// once; then the timer counts from now, or, if it is absolute, as if nothing had been missed.
    pub(super) fn timer(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        (timer, period, absolute): (u32, Nanos, bool),
    ) {
        let now = host.now();
        let due = &mut self.timers[timer as usize];
        *due = due.saturating_add(period);
        let left = due.saturating_sub(now);
        if left > 0 {
            self.sleep(host, vcpu, thread, left);
        } else if !absolute {
            *due = now;
        }
    }

    /// Goes behind the threads that wait for its vCPU (`sched_yield`).
    pub(super) fn yield_vcpu(&mut self, vcpu: u32, thread: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        let Some(last) = slot.queue.last() else {
            return;
        };
        let state = &mut self.threads[thread as usize];
        state.vruntime = state.vruntime.max(last + 1);
        slot.need_resched = true;
    }
}
