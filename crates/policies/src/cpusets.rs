// SPDX-License-Identifier: GPL-2.0-only
//! What those that cpusets bind can use beside each other.
//!
//! Where all may run anywhere, each has its part of all pCPUs by its weight. Where cpusets overlap, some pCPUs may be
//! wanted more than others: those that may run nowhere else share them by weight, and have less for each weight than the
//! rest. So the pCPUs on which that is least are shared first, by all that are bound to them, then of what is left those on
//! which it is least, and so on (max-min fairness). Whoever is left has more for its weight elsewhere, and makes do without
//! them.
//!
//! Sets of pCPUs that are looked at are cpusets, and what two of them that overlap have together. Where more than two form
//! a chain, less may be found to be short than is.

use crate::filled::Filled;
use corun_model::{Nanos, PcpuSet};

/// Up to so many different cpusets are looked at in pairs, too: more are those of single vCPUs, whose pairs mean little.
const PAIRS: usize = 8;

/// One that claims time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// What it weighs against all others.
    pub weight: u64,
    /// What it can use at most of a period.
    pub most: Nanos,
    /// The pCPUs that it may use.
    pub allowed: PcpuSet,
}

/// What each can use at most of a period beside the others: what it has of pCPUs that are short, or what it could use alone.
pub(crate) fn most(claims: &[Bound], period: Nanos) -> Vec<Nanos> {
    let mut most: Vec<Nanos> = claims.iter().map(|claim| claim.most).collect();
    let allowed = claims.iter().map(|claim| claim.allowed);
    let mut free = allowed.fold(PcpuSet::default(), |all, some| all.or(&some));
    let mut open: Vec<usize> = (0..claims.len()).collect();
    while let Some(short) = shortest(claims, &open, &free, period) {
        for (position, at) in short.filled.positions() {
            most[short.bound[at]] = short.filled.share(position);
        }
        open.retain(|at| short.bound.binary_search(at).is_err());
        short.pcpus.iter().for_each(|cpu| free.remove(cpu));
    }
    most
}

/// pCPUs with those that may run nowhere else.
struct Shared {
    pcpus: PcpuSet,
    /// Their places, rising.
    bound: Vec<usize>,
    filled: Filled,
}

impl Shared {
    /// These of the `free` pCPUs, by those of `open`.
    fn of(claims: &[Bound], open: &[usize], free: &PcpuSet, pcpus: PcpuSet, period: Nanos) -> Self {
        let is_bound = |at: &&usize| {
            let may = claims[**at].allowed.and(free);
            may.and(&pcpus) == may
        };
        let bound: Vec<usize> = open.iter().filter(is_bound).copied().collect();
        let each = bound.iter().map(|&at| (claims[at].weight, claims[at].most));
        let filled = Filled::of(each, u64::from(pcpus.len()) * period);
        Self {
            pcpus,
            bound,
            filled,
        }
    }

    /// Is there less for a weight than there?
    fn is_shorter(&self, than: &Self) -> bool {
        match (self.filled.level(), than.filled.level()) {
            (Some((time, weight)), Some((other, others))) => {
                u128::from(time) * u128::from(others) < u128::from(other) * u128::from(weight)
            }
            (level, _) => level.is_some(),
        }
    }
}

/// The pCPUs with least for a weight of what is `free`; `None`: all together have least, or there is enough for everybody.
fn shortest(claims: &[Bound], open: &[usize], free: &PcpuSet, period: Nanos) -> Option<Shared> {
    let all = Shared::of(claims, open, free, *free, period);
    let mut sets: Vec<PcpuSet> = Vec::new();
    for set in open.iter().map(|&at| claims[at].allowed.and(free)) {
        if set != *free && !sets.contains(&set) {
            sets.push(set);
        }
    }
    if sets.len() <= PAIRS {
        for one in 0..sets.len() {
            for other in 0..one {
                let both = sets[one].or(&sets[other]);
                let overlap = !sets[one].and(&sets[other]).is_empty();
                if overlap && both != *free && !sets.contains(&both) {
                    sets.push(both);
                }
            }
        }
    }
    let each = sets.into_iter();
    let each = each.map(|pcpus| Shared::of(claims, open, free, pcpus, period));
    let least = each.reduce(|least, one| if one.is_shorter(&least) { one } else { least })?;
    least.is_shorter(&all).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::PcpuId;
    use proptest::prelude::*;

    /// A group of vCPUs that weigh so much each, on these pCPUs.
    fn vcpus(count: usize, weight: u64, allowed: &str) -> Vec<Bound> {
        let allowed = allowed.parse().unwrap();
        let most = 100;
        vec![
            Bound {
                weight,
                most,
                allowed
            };
            count
        ]
    }

    fn of(groups: &[Vec<Bound>]) -> Vec<Nanos> {
        most(&groups.concat(), 100)
    }

    #[test]
    fn those_who_may_run_nowhere_else_share_what_is_short() {
        let told = of(&[vcpus(2, 100, "2"), vcpus(2, 100, "0-3")]);
        assert_eq!(told, [50, 50, 100, 100]);
        // By weight, and with enough for everybody nothing is short.
        let told = of(&[vcpus(1, 300, "2"), vcpus(1, 100, "2"), vcpus(3, 100, "0-3")]);
        assert_eq!(told, [75, 25, 100, 100, 100]);
        assert_eq!(of(&[vcpus(2, 100, "0-1"), vcpus(2, 900, "0-3")]), [100; 4]);
        // All pCPUs are shorter than theirs: they have no more than their part of all.
        assert_eq!(of(&[vcpus(3, 100, "0-1"), vcpus(9, 100, "0-3")]), [100; 12]);
    }

    /// What is short is given first; of what that leaves, the next.
    #[test]
    fn one_after_another() {
        let told = of(&[
            vcpus(4, 100, "0"),
            vcpus(3, 100, "0-1"),
            vcpus(2, 100, "0-3"),
        ]);
        assert_eq!(told, [25, 25, 25, 25, 33, 33, 33, 100, 100]);
        // Two that overlap are shorter together than each by itself.
        let told = of(&[
            vcpus(3, 100, "0-1"),
            vcpus(3, 100, "1-2"),
            vcpus(1, 100, "0-5"),
        ]);
        assert_eq!(told, [50, 50, 50, 50, 50, 50, 100]);
    }

    proptest! {
        /// Nobody has more than it could use alone, nor those bound to a cpuset more than it has; and with what they have
        /// no pCPU that somebody could use is left.
        #[test]
        fn no_more_than_there_is(
            each in prop::collection::vec((1u64..10_000, 1u64..1000, 0u32..12, 1u32..8), 1..24),
        ) {
            let bound = |(weight, most, first, count)| {
                let allowed = (first..first + count).map(PcpuId).collect();
                Bound { weight, most, allowed }
            };
            let claims: Vec<Bound> = each.into_iter().map(bound).collect();
            let told = most(&claims, 1000);
            for (claim, most) in claims.iter().zip(&told) {
                prop_assert!(*most <= claim.most);
                // Who has less is one of those who fill some pCPUs, and no lighter one beside it on the same has more.
                let same = claims.iter().zip(&told).filter(|(it, _)| it.allowed == claim.allowed);
                let sum: Nanos = same.clone().map(|(_, most)| most).sum();
                let room = u64::from(claim.allowed.len()) * 1000;
                prop_assert!(*most == claim.most || sum <= room);
                for (it, has) in same {
                    prop_assert!(*most == claim.most || it.weight > claim.weight || has <= most);
                }
            }
        }
    }
}
