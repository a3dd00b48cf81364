// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU threads form a VM, and which other threads serve it.
//!
//! Where a recording states processes, they decide. Where it does not, two observations do: a
//! vCPU that wakes another one outside interrupts is its sibling (it sent an inter-processor
//! interrupt), and a VM's vCPU threads are created in the order of their index, shortly after one
//! another. Both may err, so the result says that it is inferred.

use super::Edges;
use super::track::Track;
use crate::model::Grouping;
use crate::names;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer wake-ups between two vCPUs than this prove nothing.
const SIBLINGS: u32 = 3;

/// In how many rounds threads are assigned from what is known about others.
const ROUNDS: usize = 3;

/// A VM as slots of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub tgid: Option<u32>,
    /// Index and slot, in order.
    pub vcpus: Vec<(u32, usize)>,
    pub threads: Vec<usize>,
    pub grouping: Grouping,
}

struct Candidate {
    slot: usize,
    tid: u32,
    tgid: Option<u32>,
    index: Option<u32>,
}

/// Groups every vCPU thread, and then the threads that serve the groups.
pub(super) fn group(tracks: &[Track], edges: &Edges) -> Vec<Group> {
    let mut candidates: Vec<_> = tracks.iter().enumerate().filter_map(candidate).collect();
    candidates.sort_by_key(|c| (c.tid, c.slot));
    let (stated, unstated): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|c| c.tgid.is_some());
    let mut groups = by_process(&stated);
    groups.extend(by_guess(&unstated, edges));
    let first = |g: &Group| g.vcpus.first().and_then(|v| tracks.get(v.1)).map(|t| t.tid);
    groups.sort_by_key(|g| g.tgid.or_else(|| first(g)));
    serve(&mut groups, tracks, edges);
    groups
}

/// A task that KVM or its name shows to be a vCPU.
fn candidate((slot, track): (usize, &Track)) -> Option<Candidate> {
    let by_name = names::vcpu_index(&track.comm);
    if by_name.is_none() && track.kvm_vcpu.is_none() {
        return None;
    }
    let index = by_name.or(track.kvm_vcpu.flatten());
    Some(Candidate {
        slot,
        tid: track.tid,
        tgid: track.tgid,
        index,
    })
}

fn by_process(stated: &[Candidate]) -> Vec<Group> {
    let mut processes: BTreeMap<Option<u32>, Vec<&Candidate>> = BTreeMap::new();
    for candidate in stated {
        processes.entry(candidate.tgid).or_default().push(candidate);
    }
    let group = |(tgid, members): (Option<u32>, Vec<&Candidate>)| Group {
        tgid,
        vcpus: numbered(&members),
        threads: Vec::new(),
        grouping: Grouping::Stated,
    };
    processes.into_iter().map(group).collect()
}

/// The members with their indices; those without one, or with a taken one, get the next free.
fn numbered(members: &[&Candidate]) -> Vec<(u32, usize)> {
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    let mut others = Vec::new();
    for member in members {
        match member.index {
            Some(index) if !taken.contains_key(&index) => {
                taken.insert(index, member.slot);
            }
            _ => others.push(member.slot),
        }
    }
    let mut next = 0;
    for slot in others {
        while taken.contains_key(&next) {
            next += 1;
        }
        taken.insert(next, slot);
    }
    taken.into_iter().collect()
}

/// Groups by sibling wake-ups first, then by the order of thread ids.
fn by_guess(unstated: &[Candidate], edges: &Edges) -> Vec<Group> {
    let mut sets: Vec<Vec<&Candidate>> = unstated.iter().map(|c| vec![c]).collect();
    for (a, b) in siblings(unstated, edges) {
        let of = |slot: usize| sets.iter().position(|s| s.iter().any(|c| c.slot == slot));
        if let (Some(a), Some(b)) = (of(a), of(b)) {
            merge(&mut sets, a.min(b), a.max(b));
        }
    }
    join_by_order(&mut sets);
    let group = |members: Vec<&Candidate>| Group {
        tgid: None,
        vcpus: numbered(&members),
        threads: Vec::new(),
        grouping: Grouping::Inferred,
    };
    sets.into_iter().map(group).collect()
}

