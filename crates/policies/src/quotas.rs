// SPDX-License-Identifier: GPL-2.0-only
//! Shares by weight within quotas.
//!
//! Those that one quota (`cpu.max`) limits together count as one against the rest: with the sum of their weights, able
//! to use no more than the quota, and sharing what they get by their weights. This is done level by level, as cgroups
//! are nested. What a quota keeps from them goes to the rest, by weight.
//!
//! Where cpusets divide a host and a quota holds in several parts, each has its part of it by what wants to run there.
//! Bursts do not count, since they are nothing in the long run; nor do a cgroup's members other than VMs, since they
//! are not known.

use crate::filled::{Filled, scaled};
use corun_model::time::SEC;
use corun_model::{Nanos, Quota};
use std::collections::BTreeMap;

/// One that claims time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// What it weighs against all others.
    pub weight: u64,
    /// What it can use at most.
    pub most: Nanos,
    /// The most that it is given; what it could use beyond that is left to all.
    pub limit: Nanos,
    /// The quotas that hold for it, the outermost first.
    pub quotas: &'a [Quota],
}

impl Claim<'_> {
    fn room(&self) -> Nanos {
        self.most.min(self.limit)
    }
}

/// For each quota that holds in more than one part of a host, the sum of the weights that it limits.
#[derive(Debug, Default)]
pub(crate) struct Whole(BTreeMap<u64, u64>);

impl Whole {
    /// Sums up `all`, each given as weight and quotas, which are in this many parts of a host.
    pub fn of<'a>(all: impl Iterator<Item = (u64, &'a [Quota])>, parts: usize) -> Self {
        let mut whole = BTreeMap::new();
        if parts > 1 {
            for (weight, quotas) in all {
                for quota in quotas {
                    *whole.entry(quota.of).or_default() += weight;
                }
            }
        }
        Self(whole)
    }

    /// What a quota is worth in `period` where those that it limits weigh `weight`.
    fn part(&self, quota: &Quota, weight: u64, period: Nanos) -> Nanos {
        let here = match self.0.get(&quota.of) {
            Some(&all) => scaled(quota.time, weight.min(all), all.max(1)),
            None => quota.time,
        };
        scaled(here, period, SEC)
    }
}

/// What each of these gets of `time`, which is what their pCPUs have in `period`. One that leaves time to all has what
/// it would if it used that itself.
pub(crate) fn shares(
    claims: &[Claim<'_>],
    time: Nanos,
    period: Nanos,
    whole: &Whole,
) -> Vec<Nanos> {
    let grouping = Grouping {
        claims,
        period,
        whole,
    };
    let mut shares = vec![0; claims.len()];
    let members = grouping.members((0..claims.len()).collect(), 0);
    grouping.share(&members, time, None, &mut shares);
    shares
}

/// The most that each of so many could use of a period under their quotas: what it `claimed`, plus what all claims
/// under the same quotas leave of these. [`Nanos::MAX`] as a claim means that it is not known, so that nothing counts
/// as left; as a result, that no quota holds.
pub(crate) fn left<'a>(
    count: usize,
    quotas: impl Fn(usize) -> &'a [Quota],
    claimed: impl Fn(usize) -> Nanos,
    period: Nanos,
) -> Vec<Nanos> {
    let mut sums: BTreeMap<u64, Nanos> = BTreeMap::new();
    for at in (0..count).filter(|&at| !quotas(at).is_empty()) {
        let claimed = claimed(at);
        for quota in quotas(at) {
            let sum = sums.entry(quota.of).or_default();
            *sum = sum.saturating_add(claimed);
        }
    }
    let spare = |quota: &Quota| {
        let time = scaled(quota.time, period, SEC);
        let sum = sums.get(&quota.of).copied().unwrap_or(0);
        // Anything as small as that is rounding.
        Some(time.saturating_sub(sum)).filter(|spare| *spare > time / 1000)
    };
    let left = |at: usize| {
        let spare = quotas(at).iter().map(|quota| spare(quota).unwrap_or(0));
        let least = spare.min();
        least.map_or(Nanos::MAX, |least| claimed(at).saturating_add(least))
    };
    (0..count).map(left).collect()
}

struct Grouping<'a> {
    claims: &'a [Claim<'a>],
    period: Nanos,
    whole: &'a Whole,
}

/// A single claim, or all that share a quota.
enum Member {
    One(usize),
    Group(Group),
}

