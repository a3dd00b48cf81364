// SPDX-License-Identifier: GPL-2.0-only
//! What VMs are entitled to: the CPU time of their pCPUs in a period, shared by their weights. The dissertation speaks of
//! it (§4.2.2, "the fair share of CPU time"; §4.4.1, "the CPU share of the VM") and leaves open how it is found.
//!
//! VMs share the pCPUs that they may use. If cpusets divide the host, each part is shared by the
//! VMs in it; cpusets that overlap are one part (so a VM whose pCPUs overlap with those of many
//! others may be entitled to more than it can get). A VM cannot use more than a pCPU for each of
//! its vCPUs, nor than the pCPUs that it may use; what is beyond that goes to the others, by their
//! weights again. So does what a VM leaves to all.

use super::scaled;
use crate::parts::Part;
use corun_model::{Nanos, PcpuSet};
use std::cmp::Ordering;

/// A VM as a claimant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    /// Its weight against others.
    pub weight: u64,
    /// How many pCPUs it could use at a time: no more than it has vCPUs.
    pub most: u64,
    /// The pCPUs that some vCPU of it may use.
    pub allowed: PcpuSet,
    /// The most of a period that it is given, ns; less than it could use if it leaves the rest to all.
    pub limit: Nanos,
}

impl Claimant {
    /// What of a period it can be given.
    fn room(&self, period: Nanos) -> Nanos {
        (self.most * period).min(self.limit)
    }
}

/// The parts that cpusets divide a host of these VMs into.
pub(super) fn parts(vms: &[Claimant]) -> Vec<Part> {
    crate::parts::parts(vms.iter().map(|vm| &vm.allowed))
}

/// The shares of `vms` in `period` ns of the pCPUs of their `parts`. A VM that leaves time to all stays entitled to what
/// it would be if it used that itself, should it wake.
pub(super) fn shares(vms: &[Claimant], parts: &[Part], period: Nanos) -> Vec<Nanos> {
    let mut shares = vec![0; vms.len()];
    for part in parts {
        let time = u64::from(part.pcpus.len()) * period;
        let claimants = part.members.iter().map(|&at| &vms[at]);
        let filled = Filled::of(claimants, time, period);
        for (position, claims) in filled.each.iter().enumerate() {
            let at = part.members[claims.at];
            shares[at] = match vms[at].limit {
                Nanos::MAX => filled.share(position),
                _ => filled.without_limit(position, vms[at].most * period),
            };
        }
    }
    shares
}

/// VMs that share a time by weight, those first that the least of it fills: each has its part, or what it has room
/// for, and what it leaves goes to the others.
struct Filled {
    time: Nanos,
    each: Vec<Claims>,
    /// What those before each, and at last all, weigh and have room for.
    before: Vec<(u64, Nanos)>,
    /// How many have no more room.
    full: usize,
}

/// What a VM claims of a time that it shares with others.
struct Claims {
    /// Its place among them.
    at: usize,
    weight: u64,
    /// What it has room for.
    room: Nanos,
}

impl Claims {
    /// Those first that the least of the time fills.
    fn in_order(&self, other: &Self) -> Ordering {
        let one = u128::from(self.room) * u128::from(other.weight);
        one.cmp(&(u128::from(other.room) * u128::from(self.weight)))
            .then(self.at.cmp(&other.at))
    }
}