/// Pairs that woke each other, the most frequent first.
fn siblings(candidates: &[Candidate], edges: &Edges) -> Vec<(usize, usize)> {
    let slots: BTreeSet<usize> = candidates.iter().map(|c| c.slot).collect();
    let mut pairs: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for (&(a, b), &(on_behalf, _)) in edges {
        if slots.contains(&a) && slots.contains(&b) {
            let count = pairs.entry((a.min(b), a.max(b))).or_default();
            *count = count.saturating_add(on_behalf);
        }
    }
    let mut pairs: Vec<_> = pairs.into_iter().filter(|(_, n)| *n >= SIBLINGS).collect();
    pairs.sort_by_key(|&(pair, count)| (std::cmp::Reverse(count), pair));
    pairs.into_iter().map(|(pair, _)| pair).collect()
}

/// Makes one set of two, unless both have a vCPU of the same index.
fn merge(sets: &mut Vec<Vec<&Candidate>>, low: usize, high: usize) {
    let clash = |a: &[&Candidate], b: &[&Candidate]| {
        a.iter()
            .any(|x| b.iter().any(|y| x.index.is_some() && x.index == y.index))
    };
    let apart = match (sets.get(low), sets.get(high)) {
        (Some(a), Some(b)) => clash(a, b),
        _ => true,
    };
    if low != high && !apart {
        let members = sets.remove(high);
        if let Some(set) = sets.get_mut(low) {
            set.extend(members);
            set.sort_by_key(|c| c.tid);
        }
    }
}

/// A set without vCPU 0 joins the nearest one with a smaller vCPU 0 that lacks its indices.
fn join_by_order(sets: &mut Vec<Vec<&Candidate>>) {
    let first = |set: &Vec<&Candidate>| set.first().map_or(u32::MAX, |c| c.tid);
    let zero = |set: &Vec<&Candidate>| set.iter().any(|c| c.index.unwrap_or(0) == 0);
    sets.sort_by_key(first);
    let mut number = 0;
    while let Some(set) = sets.get(number) {
        let before = sets.len();
        if !zero(set) {
            for host in (0..number)
                .rev()
                .filter(|&n| sets.get(n).is_some_and(zero))
                .collect::<Vec<_>>()
            {
                merge(sets, host, number);
                if sets.len() < before {
                    break;
                }
            }
        }
        number += usize::from(sets.len() == before);
    }
}

/// Adds each VM's other threads: by process, by owner, by parent, else by which task wakes which.
fn serve(groups: &mut [Group], tracks: &[Track], edges: &Edges) {
    let mut member: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, group) in groups.iter().enumerate() {
        member.extend(group.vcpus.iter().map(|&(_, slot)| (slot, number)));
    }
    let process = |tgid: u32| groups.iter().position(|g| g.tgid == Some(tgid));
    // Workers interact with the emulator, not with vCPUs: what one round finds helps the next.
    for _ in 0..ROUNDS {
        let before = member.clone();
        let others = tracks
            .iter()
            .enumerate()
            .filter(|(slot, _)| !before.contains_key(slot));
        for (slot, track) in others {
            let stated = track.tgid.or(names::owner(&track.comm)).and_then(process);
            let plausible = track.tgid.is_none() && names::is_monitor_thread(&track.comm);
            let guess = || plausible.then(|| relation(slot, track, &before, edges))?;
            if let Some(number) = stated.or_else(guess) {
                member.insert(slot, number);
            }
        }
    }
    for (slot, number) in member {
        if let Some(group) = groups.get_mut(number)
            && !group.vcpus.iter().any(|&(_, vcpu)| vcpu == slot)
        {
            group.threads.push(slot);
        }
    }
}

