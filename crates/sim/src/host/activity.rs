// SPDX-License-Identifier: GPL-2.0-only
//! What a hardware thread is busy with, as far as its SMT sibling and the caches notice.

use crate::workload::{Memory, Mix};

/// What a running task does with its hardware thread. (A hardware thread without a task idles.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Executes its own work.
    #[default]
    Work,
    /// Also work, but of a kernel that wakes a vCPU or returns to one that was halted: what
    /// accompanies a switch from one vCPU to another besides the switch itself.
    Rescheduling,
    /// Spins with PAUSE: a lock, a barrier in user space.
    Spinning,
    /// The host polls for a wake-up on behalf of a halted vCPU (KVM's halt polling).
    HaltPolling,
    /// The guest's own idle loop polls (`idle=poll`).
    IdlePolling,
    /// Waits in MONITOR/MWAIT, its context kept: context retention.
    Retention,
}

impl Activity {
    /// Does it use the caches as its thread's work does?
    pub(super) fn touches_memory(self) -> bool {
        matches!(self, Activity::Work | Activity::Rescheduling)
    }
}

/// What a task's present work is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The owner of the working set: the guest thread, numbered over all VMs. Another number means
    /// other data, so a guest's thread switch costs cache misses, too.
    pub owner: u32,
    /// Working set and how fast it is touched.
    pub memory: Memory,
    /// How its cycles divide up; `None`: as in [`Mix::TYPICAL`].
    pub mix: Option<Mix>,
}

impl Profile {
    /// The profile of an owner that has not described its work yet.
    pub fn new(owner: u32) -> Self {
        Self {
            owner,
            memory: Memory {
                bytes: 0,
                lines_per_us: 0,
            },
            mix: None,
        }
    }
}