impl Filled {
    /// These in `time`, of which each can use a `period` on so many pCPUs.
    fn of<'a>(vms: impl Iterator<Item = &'a Claimant>, time: Nanos, period: Nanos) -> Self {
        let claims = |(at, vm): (usize, &Claimant)| Claims {
            at,
            weight: vm.weight,
            room: vm.room(period),
        };
        let mut each: Vec<Claims> = vms.enumerate().map(claims).collect();
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
            .take_while(|&at| filled.part(at, filled.before[at]) >= filled.each[at].room)
            .count();
        filled
    }

    /// The part of the one at `position` if those that weigh and have room for `gone` are full.
    fn part(&self, position: usize, gone: (u64, Nanos)) -> Nanos {
        let weight = self.all() - gone.0;
        let left = self.time.saturating_sub(gone.1);
        scaled(left, self.each[position].weight, weight.max(1))
    }

    /// What all weigh.
    fn all(&self) -> u64 {
        self.before.last().map_or(0, |sum| sum.0)
    }

    /// What the one at `position` has.
    fn share(&self, position: usize) -> Nanos {
        match position < self.full {
            true => self.each[position].room,
            false => self.part(position, self.before[self.full]),
        }
    }

    /// What it would have with room for `room`.
    fn without_limit(&self, position: usize, room: Nanos) -> Nanos {
        let own = &self.each[position];
        // Of the others, in their order.
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
            self.part(other, gone(count)) >= self.each[other].room
        };
        // With less for them, no more of them are full than now.
        let (mut least, mut most) = (0, self.full.min(self.each.len() - 1));
        while least < most {
            let middle = (least + most) / 2;
            match is_full(middle) {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        self.part(position, gone(least)).min(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(vms: &[Claimant], period: Nanos) -> Vec<Nanos> {
        super::shares(vms, &parts(vms), period)
    }

    fn on(weight: u64, vcpus: u64, allowed: PcpuSet) -> Claimant {
        Claimant {
            weight,
            most: vcpus.min(allowed.len().into()),
            allowed,
            limit: Nanos::MAX,
        }
    }

    fn vm(weight: u64, vcpus: u64, allowed: &str) -> Claimant {
        on(weight, vcpus, allowed.parse().unwrap())
    }

    #[test]
    fn by_weight_and_no_more_than_can_be_used() {
        let all = |weight, vcpus| vm(weight, vcpus, "0-3");
        assert_eq!(shares(&[all(100, 4), all(300, 4)], 100), [100, 300]);
        // The one with a vCPU cannot use two pCPUs; the others share three.
        let vms = [all(400, 1), all(200, 4), all(200, 4)];
        assert_eq!(shares(&vms, 100), [100, 150, 150]);
        assert_eq!(shares(&[all(100, 2)], 100), [200]);
        assert!(shares(&[], 100).is_empty());
        // What one leaves to all is shared by weight; it would have 133 if it did not.
        let limited = Claimant {
            limit: 50,
            ..all(200, 4)
        };
        assert_eq!(
            shares(&[limited, all(100, 4), all(300, 4)], 100),
            [133, 87, 262]
        );
    }

    /// Shares as they are defined: time by weight, whoever is full drops out, and again.
    fn by_definition(vms: &[Claimant], pcpus: u64, period: Nanos) -> Vec<Nanos> {
        let mut shares = vec![None; vms.len()];
        loop {
            let given: Nanos = shares.iter().flatten().sum();
            let time = (pcpus * period).saturating_sub(given);
            let open: Vec<usize> = (0..vms.len()).filter(|&at| shares[at].is_none()).collect();
            let weight: u64 = open.iter().map(|&at| vms[at].weight).sum();
            let share = |at: usize| scaled(time, vms[at].weight, weight.max(1));
            let full = |at: &usize| share(*at) >= vms[*at].room(period);
            let all_full: Vec<usize> = open.iter().copied().filter(full).collect();
            if all_full.is_empty() {
                let part = |(at, had): (usize, &Option<Nanos>)| had.unwrap_or_else(|| share(at));
                return shares.iter().enumerate().map(part).collect();
            }
            for at in all_full {
                shares[at] = Some(vms[at].room(period));
            }
        }
    }

    #[test]
    fn cpusets_divide_a_host() {
        let (low, high) = ("0-3", "4-7");
        let vms = [
            vm(100, 4, low),
            vm(100, 4, high),
            vm(100, 4, low),
            vm(100, 4, low),
        ];
        assert_eq!(shares(&vms, 300), [400, 1200, 400, 400]);
        // One that overlaps both makes them one; it may use two pCPUs only.
        let vms = [vm(100, 4, low), vm(100, 4, high), vm(400, 4, "3-4")];
        assert_eq!(shares(&vms, 100), [300, 300, 200]);
        // pCPUs that no VM may use cannot be shared.
        assert_eq!(shares(&[vm(100, 8, "2"), vm(100, 8, "2")], 100), [50, 50]);
        assert_eq!(shares(&[on(100, 8, PcpuSet::default())], 100), [0]);
    }

    proptest! {
        #[test]
        fn all_the_time_is_shared_that_can_be_used(
            vms in prop::collection::vec((1u64..10_000, 1u64..32), 1..12), pcpus in 1u32..64,
        ) {
            let period = 100_000_000;
            let allowed = PcpuSet::first(pcpus);
            let claimant = |(weight, vcpus)| on(weight, vcpus, allowed);
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, period);
            let usable = vms.iter().map(|vm| vm.most).sum::<u64>().min(pcpus.into()) * period;
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= usable && sum + vms.len() as u64 > usable, "{} {}", sum, usable);
        }

        /// Each has what the definition says; one that leaves time, what it says if it did not.
        #[test]
        fn shares_are_as_defined(
            vms in prop::collection::vec((1u64..10_000, 1u64..32, any::<bool>(), 0u64..400_000_000), 1..12),
            pcpus in 1u32..64,
        ) {
            let (period, allowed) = (100_000_000, PcpuSet::first(pcpus));
            let claimant = |(weight, vcpus, leaves, keeps)| {
                let limit = if leaves { keeps } else { Nanos::MAX };
                Claimant { limit, ..on(weight, vcpus, allowed) }
            };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            for (at, share) in shares(&vms, period).into_iter().enumerate() {
                let mut defined = vms.clone();
                defined[at].limit = Nanos::MAX;
                let defined = by_definition(&defined, pcpus.into(), period)[at];
                prop_assert!(share.abs_diff(defined) <= 1, "{}: {} {}", at, share, defined);
            }
        }

        /// No VM is entitled to more than it can use, and all VMs of a part to no more than there
        /// is.
        #[test]
        fn no_more_than_the_pcpus_of_each_part(
            vms in prop::collection::vec((1u64..10_000, 1u64..32, 0u32..16, 1u32..8), 1..12),
        ) {
            let claimant = |(weight, vcpus, first, count)| {
                on(weight, vcpus, (first..first + count).map(corun_model::PcpuId).collect())
            };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, 1000);
            for (vm, share) in vms.iter().zip(&shares) {
                prop_assert!(*share <= vm.most * 1000);
            }
            let parts = parts(&vms);
            prop_assert_eq!(parts.iter().map(|part| part.members.len()).sum::<usize>(), vms.len());
            for part in parts {
                let has: u64 = part.members.iter().map(|&at| shares[at]).sum();
                prop_assert!(has <= u64::from(part.pcpus.len()) * 1000);
            }
        }
    }
}
