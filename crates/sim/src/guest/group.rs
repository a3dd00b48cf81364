// SPDX-License-Identifier: GPL-2.0-only
//! Work that one thread does for all who have come until it begins, such as RocksDB's write groups.
//!
//! Who comes first leads. Who comes while it works waits, spinning for so long and then blocked; when the
//! work is done, the first of these leads next, for all that are there when it begins
//! (`JoinBatchGroup()`, `EnterAsBatchGroupLeader()`, `AwaitState()` and `ExitAsBatchGroupLeader()` of
//! db/write_thread.cc). What a leader does is no longer for being done for more. In timelines a wait is one
//! for a mutex of that name.

use super::thread::Doing;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};
use corun_model::Nanos;

/// A group in the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Who does the work, or is about to.
    leader: Option<u32>,
    /// For whom beside itself.
    members: Vec<u32>,
    /// Who has come since it began.
    coming: Vec<u32>,
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
        match std::mem::take(&mut state.turn) {
            Turn::Done => state.code.skip_group(),
            Turn::Waits if slot.leader.is_some() => {
                slot.coming.push(thread);
                self.tell_begin(host, thread, Span::MutexWait, group);
                let Some(spin) = spin else {
                    return self.block(host, vcpu, thread, Doing::Off);
                };
                let state = &mut self.threads[thread as usize];
                (state.spun, state.ple_spun) = (0, 0);
                state.doing = Doing::InGroup { group, spin };
            }
            Turn::Waits | Turn::Leads => {
                slot.leader = Some(thread);
                slot.members.append(&mut slot.coming);
                state.code.done();
            }
        }
    }

    /// A thread that spins in a group goes on, if it leads or its part is done; it blocks, if it has spun long
    /// enough.
    pub(super) fn spin_in_group(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        (group, spin): (u32, Nanos),
    ) -> Flow {
        let state = &mut self.threads[thread as usize];
        match state.turn {
            Turn::Waits if state.spun < spin => return Flow::Busy,
            Turn::Waits => self.block(host, vcpu, thread, Doing::Off),
            Turn::Leads | Turn::Done => {
                state.doing = Doing::Next;
                self.tell_end(host, thread, Span::MutexWait, group);
            }
        }
        Flow::Again
    }

    /// The leader has done the work: those that it was for go on, and the first of those who have come since leads.
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
