// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPUs share which pCPUs, and at which slice: AQL_Sched's two levels of clustering (EuroSys
//! 2016, §3.5).
//!
//! Level 1 (Algorithm 1) gives each socket its share of the vCPUs: first those that trash the last-level cache, VM by
//! VM, then the others with the LoLCF at their head, so that LLCF and trashers meet as little as possible. Level 2
//! (Algorithm 2) makes pools of a socket's pCPUs: vCPUs form a cluster for each slice, and agnostic vCPUs fill up the
//! smaller clusters; each pCPU takes its share of one cluster, and one that must take from two goes to a pool with the
//! default slice.
//!
//! What differs from the pseudo code, and why: lists are filled up across their end (as printed, the
//! socket with the last trasher would stay short), a cluster that is used up exactly is left (as printed, all of Table
//! 5 would have a pCPU at the default slice), and shares are of weights instead of numbers, which is the same where
//! weights are equal. Shares need not divide evenly: a vCPU goes to the pCPU in whose share it begins. A vCPU whose
//! weight is worth more than a pCPU counts as one pCPU ([`usable()`]), since it cannot use more; otherwise some pCPUs
//! would idle while vCPUs crowd on others. The paper's vCPUs may run anywhere; those that cpusets bind are dealt out
//! first, among the sockets that they may use ([`Rooms`]).
//!
//! From round to round, vCPUs of the same type are interchangeable: the places that a type has go first to those vCPUs
//! that had them before ([`keep_places`]).

use super::calibration::Slices;
use super::kind::{Kind, Type};
use crate::usable;
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::iter::successors;

/// A vCPU to be put into a pool. VMs follow each other in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The vCPU.
    pub task: TaskId,
    /// What it is.
    pub of: Type,
    /// Its share of pCPU time is proportional to this; at least 1.
    pub weight: u64,
    /// Which of the cpusets it is bound to; `None`: it may use any pCPU.
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

/// Level 1: the vCPUs of each socket; `cpusets` are what members are bound to. Bound members are placed first, and the
/// others are dealt out into the room that these leave.
pub fn level_1(members: &[Member], sockets: &[PcpuSet], cpusets: &[PcpuSet]) -> Vec<Vec<Member>> {
    let (trashing, mut others): (Vec<Member>, Vec<Member>) =
        members.iter().partition(|member| member.of.trashes());
    others.sort_by_key(|member| member.of.kind != Kind::LoLcf); // stable
    let (bound, free): (Vec<Member>, Vec<Member>) =
        (trashing.into_iter().chain(others)).partition(|member| member.bound.is_some());
    let mut rooms = Rooms::new(members, sockets, cpusets);
    // What is left of a socket need not be a whole number of pCPUs: a vCPU that only begins there had better go to the
    // next.
    let point = match bound.is_empty() {
        true => Point::Begin,
        false => Point::Middle,
    };
    let mut dealt = rooms.bind(bound);
    for (socket, free) in (dealt.iter_mut()).zip(deal(&free, &rooms.left(), point)) {
        socket.extend(free);
    }
    dealt
}

/// How members bound to cpusets fill the sockets, in units that avoid fractions: a pCPU has as many as all members
/// weigh together, and a member takes its weight times the host's number of pCPUs.
struct Rooms {
    /// All members' weights.
    weight: i128,
    /// pCPUs of the host.
    pcpus: i128,
    sockets: Vec<PcpuSet>,
    /// Of each cpuset, the pCPUs in each socket.
    parts: Vec<Vec<PcpuSet>>,
    /// What all bound members have taken of each socket.
    taken: Vec<i128>,
    /// The same for each cpuset, counting only members that may use some of its pCPUs there.
    beside: Vec<Vec<i128>>,
}

impl Rooms {
    fn new(members: &[Member], sockets: &[PcpuSet], cpusets: &[PcpuSet]) -> Self {
        let parts = |cpuset: &PcpuSet| sockets.iter().map(|socket| socket.and(cpuset)).collect();
        Self {
            weight: members.iter().map(|member| i128::from(member.weight)).sum(),
            pcpus: sockets.iter().map(|socket| i128::from(socket.len())).sum(),
            sockets: sockets.to_vec(),
            parts: cpusets.iter().map(parts).collect(),
            taken: vec![0; sockets.len()],
            beside: vec![vec![0; sockets.len()]; cpusets.len()],
        }
    }

