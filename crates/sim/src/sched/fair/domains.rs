// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling domains: between which pCPUs load is balanced, how often and how readily.
//!
//! Built from the topology as Linux does (`build_sched_domains()`): SMT threads of a core, cores of
//! an LLC, LLCs of a node, nodes. A level with a single group is left out. The hosts are regular,
//! so a domain's span and groups are ranges of pCPU numbers.

use super::idle::Pulls;
use super::tuning::{Generation, Tuning};
use corun_model::{Nanos, PcpuId, Topology, time::MS};
use std::ops::Range;

/// What the groups of a level are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SMT threads of a core.
    Smt,
    /// Cores of an LLC domain.
    Llc,
    /// LLC domains of a node.
    Node,
    /// Nodes of the host.
    Numa,
}

/// One level, the same for all pCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Innermost is 0.
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    /// pCPUs in a domain, and in one of its groups.
    pub(crate) span: u32,
    pub(crate) group: u32,
    /// Imbalance that is tolerated: the busiest group has less than this percentage of the own
    /// one's load.
    pub(crate) imbalance_pct: u64,
    /// Failed attempts after which cache-hot tasks are moved, too.
    pub(crate) cache_nice_tries: u32,
    /// How many times less often a busy pCPU balances.
    pub(crate) busy_factor: u64,
    pub(crate) min_interval: Nanos,
    pub(crate) max_interval: Nanos,
    /// Are the groups' children to be filled evenly (`SD_PREFER_SIBLING` of the level below)?
    pub(crate) prefer_sibling: bool,
    /// Which of the load averages a busy pCPU looks at (2.6.33 and 4.x), and an idle one.
    pub(crate) busy_idx: usize,
    pub(crate) idle_idx: usize,
}

impl Level {
    /// The pCPUs of the domain of `cpu`.
    pub(crate) fn domain(&self, cpu: PcpuId) -> Range<u32> {
        let start = cpu.0 / self.span * self.span;
        start..start + self.span
    }

    /// The pCPUs of the group of `cpu`.
    pub(crate) fn group_of(&self, cpu: PcpuId) -> Range<u32> {
        let start = cpu.0 / self.group * self.group;
        start..start + self.group
    }

    /// All groups of the domain of `cpu`, its own one first, then round the domain.
    pub(crate) fn groups(&self, cpu: PcpuId) -> impl Iterator<Item = Range<u32>> + use<> {
        let (domain, own) = (self.domain(cpu), self.group_of(cpu));
        let size = self.group;
        let behind = (own.start..domain.end).step_by(size as usize);
        let before = (domain.start..own.start).step_by(size as usize);
        behind.chain(before).map(move |start| start..start + size)
    }
}

/// A pCPU's memory of balancing at one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) last: Nanos,
    pub(crate) interval: Nanos,
    pub(crate) failed: u32,
    pub(crate) pulls: Pulls,
}

/// The levels, and the memories of all pCPUs.
#[derive(Debug)]
pub(crate) struct Domains {
    levels: Vec<Level>,
    memories: Vec<Memory>,
    /// Per level and group: did affinity keep the group's pCPUs from being balanced
    /// (`sgc->imbalance`)?
    imbalanced: Vec<Vec<bool>>,
    /// Per level and domain: the step of averages ([`Average::step`](super::decay::Average::step))
    /// that its pCPUs were all brought up to last.
    aged: Vec<Vec<Option<u64>>>,
    llc: u32,
    core: u32,
}

impl Domains {
    pub(crate) fn new(topology: &Topology, tuning: &Tuning) -> Self {
        let total = topology.pcpus();
        let size = |of: &dyn Fn(PcpuId) -> u32| {
            let first = of(PcpuId(0));
            topology.all().take_while(|&cpu| of(cpu) == first).count() as u32
        };
        let core = size(&|cpu| topology.core(cpu));
        let llc = size(&|cpu| topology.llc(cpu));
        let node = size(&|cpu| topology.node(cpu));
        let spans = [
            (Kind::Smt, core, 1),
            (Kind::Llc, llc, core),
            (Kind::Node, node, llc),
            (Kind::Numa, total, node),
        ];
        let levels: Vec<Level> = spans
            .into_iter()
            .filter(|(_, span, group)| span > group)
            .enumerate()
            .map(|(n, (kind, span, group))| level(n, kind, span, group, tuning))
            .collect();
        let memory = |n: usize| Memory {
            last: 0,
            interval: levels
                .get(n % levels.len().max(1))
                .map_or(MS, |l| l.min_interval),
            failed: 0,
            pulls: Pulls::UNKNOWN,
        };
        let memories = (0..total as usize * levels.len()).map(memory).collect();
        let groups = |level: &Level| vec![false; (total / level.group) as usize];
        let domains = |level: &Level| vec![None; (total / level.span) as usize];
        Self {
            imbalanced: levels.iter().map(groups).collect(),
            aged: levels.iter().map(domains).collect(),
            levels,
            memories,
            llc,
            core,
        }
    }

