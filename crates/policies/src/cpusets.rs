// SPDX-License-Identifier: GPL-2.0-only
//! What tasks that cpusets bind can use beside each other.
//!
//! Where all may run anywhere, each has its part of all pCPUs by its weight. Where cpusets overlap, some pCPUs may be
//! wanted more than others: those that may run nowhere else share them by weight, and have less time per weight than
//! the rest. So the pCPUs with the least time per weight are shared first, by all that are bound to them; then, of what
//! is left, again those with the least, and so on (max-min fairness). The rest, which have more time per weight
//! elsewhere, make do without these pCPUs.
//!
//! The sets of pCPUs that are looked at are the cpusets, and the unions of two that overlap. Where more than two form a
//! chain, a shortage may be overlooked.

use crate::filled::Filled;
use crate::quotas::{self, Claim, Whole};
use corun_model::{Nanos, PcpuSet};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Up to this many different cpusets are looked at in pairs, too: if there are more, they are those of single vCPUs,
/// whose pairs mean little.
const PAIRS: usize = 8;

/// Lowers what each of these could use at most to what cpusets leave it: `allowed` are their pCPUs. Time that quotas
/// keep from others, or that others leave to all, crowds nobody; a claim that leaves something can use what it could if
/// none did.
pub(crate) fn limit(claims: &mut [Claim<'_>], allowed: &[PcpuSet], period: Nanos, whole: &Whole) {
    let plenty = claims.iter().map(|claim| claim.most).sum();
    let within = quotas::shares(claims, plenty, period, whole);
    let bound = |leaves: bool| -> Vec<Bound> {
        let each = claims.iter().zip(&within).zip(allowed);
        let bound = each.map(|((claim, &within), &allowed)| Bound {
            weight: claim.weight,
            most: if leaves {
                within.min(claim.limit)
            } else {
                within
            },
            allowed,
        });
        bound.collect()
    };
    let mut limits = most(&bound(true), period);
    if claims.iter().any(|claim| claim.limit < Nanos::MAX) {
        let alone = most(&bound(false), period);
        let each = claims.iter().zip(limits.iter_mut()).zip(alone);
        let leaves = each.filter(|((claim, _), _)| claim.limit < Nanos::MAX);
        leaves.for_each(|((_, limit), alone)| *limit = alone);
    }
    let each = claims.iter_mut().zip(limits);
    each.for_each(|(claim, limit)| claim.most = claim.most.min(limit));
}

/// One that claims time.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// What it weighs against all others.
    weight: u64,
    /// What it can use at most of a period.
    most: Nanos,
    /// The pCPUs that it may use.
    allowed: PcpuSet,
}

/// The most that each can use of a period beside the others: its part of pCPUs that are short, or what it could use
/// alone.
fn most(claims: &[Bound], period: Nanos) -> Vec<Nanos> {
    let mut most: Vec<Nanos> = claims.iter().map(|claim| claim.most).collect();
    let mut groups = Group::all(claims);
    let all = groups.iter().map(|group| group.allowed);
    let mut free = all.fold(PcpuSet::default(), |all, some| all.or(&some));
    loop {
        let mut given = 0;
        for short in short(claims, &groups, &free, period) {
            // What was given just now may have left groups that could use other pCPUs before with none but these: looks
            // again.
            if given > 0 && bound_to(&short.pcpus, &groups, &free) != short.bound {
                continue;
            }
            for (position, at) in short.filled.positions() {
                most[short.members[at]] = short.filled.share(position);
            }
            short
                .bound
                .iter()
                .for_each(|&at| groups[at].is_open = false);
            short.pcpus.iter().for_each(|cpu| free.remove(cpu));
            given += 1;
        }
        if given == 0 {
            return most;
        }
        groups.retain(|group| group.is_open);
    }
}

/// Those with the same cpuset.
struct Group {
    allowed: PcpuSet,
    members: Vec<usize>,
    /// What they can use at most, together.
    most: Nanos,
    /// They have not been given their time yet.
    is_open: bool,
}

