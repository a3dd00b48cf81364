// SPDX-License-Identifier: GPL-2.0-only
//! pCPUs held for vCPUs that have halted (vSMT-IO): how many holds there were, how they ended, how long they
//! were. The dispatcher counts them (`struct hold_counters`); docs/vsmtio.md says what holds are.

use crate::skel::types;
use corun_model::Nanos;
use corun_model::time::{self, seconds};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was counted on some pCPUs since corun took over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    begun: u64,
    woke: u64,
    expired: u64,
    gave_way: u64,
    under_way: u64,
    length: Nanos,
    longest: Nanos,
    latest: Nanos,
}

/// The same for people and programs. Holds that began have ended, in one of three ways, or are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldsNow {
    /// How many began.
    pub begun: u64,
    /// How many ended because the vCPU woke.
    pub woke: u64,
    /// … because the timeout had passed.
    pub expired: u64,
    /// … before that, for another task.
    pub gave_way: u64,
    /// How many pCPUs are held at the moment.
    pub under_way: u64,
    /// The total length of those that ended, s.
    pub held_s: f64,
    /// … in the mean, s; 0: there were none.
    pub mean_s: f64,
    /// How long the longest was since corun took over, s.
    pub longest_s: f64,
    /// The furthest that one ended beyond its timeout since corun took over, s.
    pub latest_s: f64,
}

impl Holds {
    /// With what was counted on one more pCPU.
    pub(crate) fn plus(self, cpu: &types::cpu_ctx) -> Self {
        let one = &cpu.holds;
        Self {
            begun: self.begun + one.begun,
            woke: self.woke + one.woke,
            expired: self.expired + one.expired,
            gave_way: self.gave_way + one.gave_way,
            under_way: self.under_way + u64::from(cpu.held_since != 0),
            length: self.length + one.length,
            longest: self.longest.max(one.longest),
            latest: self.latest.max(one.latest),
        }
    }

    /// What was counted since `then`; what is largest, and under way, is as it is now.
    pub(crate) fn since(&self, then: &Self) -> Self {
        Self {
            begun: self.begun.saturating_sub(then.begun),
            woke: self.woke.saturating_sub(then.woke),
            expired: self.expired.saturating_sub(then.expired),
            gave_way: self.gave_way.saturating_sub(then.gave_way),
            length: self.length.saturating_sub(then.length),
            ..*self
        }
    }
}

impl From<Holds> for HoldsNow {
    fn from(holds: Holds) -> Self {
        let ended = holds.woke + holds.expired + holds.gave_way;
        Self {
            begun: holds.begun,
            woke: holds.woke,
            expired: holds.expired,
            gave_way: holds.gave_way,
            under_way: holds.under_way,
            held_s: seconds(holds.length),
            mean_s: seconds(holds.length) / ended.max(1) as f64,
            longest_s: seconds(holds.longest),
            latest_s: seconds(holds.latest),
        }
    }
}

impl fmt::Display for HoldsNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |seconds: f64| time::show((seconds * time::SEC as f64) as Nanos);
        write!(
            f,
            "holds: {} begun; {} until the vCPU woke, {} until the timeout, {} gave way, {} under way; mean {}, \
             longest {}, at most {} late",
            self.begun,
            self.woke,
            self.expired,
            self.gave_way,
            self.under_way,
            show(self.mean_s),
            show(self.longest_s),
            show(self.latest_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};

    #[test]
    fn pcpus_are_summed_and_the_longest_is_the_longest_of_all() {
        let mut cpu = types::cpu_ctx::default();
        (cpu.holds.begun, cpu.holds.woke, cpu.holds.expired) = (7, 4, 2);
        (cpu.holds.length, cpu.holds.longest) = (6 * MS, 3 * MS);
        cpu.held_since = 5;
        let then = Holds::default().plus(&cpu);
        let mut other = types::cpu_ctx::default();
        (other.holds.begun, other.holds.gave_way) = (3, 3);
        (other.holds.length, other.holds.longest) = (3 * MS, 2 * MS);
        other.holds.latest = 40 * US;
        let now = HoldsNow::from(then.plus(&other));
        assert_eq!(now.begun, now.woke + now.expired + now.gave_way + 1);
        assert_eq!(
            (now.under_way, now.mean_s, now.longest_s),
            (1, 0.001, 0.003)
        );
        assert_eq!(
            now.to_string(),
            "holds: 10 begun; 4 until the vCPU woke, 2 until the timeout, 3 gave way, 1 under way; mean 1.00 ms, \
             longest 3.00 ms, at most 40.0 µs late"
        );
        let lately = HoldsNow::from(then.plus(&other).since(&then));
        assert_eq!((lately.begun, lately.gave_way), (3, 3));
        assert_eq!(
            (lately.held_s, lately.mean_s, lately.longest_s),
            (0.003, 0.001, 0.003)
        );
        assert_eq!(HoldsNow::from(Holds::default()).mean_s, 0.0);
    }
}
