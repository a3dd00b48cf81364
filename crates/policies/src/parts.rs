// SPDX-License-Identifier: GPL-2.0-only
//! The parts that cpusets divide a host into.
//!
//! Cpusets that overlap belong to one part, so that nothing in one part may use a pCPU of another.

use corun_model::PcpuSet;

/// A part: its members, by their places, whose pCPUs nothing outside it may use.
pub(crate) struct Part {
    pub members: Vec<usize>,
    pub pcpus: PcpuSet,
}

impl Part {
    /// These pCPUs, without members yet.
    pub fn of(pcpus: PcpuSet) -> Self {
        let members = Vec::new();
        Self { members, pcpus }
    }
}

/// The parts of a host, where `allowed` has the pCPUs of each VM, or of each vCPU; parts with the lowest pCPUs come
/// first.
pub(crate) fn parts<'a>(allowed: impl Iterator<Item = &'a PcpuSet>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (at, allowed) in allowed.enumerate() {
        // On most hosts there is only one part.
        if let Some(same) = parts.last_mut().filter(|part| part.pcpus == *allowed) {
            same.members.push(at);
            continue;
        }
        let mut with = Part::of(*allowed);
        // Parts that it overlaps are joined with it.
        parts.retain_mut(|part| {
            let apart = part.pcpus.and(allowed).is_empty();
            if !apart {
                with.pcpus = with.pcpus.or(&part.pcpus);
                with.members.append(&mut part.members);
            }
            apart
        });
        with.members.push(at);
        parts.push(with);
    }
    parts.sort_by_key(|part| part.pcpus.iter().next());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_overlaps_is_one_part() {
        let of = |sets: &[&str]| {
            let sets: Vec<PcpuSet> = sets.iter().map(|set| set.parse().unwrap()).collect();
            let parts = parts(sets.iter()).into_iter();
            let shown = parts.map(|part| (part.pcpus.to_string(), part.members));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), []);
        assert_eq!(
            of(&["0-3", "4-7", "0-3"]),
            [("0-3".into(), vec![0, 2]), ("4-7".into(), vec![1])]
        );
        assert_eq!(
            of(&["0-3", "4-7", "8", "3-4"]),
            [("0-7".into(), vec![0, 1, 3]), ("8".into(), vec![2])]
        );
    }

    proptest! {
        #[test]
        fn each_is_in_one_part_and_parts_share_nothing(
            sets in prop::collection::vec((0u32..16, 0u32..4), 0..12),
        ) {
            let set = |&(first, count): &(u32, u32)| (first..first + count).map(corun_model::PcpuId).collect();
            let sets: Vec<PcpuSet> = sets.iter().map(set).collect();
            let parts = parts(sets.iter());
            let mut all: Vec<usize> = parts.iter().flat_map(|part| part.members.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..sets.len()).collect::<Vec<_>>());
            let mut seen = PcpuSet::default();
            for part in &parts {
                prop_assert!(part.pcpus.and(&seen).is_empty());
                seen = seen.or(&part.pcpus);
                let of = part.members.iter().map(|&at| sets[at]);
                prop_assert_eq!(of.fold(PcpuSet::default(), |all, some| all.or(&some)), part.pcpus);
            }
        }
    }
}