    /// What a member takes.
    fn cost(&self, member: &Member) -> i128 {
        i128::from(member.weight) * self.pcpus
    }

    /// The pCPUs of each socket that a member may use.
    fn usable(&self, member: &Member) -> &[PcpuSet] {
        let parts = member.bound.and_then(|cpuset| self.parts.get(cpuset));
        parts.unwrap_or(&self.sockets)
    }

    /// Notes what a member takes of a socket, or gives back.
    fn take(&mut self, socket: usize, member: &Member, cost: i128) {
        let own = self.usable(member)[socket];
        self.taken[socket] += cost;
        for (parts, beside) in self.parts.iter().zip(&mut self.beside) {
            if !parts[socket].and(&own).is_empty() {
                beside[socket] += cost;
            }
        }
    }

    /// What is left of these pCPUs when so much is taken; below 0 if that is more than there is.
    fn room(&self, pcpus: &PcpuSet, taken: i128) -> i128 {
        i128::from(pcpus.len()) * self.weight - taken
    }

    /// What is left of each socket.
    fn rooms(&self) -> impl Iterator<Item = i128> + '_ {
        let each = self.sockets.iter().zip(&self.taken);
        each.map(|(socket, &taken)| self.room(socket, taken))
    }

    /// The sockets in which a member may run, each with what is left of the pCPUs that it may use there.
    fn of(&self, member: &Member) -> impl Iterator<Item = (usize, i128)> + '_ {
        let beside = member.bound.and_then(|cpuset| self.beside.get(cpuset));
        let beside = beside.unwrap_or(&self.taken);
        let each = self.usable(member).iter().zip(beside).zip(self.rooms());
        let each = each.enumerate();
        let each = each.filter(|(_, ((pcpus, _), _))| !pcpus.is_empty());
        each.map(|(at, ((pcpus, &taken), all))| (at, self.room(pcpus, taken).min(all)))
    }

    /// What is left of each socket for those that may run anywhere.
    fn left(&self) -> Vec<u128> {
        let left = self.rooms().map(u128::try_from);
        left.map(|room| room.unwrap_or(0)).collect()
    }

    /// Puts members into sockets of their cpusets, those with the least choice first: each into the first socket with
    /// room for most of it, or, once all are full, into the one with most room. Then members of overfull sockets move
    /// on to others with more room, so that room in sockets that only some members may use is used, too.
    fn bind(&mut self, mut bound: Vec<Member>) -> Vec<Vec<Member>> {
        let mut dealt = vec![Vec::new(); self.sockets.len()];
        let choice = |member: &Member| {
            self.usable(member)
                .iter()
                .filter(|it| !it.is_empty())
                .count()
        };
        bound.sort_by_cached_key(choice); // stable
        for member in &bound {
            let fits = (self.of(member)).find(|(_, room)| 2 * *room > self.cost(member));
            let widest = || {
                self.of(member)
                    .max_by_key(|&(at, room)| (room, Reverse(at)))
            };
            if let Some((at, _)) = fits.or_else(widest) {
                self.take(at, member, self.cost(member));
                dealt[at].push(*member);
            }
        }
        // If weights are alike, each round evens out two sockets, and this many are enough.
        for _ in 0..bound.len() {
            let Some(moves) = (0..dealt.len()).find_map(|full| self.moves(full, &dealt)) else {
                break;
            };
            for (from, nth, to) in moves {
                let member = dealt[from].remove(nth);
                self.take(from, &member, -self.cost(&member));
                self.take(to, &member, self.cost(&member));
                dealt[to].push(member);
            }
        }
        dealt
    }

    /// The fewest moves of members (from a socket, which of those there, to another) after which another socket has one
    /// more and the full one has one less, and no less room than the other; `None`: there are none, or the socket has
    /// room. A socket is full as a whole: a member that crowds others on a part of it stays.
    fn moves(&self, full: usize, dealt: &[Vec<Member>]) -> Option<Vec<(usize, usize, usize)>> {
        let lacks = self.room(&self.sockets[full], self.taken[full]);
        // For each socket: from where, and by the move of which member there, it can have one more.
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; dealt.len()];
        let mut next = VecDeque::from_iter((lacks < 0).then_some(full));
        while let Some(from) = next.pop_front() {
            for (nth, member) in dealt[from].iter().enumerate() {
                for (to, room) in self.of(member) {
                    if to == full || reached[to].is_some() {
                        continue;
                    }
                    reached[to] = Some((from, nth));
                    next.push_back(to);
                    if room - self.cost(member) > lacks {
                        let before = |to: usize| reached[to].map(|(from, nth)| (from, nth, to));
                        return Some(successors(before(to), |it| before(it.0)).collect());
                    }
                }
            }
        }
        None
    }
}

