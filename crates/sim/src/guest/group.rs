// SPDX-License-Identifier: GPL-2.0-only
//! Work that one thread does on behalf of all threads that have come before it begins, such as
//! RocksDB's write groups.
//!
//! The thread that comes first leads. Threads that come while it works wait, spinning and then
//! blocked; when the work is done, the first of them leads next, for all that are there when it
//! begins (`JoinBatchGroup()`, `EnterAsBatchGroupLeader()`, `AwaitState()` and
//! `ExitAsBatchGroupLeader()` of db/write_thread.cc). The leader's work takes no longer if it is
//! done for more threads. Timelines show a wait as one for a mutex of the group's name.
//!
//! How long spinning is worth it is learned, as in `AwaitState()`: every thread looks for a
//! microsecond, and then yields and looks for as long as the program says, if that has been enough
//! more often than not. Yielding to another thread of the same vCPU is slow, and after three slow
//! yields a thread blocks; here a thread that shares its vCPU with another one when it comes blocks
//! at once.

use super::thread::Doing;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};
use corun_model::Nanos;
use corun_model::time::US;

/// How long every thread looks: 200 times PAUSE.
const LOOK: Nanos = US;

/// One wait in so many is a sample: its thread spins in order to learn whether spinning is enough
/// (`sampling_base`).
const SAMPLED: u64 = 256;

/// What a sample adds to a group's credit, or takes from it; a 1024th of the credit is forgotten at the same time.
const CREDIT: i32 = 131_072;

/// A group in the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The thread that does the work, or is about to.
    leader: Option<u32>,
    /// The other threads that it does the work for.
    members: Vec<u32>,
    /// Threads that have come since it began.
    coming: Vec<u32>,
    /// Not negative: spinning has been enough more often than not.
    credit: i32,
}

impl Group {
    /// A sample has shown whether spinning is enough.
    fn learn(&mut self, enough: bool) {
        let change = if enough { CREDIT } else { -CREDIT };
        self.credit += change - self.credit / 1024;
    }

    /// How long a thread that would spin for `spin` does so, and whether to learn from the outcome. `alone`: it has its
    /// vCPU to itself; `sampled`: its wait is a sample.
    fn patience(&mut self, spin: Nanos, alone: bool, sampled: bool) -> (Nanos, bool) {
        match sampled || self.credit >= 0 {
            true if alone => (spin, sampled),
            true => {
                self.learn(false);
                (LOOK.min(spin), false)
            }
            false => (LOOK.min(spin), false),
        }
    }
}

/// What a thread is in the group that it has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits, or has not come to one.
    #[default]
    Waits,
    /// It is to do the work.
    Leads,
    /// Its part is done.
    Done,
}

impl Vm {
    /// A thread comes to a group, or sees what has become of it there.
    pub(super) fn join_group(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        (group, spin): (u32, Option<Nanos>),
    ) {
        let slot = &mut self.groups[group as usize];
        let state = &mut self.threads[thread as usize];
        let alone = self.vcpus[vcpu as usize].queue.is_empty();
        match std::mem::take(&mut state.turn) {
            Turn::Done => state.code.skip_group(),
            Turn::Waits if slot.leader.is_some() => {
                slot.coming.push(thread);
                let spin = spin.map(|spin| {
                    let sampled = state.rng.between(1, SAMPLED) == 1;
                    slot.patience(spin, alone, sampled)
                });
                self.tell_begin(host, thread, Span::MutexWait, group);
                let Some((spin, tells)) = spin else {
                    return self.block(host, vcpu, thread, Doing::Off);
                };
                let state = &mut self.threads[thread as usize];
                (state.spun, state.ple_spun) = (0, 0);
                state.doing = Doing::InGroup { group, spin, tells };
            }
            Turn::Waits | Turn::Leads => {
                slot.leader = Some(thread);
                slot.members.append(&mut slot.coming);
                state.code.done();
            }
        }
    }

    /// A thread that spins in a group goes on if it leads or its part is done, and blocks if it has spun long enough.
    pub(super) fn spin_in_group(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        (group, spin, tells): (u32, Nanos, bool),
    ) -> Flow {
        let state = &mut self.threads[thread as usize];
        if state.turn == Turn::Waits && state.spun < spin {
            return Flow::Busy;
        }
        if tells {
            self.groups[group as usize].learn(state.turn != Turn::Waits);
        }
        match state.turn {
            Turn::Waits => self.block(host, vcpu, thread, Doing::Off),
            Turn::Leads | Turn::Done => {
                state.doing = Doing::Next;
                self.tell_end(host, thread, Span::MutexWait, group);
            }
        }
        Flow::Again
    }

    /// The leader has done the work: those that it was for go on, and the first of the threads that
    /// have come since leads.
    pub(super) fn leave_group(&mut self, host: &mut Host, vcpu: u32, group: u32) {
        let slot = &mut self.groups[group as usize];
        slot.leader = (!slot.coming.is_empty()).then(|| slot.coming.remove(0));
        let (next, mut members) = (slot.leader, std::mem::take(&mut slot.members));
        for member in members.drain(..) {
            self.give_turn(host, vcpu, (member, group), Turn::Done);
        }
        if let Some(next) = next {
            self.give_turn(host, vcpu, (next, group), Turn::Leads);
        }
        self.groups[group as usize].members = members;
    }

    fn give_turn(&mut self, host: &mut Host, vcpu: u32, (thread, group): (u32, u32), turn: Turn) {
        let state = &mut self.threads[thread as usize];
        state.turn = turn;
        match state.doing {
            Doing::Off => {
                self.tell_end(host, thread, Span::MutexWait, group);
                self.wake(host, thread, vcpu);
            }
            _ => self.barrier_opens_for(thread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_is_left_to_samples_while_it_is_not_enough() {
        let mut group = Group::default();
        assert_eq!(group.patience(100 * US, true, false), (100 * US, false));
        assert_eq!(group.patience(100 * US, true, true), (100 * US, true));
        group.learn(false);
        assert_eq!(group.patience(100 * US, true, false), (LOOK, false));
        assert_eq!(group.patience(100 * US, true, true), (100 * US, true));
        group.learn(true);
        // Next to another thread on its vCPU it yields slowly, which decides at once.
        assert_eq!(group.patience(100 * US, false, false), (LOOK, false));
        assert!(group.credit < 0);
        // However many samples there were, credit is at most that of 1024.
        (0..100_000).for_each(|_| group.learn(true));
        assert_eq!(group.credit, 1024 * CREDIT);
    }
}
