// SPDX-License-Identifier: GPL-2.0-only
//! Chance, repeatably: one generator per entity, all derived from the run's seed.
//!
//! An entity draws from its own stream, so that adding a guest or changing the order of events does
//! not change what the others draw. Only integer arithmetic is used here: the same numbers on every
//! machine.

use corun_model::Nanos;
use rand_core::{Rng as _, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// One entity's stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64Mcg);

impl Rng {
    /// The stream of entity number `entity` of `kind` (any fixed word) in the run with `seed`.
    pub fn of(seed: u64, kind: &str, entity: u64) -> Self {
        let mut state = seed;
        for byte in kind.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(Pcg64Mcg::seed_from_u64(mix(
            state ^ entity.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        )))
    }

    /// A number from `low` to `high`, both included; `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        match (high - low).checked_add(1) {
            // The bias of a 128-bit product is below 2^-64 of the range.
            Some(span) => low + ((u128::from(self.0.next_u64()) * u128::from(span)) >> 64) as u64,
            None => self.0.next_u64(),
        }
    }

    /// `mean`, varied uniformly by up to `percent` either way.
    pub fn about(&mut self, mean: Nanos, percent: u32) -> Nanos {
        let spread = (u128::from(mean) * u128::from(percent.min(100)) / 100) as u64;
        self.between(mean - spread, mean.saturating_add(spread))
    }

    /// True with a probability of `permille` in 1000.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.between(0, 999) < u64::from(permille)
    }

    /// An exponentially distributed time with this mean (the gaps of a Poisson process).
    pub fn exponential(&mut self, mean: Nanos) -> Nanos {
        // -ln(u) with u in (0, 1]; libm is written in Rust, so every machine gets the same bits.
        let u = (self.0.next_u64() >> 11) as f64 + 1.0;
        let drawn = -libm::log(u / (1u64 << 53) as f64) * mean as f64;
        drawn as Nanos
    }
}

/// SplitMix64's finaliser: neighbouring inputs give unrelated outputs.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_fixed_and_differ_by_entity() {
        let draw = |seed, entity| Rng::of(seed, "vcpu", entity).between(0, u64::MAX);
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn ranges_and_means() {
        let mut rng = Rng::of(1, "test", 0);
        assert!((0..1000).all(|_| (10..=20).contains(&rng.between(10, 20))));
        assert_eq!(rng.between(5, 5), 5);
        let mean = (0..10_000).map(|_| rng.exponential(1000)).sum::<u64>() / 10_000;
        assert!((950..1050).contains(&mean), "{mean}");
    }
}
