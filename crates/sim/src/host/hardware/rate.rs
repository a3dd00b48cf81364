// SPDX-License-Identifier: GPL-2.0-only
//! How fast a running task makes progress, and how far it has come.
//!
//! Problem: a task that shares its core and caches is slowed by a factor that changes whenever its
//! neighbours change, but a load counts on getting exactly the work it ordered. So progress is a
//! piecewise linear function of time in fixed point: within a piece, each ns of time adds `rate`
//! 2^-20ths of a ns of work, and the fraction left at the end of a piece is carried into the next.
//! No rate is above 1, so at the first ns at which a whole amount of work is done, exactly that
//! much is done.
//!
//! What slows a task is expressed as time per work, because that adds up: a miss takes the same
//! time however fast the instructions around it are (the additive model of cycle accounting:
//! Eyerman, Eeckhout et al., "A performance counter architecture for computing accurate CPI
//! components", ASPLOS 2006).

use corun_model::Nanos;

/// 1 in fixed point: 20 binary places, so that a rate is off by less than 1 in 10^6.
pub(in crate::host) const ONE: u64 = 1 << PLACES;
const PLACES: u32 = 20;

/// Time per undisturbed work, in two parts, each in units of [`ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) struct Pace {
    /// Alongside what the SMT siblings do, at least [`ONE`].
    pub smt: u64,
    /// What cache misses add.
    pub cache: u64,
}

impl Pace {
    /// Undisturbed.
    pub const FULL: Pace = Pace { smt: ONE, cache: 0 };

    /// Work per time; never 0, so that everything ends.
    fn rate(self) -> u64 {
        if self == Self::FULL {
            return ONE;
        }
        (ONE * ONE / (self.smt + self.cache)).clamp(1, ONE)
    }
}

/// Time that a task spent on a pCPU without progress, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::host) struct Lost {
    pub smt: Nanos,
    pub cache: Nanos,
}

/// A running task's work since it got its pCPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::host) struct Progress {
    /// The present piece began here; before the first piece nothing is done (the switch to the
    /// task).
    from: Nanos,
    /// Work done until then, whole ns …
    done: Nanos,
    /// … and the fraction.
    rest: u64,
    pace: Pace,
    rate: u64,
}

