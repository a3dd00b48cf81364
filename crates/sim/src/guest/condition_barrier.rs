// SPDX-License-Identifier: GPL-2.0-only
//! Barriers that a program builds from a mutex and a condition variable.
//!
//! Problem: threads that wait at such a barrier are not all woken at once. `pthread_cond_broadcast`
//! of glibc up to 2.24 wakes the first waiter and moves the rest to the mutex's futex
//! (`FUTEX_CMP_REQUEUE`), from which each is woken when the one before it has had the mutex and
//! lets it go. So leaving a barrier takes one wake-up per blocked thread, one after the other, each
//! of a vCPU that first has to get a pCPU.
//!
//! Two kinds, depending on whether a statement says how long a waiter spins:
//!
//! - without: the barrier of SPLASH-2's macros (`c.m4` with `pthread_cond_wait`): a counter, and the last thread
//!   broadcasts;
//! - with: PARSEC's (`parsec_barrier.cpp`): a waiter looks at a flag for that long before it
//!   blocks, and no thread enters again before all have left: the last one to leave broadcasts,
//!   too.
//!
//! Left out: how long the mutex is held (a few instructions and the call that wakes); which thread
//! gets the mutex first; and that PARSEC's spinners wait for it by `pthread_mutex_trylock` in a
//! loop.

use super::thread::Doing;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};
use corun_model::Nanos;
use std::collections::VecDeque;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Not at a barrier.
    Outside,
    /// Waits until all of the last round have left.
    Entering,
    /// Waits for the others of this round.
    Inside { round: u64 },
}

/// A barrier of a mutex and a condition variable.
#[derive(Debug)]
pub(super) struct ConditionBarrier {
    parties: usize,
    /// Must all leave before any may enter again?
    two_phases: bool,
    /// Threads that have arrived and, with two phases, not left.
    inside: usize,
    /// Have all arrived, and not all left?
    leaving: bool,
    /// Grows each time all have arrived.
    round: u64,
    spinning: Vec<u32>,
    /// On the condition's futex.
    blocked: Vec<u32>,
    /// On the mutex's futex.
    requeued: VecDeque<u32>,
}

impl ConditionBarrier {
    pub fn new(parties: usize, two_phases: bool) -> Self {
        Self {
            parties,
            two_phases,
            inside: 0,
            leaving: false,
            round: 0,
            spinning: Vec::with_capacity(parties),
            blocked: Vec::with_capacity(parties),
            requeued: VecDeque::with_capacity(parties),
        }
    }

    /// May a thread in this place go on?
    fn open(&self, meeting: Meeting) -> bool {
        match meeting {
            Meeting::Outside | Meeting::Entering => !self.leaving,
            Meeting::Inside { round } => self.round != round,
        }
    }
}

impl Vm {
    /// The thread that has `vcpu` is at a barrier: it goes on as far as it can, spins or blocks.
    pub(super) fn meet(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        barrier: u32,
        spin: Option<Nanos>,
    ) -> Flow {
        loop {
            let slot = &mut self.condition_barriers[barrier as usize];
            let state = &mut self.threads[thread as usize];
            if !slot.open(state.meeting) {
                if state.meeting == Meeting::Outside {
                    state.meeting = Meeting::Entering;
                }
                return self.wait_at(host, vcpu, thread, barrier, spin);
            }
            if let Doing::AtConditionBarrier { .. } = state.doing {
                slot.spinning.retain(|other| *other != thread);
                state.doing = Doing::Next;
            }
            if state.meeting != Meeting::Outside {
                self.tell_end(host, thread, Span::ConditionBarrierWait, barrier);
            }
            let inside = matches!(
                self.threads[thread as usize].meeting,
                Meeting::Inside { .. }
            );
            if inside || self.enter(host, vcpu, thread, barrier) {
                break;
            }
            // The thread lets the mutex go while it waits.
            self.relay(host, vcpu, thread, barrier);
        }
        self.depart_barrier(host, vcpu, barrier);
        self.relay(host, vcpu, thread, barrier);
        let state = &mut self.threads[thread as usize];
        state.meeting = Meeting::Outside;
        state.code.done();
        Flow::Again
    }

