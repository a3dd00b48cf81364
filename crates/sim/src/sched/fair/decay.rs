// SPDX-License-Identifier: GPL-2.0-only
//! Averages that forget: per-entity load tracking.
//!
//! Linux since 3.8 (`kernel/sched/pelt.c`) weighs the past geometrically, with a half-life of 32
//! periods of 2^20 ns. Here the same curve is followed in closed form: over a time in which the
//! tracked value is constant, the average approaches it by a factor 2^(-t / 2^25 ns). All of it is
//! integer arithmetic; times are booked in steps of 2^15 ns (33 µs); the remainder waits for the
//! next booking.

use corun_model::Nanos;

/// The average of something that was on all the time: 2^20, the load of one task of nice 0.
pub(crate) const FULL: u64 = 1 << 20;

const HALF_LIFE_BITS: u32 = 25;
const STEP_BITS: u32 = 15;
const STEPS: usize = 1 << (HALF_LIFE_BITS - STEP_BITS);

/// The table of factors within one half-life, scaled by 2^62.
#[derive(Debug)]
pub(crate) struct Decay(Vec<u64>);

impl Decay {
    pub(crate) fn new() -> Self {
        const ONE: u128 = 1 << 62;
        // 2^(-1/1024): ten square roots of 1/2.
        let mut step = ONE / 2;
        for _ in 0..HALF_LIFE_BITS - STEP_BITS {
            step = (step * ONE).isqrt();
        }
        let mut factor = ONE;
        let next = |_| {
            let now = factor as u64;
            factor = factor * step / ONE;
            now
        };
        Self((0..STEPS).map(next).collect())
    }

    /// `value` after `steps`.
    fn after(&self, value: u64, steps: u64) -> u64 {
        let halvings = steps >> (HALF_LIFE_BITS - STEP_BITS);
        if halvings > 63 {
            return 0;
        }
        let factor = self.0.get(steps as usize % STEPS).copied().unwrap_or(0);
        ((u128::from(value) * u128::from(factor)) >> 62) as u64 >> halvings
    }
}

/// An average and when it was last brought up to date.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    /// What it is.
    pub(crate) value: u64,
    booked: u64,
}

impl Average {
    pub(crate) fn starting_at(value: u64, now: Nanos) -> Self {
        Self {
            value,
            booked: now >> STEP_BITS,
        }
    }

    /// The step that `now` is in: within one, averages do not change with time.
    pub(crate) fn step(now: Nanos) -> u64 {
        now >> STEP_BITS
    }

    /// Brings it up to `now`; since the last time, the tracked value was `was`.
    pub(crate) fn advance(&mut self, was: u64, now: Nanos, decay: &Decay) {
        let now = Self::step(now);
        let steps = now.saturating_sub(self.booked);
        if steps == 0 {
            return;
        }
        self.booked = now;
        self.value = match self.value >= was {
            true => was + decay.after(self.value - was, steps),
            false => was - decay.after(was - self.value, steps),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_in_32_periods() {
        let decay = Decay::new();
        let mut average = Average::starting_at(FULL, 0);
        average.advance(0, 1 << 25, &decay);
        assert_eq!(average.value, FULL / 2);
        average.advance(FULL, 1 << 26, &decay);
        assert_eq!(average.value, FULL * 3 / 4);
    }

    #[test]
    fn many_short_times_are_one_long_time() {
        let decay = Decay::new();
        let mut average = Average::starting_at(0, 0);
        (1..=335).for_each(|n| average.advance(FULL, n * 100_000, &decay));
        let half = FULL / 2;
        assert!(
            average.value.abs_diff(half) < FULL / 500,
            "{}",
            average.value
        );
    }
}