impl Progress {
    /// Work begins at `from`.
    pub fn new(from: Nanos, pace: Pace) -> Self {
        Self {
            from,
            done: 0,
            rest: 0,
            pace,
            rate: pace.rate(),
        }
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Work done at `now`, ns.
    pub fn at(&self, now: Nanos) -> Nanos {
        let spent = now.saturating_sub(self.from);
        if self.rate == ONE {
            return self.done + spent;
        }
        self.done + self.piece(spent).0
    }

    /// Whole work done in the first `spent` ns of the piece, and the fraction.
    fn piece(&self, spent: Nanos) -> (Nanos, u64) {
        let work = u128::from(spent) * u128::from(self.rate) + u128::from(self.rest);
        let fraction = work & u128::from(ONE - 1);
        ((work >> PLACES) as Nanos, fraction as u64)
    }

    /// When `work` ns will be done, at the present rate.
    pub fn when(&self, work: Nanos) -> Nanos {
        let left = work.saturating_sub(self.done);
        if self.rate == ONE {
            return self.from.saturating_add(left);
        }
        // Up to almost five hours, 64 bits suffice; dividing 128 costs several times as much.
        if left < 1 << (u64::BITS - PLACES) {
            let needed = (left << PLACES).saturating_sub(self.rest);
            return self.from.saturating_add(needed.div_ceil(self.rate));
        }
        let needed = (u128::from(left) << PLACES).saturating_sub(u128::from(self.rest));
        let time = needed.div_ceil(u128::from(self.rate));
        let time = Nanos::try_from(time).unwrap_or(Nanos::MAX);
        self.from.saturating_add(time)
    }

    /// Ends the piece at `now`; the next one goes at the same rate. Returns what was lost in it.
    pub fn advance(&mut self, now: Nanos) -> Lost {
        if now <= self.from {
            return Lost::default();
        }
        let spent = now - self.from;
        self.from = now;
        if self.rate == ONE {
            self.done += spent;
            return Lost::default();
        }
        let (work, rest) = self.piece(spent);
        (self.done, self.rest) = (self.done + work, rest);
        // Divided up like the times per work; what rounding leaves goes to the caches.
        let lost = spent - work;
        let (smt, cache) = (self.pace.smt - ONE, self.pace.cache);
        let smt = match cache {
            0 => lost,
            _ => (u128::from(lost) * u128::from(smt) / u128::from(smt + cache)) as Nanos,
        };
        Lost {
            smt,
            cache: lost - smt,
        }
    }

    /// From `now` on the pace is another. Returns what was lost until then.
    pub fn change(&mut self, now: Nanos, pace: Pace) -> Lost {
        let lost = self.advance(now);
        (self.pace, self.rate) = (pace, pace.rate());
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(smt: u64, cache: u64) -> Pace {
        Pace { smt, cache }
    }

    #[test]
    fn nothing_is_done_before_the_switch_is_paid() {
        let progress = Progress::new(100, Pace::FULL);
        assert_eq!(
            (progress.at(40), progress.at(100), progress.at(107)),
            (0, 0, 7)
        );
        assert_eq!(progress.when(0), 100);
        assert_eq!(progress.when(7), 107);
    }

    #[test]
    fn half_the_rate_takes_twice_the_time() {
        let mut progress = Progress::new(0, pace(2 * ONE, 0));
        assert_eq!(progress.at(1001), 500);
        assert_eq!(progress.when(500), 1000);
        // The half ns from before counts: one more makes a whole.
        assert_eq!(
            progress.change(1001, Pace::FULL),
            Lost { smt: 501, cache: 0 }
        );
        assert_eq!(progress.at(1002), 501);
        assert_eq!(progress.when(501), 1002);
    }

    #[test]
    fn losses_are_divided_as_the_causes_are() {
        // 1 ns of work takes 1 + 1 (SMT) + 2 (misses).
        let mut progress = Progress::new(0, pace(2 * ONE, 2 * ONE));
        let lost = progress.advance(4000);
        assert_eq!(
            (progress.at(4000), lost),
            (
                1000,
                Lost {
                    smt: 1000,
                    cache: 2000
                }
            )
        );
    }

    #[test]
    fn the_longest_work_at_the_slowest_rate_does_not_overflow() {
        let progress = Progress::new(0, pace(ONE, u64::from(u32::MAX) * 1000));
        assert!(progress.when(corun_model::time::LONGEST) > corun_model::time::LONGEST);
        assert_eq!(progress.when(Nanos::MAX), Nanos::MAX);
    }

    proptest! {
        /// However the pace changes on the way: work, losses and time balance to the ns, progress
        /// never goes back or runs ahead of time, and `when` is the first moment at which so much
        /// is done, to the ns.
        #[test]
        fn progress_is_conserved(
            start in 0u64..1_000,
            pieces in prop::collection::vec((0u64..5_000, 0u64..4 * ONE, 0u64..8 * ONE), 1..40),
            order in 1u64..20_000,
        ) {
            let mut progress = Progress::new(start, Pace::FULL);
            let (mut now, mut before, mut lost) = (0, 0, 0);
            for (length, smt, cache) in pieces {
                now += length;
                let done = progress.at(now);
                prop_assert!(before <= done && done <= now.saturating_sub(start));
                let due = done + order;
                let loss = progress.change(now, pace(ONE + smt, cache));
                prop_assert_eq!(progress.at(now), done, "a change is no progress");
                lost += loss.smt + loss.cache;
                prop_assert_eq!(done + lost, now.saturating_sub(start));
                let at = progress.when(due);
                prop_assert_eq!(progress.at(at), due);
                prop_assert!(progress.at(at - 1) < due);
                before = done;
            }
        }
    }
}
