// SPDX-License-Identifier: GPL-2.0-only
//! How fast to beat. A heartbeat costs some microseconds; every 300 µs that is about a hundredth of a
//! vCPU, and must not be paid while there is nothing to move. Nor may it become more: where a beat costs
//! more than it should, it comes less often.

use crate::heart::SLOWEST;
use corun_model::Nanos;
use corun_model::time::{MS, SEC};
use corun_policies::vmigrater::MigraterParams;
use corun_system::clock;

/// With nothing to move, beats come ten times less often: with 3 ms, absences of more than 6 ms are
/// seen, and hosts' slices are of that order or longer (assumed).
const SLOWER: u64 = 10;
/// The period with nothing to move where the host reports the time that it takes: beats then show nothing new.
const IDLE: Nanos = 100 * MS;

/// How slices are predicted: by the rule that would have lost least lately, since hosts' slices are less regular than
/// those that the paper was measured with, and not all in the same way.
const SLICES: usize = 0;

/// The settings for beats with this period.
pub(crate) fn params(heartbeat: Nanos) -> MigraterParams {
    MigraterParams {
        slices: SLICES,
        ..MigraterParams::default().beating_every(heartbeat)
    }
}

/// The pace, and what it costs.
#[derive(Debug)]
pub(crate) struct Pace {
    asked: Nanos,
    /// While there is something to move.
    fast: Nanos,
    is_fast: bool,
    /// Are beats needed to know whether anything is shared?
    is_needed: bool,
    /// The most that the pace may cost, thousandths of each vCPU.
    limit: f64,
    own: f64,
    measured: (Nanos, Nanos),
}

impl Pace {
    /// Beats as often as `asked` while there is something to move, for at most `limit` thousandths of each vCPU;
    /// `tells_steal`: the host reports the time that it takes.
    pub(crate) fn new(asked: Nanos, limit: u32, tells_steal: bool) -> Self {
        Self {
            asked,
            fast: asked,
            is_fast: false,
            is_needed: !tells_steal,
            limit: f64::from(limit),
            own: 0.0,
            measured: (clock::now(), clock::own_time()),
        }
    }

    pub(crate) fn period(&self) -> Nanos {
        match self.is_fast {
            true => self.fast,
            false if !self.is_needed => IDLE,
            false => (self.fast * SLOWER).min(SLOWEST.max(self.fast)),
        }
    }

    /// Own use of each vCPU at the last measurement, thousandths.
    pub(crate) fn own_permille(&self) -> f64 {
        self.own
    }

    /// Beats fast or slowly from now on. Returns whether the period has changed.
    pub(crate) fn update(&mut self, fast: bool, vcpus: u32, now: Nanos) -> bool {
        let before = self.period();
        let (at, used) = self.measured;
        if now.saturating_sub(at) >= SEC / 2 {
            let own = clock::own_time();
            self.charge(own - used, now - at, vcpus);
            self.measured = (now, own);
        }
        self.is_fast = fast;
        self.period() != before
    }

    /// This pace held for `passed`, and beats used `used`: slows down if that is too much, speeds up again if it is
    /// little.
    fn charge(&mut self, used: Nanos, passed: Nanos, vcpus: u32) {
        let all = passed.saturating_mul(u64::from(vcpus.max(1))).max(1);
        self.own = used as f64 * 1000.0 / all as f64;
        if !self.is_fast {
            return;
        }
        if self.own > self.limit {
            self.fast = (self.fast * 2).min(SLOWEST);
        } else if self.own < self.limit / 4.0 {
            self.fast = (self.fast / 2).max(self.asked);
        }
    }
}

/// The periods that may be asked for: with shorter ones, beats are nothing but overhead; with longer ones, no slice is
/// seen.
pub(crate) const PERIODS: std::ops::RangeInclusive<Nanos> = 50_000..=10 * MS;

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::US;

    #[test]
    fn settings_go_with_the_beat() {
        assert_eq!(params(300 * US).gap, MigraterParams::default().gap);
        let slow = params(3 * MS);
        assert_eq!((slow.gap, slow.push, slow.slices), (6 * MS, 6 * MS, 0));
    }

    #[test]
    fn beats_are_slow_until_there_is_something_to_move() {
        let mut pace = Pace::new(300 * US, 10, false);
        let now = clock::now();
        assert_eq!(pace.period(), 3 * MS);
        assert!(pace.update(true, 2, now));
        assert_eq!(pace.period(), 300 * US);
        assert!(!pace.update(true, 2, now));
        assert!(pace.update(false, 2, now));
        assert_eq!(Pace::new(300 * US, 10, true).period(), 100 * MS);
    }

    #[test]
    fn beats_that_cost_too_much_come_less_often() {
        let mut pace = Pace::new(300 * US, 10, false);
        pace.is_fast = true;
        pace.charge(30 * MS, SEC, 2);
        assert_eq!((pace.own, pace.period()), (15.0, 600 * US));
        pace.charge(30 * MS, SEC, 4);
        assert_eq!(
            (pace.own, pace.period()),
            (7.5, 600 * US),
            "within its limit"
        );
        pace.charge(2 * MS, SEC, 4);
        assert_eq!(pace.period(), 300 * US);
        for _ in 0..20 {
            pace.charge(SEC, SEC, 1);
        }
        assert_eq!(pace.period(), SLOWEST);
    }
}
