// SPDX-License-Identifier: GPL-2.0-only
//! What a host can tell about a vCPU besides when it ran: I/O, spinning, the last-level cache.
//!
//! No two hosts can tell the same: without a performance monitoring unit (most cloud instances, all
//! emulated ones) nothing is known of caches. What cannot be told is `None`, never 0, so that a
//! policy says what it does not know instead of guessing.

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// What a vCPU did in a period, as far as the host can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// I/O events. The simulator counts a guest's requests and the interrupts of devices for it; on a host only the
    /// requests are seen. So a limit that was found on one does not hold on the other.
    pub io_events: Option<u64>,
    /// Pause-loop exits: the CPU noticed that it spins.
    pub pause_exits: Option<u64>,
    /// Instructions executed: available even where the last-level cache's events are not.
    pub instructions: Option<u64>,
    /// What it did in the last-level cache.
    pub llc: Option<LlcSeen>,
    /// How its cycles divided while its SMT sibling was idle or retained a context.
    pub cycles: Option<CyclesSeen>,
    /// Retentions that ended with what was waited for, by a guest that retains its contexts by itself and reports that.
    pub kept: Option<u64>,
    /// How much of its time on pCPUs these were not halted.
    pub unhalted: Option<UnhaltedSeen>,
}

/// Counts of a thread while it has a pCPU, the guest's part included: a guest that halts without an exit (MWAIT or HLT
/// passed through) stops `unhalted`, but not `reference`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnhaltedSeen {
    /// Cycles in which the pCPU was not halted, at the rate of `reference`.
    pub unhalted: u64,
    /// What a clock that never stops counted in the same time.
    pub reference: u64,
}

impl UnhaltedSeen {
    /// How much of `run`, ns on pCPUs, was spent halted.
    pub fn dormant(&self, run: Nanos) -> Nanos {
        let halted = self.reference.saturating_sub(self.unhalted);
        let part = u128::from(run) * u128::from(halted) / u128::from(self.reference.max(1));
        // No more than `run`.
        part as Nanos
    }
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

impl CyclesSeen {
    /// What was counted since `before`, where both count from the same beginning. A counter that seems to go back has
    /// begun anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cycles: count(self.cycles, before.cycles),
            base: count(self.base, before.base),
            miss: count(self.miss, before.miss),
        }
    }
}

/// What a counter has counted since it said `before`, or since it began anew.
fn count(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

impl Signals {
    /// What is known here, or else there. A counter that takes turns with others may have no value in a period.
    #[must_use]
    pub fn or(self, there: Self) -> Self {
        Self {
            io_events: self.io_events.or(there.io_events),
            pause_exits: self.pause_exits.or(there.pause_exits),
            instructions: self.instructions.or(there.instructions),
            llc: self.llc.or(there.llc),
            cycles: self.cycles.or(there.cycles),
            kept: self.kept.or(there.kept),
            unhalted: self.unhalted.or(there.unhalted),
        }
    }

    /// What happened since `before`, both counted from the same beginning. A counter that seems to
    /// go back has begun anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
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
            cycles: (self.cycles).map(|it| it.since(&before.cycles.unwrap_or_default())),
            kept: both(self.kept, before.kept),
            unhalted: self.unhalted.map(|it| {
                let then = before.unhalted.unwrap_or_default();
                // If one has begun anew, so has the other.
                let again = it.reference < then.reference;
                let then = if again { UnhaltedSeen::default() } else { then };
                UnhaltedSeen {
                    unhalted: count(it.unhalted, then.unhalted),
                    reference: count(it.reference, then.reference),
                }
            }),
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

    #[test]
    fn a_share_is_of_two_counts_since_the_same_time() {
        let seen = |unhalted, reference| Signals {
            unhalted: Some(UnhaltedSeen {
                unhalted,
                reference,
            }),
            ..Signals::default()
        };
        let since = seen(15, 40).since(&seen(10, 20)).unhalted;
        assert_eq!(since, seen(5, 20).unhalted);
        let anew = seen(15, 19).since(&seen(10, 20)).unhalted;
        assert_eq!(anew, seen(15, 19).unhalted);
    }

    #[test]
    fn what_was_not_unhalted_was_spent_dormant() {
        let seen = |unhalted, reference| UnhaltedSeen {
            unhalted,
            reference,
        };
        assert_eq!(seen(300, 1_200).dormant(400), 300);
        // Two counters are never read at the same moment.
        assert_eq!(seen(1_201, 1_200).dormant(400), 0);
        assert_eq!(seen(0, 0).dormant(400), 0, "nothing was counted");
        assert_eq!(seen(0, 1).dormant(u64::MAX), u64::MAX);
    }
}
