// SPDX-License-Identifier: GPL-2.0-only
//! Symbiosis by cycle accounting: which CPU-bound vCPUs get along on one core (vSMT-IO, dissertation
//! §3.4.3)?
//!
//! The cycles of a thread per instruction divide into base (B), misses (M) and waiting for units of
//! the core (W); B, M and the whole are counted while the SMT sibling retains its context, so that
//! no other thread interferes, and W is the rest. How long an instruction takes beside another
//! thread (') is
//!
//! ```text
//! 1.396·B + 0.861·W + 0.277·W·W' + 1.436·M + 0.910·M·M'
//! ```
//!
//! with the coefficients of the published vSMT-IO code, which hold for its authors' machine: they can be
//! set, or come from a calibration file ([`super::calibration`], which says what that code counts, too; by what events
//! hosts divide cycles, [`crate::pmu`]). Each thread is measured by itself, O(n), rather than each pair, O(n²).
//!
//! Here B, W and M are shares of cycles, percent, so that a thread alone takes 100 %: the comparison is of how much the
//! two slow each other down, however many cycles each needs per instruction. The published coefficients of products
//! were found for cycles per instruction, with which threads that need many would count for more; where that matters,
//! measure the coefficients (calibration).

/// How the cycles of a vCPU divide, percent; together 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// At work.
    pub base: u32,
    /// On misses.
    pub miss: u32,
    /// Waiting for units of the core.
    pub wait: u32,
}

impl Cycles {
    /// From counts: all cycles, those at work, those on misses. `None` if there were no cycles.
    pub fn of(cycles: u64, base: u64, miss: u64) -> Option<Self> {
        let percent = |part: u64| (u128::from(part) * 100 / u128::from(cycles.max(1))) as u32;
        let base = percent(base.min(cycles));
        let miss = percent(miss).min(100 - base);
        (cycles > 0).then_some(Self {
            base,
            miss,
            wait: 100 - base - miss,
        })
    }
}

/// The model's coefficients, thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coefficients {
    /// Of B.
    pub base: u32,
    /// Of W.
    pub wait: u32,
    /// Of W·W'.
    pub wait_wait: u32,
    /// Of M.
    pub miss: u32,
    /// Of M·M'.
    pub miss_miss: u32,
}

impl Default for Coefficients {
    fn default() -> Self {
        Self {
            base: 1396,
            wait: 861,
            wait_wait: 277,
            miss: 1436,
            miss_miss: 910,
        }
    }
}

impl Coefficients {
    /// What `own` takes beside any thread, in hundred-thousandths of the time alone.
    pub fn alone(&self, own: Cycles) -> u64 {
        let part = |share: u32, of: u32| u64::from(share) * u64::from(of);
        part(own.base, self.base) + part(own.wait, self.wait) + part(own.miss, self.miss)
    }

    /// How much longer `own` takes beside `other` than alone: hundred-thousandths, 100,000 is as long.
    pub fn together(&self, own: Cycles, other: Cycles) -> u64 {
        let both = |a: u32, b: u32, of: u32| u64::from(a) * u64::from(b) * u64::from(of) / 100;
        self.alone(own)
            + both(own.wait, other.wait, self.wait_wait)
            + both(own.miss, other.miss, self.miss_miss)
    }

    /// Of `candidates`, in fair order, the one that gets along best with `other`: the two together lose least. Of
    /// equals the earlier one; `None` if there are none.
    pub fn best(&self, candidates: &[Cycles], other: Cycles) -> Option<usize> {
        let lose = |own: Cycles| self.together(own, other) + self.together(other, own);
        (0..candidates.len()).min_by_key(|&at| (lose(candidates[at]), at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPUTING: Cycles = Cycles {
        base: 80,
        miss: 10,
        wait: 10,
    };
    const MISSING: Cycles = Cycles {
        base: 20,
        miss: 70,
        wait: 10,
    };

    #[test]
    fn waiting_is_what_is_left() {
        let of = Cycles::of(1000, 500, 300);
        let expected = Cycles {
            base: 50,
            miss: 30,
            wait: 20,
        };
        assert_eq!(of, Some(expected));
        assert_eq!(Cycles::of(0, 5, 5), None);
        // Counters that are read one after another may overlap.
        assert_eq!(Cycles::of(100, 90, 30).map(|it| it.miss), Some(10));
    }

    #[test]
    fn by_hand() {
        let model = Coefficients::default();
        assert_eq!(model.alone(COMPUTING), 80 * 1396 + 10 * 861 + 10 * 1436);
        let extra = 10 * 10 * 277 / 100 + 10 * 70 * 910 / 100;
        assert_eq!(
            model.together(COMPUTING, MISSING),
            model.alone(COMPUTING) + extra
        );
    }

    #[test]
    fn opposites_get_along() {
        let model = Coefficients::default();
        assert_eq!(model.best(&[MISSING, COMPUTING], MISSING), Some(1));
        assert_eq!(model.best(&[MISSING, MISSING], COMPUTING), Some(0));
        assert_eq!(model.best(&[], COMPUTING), None);
    }
}
