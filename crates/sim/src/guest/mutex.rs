// SPDX-License-Identifier: GPL-2.0-only
//! Blocking locks: the mutex of glibc, on a futex.
//!
//! A thread that finds the mutex taken notes this in the futex (2 instead of 1) and asks the kernel to put it to sleep.
//! The kernel first looks once more: if the mutex was let go meanwhile, the thread does not sleep and tries again. So
//! if locks are held for less time than a system call takes, few waiters ever leave their vCPU. A thread that lets a
//! mutex go calls the kernel only if a waiter has left that note; the first waiter is woken and tries again when it
//! runs. Another thread may have taken the mutex by then; then the waiter queues behind the others (`__lll_lock_wait`
//! of glibc's nptl/lowlevellock.c; `futex_wait_setup()` and `futex_wake()`
//! of the kernel).

use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use std::collections::VecDeque;

/// A mutex in the run.
#[derive(Debug, Default)]
pub(super) struct Mutex {
    owner: Option<u32>,
    /// Has a waiter left its note? The 2 in the futex, where 1 is a mutex that is only taken.
    contended: bool,
    waiters: VecDeque<u32>,
}

/// How far a thread that wants a mutex has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locking {
    /// It has not tried yet.
    New,
    /// It has asked the kernel to put it to sleep, which looks at the mutex once more.
    Calls,
    /// The thread that let the mutex go has woken it to try again.
    Woken,
    /// It waits at a condition; it will take the mutex again as one that others may wait for, too.
    AtCondition,
}

impl Vm {
    /// A thread tries to get a mutex, and waits if it cannot. True if it has it.
    pub(super) fn lock_mutex(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        mutex: u32,
    ) -> bool {
        let slot = &mut self.mutexes[mutex as usize];
        let state = &mut self.threads[thread as usize];
        let locking = std::mem::replace(&mut state.locking, Locking::Calls);
        if slot.owner.is_none() {
            slot.owner = Some(thread);
            // A thread that has waited cannot know whether others still do.
            slot.contended = locking != Locking::New;
            state.locking = Locking::New;
            state.code.done();
            self.tell_end(host, thread, Span::MutexWait, mutex);
            self.tell_begin(host, thread, Span::MutexHold, mutex);
            return true;
        }
        if locking == Locking::Calls && slot.contended {
            slot.waiters.push_back(thread);
            self.block(host, vcpu, thread, Doing::Off);
            return false;
        }
        slot.contended = true;
        self.vcpus[vcpu as usize].overhead += self.params.futex;
        if matches!(locking, Locking::New | Locking::AtCondition) {
            self.tell_begin(host, thread, Span::MutexWait, mutex);
        }
        false
    }

    /// The thread that has `vcpu` lets a mutex go.
    pub(super) fn unlock_mutex(&mut self, host: &mut Host, vcpu: u32, thread: u32, mutex: u32) {
        self.tell_end(host, thread, Span::MutexHold, mutex);
        let slot = &mut self.mutexes[mutex as usize];
        slot.owner = None;
        if !std::mem::take(&mut slot.contended) {
            return;
        }
        self.vcpus[vcpu as usize].overhead += self.params.futex;
        if let Some(next) = slot.waiters.pop_front() {
            self.threads[next as usize].locking = Locking::Woken;
            self.wake(host, next, vcpu);
        }
    }
}
