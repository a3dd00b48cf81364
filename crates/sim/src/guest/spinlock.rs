// SPDX-License-Identifier: GPL-2.0-only
//! Kernel spin locks of three kinds ([`LockKind`]).
//!
//! A thread that holds or wants one is not preempted by the guest, but the host knows nothing of
//! that: a holder, or the next in line, may lose its pCPU, and the others burn theirs spinning. A
//! waiter notices that it has got a lock only while its vCPU runs; that ends its wait.
//!
//! All acquisitions are counted; waits are recorded only for those that found the lock taken.
//!
//! Paravirtual locks are Linux' hybrid of a queue and test-and-set
//! (`kernel/locking/qspinlock_paravirt.h` since 4.15). While the first waiter in line spins it
//! keeps the pending bit set, and newcomers queue. When it has spun for so long that it halts, it
//! clears the bit: from then on newcomers spin outside the queue, for as long as it takes, and take
//! the lock when it is free (`pv_hybrid_queued_unfair_trylock()`), until the first waiter is back,
//! or the queue is empty. The bit says nothing about the first waiter's vCPU: if that loses its
//! pCPU while the waiter spins, no thread can take the lock until the vCPU has a pCPU again. Left
//! out: threads that halt at once because the one before them has (`pv_wait_early()`).

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
    /// In the order in which they came.
    waiters: VecDeque<u32>,
    /// Paravirtual: has the first waiter begun to spin, and not halted since?
    pending: bool,
    /// Paravirtual: threads that spin without having queued.
    stealers: VecDeque<u32>,
    /// Chooses among test-and-set spinners.
    rng: Rng,
}

impl SpinLock {
    pub fn new(rng: Rng) -> Self {
        Self {
            owner: None,
            waiters: VecDeque::new(),
            pending: false,
            stealers: VecDeque::new(),
            rng,
        }
    }

    #[cfg(debug_assertions)]
    pub fn check(&self, threads: &[Thread]) {
        let held = |thread: &u32| threads[*thread as usize].preempt_off > 0;
        assert!(self.owner.iter().all(held), "the holder can be preempted");
        for (waiter, steals) in self.spinners() {
            let thread = &threads[waiter as usize];
            assert!(matches!(
                thread.doing,
                Doing::Spinning { granted: false, .. }
            ));
            assert_eq!(thread.steals, steals);
        }
        assert!(!self.pending || !self.waiters.is_empty());
    }

    /// All threads that want the lock, and whether they spin without having queued.
    #[cfg(debug_assertions)]
    fn spinners(&self) -> impl Iterator<Item = (u32, bool)> {
        let queued = self.waiters.iter().map(|waiter| (*waiter, false));
        queued.chain(self.stealers.iter().map(|stealer| (*stealer, true)))
    }

    /// Is there a queue whose first waiter does not spin? Then newcomers need not queue.
    fn may_be_stolen(&self) -> bool {
        !self.waiters.is_empty() && !self.pending
    }
}

impl Vm {
    /// A thread wants a lock: it gets the lock or spins from now on.
    pub(super) fn want_lock(&mut self, host: &mut Host, thread: u32, lock: u32) {
        self.stats.lock_acquisitions += 1;
        let state = &mut self.threads[thread as usize];
        state.preempt_off += 1;
        let slot = &mut self.locks[lock as usize];
        if slot.owner.is_none() && !slot.pending {
            slot.owner = Some(thread);
            return self.tell_begin(host, thread, Span::SpinHold, lock);
        }
        (state.spun, state.ple_spun) = (0, 0);
        state.doing = Doing::Spinning {
            lock,
            since: host.now(),
            granted: false,
        };
        let paravirtual = self.params.lock == LockKind::Paravirtual;
        state.steals = paravirtual && slot.may_be_stolen();
        if state.steals {
            slot.stealers.push_back(thread);
        } else {
            slot.pending |= paravirtual && slot.waiters.is_empty();
            slot.waiters.push_back(thread);
        }
        self.tell_begin(host, thread, Span::SpinWait, lock);
    }

    /// A spinning thread is on its vCPU: did it get the lock, or does it give up for now?
    pub(super) fn spin(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        lock: u32,
        since: Nanos,
        granted: bool,
    ) -> Flow {
        if granted || self.take_free(host, thread, lock) {
            self.threads[thread as usize].doing = Doing::Next;
            self.stats.lock_waits.record(host.now() - since);
            self.tell_end(host, thread, Span::SpinWait, lock);
            self.tell_begin(host, thread, Span::SpinHold, lock);
            return Flow::Again;
        }
        if self.params.lock == LockKind::Paravirtual && self.gives_up(host, thread, lock) {
            self.stats.lock_halts += 1;
            self.halt(host, vcpu);
            return Flow::Off;
        }
        self.pause_loop(host, vcpu, thread)
    }

    /// A running waiter for a paravirtual lock that is taken: has it spun for long enough?
    fn gives_up(&mut self, host: &Host, thread: u32, lock: u32) -> bool {
        let slot = &self.locks[lock as usize];
        if self.threads[thread as usize].steals {
            if slot.may_be_stolen() {
                return false;
            }
            self.queue_up(thread, lock);
        }
        let slot = &mut self.locks[lock as usize];
        let is_first = slot.waiters.front() == Some(&thread);
        let state = &mut self.threads[thread as usize];
        if state.spun >= self.params.pv_spin {
            state.spun = 0;
            slot.pending &= !is_first;
            return true;
        }
        if is_first && !slot.pending {
            slot.pending = true;
            self.stop_stealing(host, lock);
        }
        false
    }

