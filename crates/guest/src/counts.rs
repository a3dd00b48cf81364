// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon has done so far.

use corun_model::Nanos;
use corun_policies::vmigrater::Why;
use serde::{Deserialize, Serialize};

/// Moves by reason, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Away from vCPUs whose slices were about to end.
    pub push: u64,
    /// From vCPUs that had been descheduled.
    pub pull: u64,
    /// To vCPUs that were about to become active.
    pub soon: u64,
    /// From vCPUs with more than their share.
    pub spread: u64,
    /// Those that the kernel refused.
    pub refused: u64,
    /// Those not made because somebody else had set the thread's mask: it was left alone then.
    pub foreign: u64,
    /// The longest that one took, ns: the kernel moves a thread that runs only when its vCPU does.
    pub longest_ns: Nanos,
}

impl Moves {
    pub(crate) fn count(&mut self, why: Why) {
        match why {
            Why::Push => self.push += 1,
            Why::Pull => self.pull += 1,
            Why::Soon => self.soon += 1,
            Why::Spread => self.spread += 1,
        }
    }

    /// All that were made.
    pub fn made(&self) -> u64 {
        self.push + self.pull + self.soon + self.spread
    }
}

/// What the heartbeats of one vCPU have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuCounts {
    /// Its number.
    pub vcpu: u32,
    /// Heartbeats.
    pub beats: u64,
    /// How often it was found to have been descheduled.
    pub descheduled: u64,
    /// For how long in all, ns, give or take a heartbeat each time.
    pub away_ns: Nanos,
    /// What its slice is predicted to last, ns; `None`: not known yet.
    pub slice_ns: Option<Nanos>,
}
