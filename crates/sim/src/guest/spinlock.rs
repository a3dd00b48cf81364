// SPDX-License-Identifier: GPL-2.0-only
//! Kernel spin locks of three kinds ([`LockKind`]).
//!
//! Who holds or wants one is not preempted by the guest, but the host knows nothing of that: a
//! holder, or the next in line, may lose its pCPU, and the others burn theirs spinning. A waiter
//! notices that it has got a lock only while its vCPU runs; that ends its wait.
//!
//! All acquisitions are counted; waits are recorded for those that found the lock taken.

use super::LockKind;
use super::interrupts::Interrupt;
use super::thread::Doing;
#[cfg(debug_assertions)]
use super::thread::Thread;
use super::vcpu::Mode;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};
use crate::rng::Rng;
use corun_model::Nanos;
use std::collections::VecDeque;

/// A spin lock in the run.
#[derive(Debug)]
pub(super) struct SpinLock {
    owner: Option<u32>,
    /// First come, first here.
    waiters: VecDeque<u32>,
    /// Chooses among test-and-set spinners.
    rng: Rng,
}

impl SpinLock {
    pub fn new(rng: Rng) -> Self {
        Self {
            owner: None,
            waiters: VecDeque::new(),
            rng,
        }
    }

    #[cfg(debug_assertions)]
    pub fn check(&self, threads: &[Thread]) {
        let held = |thread: &u32| threads[*thread as usize].preempt_off > 0;
        assert!(self.owner.iter().all(held), "the holder can be preempted");
        for waiter in &self.waiters {
            let doing = threads[*waiter as usize].doing;
            assert!(matches!(doing, Doing::Spinning { granted: false, .. }));
        }
    }
}

impl Vm {
    /// A thread wants a lock: it has it or spins from now on.
    pub(super) fn want_lock(&mut self, host: &mut Host, thread: u32, lock: u32) {
        self.stats.lock_acquisitions += 1;
        let state = &mut self.threads[thread as usize];
        state.preempt_off += 1;
        let slot = &mut self.locks[lock as usize];
        if slot.owner.is_none() {
            slot.owner = Some(thread);
            return self.tell_begin(host, thread, Span::SpinHold, lock);
        }
        slot.waiters.push_back(thread);
        (state.spun, state.ple_spun) = (0, 0);
        state.doing = Doing::Spinning {
            lock,
            since: host.now(),
            granted: false,
        };
        self.tell_begin(host, thread, Span::SpinWait, lock);
    }

    /// A spinning thread has its vCPU: did it get the lock, does it give up for now?
    pub(super) fn spin(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        lock: u32,
        since: Nanos,
        granted: bool,
    ) -> Flow {
        if granted || self.take_free(thread, lock) {
            self.threads[thread as usize].doing = Doing::Next;
            self.stats.lock_waits.record(host.now() - since);
            self.tell_end(host, thread, Span::SpinWait, lock);
            self.tell_begin(host, thread, Span::SpinHold, lock);
            return Flow::Again;
        }
        let state = &mut self.threads[thread as usize];
        if self.params.lock == LockKind::Paravirtual && state.spun >= self.params.pv_spin {
            state.spun = 0;
            self.stats.lock_halts += 1;
            self.halt(host, vcpu);
            return Flow::Off;
        }
        self.pause_loop(host, vcpu, thread)
    }

    /// A waiter takes the lock if it is free and its turn.
    fn take_free(&mut self, thread: u32, lock: u32) -> bool {
        let slot = &mut self.locks[lock as usize];
        let turn = match self.params.lock {
            LockKind::Unfair => slot.waiters.iter().position(|waiter| *waiter == thread),
            LockKind::Ticket | LockKind::Paravirtual => {
                (slot.waiters.front() == Some(&thread)).then_some(0)
            }
        };
        let (None, Some(place)) = (slot.owner, turn) else {
            return false;
        };
        slot.waiters.remove(place);
        slot.owner = Some(thread);
        true
    }

    /// `thread`, running on `vcpu`, lets a lock go.
    pub(super) fn unlock(&mut self, host: &mut Host, vcpu: u32, thread: u32, lock: u32) {
        self.threads[thread as usize].preempt_off -= 1;
        self.tell_end(host, thread, Span::SpinHold, lock);
        debug_assert_eq!(self.locks[lock as usize].owner, Some(thread));
        self.locks[lock as usize].owner = None;
        if self.locks[lock as usize].waiters.is_empty() {
            return;
        }
        match self.params.lock {
            LockKind::Ticket => self.hand_over(lock, 0),
            LockKind::Unfair => {
                if let Some(place) = self.any_spinner(host, lock) {
                    self.hand_over(lock, place);
                }
            }
            LockKind::Paravirtual => self.pass_or_kick(host, vcpu, lock),
        }
    }

    /// The waiter at `place` has the lock.
    fn hand_over(&mut self, lock: u32, place: usize) {
        let slot = &mut self.locks[lock as usize];
        let Some(next) = slot.waiters.remove(place) else {
            return;
        };
        slot.owner = Some(next);
        let state = &mut self.threads[next as usize];
        if let Doing::Spinning { granted, .. } = &mut state.doing {
            *granted = true;
        }
        self.dirty.push(state.vcpu);
    }

    /// The first waiter gets a paravirtual lock if it spins; if it halted it is kicked.
    fn pass_or_kick(&mut self, host: &mut Host, vcpu: u32, lock: u32) {
        let Some(&first) = self.locks[lock as usize].waiters.front() else {
            return;
        };
        let on = self.threads[first as usize].vcpu;
        if self.spins_now(host, first) {
            self.hand_over(lock, 0);
        } else if self.vcpus[on as usize].halted() {
            self.send_ipi(host, vcpu, on, Interrupt::Kick);
        }
    }

    /// One of the waiters that spin at this moment, by chance.
    fn any_spinner(&mut self, host: &Host, lock: u32) -> Option<usize> {
        let waiters = self.locks[lock as usize].waiters.len();
        let mut spinning = 0;
        let mut chosen = None;
        for place in 0..waiters {
            let waiter = self.locks[lock as usize].waiters[place];
            if self.spins_now(host, waiter) {
                spinning += 1;
                // Each of n spinners is the last one chosen with a probability of 1/n.
                if self.locks[lock as usize].rng.between(1, spinning) == 1 {
                    chosen = Some(place);
                }
            }
        }
        chosen
    }

    /// Does a waiter execute its spin loop at this moment?
    fn spins_now(&mut self, host: &Host, thread: u32) -> bool {
        let on = self.threads[thread as usize].vcpu;
        self.settle(host, on);
        let vcpu = &self.vcpus[on as usize];
        let runs = vcpu.mode == Mode::Running && vcpu.started;
        runs && vcpu.overhead == 0 && vcpu.idle_state.idling.is_none()
    }
}
