// SPDX-License-Identifier: GPL-2.0-only
//! What a host can tell of a vCPU besides when it ran: I/O, spinning, the last-level cache.
//!
//! No two hosts can tell the same: without a performance monitoring unit (most cloud instances, all
//! emulated ones) nothing is known of caches. What cannot be told is `None`, never 0, so that a
//! policy says what it does not know instead of guessing.

use serde::{Deserialize, Serialize};

/// What a vCPU did in a period, as far as the host can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// I/O events: interrupts of devices for it, and requests that it sent to them.
    pub io_events: Option<u64>,
    /// Pause-loop exits: the CPU noticed that it spins.
    pub pause_exits: Option<u64>,
    /// Instructions executed: told where the last-level cache's events are not, too.
    pub instructions: Option<u64>,
    /// What it did in the last-level cache.
    pub llc: Option<LlcSeen>,
    /// How its cycles divided while its SMT sibling was idle or retained a context.
    pub cycles: Option<CyclesSeen>,
    /// Retentions that ended with what was waited for, of a guest that retains its contexts by itself
    /// and tells.
    pub kept: Option<u64>,
}

/// Counts of a performance monitoring unit: cycles without interference by an SMT sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclesSeen {
    /// All of them.
    pub cycles: u64,
    /// Of these, at work.
    pub base: u64,
    /// Of these, on misses.
    pub miss: u64,
}

/// Counts of a performance monitoring unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlcSeen {
    /// Instructions executed.
    pub instructions: u64,
    /// References to the last-level cache.
    pub references: u64,
    /// Of these, how many missed it.
    pub misses: u64,
}

impl Signals {
    /// What happened since `before`, both counted from the same beginning. A counter that seems to
    /// go back has begun anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let count = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let both = |now: Option<u64>, before: Option<u64>| Some(count(now?, before.unwrap_or(0)));
        let then = before.llc.unwrap_or_default();
        Self {
            io_events: both(self.io_events, before.io_events),
            pause_exits: both(self.pause_exits, before.pause_exits),
            instructions: both(self.instructions, before.instructions),
            llc: self.llc.map(|llc| LlcSeen {
                instructions: count(llc.instructions, then.instructions),
                references: count(llc.references, then.references),
                misses: count(llc.misses, then.misses),
            }),
            cycles: self.cycles.map(|cycles| {
                let then = before.cycles.unwrap_or_default();
                CyclesSeen {
                    cycles: count(cycles.cycles, then.cycles),
                    base: count(cycles.base, then.base),
                    miss: count(cycles.miss, then.miss),
                }
            }),
            kept: both(self.kept, before.kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_stays_unknown() {
        let now = Signals {
            io_events: Some(7),
            ..Signals::default()
        };
        let before = Signals {
            io_events: Some(5),
            pause_exits: Some(3),
            ..Signals::default()
        };
        let since = now.since(&before);
        assert_eq!((since.io_events, since.pause_exits), (Some(2), None));
        assert_eq!(before.since(&now).io_events, Some(5), "it began anew");
    }
}
