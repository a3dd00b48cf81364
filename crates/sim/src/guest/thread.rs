// SPDX-License-Identifier: GPL-2.0-only
//! A guest thread.

use super::condition_barrier::Meeting;
use super::group::Turn;
use super::mutex::Locking;
use super::net::Talk;
use super::placing::Wakes;
use crate::host::Profile;
use crate::rng::Rng;
use crate::sched::fair::{Average, FULL};
use crate::workload::Code;
use corun_model::Nanos;

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Its next operation decides.
    Next,
    /// How much work is left of a `compute`.
    Computing(Nanos),
    /// Has wanted a spin lock since then; `granted`: the lock was handed over and the thread only
    /// needs to notice.
    Spinning {
        lock: u32,
        since: Nanos,
        granted: bool,
    },
    /// Spins in user space until the barrier is in another round, at most so long.
    AtSpinBarrier {
        barrier: u32,
        round: u64,
        spin: Option<Nanos>,
    },
    /// Spins in user space until it may go on at the barrier, at most so long.
    AtConditionBarrier { barrier: u32, spin: Nanos },
    /// Spins in user space until it leads the group or its part is done, at most so long; `tells`: the group learns
    /// from whether that was enough.
    InGroup {
        group: u32,
        spin: Nanos,
        tells: bool,
    },
    /// Runs until that time.
    Busy { until: Nanos },
    /// Spins in the kernel until so many more vCPUs have flushed their TLBs.
    Flushing { left: u32, since: Nanos },
    /// Asleep or blocked: on no vCPU.
    Off,
    /// Its program is over.
    Exited,
}

/// A guest thread in the run.
#[derive(Debug)]
pub(super) struct Thread {
    pub code: Code,
    pub rng: Rng,
    pub doing: Doing,
    /// The vCPU it is on or was on last; its sleep timer is there, too.
    pub vcpu: u32,
    /// Bound to that vCPU?
    pub pinned: bool,
    /// The vCPU that vMigrater bound it to, if it did.
    pub home: Option<u32>,
    /// Since when it could run there, until it does.
    pub moving: Option<Nanos>,
    /// Virtual time: ns run, aligned with the others of its runqueue.
    pub vruntime: Nanos,
    /// Work since it got its vCPU last.
    pub ran: Nanos,
    /// Share of time for which it could run, of [`FULL`].
    pub load: Average,
    pub wakes: Wakes,
    /// Spin locks held or wanted: the guest does not preempt it.
    pub preempt_off: u32,
    /// For how long it has spun since it began to, since its vCPU last halted for the lock, or since it came to another
    /// place in the queue for a paravirtual lock.
    pub spun: Nanos,
    /// Spins for a paravirtual lock without having queued.
    pub steals: bool,
    /// For how long it has spun since the last pause-loop exit.
    pub ple_spun: Nanos,
    /// How far it has got with the mutex that it wants.
    pub locking: Locking,
    /// Woken by a signal; what is left is to take the mutex again.
    pub signalled: bool,
    /// Where it is in a condition barrier.
    pub meeting: Meeting,
    /// What it is in a group.
    pub turn: Turn,
    /// Woken to take the mutex of a condition barrier: the next one is woken when it lets it go.
    pub relays: bool,
    /// When each of its `every` statements was last due, by place in the program.
    pub due: Vec<(u32, Nanos)>,
    /// What its work is like; `None` if no thread of its VM specifies that.
    pub profile: Option<Profile>,
    pub talk: Talk,
    /// It takes messages from a port.
    pub serves: bool,
}

impl Thread {
    pub fn new(code: Code, rng: Rng, vcpu: u32, pinned: bool) -> Self {
        Self {
            serves: code.takes_messages(),
            code,
            rng,
            doing: Doing::Next,
            vcpu,
            pinned,
            home: None,
            moving: None,
            vruntime: 0,
            ran: 0,
            load: Average::starting_at(FULL, 0),
            wakes: Wakes::default(),
            preempt_off: 0,
            spun: 0,
            steals: false,
            ple_spun: 0,
            locking: Locking::New,
            signalled: false,
            meeting: Meeting::Outside,
            turn: Turn::Waits,
            relays: false,
            due: Vec::new(),
            profile: None,
            talk: Talk::default(),
        }
    }

    pub fn spins(&self) -> bool {
        matches!(
            self.doing,
            Doing::Spinning { .. }
                | Doing::AtSpinBarrier { .. }
                | Doing::AtConditionBarrier { .. }
                | Doing::InGroup { .. }
                | Doing::Flushing { .. }
        )
    }

    /// Books `work` ns on its vCPU; returns how much of it was spinning.
    pub fn book(&mut self, work: Nanos) -> Nanos {
        self.vruntime += work;
        self.ran += work;
        if let Doing::Computing(left) = &mut self.doing {
            debug_assert!(work <= *left, "did {work} ns of {left}");
            *left = left.saturating_sub(work);
            return 0;
        }
        if let Doing::Busy { .. } = self.doing {
            return 0;
        }
        debug_assert!(
            work == 0 || self.spins(),
            "{work} ns spent {:?}",
            self.doing
        );
        self.spun += work;
        self.ple_spun += work;
        work
    }
}
