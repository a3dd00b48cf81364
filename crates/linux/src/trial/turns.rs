// SPDX-License-Identifier: GPL-2.0-only
//! Turns on a pCPU as the thread itself sees them: it looks at the clock all the time, and where that
//! jumps, it had no pCPU.

use corun_model::Nanos;
use corun_model::time::US;
use corun_system::clock;

/// A longer jump is no interrupt: another task had the pCPU. Assumed: interrupts and what follows
/// them take tens of microseconds, others run for a slice, 0.1 ms at least.
pub(super) const GAP: Nanos = 300 * US;

/// A thread's turns.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Turns that begin earlier do not count.
    from: Nanos,
    began: Nanos,
    last: Nanos,
    lengths: Vec<Nanos>,
}

impl Turns {
    /// The first turn begins now. It does not count: it is not known when it began.
    pub(super) fn new(now: Nanos, from: Nanos) -> Self {
        Self {
            from,
            began: 0,
            last: now,
            lengths: Vec::new(),
        }
    }

    /// Looks at the clock. Returns the time.
    pub(super) fn look(&mut self) -> Nanos {
        self.at(clock::now())
    }

    fn at(&mut self, now: Nanos) -> Nanos {
        if now.saturating_sub(self.last) > GAP {
            if self.began >= self.from.max(1) {
                self.lengths.push(self.last - self.began);
            }
            self.began = now;
        }
        self.last = now;
        now
    }

    /// When it last looked.
    pub(super) fn last(&self) -> Nanos {
        self.last
    }

    /// Lengths of the turns that are over, ns.
    pub(super) fn into_lengths(self) -> Vec<Nanos> {
        self.lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    #[test]
    fn turns_end_where_the_clock_jumps() {
        let mut turns = Turns::new(1000 * MS, 1010 * MS);
        // On until 1004, off until 1008, on until 1012, off, on until 1022, off, on.
        for (from, until) in [(1000, 1004), (1008, 1012), (1015, 1022), (1030, 1031)] {
            for at in from * 10..=until * 10 {
                turns.at(at * MS / 10);
            }
        }
        assert_eq!(
            turns.into_lengths(),
            [7 * MS],
            "whole ones that begin in time"
        );
    }

    #[test]
    fn interrupts_end_no_turn() {
        let mut turns = Turns::new(MS, MS);
        let mut now = 2 * MS;
        for step in [10 * US, 200 * US, 10 * US, 90 * US] {
            now += step;
            turns.at(now);
        }
        turns.at(now + MS);
        assert_eq!(
            turns.into_lengths(),
            [310 * US - 10 * US],
            "after the jump to its begin"
        );
    }
}