/// Which point of a member decides to which share it goes.
#[derive(Clone, Copy)]
enum Point {
    Begin,
    Middle,
}

/// Deals members out, in order, in shares of their weight that are proportional to `sizes`: each goes to the share in
/// which this point of it lies.
fn deal(members: &[Member], sizes: &[u128], point: Point) -> Vec<Vec<Member>> {
    let mut dealt = vec![Vec::new(); sizes.len()];
    let whole: u128 = sizes.iter().sum();
    let weights: u128 = members.iter().map(|member| u128::from(member.weight)).sum();
    let (mut at, mut end) = (0, sizes.first().copied().unwrap_or(0));
    // Twice what those before weigh, so that a middle is a number.
    let mut before: u128 = 0;
    for member in members {
        let weight = u128::from(member.weight);
        let at_point = match point {
            Point::Begin => before,
            Point::Middle => before + weight,
        };
        while at + 1 < sizes.len() && at_point * whole >= 2 * end * weights {
            at += 1;
            end += sizes[at];
        }
        if let Some(share) = dealt.get_mut(at) {
            share.push(*member);
        }
        before += 2 * weight;
    }
    dealt
}

/// The members, with what their weights are worth on this many pCPUs: one pCPU each at most; the others get what is
/// beyond that.
fn usable(members: &[Member], pcpus: u32) -> Vec<Member> {
    let most = usable::most(members.iter().map(|member| member.weight), pcpus);
    let capped = |member: &Member| Member {
        weight: member.weight.min(most),
        ..*member
    };
    members.iter().map(capped).collect()
}

/// A socket's clusters by slice (Algorithm 2, lines 2–10). Agnostic vCPUs go, one by one, to the cluster that is the
/// lightest by then.
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
    for share in deal(&all, &vec![1; pcpus as usize], Point::Begin) {
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

/// Both levels. `sockets` are the pCPUs of each, `cpusets` what members are bound to; `before` are the pools of the last
/// round.
pub fn cluster(
    members: &[Member],
    sockets: &[PcpuSet],
    cpusets: &[PcpuSet],
    slices: &Slices,
    before: &[Pooled],
) -> Vec<Pooled> {
    let sizes: Vec<u32> = sockets.iter().map(PcpuSet::len).collect();
    let members = &usable(members, sizes.iter().sum())[..];
    let mut pools = Vec::new();
    for (socket, members) in level_1(members, sockets, cpusets).iter().enumerate() {
        let shapes = level_2(members, sizes[socket], slices);
        pools.extend(keep_pcpus(socket, &sockets[socket], shapes, before));
    }
    keep_places(members, &mut pools, before);
    pools
}

/// Gives a socket's pools their pCPUs: first those they had, then what is left.
fn keep_pcpus(
    socket: usize,
    pcpus: &PcpuSet,
    shapes: BTreeMap<Cluster, Shape>,
    before: &[Pooled],
) -> Vec<Pooled> {
    let mut free: Vec<PcpuId> = pcpus.iter().collect();
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

/// Members of the same type and weight, bound to the same cpuset or none, change places until as many as possible are where
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