impl Group {
    fn all(claims: &[Bound]) -> Vec<Self> {
        let mut groups: BTreeMap<_, Self> = BTreeMap::new();
        for (at, claim) in claims.iter().enumerate() {
            let group = groups.entry(claim.allowed.words()).or_insert(Self {
                allowed: claim.allowed,
                members: Vec::new(),
                most: 0,
                is_open: true,
            });
            group.members.push(at);
            group.most = group.most.saturating_add(claim.most);
        }
        groups.into_values().collect()
    }
}

/// The groups that may use nothing else of what is `free`.
fn bound_to(pcpus: &PcpuSet, groups: &[Group], free: &PcpuSet) -> Vec<usize> {
    let is_bound = |group: &Group| {
        let may = group.allowed.and(free);
        group.is_open && may.and(pcpus) == may
    };
    let bound = (0..groups.len()).filter(|&at| is_bound(&groups[at]));
    bound.collect()
}

/// pCPUs, and those that may run nowhere else and could use more.
struct Shared {
    pcpus: PcpuSet,
    /// Places of groups.
    bound: Vec<usize>,
    /// Places of claims.
    members: Vec<usize>,
    filled: Filled,
}

impl Shared {
    /// `None`: there is enough for them.
    fn of(
        pcpus: PcpuSet,
        claims: &[Bound],
        groups: &[Group],
        free: &PcpuSet,
        period: Nanos,
    ) -> Option<Self> {
        let time = u64::from(pcpus.len()) * period;
        let bound = bound_to(&pcpus, groups, free);
        let most = bound.iter().map(|&at| groups[at].most);
        if most.fold(0, Nanos::saturating_add) <= time {
            return None;
        }
        let members = bound
            .iter()
            .flat_map(|&at| groups[at].members.iter().copied());
        let members: Vec<usize> = members.collect();
        let each = members
            .iter()
            .map(|&at| (claims[at].weight, claims[at].most));
        let filled = Filled::of(each, time);
        Some(Self {
            pcpus,
            bound,
            members,
            filled,
        })
    }

    /// Less: there is less time per weight.
    fn compare(&self, other: &Self) -> Ordering {
        match (self.filled.level(), other.filled.level()) {
            (Some((time, weight)), Some((other, others))) => {
                let one = u128::from(time) * u128::from(others);
                one.cmp(&(u128::from(other) * u128::from(weight)))
            }
            (one, other) => one.is_none().cmp(&other.is_none()),
        }
    }
}

