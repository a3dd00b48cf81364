// SPDX-License-Identifier: GPL-2.0-only
//! Shares by weight, where each can use no more than so much.
//!
//! Each gets its part of a time by its weight, or what it has room for if that is less; what it leaves goes to the
//! others, again by their weights.

use corun_model::Nanos;
use std::cmp::Ordering;

/// Those that share a time.
#[derive(Debug)]
pub(crate) struct Filled {
    time: Nanos,
    /// In the order in which they become full as the time grows.
    each: Vec<Claims>,
    /// For each the sums of weight and room of those before it; at the end the sums of all.
    before: Vec<(u64, Nanos)>,
    /// How many have no more room.
    full: usize,
}

/// What one claims of a time that it shares with others.
#[derive(Debug)]
struct Claims {
    /// Its place among them, as they were given.
    at: usize,
    weight: u64,
    /// What it has room for.
    room: Nanos,
}

impl Claims {
    /// First the one that is full with the least time.
    fn in_order(&self, other: &Self) -> Ordering {
        let one = u128::from(self.room) * u128::from(other.weight);
        one.cmp(&(u128::from(other.room) * u128::from(self.weight)))
            .then(self.at.cmp(&other.at))
    }
}

impl Filled {
    /// Divides `time` among these, each given by its weight and what it has room for.
    pub fn of(claims: impl Iterator<Item = (u64, Nanos)>, time: Nanos) -> Self {
        let claims = claims.enumerate();
        let claims = claims.map(|(at, (weight, room))| Claims { at, weight, room });
        let mut each: Vec<Claims> = claims.collect();
        each.sort_unstable_by(Claims::in_order);
        let mut before = Vec::with_capacity(each.len() + 1);
        let mut sum = (0, 0);
        before.push(sum);
        for one in &each {
            sum = (sum.0 + one.weight, sum.1 + one.room);
            before.push(sum);
        }
        let mut filled = Self {
            time,
            each,
            before,
            full: 0,
        };
        filled.full = (0..filled.each.len())
            .take_while(|&at| filled.part(at, time, filled.before[at]) >= filled.each[at].room)
            .count();
        filled
    }

    /// The time that is shared.
    pub fn time(&self) -> Nanos {
        self.time
    }

    /// What is left for all that still have room, and what they weigh; `None`: none has room.
    pub fn level(&self) -> Option<(Nanos, u64)> {
        let (weight, room) = self.before[self.full];
        let is_open = self.full < self.each.len();
        is_open.then(|| (self.time.saturating_sub(room), self.all() - weight))
    }

    /// The positions in this order, each with the claim's place among those that were given.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        self.each.iter().map(|claims| claims.at).enumerate()
    }

    /// What the one at `position` has.
    pub fn share(&self, position: usize) -> Nanos {
        match position < self.full {
            true => self.each[position].room,
            false => self.part(position, self.time, self.before[self.full]),
        }
    }

    /// What it would get if the time were `time` and its room `room`, neither of them less than now.
    pub fn with(&self, position: usize, time: Nanos, room: Nanos) -> Nanos {
        let own = &self.each[position];
        // Counts the others only, in their order.
        let gone = |count: usize| {
            let past = usize::from(count > position);
            let (weight, room) = self.before[count + past];
            (
                weight - own.weight * past as u64,
                room - own.room * past as u64,
            )
        };
        let is_full = |count: usize| {
            let other = count + usize::from(count >= position);
            self.part(other, time, gone(count)) >= self.each[other].room
        };
        // With less for them, no more of them are full than now.
        let others = self.each.len() - 1;
        let (mut least, mut most) = (0, others);
        if time == self.time {
            most = self.full.min(others);
        }
        while least < most {
            let middle = (least + most) / 2;
            match is_full(middle) {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        self.part(position, time, gone(least)).min(room)
    }

    /// The part of `time` that goes to the one at `position` if others are full, whose weight and room together are
    /// `gone`.
    fn part(&self, position: usize, time: Nanos, gone: (u64, Nanos)) -> Nanos {
        let weight = self.all() - gone.0;
        let left = time.saturating_sub(gone.1);
        scaled(left, self.each[position].weight, weight.max(1))
    }

    /// What all weigh.
    fn all(&self) -> u64 {
        self.before.last().map_or(0, |sum| sum.0)
    }
}

/// `part` times `by`, divided by `whole`, which is not 0. Mostly both are the same: most VMs have neither lent nor borrowed,
/// and most vCPUs weigh what their siblings do. Division of 128 bits is slow and seldom needed.
pub(crate) fn scaled(part: u64, by: u64, whole: u64) -> u64 {
    if by == whole {
        return part;
    }
    match part.checked_mul(by) {
        Some(product) => product / whole,
        None => {
            let product = u128::from(part) * u128::from(by) / u128::from(whole);
            u64::try_from(product).unwrap_or(u64::MAX)
        }
    }
}
