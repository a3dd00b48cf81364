// SPDX-License-Identifier: GPL-2.0-only
//! Barriers, blocking and spinning. The parties are the threads whose programs name the barrier;
//! a thread that has exited is still waited for, as with `pthread_barrier_wait`.

use super::thread::Doing;
use super::vcpu::Mode;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};
use corun_model::Nanos;

/// A barrier that blocks.
#[derive(Debug)]
pub(super) struct Barrier {
    parties: usize,
    waiters: Vec<u32>,
}

impl Barrier {
    pub fn new(parties: usize) -> Self {
        Self {
            parties,
            waiters: Vec::with_capacity(parties),
        }
    }
}

/// A barrier whose waiters spin in user space: the guest may preempt them. Waiters that spin only for a limited time
/// then block, and the last thread to arrive wakes them all (`gomp_team_barrier_wait()` of libgomp, one `FUTEX_WAKE`).
#[derive(Debug)]
pub(super) struct SpinBarrier {
    barrier: Barrier,
    round: u64,
}

impl SpinBarrier {
    pub fn new(parties: usize) -> Self {
        let barrier = Barrier::new(parties);
        Self { barrier, round: 0 }
    }
}

impl Vm {
    /// A thread arrives at a barrier: it waits, or wakes all others.
    pub(super) fn arrive(&mut self, host: &mut Host, vcpu: u32, thread: u32, barrier: u32) {
        let slot = &mut self.barriers[barrier as usize];
        if slot.waiters.len() + 1 < slot.parties {
            slot.waiters.push(thread);
            self.tell_begin(host, thread, Span::BarrierWait, barrier);
            return self.block(host, vcpu, thread, Doing::Off);
        }
        let mut waiters = std::mem::take(&mut slot.waiters);
        for waiter in waiters.drain(..) {
            self.tell_end(host, waiter, Span::BarrierWait, barrier);
            self.wake(host, waiter, vcpu);
        }
        self.barriers[barrier as usize].waiters = waiters;
    }

    /// A thread arrives at a spin barrier: it spins, or lets all others go.
    pub(super) fn arrive_spinning(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        barrier: u32,
        spin: Option<Nanos>,
    ) {
        let slot = &mut self.spin_barriers[barrier as usize];
        if slot.barrier.waiters.len() + 1 < slot.barrier.parties {
            slot.barrier.waiters.push(thread);
            let state = &mut self.threads[thread as usize];
            (state.spun, state.ple_spun) = (0, 0);
            let round = slot.round;
            state.doing = Doing::AtSpinBarrier {
                barrier,
                round,
                spin,
            };
            return self.tell_begin(host, thread, Span::SpinBarrierWait, barrier);
        }
        slot.round += 1;
        let mut waiters = std::mem::take(&mut slot.barrier.waiters);
        for waiter in waiters.drain(..) {
            if self.threads[waiter as usize].doing == Doing::Off {
                self.tell_end(host, waiter, Span::SpinBarrierWait, barrier);
                self.wake(host, waiter, vcpu);
                continue;
            }
            self.barrier_opens_for(waiter);
        }
        self.spin_barriers[barrier as usize].barrier.waiters = waiters;
    }

    /// A thread that spins at a barrier of any kind sees that it is open once it is on a pCPU: at once if it is on one
    /// now.
    pub(super) fn barrier_opens_for(&mut self, thread: u32) {
        let on = self.threads[thread as usize].vcpu;
        let vcpu = &self.vcpus[on as usize];
        if vcpu.mode == Mode::Running && vcpu.current == Some(thread) {
            self.dirty.push(on);
        }
    }

    /// A thread that spins at a barrier goes on if all have arrived since, and blocks if it has spun long enough.
    pub(super) fn spin_at_barrier(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        (barrier, round, spin): (u32, u64, Option<Nanos>),
    ) -> Flow {
        let state = &mut self.threads[thread as usize];
        if self.spin_barriers[barrier as usize].round != round {
            state.doing = Doing::Next;
            self.tell_end(host, thread, Span::SpinBarrierWait, barrier);
            return Flow::Again;
        }
        if spin.is_some_and(|spin| state.spun >= spin) {
            self.block(host, vcpu, thread, Doing::Off);
            return Flow::Again;
        }
        // The thread is in user mode, where the CPU does not look for spinning.
        Flow::Busy
    }
}
