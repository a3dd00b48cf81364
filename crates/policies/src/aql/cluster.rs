// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPUs share which pCPUs, and at which slice: AQL_Sched's two levels of clustering (EuroSys
//! 2016, §3.5).
//!
//! Level 1 (Algorithm 1) gives each socket its share of the vCPUs: those that trash the last-level
//! cache first, VM by VM, then the others with the LoLCF at their head, so that LLCF and trashers
//! meet as little as possible. Level 2 (Algorithm 2) makes pools of a socket's pCPUs: a cluster of
//! vCPUs for each slice, agnostic vCPUs filling the smaller clusters up; each pCPU takes its share
//! of one cluster, and one that must take from two goes to a pool with the default slice.
//!
//! What differs from the pseudo code, and why: lists are filled up across their end (as printed, the
//! socket with the last trasher would stay short), a cluster that is used up exactly is left (as
//! printed, all of Table 5 would have a pCPU at the default slice), shares are of weights instead of
//! numbers, which is the same where weights are equal, and need not divide evenly: the vCPU that
//! begins in a pCPU's share is that pCPU's. A vCPU whose weight is worth more than a pCPU counts as
//! one pCPU ([`usable()`]), since it cannot use more; else pCPUs would idle while others have too few. The paper's vCPUs
//! may run anywhere; one that may use one socket only counts there.
//!
//! Between rounds, vCPUs of the same type are as good as each other: the places that a type has go
//! first to those that had them before ([`keep_places`]).

use super::calibration::Slices;
use super::kind::{Kind, Type};
use crate::usable;
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};
use std::collections::BTreeMap;

/// A vCPU to be put into a pool. VMs follow each other in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The vCPU.
    pub task: TaskId,
    /// What it is.
    pub of: Type,
    /// Its share of pCPU time is in proportion to this; at least 1.
    pub weight: u64,
    /// The socket that it may use; `None`: any.
    pub bound: Option<usize>,
}

/// Which pool of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cluster {
    /// The vCPUs that run best at this slice, and agnostic ones; ns.
    Best(Nanos),
    /// Those of several clusters, at the default slice: the paper's C(n+1).
    Mixed,
}

/// A pool by what it stands for, from round to round.
pub type Place = (usize, Cluster);

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// Its socket and cluster.
    pub place: Place,
    /// Its slice, ns.
    pub slice: Nanos,
    /// Its pCPUs.
    pub pcpus: PcpuSet,
    /// Its vCPUs.
    pub members: Vec<Member>,
}

/// Level 1: the vCPUs of each socket; `sockets` are numbers of pCPUs. Those bound to a socket are there, and the others
/// are dealt out among what that leaves.
pub fn level_1(members: &[Member], sockets: &[u32]) -> Vec<Vec<Member>> {
    let (trashing, mut others): (Vec<Member>, Vec<Member>) =
        members.iter().partition(|member| member.of.trashes());
    others.sort_by_key(|member| member.of.kind != Kind::LoLcf); // stable
    let (bound, free): (Vec<Member>, Vec<Member>) = (trashing.into_iter().chain(others))
        .partition(|member| member.bound.is_some_and(|socket| socket < sockets.len()));
    let pcpus: u128 = sockets.iter().map(|&pcpus| u128::from(pcpus)).sum();
    let weight: u128 = members.iter().map(|member| u128::from(member.weight)).sum();
    let mut dealt = vec![Vec::new(); sockets.len()];
    let mut left: Vec<u128> = (sockets.iter())
        .map(|&pcpus| u128::from(pcpus) * weight)
        .collect();
    for member in bound {
        let at = member.bound.unwrap_or(0);
        left[at] = left[at].saturating_sub(u128::from(member.weight) * pcpus);
        dealt[at].push(member);
    }
    for (socket, free) in dealt.iter_mut().zip(deal(&free, &left)) {
        socket.extend(free);
    }
    dealt
}

/// Deals members out, in order, in shares of their weight that are proportional to `sizes`: each
/// goes to the share in which it begins. Without any size, to the first.
fn deal(members: &[Member], sizes: &[u128]) -> Vec<Vec<Member>> {
    let mut dealt = vec![Vec::new(); sizes.len()];
    let whole: u128 = sizes.iter().sum();
    let weights: u128 = members.iter().map(|member| u128::from(member.weight)).sum();
    let (mut at, mut end) = (0, sizes.first().copied().unwrap_or(0));
    let mut begins: u128 = 0;
    for member in members {
        while at + 1 < sizes.len() && begins * whole >= end * weights {
            at += 1;
            end += sizes[at];
        }
        if let Some(share) = dealt.get_mut(at) {
            share.push(*member);
        }
        begins += u128::from(member.weight);
    }
    dealt
}

/// The members with what their weights are worth on so many pCPUs: one pCPU at most, so that others have
/// what is beyond that.
fn usable(members: &[Member], pcpus: u32) -> Vec<Member> {
    let most = usable::most(members.iter().map(|member| member.weight), pcpus);
    let capped = |member: &Member| Member {
        weight: member.weight.min(most),
        ..*member
    };
    members.iter().map(capped).collect()
}

/// A socket's clusters by slice (Algorithm 2, lines 2–10). Agnostic vCPUs go one by one to the
/// lightest cluster that there is.
fn clusters(members: &[Member], slices: &Slices) -> BTreeMap<Nanos, Vec<Member>> {
    let mut clusters: BTreeMap<Nanos, Vec<Member>> = BTreeMap::new();
    let best = |member: &Member| slices.best(member.of.kind);
    for member in members {
        if let Some(slice) = best(member) {
            clusters.entry(slice).or_default().push(*member);
        }
    }
    if clusters.is_empty() {
        return BTreeMap::from([(slices.default, members.to_vec())]);
    }
    let weight = |cluster: &Vec<Member>| cluster.iter().map(|m| u128::from(m.weight)).sum::<u128>();
    for member in members.iter().filter(|member| best(member).is_none()) {
        let lightest = clusters.values_mut().min_by_key(|cluster| weight(cluster));
        lightest.into_iter().for_each(|it| it.push(*member));
    }
    clusters
}

