// SPDX-License-Identifier: GPL-2.0-only
//! Which pCPUs share a core and a last-level cache, in the form that the dispatcher's placement needs
//! (`dispatcher/placement.h`): one number per pCPU.

use crate::{PcpuId, PcpuSet, Topology};

const PCPUS: usize = Topology::MAX_PCPUS as usize;

/// Which caches and cores pCPUs share, by the pCPU's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The next hardware thread of its core, plus 1; 0: the core has no other.
    pub sibling: [u16; PCPUS],
    /// Its last-level cache, below `llcs`.
    pub llc: [u16; PCPUS],
    /// How many last-level caches are told apart, 1 to [`Self::MAX_LLCS`].
    pub llcs: u32,
}

impl Sharing {
    /// If there are more last-level caches, several count as one.
    pub const MAX_LLCS: usize = 64;

    /// For a host with these cores and last-level caches, each a set of pCPUs below [`Topology::MAX_PCPUS`]. A core of
    /// more than two hardware threads is a ring: each looks at the next.
    pub fn of(cores: &[PcpuSet], llcs: &[PcpuSet]) -> Self {
        let mut sharing = Self::default();
        for core in cores {
            let threads: Vec<PcpuId> = core.iter().collect();
            let next = threads.iter().cycle().skip(1);
            for (cpu, next) in threads.iter().zip(next).filter(|(cpu, next)| cpu != next) {
                sharing.sibling[cpu.index()] = next.0 as u16 + 1;
            }
        }
        for (number, llc) in llcs.iter().enumerate() {
            let number = (number % Self::MAX_LLCS) as u16;
            llc.iter().for_each(|cpu| sharing.llc[cpu.index()] = number);
        }
        sharing.llcs = llcs.len().clamp(1, Self::MAX_LLCS) as u32;
        sharing
    }

    /// For a simulated host.
    pub fn of_topology(host: &Topology) -> Self {
        let sets = |count: u32, number: &dyn Fn(PcpuId) -> u32| {
            let set = |at| host.all().filter(|cpu| number(*cpu) == at).collect();
            (0..count).map(set).collect::<Vec<PcpuSet>>()
        };
        let last = PcpuId(host.pcpus() - 1);
        let cores = sets(host.core(last) + 1, &|cpu| host.core(cpu));
        let llcs = sets(host.llc(last) + 1, &|cpu| host.llc(cpu));
        Self::of(&cores, &llcs)
    }
}

/// All share one last-level cache, none a core.
impl Default for Sharing {
    fn default() -> Self {
        Self {
            sibling: [0; PCPUS],
            llc: [0; PCPUS],
            llcs: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_simulated_host() {
        let sharing = Sharing::of_topology(&"1n2l2c2t".parse().unwrap());
        assert_eq!(sharing.sibling[..9], [2, 1, 4, 3, 6, 5, 8, 7, 0]);
        assert_eq!(sharing.llc[..8], [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(sharing.llcs, 2);
        let flat = Sharing::of_topology(&Topology::flat(3).unwrap());
        assert_eq!(flat, Sharing::default());
    }

    #[test]
    fn halves_a_ring_and_a_core_with_one_thread_online() {
        let set = |list: &str| list.parse::<PcpuSet>().unwrap();
        let sharing = Sharing::of(&[set("0,4"), set("1-3"), set("5")], &[set("0-5")]);
        assert_eq!(sharing.sibling[..6], [5, 3, 4, 2, 1, 0]);
        assert_eq!(sharing.llcs, 1);
    }

    #[test]
    fn more_caches_than_are_told_apart_are_folded() {
        let llcs: Vec<PcpuSet> = (0..70)
            .map(|cpu| [PcpuId(cpu)].into_iter().collect())
            .collect();
        let sharing = Sharing::of(&[], &llcs);
        assert_eq!(
            (sharing.llc[63], sharing.llc[64], sharing.llcs),
            (63, 0, 64)
        );
        assert_eq!(Sharing::of(&[], &[]), Sharing::default());
    }
}