    /// A thread that spins outside the queue joins it.
    fn queue_up(&mut self, thread: u32, lock: u32) {
        let slot = &mut self.locks[lock as usize];
        slot.stealers.retain(|stealer| *stealer != thread);
        slot.waiters.push_back(thread);
        let state = &mut self.threads[thread as usize];
        (state.steals, state.spun) = (false, 0);
        self.dirty.push(state.vcpu);
    }

    /// A paravirtual lock is not to be stolen any more: spinning threads on running vCPUs see it at
    /// once, in the order of their coming, the others when they run.
    fn stop_stealing(&mut self, host: &Host, lock: u32) {
        for stealer in self.locks[lock as usize].stealers.clone() {
            if self.spins_now(host, stealer) {
                self.queue_up(stealer, lock);
            }
        }
    }

    /// The first waiter has got the lock: finds the next one, which sees that at once if it spins
    /// now.
    fn next_in_line(&mut self, host: &Host, lock: u32) {
        if self.params.lock != LockKind::Paravirtual {
            return;
        }
        self.locks[lock as usize].pending = false;
        if self.locks[lock as usize].waiters.is_empty() {
            self.stop_stealing(host, lock);
        }
        let Some(&first) = self.locks[lock as usize].waiters.front() else {
            return;
        };
        if self.spins_now(host, first) {
            self.locks[lock as usize].pending = true;
            // As the first waiter it begins to count its spinning anew.
            let state = &mut self.threads[first as usize];
            state.spun = 0;
            self.dirty.push(state.vcpu);
        }
    }

    /// A waiter takes the lock if it is free and its turn.
    fn take_free(&mut self, host: &Host, thread: u32, lock: u32) -> bool {
        let slot = &mut self.locks[lock as usize];
        if slot.owner.is_some() {
            return false;
        }
        if self.threads[thread as usize].steals {
            return !slot.pending && self.steal(thread, lock);
        }
        let place = slot.waiters.iter().position(|waiter| *waiter == thread);
        let turn = |place: &usize| *place == 0 || self.params.lock == LockKind::Unfair;
        let Some(place) = place.filter(turn) else {
            return false;
        };
        slot.waiters.remove(place);
        slot.owner = Some(thread);
        self.next_in_line(host, lock);
        true
    }

    /// A thread that spins outside the queue gets the lock.
    fn steal(&mut self, thread: u32, lock: u32) -> bool {
        let slot = &mut self.locks[lock as usize];
        slot.stealers.retain(|stealer| *stealer != thread);
        slot.owner = Some(thread);
        self.threads[thread as usize].steals = false;
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
            LockKind::Ticket => self.hand_over(host, lock, 0),
            LockKind::Unfair => {
                if let Some(place) = self.any_spinner(host, lock, |slot| &slot.waiters) {
                    self.hand_over(host, lock, place);
                }
            }
            LockKind::Paravirtual => self.pass_or_kick(host, vcpu, lock),
        }
    }

    /// The waiter at `place` has the lock.
    fn hand_over(&mut self, host: &Host, lock: u32, place: usize) {
        let slot = &mut self.locks[lock as usize];
        let Some(next) = slot.waiters.remove(place) else {
            return;
        };
        slot.owner = Some(next);
        self.grant(next);
        self.next_in_line(host, lock);
    }

    /// A spinning thread has its lock, and will notice.
    fn grant(&mut self, thread: u32) {
        let state = &mut self.threads[thread as usize];
        if let Doing::Spinning { granted, .. } = &mut state.doing {
            *granted = true;
        }
        self.dirty.push(state.vcpu);
    }

    /// The first waiter gets a paravirtual lock if it spins; if it has halted it is kicked, and
    /// until it spins again a thread that spins outside the queue gets the lock.
    fn pass_or_kick(&mut self, host: &mut Host, vcpu: u32, lock: u32) {
        let Some(&first) = self.locks[lock as usize].waiters.front() else {
            return;
        };
        if self.spins_now(host, first) {
            return self.hand_over(host, lock, 0);
        }
        if self.locks[lock as usize].may_be_stolen()
            && let Some(place) = self.any_spinner(host, lock, |slot| &slot.stealers)
        {
            let stealer = self.locks[lock as usize].stealers[place];
            self.steal(stealer, lock);
            self.grant(stealer);
        }
        let on = self.threads[first as usize].vcpu;
        let target = &self.vcpus[on as usize];
        if target.halted() && !target.pending.contains(&Interrupt::Kick) {
            self.send_ipi(host, vcpu, on, Interrupt::Kick);
        }
    }

    /// A random one of these that spin at this moment.
    fn any_spinner(
        &mut self,
        host: &Host,
        lock: u32,
        of: fn(&SpinLock) -> &VecDeque<u32>,
    ) -> Option<usize> {
        let waiters = of(&self.locks[lock as usize]).len();
        let mut spinning = 0;
        let mut chosen = None;
        for place in 0..waiters {
            let waiter = of(&self.locks[lock as usize])[place];
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