    /// One more thread has arrived. True if it is the last.
    fn enter(&mut self, host: &mut Host, vcpu: u32, thread: u32, barrier: u32) -> bool {
        let slot = &mut self.condition_barriers[barrier as usize];
        slot.inside += 1;
        if slot.inside < slot.parties {
            let round = slot.round;
            self.threads[thread as usize].meeting = Meeting::Inside { round };
            return false;
        }
        slot.round += 1;
        match slot.two_phases {
            true => slot.leaving = true,
            false => slot.inside = 0,
        }
        self.open_barrier(host, vcpu, barrier);
        true
    }

    /// One leaves.
    fn depart_barrier(&mut self, host: &mut Host, vcpu: u32, barrier: u32) {
        let slot = &mut self.condition_barriers[barrier as usize];
        if !slot.two_phases {
            return;
        }
        slot.inside -= 1;
        if slot.inside == 0 {
            slot.leaving = false;
            self.open_barrier(host, vcpu, barrier);
        }
    }

    /// The flag has changed: spinning threads see it, and the first of the blocked ones is woken.
    fn open_barrier(&mut self, host: &mut Host, vcpu: u32, barrier: u32) {
        let slot = &mut self.condition_barriers[barrier as usize];
        let spinning = std::mem::take(&mut slot.spinning);
        for thread in &spinning {
            self.barrier_opens_for(*thread);
        }
        let slot = &mut self.condition_barriers[barrier as usize];
        slot.spinning = spinning;
        let mut blocked = std::mem::take(&mut slot.blocked);
        let mut waiters = blocked.drain(..);
        let first = waiters.next();
        slot.requeued.extend(waiters);
        slot.blocked = blocked;
        if let Some(first) = first {
            self.threads[first as usize].relays = true;
            self.wake(host, first, vcpu);
        }
    }

    /// A thread that was woken for the mutex lets it go: the next one is woken.
    fn relay(&mut self, host: &mut Host, vcpu: u32, thread: u32, barrier: u32) {
        if !std::mem::take(&mut self.threads[thread as usize].relays) {
            return;
        }
        let slot = &mut self.condition_barriers[barrier as usize];
        if let Some(next) = slot.requeued.pop_front() {
            self.threads[next as usize].relays = true;
            self.wake(host, next, vcpu);
        }
    }

    /// A thread that may not go on spins, or blocks if it has spun long enough.
    fn wait_at(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        barrier: u32,
        spin: Option<Nanos>,
    ) -> Flow {
        let doing = self.threads[thread as usize].doing;
        let spins = matches!(doing, Doing::AtConditionBarrier { .. });
        if !spins {
            self.tell_begin(host, thread, Span::ConditionBarrierWait, barrier);
        }
        let slot = &mut self.condition_barriers[barrier as usize];
        let state = &mut self.threads[thread as usize];
        match spin {
            Some(spin) if !spins => {
                slot.spinning.push(thread);
                (state.spun, state.ple_spun) = (0, 0);
                state.doing = Doing::AtConditionBarrier { barrier, spin };
                Flow::Busy
            }
            Some(spin) if state.spun < spin => Flow::Busy,
            _ => {
                slot.spinning.retain(|other| *other != thread);
                slot.blocked.push(thread);
                self.block(host, vcpu, thread, Doing::Off);
                Flow::Again
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_left_may_not_enter_before_all_have() {
        let mut barrier = ConditionBarrier::new(2, true);
        let (here, outside) = (Meeting::Inside { round: 0 }, Meeting::Outside);
        assert!(barrier.open(outside) && !barrier.open(here));
        // Both have arrived.
        (barrier.round, barrier.leaving) = (1, true);
        assert!(barrier.open(here) && !barrier.open(outside) && !barrier.open(Meeting::Entering));
    }
}
