// SPDX-License-Identifier: GPL-2.0-only
//! Blocking locks: a futex-based mutex.
//!
//! A waiter leaves its vCPU. The releaser frees the lock and wakes the first waiter, which tries
//! again when it runs; another thread may have taken the lock by then, as with Linux futexes. Then
//! it waits again, in front.

use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use std::collections::VecDeque;

/// A mutex in the run.
#[derive(Debug, Default)]
pub(super) struct Mutex {
    owner: Option<u32>,
    waiters: VecDeque<u32>,
}

impl Vm {
    /// A thread tries to get a mutex, and waits if it cannot.
    pub(super) fn lock_mutex(&mut self, host: &mut Host, vcpu: u32, thread: u32, mutex: u32) {
        let slot = &mut self.mutexes[mutex as usize];
        let state = &mut self.threads[thread as usize];
        let again = std::mem::replace(&mut state.retries, false);
        if slot.owner.is_none() {
            slot.owner = Some(thread);
            state.code.done();
            self.tell_end(host, thread, Span::MutexWait, mutex);
            return self.tell_begin(host, thread, Span::MutexHold, mutex);
        }
        if again {
            slot.waiters.push_front(thread);
        } else {
            slot.waiters.push_back(thread);
        }
        self.tell_begin(host, thread, Span::MutexWait, mutex);
        self.block(host, vcpu, thread, Doing::Off);
    }

    /// The thread that has `vcpu` lets a mutex go.
    pub(super) fn unlock_mutex(&mut self, host: &mut Host, vcpu: u32, thread: u32, mutex: u32) {
        self.tell_end(host, thread, Span::MutexHold, mutex);
        let slot = &mut self.mutexes[mutex as usize];
        slot.owner = None;
        if let Some(next) = slot.waiters.pop_front() {
            self.threads[next as usize].retries = true;
            self.wake(host, next, vcpu);
        }
    }
}