/// Those that share a quota.
struct Group {
    members: Vec<Member>,
    weight: u64,
    /// What they would have room for without the quota.
    sum: Nanos,
    quota: Nanos,
}

impl Group {
    fn room(&self) -> Nanos {
        self.sum.min(self.quota)
    }
}

/// A group, among those with which it shares a time.
#[derive(Clone, Copy)]
struct Around<'a> {
    filled: &'a Filled,
    position: usize,
    group: &'a Group,
    outer: Option<&'a Around<'a>>,
}

impl Around<'_> {
    /// What the group would have if one in it had room for so much more.
    fn with_more(&self, more: Nanos) -> Nanos {
        let room = (self.group.sum + more).min(self.group.quota);
        let more = room - self.group.room();
        let time = (self.outer).map_or(self.filled.time(), |outer| outer.with_more(more));
        self.filled.with(self.position, time, room)
    }
}

impl Grouping<'_> {
    /// These, grouped by their quotas from the one at `depth` on.
    fn members(&self, those: Vec<usize>, depth: usize) -> Vec<Member> {
        let quota = |at: usize| self.claims[at].quotas.get(depth);
        if those.iter().all(|&at| quota(at).is_none()) {
            return those.into_iter().map(Member::One).collect();
        }
        let mut members = Vec::new();
        let mut limited: BTreeMap<u64, (&Quota, Vec<usize>)> = BTreeMap::new();
        for at in those {
            match quota(at) {
                Some(quota) => {
                    let group = limited.entry(quota.of);
                    group.or_insert((quota, Vec::new())).1.push(at);
                }
                None => members.push(Member::One(at)),
            }
        }
        let group = |(quota, those)| Member::Group(self.group(quota, those, depth + 1));
        members.extend(limited.into_values().map(group));
        members
    }

    fn group(&self, quota: &Quota, those: Vec<usize>, depth: usize) -> Group {
        let members = self.members(those, depth);
        let claims = members.iter().map(|member| self.claims_of(member));
        let (weight, sum) = claims.fold((0, 0), |sums, it| (sums.0 + it.0, sums.1 + it.1));
        Group {
            members,
            weight,
            sum,
            quota: self.whole.part(quota, weight, self.period),
        }
    }

    /// What it weighs and has room for.
    fn claims_of(&self, member: &Member) -> (u64, Nanos) {
        match member {
            Member::One(at) => (self.claims[*at].weight, self.claims[*at].room()),
            Member::Group(group) => (group.weight, group.room()),
        }
    }

    /// Shares `time` among these, which are `around`'s.
    fn share(
        &self,
        members: &[Member],
        time: Nanos,
        around: Option<&Around<'_>>,
        shares: &mut [Nanos],
    ) {
        let claims = members.iter().map(|member| self.claims_of(member));
        let filled = Filled::of(claims, time);
        for (position, at) in filled.positions() {
            match &members[at] {
                Member::One(one) => {
                    let claim = &self.claims[*one];
                    shares[*one] = match claim.limit {
                        Nanos::MAX => filled.share(position),
                        _ => {
                            let more = claim.most.saturating_sub(claim.room());
                            let time = around.map_or(time, |around| around.with_more(more));
                            filled.with(position, time, claim.most)
                        }
                    };
                }
                Member::Group(group) => {
                    let around = Around {
                        filled: &filled,
                        position,
                        group,
                        outer: around,
                    };
                    let time = filled.share(position);
                    self.share(&group.members, time, Some(&around), shares);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Nanos = 100;

    fn quota(of: u64, pcpus_in_hundredths: u64) -> Quota {
        let time = pcpus_in_hundredths * SEC / 100;
        Quota { of, time }
    }

    /// A claim that could use `most` hundredths of a pCPU.
    fn claim(weight: u64, most: Nanos, quotas: &[Quota]) -> Claim<'_> {
        Claim {
            weight,
            most,
            limit: Nanos::MAX,
            quotas,
        }
    }

    fn all(claims: &[Claim<'_>], time: Nanos) -> Vec<Nanos> {
        shares(claims, time, PERIOD, &Whole::default())
    }

    #[test]
    fn what_a_quota_keeps_from_one_goes_to_the_rest_by_weight() {
        let own = [quota(1, 50)];
        let claims = [
            claim(100, 800, &own),
            claim(100, 400, &[]),
            claim(200, 400, &[]),
        ];
        assert_eq!(all(&claims, 400), [50, 116, 233]);
        assert_eq!(all(&claims, 900), [50, 400, 400]);
        // A quota above what it has is none.
        let claims = claims.map(|claim| Claim {
            quotas: &[],
            ..claim
        });
        assert_eq!(all(&claims, 400), [100, 100, 200]);
    }

    #[test]
    fn those_in_a_slice_share_its_quota_by_weight() {
        let slice = [quota(1, 100)];
        let inner = [slice[0], quota(2, 30)];
        let claims = [
            claim(80, 400, &slice),
            claim(20, 400, &slice),
            claim(100, 400, &[]),
        ];
        assert_eq!(all(&claims, 400), [80, 20, 300]);
        // The host is full before its quota is.
        assert_eq!(all(&claims, 150), [60, 15, 75]);
        // What the one leaves of it is the other's, not of those outside.
        let claims = [claim(80, 400, &inner), claims[1], claims[2]];
        assert_eq!(all(&claims, 400), [30, 70, 300]);
        // One that leaves time to all has what it would if it did not.
        let leaves = Claim {
            limit: 10,
            quotas: &slice,
            ..claims[0]
        };
        let claims = [leaves, claims[1], claims[2]];
        assert_eq!(all(&claims, 400), [80, 90, 300]);
    }

    #[test]
    fn parts_of_a_host_have_their_parts_of_a_quota() {
        let slice = [quota(1, 100)];
        let parts = [
            [claim(300, 400, &slice), claim(100, 400, &[])],
            [claim(100, 400, &slice), claim(100, 400, &[])],
        ];
        let each = parts.iter().flatten().map(|it| (it.weight, it.quotas));
        let whole = Whole::of(each, parts.len());
        let shares = parts.map(|claims| shares(&claims, 200, PERIOD, &whole));
        assert_eq!(shares, [[75, 125], [25, 175]]);
    }

    #[test]
    fn what_quotas_leave_is_what_others_have_no_claim_to() {
        let slice = [quota(1, 100)];
        let inner = [slice[0], quota(2, 30)];
        let quotas: [&[Quota]; 4] = [&slice, &inner, &[], &slice];
        let of = |claimed: [Nanos; 4]| left(4, |at| quotas[at], |at| claimed[at], PERIOD);
        assert_eq!(of([60, 10, 500, 0]), [90, 30, Nanos::MAX, 30]);
        assert_eq!(of([60, 30, 0, 10]), [60, 30, Nanos::MAX, 10]);
        // What a claim that is not known leaves is not known either.
        assert_eq!(of([60, 10, 0, Nanos::MAX])[..3], [60, 10, Nanos::MAX]);
    }

    /// As defined: time is divided by weight, those that are full drop out, and again.
    fn filled(claims: &[(u64, f64)], time: f64) -> Vec<f64> {
        let mut shares = vec![None; claims.len()];
        loop {
            let given: f64 = shares.iter().flatten().sum();
            let open = || (0..claims.len()).filter(|&at| shares[at].is_none());
            let weight: u64 = open().map(|at| claims[at].0).sum();
            let share = |at: usize| (time - given).max(0.0) * claims[at].0 as f64 / weight as f64;
            let full: Vec<usize> = open().filter(|&at| share(at) >= claims[at].1).collect();
            if full.is_empty() {
                let part = |(at, had): (usize, &Option<f64>)| had.unwrap_or_else(|| share(at));
                return shares.iter().enumerate().map(part).collect();
            }
            for at in full {
                shares[at] = Some(claims[at].1);
            }
        }
    }

    /// Those with quotas from `depth` on, level by level. Returns what they have room for.
    fn by_definition(
        claims: &[Claim<'_>],
        those: &[usize],
        depth: usize,
        time: f64,
        shares: &mut [f64],
    ) -> f64 {
        let mut groups: Vec<(Option<Quota>, Vec<usize>)> = Vec::new();
        for &at in those {
            let quota = claims[at].quotas.get(depth).copied();
            match groups
                .iter_mut()
                .find(|it| quota.is_some() && it.0 == quota)
            {
                Some(group) => group.1.push(at),
                None => groups.push((quota, vec![at])),
            }
        }
        let mut room = |(quota, those): &(Option<Quota>, Vec<usize>)| {
            let weight = those.iter().map(|&at| claims[at].weight).sum();
            let room = match quota {
                Some(quota) => by_definition(claims, those, depth + 1, f64::MAX, shares)
                    .min((quota.time / (SEC / PERIOD)) as f64),
                None => claims[those[0]].room() as f64,
            };
            (weight, room)
        };
        let rooms: Vec<(u64, f64)> = groups.iter().map(&mut room).collect();
        for ((quota, those), share) in groups.iter().zip(filled(&rooms, time)) {
            match quota {
                Some(_) => {
                    by_definition(claims, those, depth + 1, share, shares);
                }
                None => shares[those[0]] = share,
            }
        }
        rooms.iter().map(|it| it.1).sum()
    }

    fn defined(claims: &[Claim<'_>], time: Nanos) -> Vec<f64> {
        let mut shares = vec![0.0; claims.len()];
        let those: Vec<usize> = (0..claims.len()).collect();
        by_definition(claims, &those, 0, time as f64, &mut shares);
        shares
    }

    /// Which of two outer quotas holds, if any, and which of two inner ones.
    type Path = (Option<u64>, Option<u64>);

    fn path((outer, inner): Path, sizes: &[u64]) -> Vec<Quota> {
        let size = |of: u64| quota(of, sizes[of as usize]);
        let inner = inner.map(|inner| 2 + 2 * outer.unwrap_or(2) + inner);
        outer.into_iter().chain(inner).map(size).collect()
    }

    prop_compose! {
        fn any_claims()(
            each in prop::collection::vec(
                (1u64..10_000, 1u64..3_200, prop::option::of(0u64..400),
                 (prop::option::of(0u64..2), prop::option::of(0u64..2))), 1..14),
            sizes in prop::collection::vec(1u64..2_000, 8),
        ) -> Vec<(u64, Nanos, Nanos, Vec<Quota>)> {
            let claim = |(weight, most, limit, at): (u64, Nanos, Option<Nanos>, Path)| {
                (weight, most, limit.unwrap_or(Nanos::MAX), path(at, &sizes))
            };
            each.into_iter().map(claim).collect()
        }
    }

    fn claims(all: &[(u64, Nanos, Nanos, Vec<Quota>)], limited: bool) -> Vec<Claim<'_>> {
        let claims = all.iter().map(|(weight, most, limit, quotas)| Claim {
            limit: if limited { *limit } else { Nanos::MAX },
            ..claim(*weight, *most, quotas)
        });
        claims.collect()
    }

    proptest! {
        /// All that can be used is shared; none has more than it can use, and those under a quota have no more than the
        /// quota; and of two that could use more under the same quotas, the heavier one has more.
        #[test]
        fn as_much_as_there_is_within_quotas_and_by_weight(all in any_claims(), pcpus in 1u64..32) {
            let (claims, time) = (claims(&all, false), pcpus * PERIOD);
            let shares = super::tests::all(&claims, time);
            let mut sums: BTreeMap<u64, (Quota, Nanos)> = BTreeMap::new();
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(*share <= claim.most);
                for quota in claim.quotas {
                    sums.entry(quota.of).or_insert((*quota, 0)).1 += share;
                }
            }
            for (quota, sum) in sums.values() {
                prop_assert!(*sum <= quota.time / (SEC / PERIOD), "{:?}", (quota, sum));
            }
            let those: Vec<usize> = (0..claims.len()).collect();
            let room = by_definition(&claims, &those, 0, f64::MAX, &mut vec![0.0; claims.len()]);
            let (usable, sum) = (room.min(time as f64), shares.iter().sum::<Nanos>() as f64);
            prop_assert!(sum <= usable && sum + 3.0 * claims.len() as f64 > usable, "{} {}", sum, usable);
            for (one, had) in claims.iter().zip(&shares) {
                for (other, has) in claims.iter().zip(&shares) {
                    let alike = one.quotas == other.quotas && one.weight <= other.weight;
                    prop_assert!(!alike || *has == other.most || had <= has);
                }
            }
        }

        /// Each has what the definition says; one that leaves time, what it says if it did not.
        #[test]
        fn shares_are_as_defined(all in any_claims(), pcpus in 1u64..32) {
            let (claims, time) = (claims(&all, true), pcpus * PERIOD);
            for (at, share) in super::tests::all(&claims, time).into_iter().enumerate() {
                let mut with = claims.clone();
                with[at].limit = Nanos::MAX;
                let defined = defined(&with, time)[at];
                prop_assert!((share as f64 - defined).abs() <= 3.0, "{}: {} {}", at, share, defined);
            }
        }
    }
}
