// SPDX-License-Identifier: GPL-2.0-only
//! Which runqueues are empty and which are crowded, kept up to date with each task that comes or
//! goes. So, without a look at each pCPU, a wake-up finds an idle pCPU, and a pCPU about to idle
//! finds out that there is nothing to pull.
//!
//! Linux has these for the same reason: `sd_llc_shared->has_idle_cores`, and `rd->overload`, without
//! which `newidle_balance()` does not look further.

use super::domains::Domains;
use corun_model::{PcpuId, PcpuSet};
use std::ops::Range;

/// How full the runqueues are.
#[derive(Debug)]
pub(crate) struct Crowds {
    idle: PcpuSet,
    /// The idle pCPUs and those that have only tasks of idle groups; `None`: there are no such
    /// groups.
    calm: Option<PcpuSet>,
    /// pCPUs without tasks of this class; a higher one may have them.
    unclaimed: PcpuSet,
    /// The SMT threads of cores that idle as a whole.
    idle_cores: PcpuSet,
    /// pCPUs that a task waits for while another one has them, and how many of them there are by
    /// level and domain.
    waited_for: PcpuSet,
    crowded: Vec<Vec<u32>>,
}

impl Crowds {
    /// No task on any pCPU.
    pub(crate) fn new(pcpus: u32, domains: &Domains) -> Self {
        let levels = (0..domains.depth()).filter_map(|n| domains.level(n));
        Self {
            idle: PcpuSet::first(pcpus),
            calm: None,
            unclaimed: PcpuSet::first(pcpus),
            idle_cores: PcpuSet::first(pcpus),
            waited_for: PcpuSet::default(),
            crowded: levels
                .map(|level| vec![0; (pcpus / level.span) as usize])
                .collect(),
        }
    }

    /// pCPUs without tasks.
    pub(crate) fn idle(&self) -> &PcpuSet {
        &self.idle
    }

    /// There are idle groups.
    pub(crate) fn tell_calm(&mut self) {
        self.calm = Some(self.idle);
    }

    /// Has `cpu` no tasks but those of idle groups?
    pub(crate) fn calm(&mut self, cpu: PcpuId, is: bool) {
        match &mut self.calm {
            Some(calm) if is => calm.insert(cpu),
            Some(calm) => calm.remove(cpu),
            None => {}
        }
    }

    /// pCPUs that are as good as idle for a task that wakes up (`available_idle_cpu()`, `sched_idle_cpu()`).
    pub(crate) fn free(&self) -> &PcpuSet {
        self.calm.as_ref().unwrap_or(&self.idle)
    }

    /// pCPUs without tasks of this class (`cfs.nr_running`).
    pub(crate) fn unclaimed(&self) -> &PcpuSet {
        &self.unclaimed
    }

    /// The runqueue of `cpu` has `nr` tasks of this class.
    pub(crate) fn claim(&mut self, cpu: PcpuId, nr: u32) {
        match nr {
            0 => self.unclaimed.insert(cpu),
            _ => self.unclaimed.remove(cpu),
        }
    }

    /// SMT threads of cores without tasks.
    pub(crate) fn idle_cores(&self) -> &PcpuSet {
        &self.idle_cores
    }

    /// pCPUs that a task waits for while another one has them.
    pub(crate) fn waited_for(&self) -> &PcpuSet {
        &self.waited_for
    }

    /// Is there a task in the domain of `cpu` at `level` that waits for a pCPU that another one has?
    pub(crate) fn somebody_waits(&self, cpu: PcpuId, level: usize, domains: &Domains) -> bool {
        let span = domains.level(level).map_or(1, |level| level.span);
        let counts = self.crowded.get(level);
        counts.is_some_and(|counts| counts[(cpu.0 / span) as usize] > 0)
    }

    /// The runqueue of `cpu` had `old` tasks and has `new`, one more or one less.
    pub(crate) fn change(&mut self, cpu: PcpuId, old: u32, new: u32, domains: &Domains) {
        match (old, new) {
            (0, _) => self.fill(cpu, domains.core_of(cpu)),
            (_, 0) => self.empty(cpu, domains.core_of(cpu)),
            (1, _) => {
                self.waited_for.insert(cpu);
                self.count(cpu, domains, |count| *count += 1);
            }
            (_, 1) => {
                self.waited_for.remove(cpu);
                self.count(cpu, domains, |count| *count -= 1);
            }
            _ => {}
        }
    }

    fn fill(&mut self, cpu: PcpuId, core: Range<u32>) {
        self.idle.remove(cpu);
        core.for_each(|thread| self.idle_cores.remove(PcpuId(thread)));
    }

    fn empty(&mut self, cpu: PcpuId, core: Range<u32>) {
        self.idle.insert(cpu);
        if core
            .clone()
            .all(|thread| self.idle.contains(PcpuId(thread)))
        {
            core.for_each(|thread| self.idle_cores.insert(PcpuId(thread)));
        }
    }

    fn count(&mut self, cpu: PcpuId, domains: &Domains, change: impl Fn(&mut u32)) {
        for (n, counts) in self.crowded.iter_mut().enumerate() {
            if let Some(level) = domains.level(n) {
                change(&mut counts[(cpu.0 / level.span) as usize]);
            }
        }
    }
}