/// Sets of free pCPUs with less time per weight than all together have, those with least first.
fn short(claims: &[Bound], groups: &[Group], free: &PcpuSet, period: Nanos) -> Vec<Shared> {
    let shared = |pcpus: &PcpuSet| Shared::of(*pcpus, claims, groups, free, period);
    let mut sets: Vec<PcpuSet> = groups.iter().map(|it| it.allowed.and(free)).collect();
    sets.sort_unstable_by_key(|set| *set.words());
    sets.dedup();
    if sets.len() <= PAIRS {
        for one in 0..sets.len() {
            for other in 0..one {
                let overlap = !sets[one].and(&sets[other]).is_empty();
                let both = sets[one].or(&sets[other]);
                if overlap && !sets.contains(&both) {
                    sets.push(both);
                }
            }
        }
    }
    sets.retain(|set| set != free);
    let all = shared(free);
    let is_short = |it: &Shared| all.as_ref().is_none_or(|all| it.compare(all).is_lt());
    let mut short: Vec<Shared> = sets.iter().filter_map(shared).filter(is_short).collect();
    short.sort_by(Shared::compare);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::SEC;
    use corun_model::{PcpuId, Quota};
    use proptest::prelude::*;

    /// A group of vCPUs of this weight each, on these pCPUs.
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
        // All pCPUs together are shorter than theirs: they have no more than their part of all.
        assert_eq!(of(&[vcpus(3, 100, "0-1"), vcpus(9, 100, "0-3")]), [100; 12]);
    }

    /// The shortest set is given first, then the shortest of what is left.
    #[test]
    fn one_after_another() {
        let told = of(&[
            vcpus(4, 100, "0"),
            vcpus(3, 100, "0-1"),
            vcpus(2, 100, "0-3"),
        ]);
        assert_eq!(told, [25, 25, 25, 25, 33, 33, 33, 100, 100]);
        // Two sets that overlap are shorter together than each by itself.
        let told = of(&[
            vcpus(3, 100, "0-1"),
            vcpus(3, 100, "1-2"),
            vcpus(1, 100, "0-5"),
        ]);
        assert_eq!(told, [50, 50, 50, 50, 50, 50, 100]);
    }

    /// A is on one pCPU, limited to a tenth of it; B is there, too; two others may run anywhere: B has what A cannot
    /// use or leaves.
    #[test]
    fn what_quotas_keep_from_one_or_it_leaves_is_the_others() {
        let tenth = [Quota {
            of: 1,
            time: SEC / 10,
        }];
        let claim = |quotas, limit| Claim {
            weight: 100,
            most: 100,
            limit,
            quotas,
        };
        let one: PcpuSet = "0".parse().unwrap();
        let four = PcpuSet::first(4);
        let allowed = [one, one, four, four];
        let most = |a: Claim<'_>| {
            let mut claims = vec![claim(&[], Nanos::MAX); 4];
            claims[0] = Claim {
                quotas: a.quotas,
                ..a
            };
            limit(&mut claims, &allowed, 100, &Whole::default());
            claims.iter().map(|it| it.most).collect::<Vec<_>>()
        };
        assert_eq!(most(claim(&tenth, Nanos::MAX)), [10, 90, 100, 100]);
        assert_eq!(most(claim(&[], 20)), [50, 80, 100, 100]);
    }

    /// Twenty with a pCPU of quota do not make all of the host as short as three make two pCPUs.
    #[test]
    fn those_with_a_quota_crowd_nobody() {
        let slice = [Quota { of: 1, time: SEC }];
        let claim = |quotas| Claim {
            weight: 100,
            most: 100,
            limit: Nanos::MAX,
            quotas,
        };
        let mut claims = vec![claim(&[][..]); 3];
        claims.extend(vec![claim(&slice); 20]);
        let allowed = [vec![PcpuSet::first(2); 3], vec![PcpuSet::first(8); 20]].concat();
        limit(&mut claims, &allowed, 100, &Whole::default());
        assert_eq!(
            claims.iter().map(|it| it.most).take(3).collect::<Vec<_>>(),
            [66; 3]
        );
    }

    proptest! {
        /// One that has less than it could use alone is among those that fill some pCPUs and may run nowhere else, and
        /// no lighter one on the same pCPUs has more.
        #[test]
        fn who_has_less_shares_pcpus_that_are_full(
            each in prop::collection::vec((1u64..10_000, 1u64..1000, 1u32..64), 1..24),
        ) {
            let set = |bits: u32| (0..6).filter(|at| bits >> at & 1 == 1).map(PcpuId).collect();
            let bound = |(weight, most, bits)| Bound { weight, most, allowed: set(bits) };
            let claims: Vec<Bound> = each.iter().copied().map(bound).collect();
            let told = most(&claims, 1000);
            let count = claims.len() as u64;
            let is_full = |pcpus: &PcpuSet| {
                let there = |claim: &Bound| claim.allowed.and(pcpus) == claim.allowed;
                let there = claims.iter().zip(&told).filter(|(claim, _)| there(claim));
                let sum: Nanos = there.map(|(_, most)| most).sum();
                sum + count >= u64::from(pcpus.len()) * 1000
            };
            let full: Vec<PcpuSet> = (1..64).map(set).filter(is_full).collect();
            for (claim, most) in claims.iter().zip(&told) {
                prop_assert!(*most <= claim.most);
                if *most == claim.most {
                    continue;
                }
                prop_assert!(full.iter().any(|pcpus| claim.allowed.and(pcpus) == claim.allowed));
                for (it, has) in claims.iter().zip(&told).filter(|(it, _)| it.allowed == claim.allowed) {
                    prop_assert!(it.weight > claim.weight || has <= most);
                }
            }
        }
    }
}
