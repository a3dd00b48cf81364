// SPDX-License-Identifier: GPL-2.0-only
//! What lag each task has: the weighted average of the virtual runtimes on one runqueue.
//!
//! A task is *eligible* if it has not got more than its share, that is, if its virtual runtime is
//! not beyond the average, weighted by the tasks' weights. Linux keeps that sum relative to a
//! moving zero to save bits (`avg_vruntime()`, `entity_eligible()`); with 128 bits it can be kept
//! as it is, and comparing products instead of quotients makes it exact.

use crate::sched::fair::virtual_time;
use corun_model::Nanos;

/// What a runqueue knows about one task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entity {
    pub(super) weight: u64,
    pub(super) vruntime: i64,
    pub(super) deadline: i64,
    /// While it is on no runqueue or a ghost: how far it was behind (positive) or ahead of the average.
    pub(super) lag: i64,
    pub(super) slice: Nanos,
    /// Up to which vruntime it is protected as the current task.
    pub(super) protected: i64,
    /// It was moved while ready: its deadline is relative to its vruntime.
    pub(super) relative_deadline: bool,
}

impl Entity {
    /// Its slice in its virtual time.
    pub(super) fn virtual_slice(&self) -> i64 {
        virtual_time(self.slice, self.weight)
    }
}

/// Sums over the members of a runqueue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    weight: u64,
    product: i128,
    /// The average when it was last known.
    zero: i64,
}

impl Sums {
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn add(&mut self, entity: &Entity) {
        self.weight += entity.weight;
        self.product += i128::from(entity.weight) * i128::from(entity.vruntime);
    }

    pub(super) fn remove(&mut self, entity: &Entity) {
        self.zero = self.average();
        self.weight -= entity.weight;
        self.product -= i128::from(entity.weight) * i128::from(entity.vruntime);
    }

    /// A member's vruntime went on by `delta`.
    pub(super) fn advance(&mut self, weight: u64, delta: i64) {
        self.product += i128::from(weight) * i128::from(delta);
    }

    /// The weighted average, rounded down; the last one known if there is no member.
    pub(super) fn average(&self) -> i64 {
        match self.weight {
            0 => self.zero,
            weight => self.product.div_euclid(i128::from(weight)) as i64,
        }
    }

    /// Is a task with this vruntime eligible? Exact.
    pub(super) fn eligible(&self, vruntime: i64) -> bool {
        i128::from(vruntime) * i128::from(self.weight) <= self.product
    }

    /// The lag to place a task with, so that it has `lag` once it is a member: its own weight moves
    /// the average towards it (`place_entity()`).
    pub(super) fn inflated(&self, lag: i64, weight: u64) -> i64 {
        match self.weight {
            0 => 0,
            load => (i128::from(lag) * i128::from(load + weight) / i128::from(load)) as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(weight: u64, vruntime: i64) -> Entity {
        Entity {
            weight,
            vruntime,
            ..Entity::default()
        }
    }

    #[test]
    fn eligibility_is_exact() {
        let mut sums = Sums::default();
        let members = [entity(1, 0), entity(2, 10), entity(1, 1)];
        members.iter().for_each(|e| sums.add(e));
        // 21 / 4 = 5.25
        assert_eq!(sums.average(), 5);
        assert!(sums.eligible(5) && !sums.eligible(6));
        members.iter().for_each(|e| sums.remove(e));
        assert_eq!((sums.weight(), sums.average()), (0, 1), "the last member's");
    }

    #[test]
    fn lag_survives_placement() {
        let mut sums = Sums::default();
        sums.add(&entity(1024, 1_000_000));
        sums.add(&entity(1024, 3_000_000));
        let lag = 300_000;
        let woken = entity(2048, sums.average() - sums.inflated(lag, 2048));
        sums.add(&woken);
        assert_eq!(sums.average() - woken.vruntime, lag);
    }
}