    /// Number of levels, innermost first.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    pub(crate) fn level(&self, level: usize) -> Option<Level> {
        self.levels.get(level).copied()
    }

    pub(crate) fn memory(&mut self, cpu: PcpuId, level: usize) -> &mut Memory {
        &mut self.memories[cpu.index() * self.levels.len() + level]
    }

    /// Did affinity keep the pCPUs of this group from being balanced among themselves?
    pub(crate) fn imbalanced(&self, level: &Level, group: &Range<u32>) -> bool {
        let flags = self.imbalanced.get(level.number);
        let flag = flags.and_then(|flags| flags.get((group.start / level.group) as usize));
        flag.copied().unwrap_or(false)
    }

    /// Sets that for the domain of `cpu` at `level`, which is a group of the level above.
    pub(crate) fn set_imbalanced(&mut self, cpu: PcpuId, level: usize, imbalanced: bool) {
        if let Some(above) = self.levels.get(level + 1)
            && let Some(flag) = self.imbalanced[level + 1].get_mut((cpu.0 / above.group) as usize)
        {
            *flag = imbalanced;
        }
    }

    /// Is that set for the domain of `cpu` at `level`?
    pub(crate) fn is_imbalanced(&self, cpu: PcpuId, level: usize) -> bool {
        let above = self.levels.get(level + 1);
        above.is_some_and(|above| self.imbalanced[level + 1][(cpu.0 / above.group) as usize])
    }

    /// The step that the averages in the domain of `cpu` at `level` were brought up to last.
    pub(crate) fn aged(&mut self, cpu: PcpuId, level: usize) -> &mut Option<u64> {
        let span = self.levels[level].span;
        &mut self.aged[level][(cpu.0 / span) as usize]
    }

    /// The pCPUs that share an LLC with `cpu`.
    pub(crate) fn llc_of(&self, cpu: PcpuId) -> Range<u32> {
        let start = cpu.0 / self.llc * self.llc;
        start..start + self.llc
    }

    /// The pCPUs of the node of `cpu`.
    pub(crate) fn node_of(&self, cpu: PcpuId) -> Range<u32> {
        match self.levels.iter().find(|level| level.kind == Kind::Numa) {
            Some(level) => level.group_of(cpu),
            None => 0..u32::MAX,
        }
    }

    /// The SMT siblings of `cpu`, itself included.
    pub(crate) fn core_of(&self, cpu: PcpuId) -> Range<u32> {
        let start = cpu.0 / self.core * self.core;
        start..start + self.core
    }

    /// pCPUs per LLC.
    pub(crate) fn llc_size(&self) -> u32 {
        self.llc
    }

    /// Do the two share an LLC?
    pub(crate) fn share_llc(&self, a: PcpuId, b: PcpuId) -> bool {
        a.0 / self.llc == b.0 / self.llc
    }

    /// The innermost level whose domain holds both.
    pub(crate) fn common(&self, a: PcpuId, b: PcpuId) -> Option<Level> {
        let holds = |level: &&Level| level.domain(a).contains(&b.0);
        self.levels.iter().find(holds).copied()
    }
}

/// The constants of a level. 2.6.33: `SD_*_INIT` of `include/linux/topology.h` and x86's;
/// 4.x and later: `sd_init()` of `kernel/sched/topology.c`.
fn level(number: usize, kind: Kind, span: u32, group: u32, tuning: &Tuning) -> Level {
    let old = tuning.generation == Generation::Linux2_6_33;
    let smt = kind == Kind::Smt;
    let numa = kind == Kind::Numa;
    let ms = |n: u32| Nanos::from(n) * MS;
    let (min_interval, max_interval, busy_factor) = match (old, numa) {
        (true, true) => (ms(8), ms(32), 32),
        (true, false) => (ms(1), ms(if smt { 2 } else { 4 }), 64),
        (false, _) => (
            ms(span),
            ms(span * 2),
            if tuning.generation == Generation::Linux4 {
                32
            } else {
                16
            },
        ),
    };
    let imbalance_pct = match (old, kind) {
        (_, Kind::Smt) => 110,
        (false, Kind::Llc) => 117,
        (false, Kind::Node) if tuning.generation == Generation::Linux6 => 117,
        _ => 125,
    };
    let idle_idx = match kind {
        Kind::Numa => 2,
        Kind::Node => 1,
        Kind::Smt | Kind::Llc => 0,
    };
    Level {
        number,
        kind,
        span,
        group,
        imbalance_pct,
        cache_nice_tries: match kind {
            Kind::Smt => 0,
            Kind::Llc | Kind::Node => 1,
            Kind::Numa => 2,
        },
        busy_factor,
        min_interval,
        max_interval,
        prefer_sibling: group > 1 && !(old && kind == Kind::Llc),
        busy_idx: match kind {
            Kind::Smt => 0,
            Kind::Numa => 3,
            _ => 2,
        },
        idle_idx,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(topology: &str) -> Domains {
        Domains::new(&topology.parse().unwrap(), &Tuning::of(Generation::Linux4))
    }

    #[test]
    fn levels_follow_the_topology() {
        let spans = |d: &Domains| {
            d.levels
                .iter()
                .map(|l| (l.span, l.group))
                .collect::<Vec<_>>()
        };
        assert_eq!(spans(&domains("1n1l4c1t")), [(4, 1)]);
        assert_eq!(
            spans(&domains("2n2l4c2t")),
            [(2, 1), (8, 2), (16, 8), (32, 16)]
        );
        assert_eq!(spans(&domains("1n1l1c1t")), []);
    }

    #[test]
    fn groups_start_with_the_own_one() {
        let domains = domains("1n2l2c2t");
        let node = domains.level(2).unwrap();
        let groups: Vec<_> = node.groups(PcpuId(5)).collect();
        assert_eq!(groups, [4..8, 0..4]);
        assert!(domains.share_llc(PcpuId(4), PcpuId(7)));
        assert_eq!(domains.core_of(PcpuId(5)), 4..6);
    }
}