/// What a pool holds before it gets its pCPUs: their number, and its vCPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its slice, ns.
    pub slice: Nanos,
    /// Number of pCPUs.
    pub pcpus: u32,
    /// Its vCPUs.
    pub members: Vec<Member>,
}

/// Level 2: the pools of a socket with `pcpus` pCPUs.
pub fn level_2(members: &[Member], pcpus: u32, slices: &Slices) -> BTreeMap<Cluster, Shape> {
    let clusters = clusters(members, slices);
    let ordered: Vec<(Nanos, Member)> = clusters
        .into_iter()
        .flat_map(|(slice, members)| members.into_iter().map(move |member| (slice, member)))
        .collect();
    let slice_of: BTreeMap<TaskId, Nanos> = ordered.iter().map(|(s, m)| (m.task, *s)).collect();
    let all: Vec<Member> = ordered.iter().map(|(_, member)| *member).collect();
    let mut pools: BTreeMap<Cluster, Shape> = BTreeMap::new();
    let mut spare = 0;
    for share in deal(&all, &vec![1; pcpus as usize]) {
        let mut found: Vec<Nanos> = share.iter().map(|member| slice_of[&member.task]).collect();
        found.dedup();
        let (cluster, slice) = match found[..] {
            [] => {
                spare += 1;
                continue;
            }
            [slice] => (Cluster::Best(slice), slice),
            _ => (Cluster::Mixed, slices.default),
        };
        let pool = pools.entry(cluster).or_insert(Shape {
            slice,
            pcpus: 0,
            members: Vec::new(),
        });
        pool.pcpus += 1;
        pool.members.extend(share);
    }
    // Fewer vCPUs than pCPUs: the rest goes to the most crowded pools.
    for _ in 0..spare {
        let crowd = |pool: &&mut Shape| pool.members.len() as u64 * 1000 / u64::from(pool.pcpus);
        if let Some(pool) = pools.values_mut().max_by_key(crowd) {
            pool.pcpus += 1;
        }
    }
    pools
}

/// Both levels. `sockets` are the pCPUs of each; `before` are the pools of the last round.
pub fn cluster(
    members: &[Member],
    sockets: &[Vec<PcpuId>],
    slices: &Slices,
    before: &[Pooled],
) -> Vec<Pooled> {
    let sizes: Vec<u32> = sockets.iter().map(|pcpus| pcpus.len() as u32).collect();
    let members = &usable(members, sizes.iter().sum())[..];
    let mut pools = Vec::new();
    for (socket, members) in level_1(members, &sizes).iter().enumerate() {
        let shapes = level_2(members, sizes[socket], slices);
        pools.extend(keep_pcpus(socket, &sockets[socket], shapes, before));
    }
    keep_places(members, &mut pools, before);
    pools
}

/// Gives a socket's pools their pCPUs: first those they had, then what is left.
fn keep_pcpus(
    socket: usize,
    pcpus: &[PcpuId],
    shapes: BTreeMap<Cluster, Shape>,
    before: &[Pooled],
) -> Vec<Pooled> {
    let mut free: Vec<PcpuId> = pcpus.to_vec();
    let mut pools: Vec<(Pooled, u32)> = Vec::new();
    for (cluster, shape) in shapes {
        let place = (socket, cluster);
        let had = before.iter().find(|pool| pool.place == place);
        let had = |cpu: &PcpuId| had.is_some_and(|pool| pool.pcpus.contains(*cpu));
        let kept: PcpuSet = free
            .iter()
            .copied()
            .filter(had)
            .take(shape.pcpus as usize)
            .collect();
        free.retain(|cpu| !kept.contains(*cpu));
        let pool = Pooled {
            place,
            slice: shape.slice,
            pcpus: kept,
            members: shape.members,
        };
        pools.push((pool, shape.pcpus));
    }
    let mut free = free.into_iter();
    let fill = |(mut pool, wanted): (Pooled, u32)| {
        let missing = wanted - pool.pcpus.len();
        free.by_ref()
            .take(missing as usize)
            .for_each(|cpu| pool.pcpus.insert(cpu));
        pool
    };
    pools.into_iter().map(fill).collect()
}

/// Members of the same type and weight, bound to the same socket or none, change places until as many as possible are where
/// they were.
fn keep_places(members: &[Member], pools: &mut [Pooled], before: &[Pooled]) {
    let was: BTreeMap<TaskId, Place> = before
        .iter()
        .flat_map(|pool| pool.members.iter().map(|member| (member.task, pool.place)))
        .collect();
    // The places of each sort of member, pool by pool.
    let sort = |member: &Member| (member.of, member.weight, member.bound);
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, pool) in pools.iter_mut().enumerate() {
        for member in std::mem::take(&mut pool.members) {
            places.entry(sort(&member)).or_default().push(at);
        }
    }
    let mut others = Vec::new();
    for member in members {
        let open = places.entry(sort(member)).or_default();
        let old = was.get(&member.task);
        let same = open.iter().position(|&at| old == Some(&pools[at].place));
        match same {
            Some(found) => pools[open.remove(found)].members.push(*member),
            None => others.push(*member),
        }
    }
    for member in others {
        let open = places.entry(sort(&member)).or_default();
        if !open.is_empty() {
            pools[open.remove(0)].members.push(member);
        }
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