/// The VM with whose tasks this one interacts most.
fn relation(
    slot: usize,
    track: &Track,
    member: &BTreeMap<usize, usize>,
    edges: &Edges,
) -> Option<usize> {
    if let Some(&number) = track.parent.and_then(|parent| member.get(&parent)) {
        return Some(number);
    }
    let mut votes: BTreeMap<usize, u64> = BTreeMap::new();
    for (&(a, b), &(on_behalf, unknown)) in edges {
        let other = if a == slot {
            b
        } else if b == slot {
            a
        } else {
            continue;
        };
        if let Some(&number) = member.get(&other) {
            *votes.entry(number).or_default() += u64::from(on_behalf) + u64::from(unknown);
        }
    }
    votes
        .into_iter()
        .max_by_key(|&(number, n)| (n, std::cmp::Reverse(number)))
        .map(|v| v.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(tid: u32, comm: &str) -> Track {
        Track::new(tid, comm.to_string())
    }

    fn vcpu_tids(groups: &[Group], tracks: &[Track]) -> Vec<Vec<u32>> {
        let tids = |g: &Group| g.vcpus.iter().map(|v| tracks[v.1].tid).collect();
        groups.iter().map(tids).collect()
    }

    #[test]
    fn stated_processes_decide() {
        let mut tracks = vec![
            track(10, "CPU 0/KVM"),
            track(11, "CPU 0/KVM"),
            track(12, "CPU 1/KVM"),
        ];
        for (track, tgid) in tracks.iter_mut().zip([1, 2, 1]) {
            track.tgid = Some(tgid);
        }
        tracks.push(track_of(13, "worker", 2));
        tracks.push(track(14, "vhost-1"));
        let groups = group(&tracks, &Edges::new());
        assert_eq!(vcpu_tids(&groups, &tracks), [vec![10, 12], vec![11]]);
        assert_eq!(
            (&groups[0].threads, &groups[1].threads),
            (&vec![4], &vec![3])
        );
        assert!(groups.iter().all(|g| g.grouping == Grouping::Stated));
    }

    fn track_of(tid: u32, comm: &str, tgid: u32) -> Track {
        let mut track = track(tid, comm);
        track.tgid = Some(tgid);
        track
    }

    #[test]
    fn thread_order_decides_where_nothing_is_stated() {
        let names = [
            "CPU 0/KVM",
            "CPU 1/KVM",
            "CPU 0/KVM",
            "CPU 0/KVM",
            "CPU 1/KVM",
            "CPU 1/KVM",
        ];
        let tids = [126, 130, 131, 132, 134, 135];
        let tracks: Vec<_> = tids
            .into_iter()
            .zip(names)
            .map(|(t, n)| track(t, n))
            .collect();
        let groups = group(&tracks, &Edges::new());
        assert_eq!(
            vcpu_tids(&groups, &tracks),
            [vec![126, 130], vec![131, 135], vec![132, 134]]
        );
        assert!(groups.iter().all(|g| g.grouping == Grouping::Inferred));
    }

    #[test]
    fn sibling_wakeups_come_before_thread_order() {
        let names = ["CPU 0/KVM", "CPU 0/KVM", "CPU 1/KVM", "CPU 1/KVM", "worker"];
        let tids = [128, 130, 131, 132, 200];
        let tracks: Vec<_> = tids
            .into_iter()
            .zip(names)
            .map(|(t, n)| track(t, n))
            .collect();
        let edges = Edges::from([((0, 2), (40, 0)), ((1, 2), (2, 90)), ((3, 4), (5, 0))]);
        let groups = group(&tracks, &edges);
        assert_eq!(
            vcpu_tids(&groups, &tracks),
            [vec![128, 131], vec![130, 132]]
        );
        assert_eq!(groups[1].threads, [4]);
    }

    #[test]
    fn kvm_shows_unnamed_vcpus() {
        let mut tracks = vec![track(5, "qemu-system-x86"), track(6, "qemu-system-x86")];
        tracks[0].kvm_vcpu = Some(None);
        tracks[1].kvm_vcpu = Some(None);
        tracks[0].tgid = Some(4);
        tracks[1].tgid = Some(4);
        let groups = group(&tracks, &Edges::new());
        assert_eq!(groups[0].vcpus, [(0, 0), (1, 1)]);
    }
}
