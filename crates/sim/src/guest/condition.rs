// SPDX-License-Identifier: GPL-2.0-only
//! Condition variables, as `pthread_cond_wait` implements them on futexes.
//!
//! A waiter lets its mutex go (if it has one) and leaves its vCPU in one step. A signal wakes the
//! thread that has waited longest and is lost if none waits; the woken thread takes the mutex again
//! before it goes on, and may have to wait for that, too.

use super::mutex::Locking;
use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use std::collections::VecDeque;

/// A condition variable in the run.
#[derive(Debug, Default)]
pub(super) struct Condition {
    waiters: VecDeque<u32>,
}

impl Vm {
    /// The thread that has `vcpu` waits on a condition, or, woken by a signal, goes on.
    pub(super) fn wait_on(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        condition: u32,
        mutex: Option<u32>,
    ) {
        let state = &mut self.threads[thread as usize];
        if !state.signalled {
            self.conditions[condition as usize]
                .waiters
                .push_back(thread);
            self.tell_begin(host, thread, Span::ConditionWait, condition);
            self.block(host, vcpu, thread, Doing::Off);
            if let Some(mutex) = mutex {
                self.threads[thread as usize].locking = Locking::AtCondition;
                self.unlock_mutex(host, vcpu, thread, mutex);
            }
            return;
        }
        let goes_on = match mutex {
            // Ends the operation if the thread gets the mutex; otherwise the thread comes here
            // again.
            Some(mutex) => self.lock_mutex(host, vcpu, thread, mutex),
            None => {
                state.code.done();
                true
            }
        };
        self.threads[thread as usize].signalled = !goes_on;
    }

    /// Wakes the first waiter, or all of them.
    pub(super) fn signal(&mut self, host: &mut Host, vcpu: u32, condition: u32, all: bool) {
        while let Some(waiter) = self.conditions[condition as usize].waiters.pop_front() {
            self.threads[waiter as usize].signalled = true;
            self.tell_end(host, waiter, Span::ConditionWait, condition);
            self.wake(host, waiter, vcpu);
            if !all {
                return;
            }
        }
    }
}
