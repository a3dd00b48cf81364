// SPDX-License-Identifier: GPL-2.0-only
//! The caches of a host: an L2 per core, a last-level cache (LLC) per LLC domain, and the owners
//! that walk through them at the moment.
//!
//! The LLC includes the L2s (Intel's servers before Skylake; AMD's and later ones differ), so what
//! an owner lost there it has lost in its L2, too; that is checked when it gets a pCPU.

use super::LINE;
use super::cache::Cache;
use super::walk::{Level, Walk};
use crate::host::Profile;
use corun_model::time::US;
use corun_model::{Nanos, Parameter, PcpuId, Topology, Value};

/// Sizes and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheParams {
    /// Bytes of each core's L2, at least one line.
    pub l2: u64,
    /// Bytes of each LLC, at least an L2; `None`: 2.5 MiB per core.
    pub llc: Option<u64>,
    /// Do the LLCs keep streams out (see [`super::cache`])?
    pub llc_adaptive: bool,
    /// How much longer an access that misses the L2 and hits the LLC takes than a hit in the L2,
    /// ns, at most 10 us.
    pub llc_latency: Nanos,
    /// What an access that also misses the LLC takes on top of that, ns, at most 10 us.
    pub memory_latency: Nanos,
}

/// Bytes of the LLC per core.
const LLC_PER_CORE: u64 = 5 << 19;

impl Default for CacheParams {
    fn default() -> Self {
        Self {
            l2: 256 << 10,
            llc: None,
            llc_adaptive: false,
            llc_latency: 12,
            memory_latency: 80,
        }
    }
}

impl CacheParams {
    /// Bytes of each LLC of a host.
    pub fn llc_bytes(&self, topology: &Topology) -> u64 {
        let cores = topology.cores_per_llc();
        self.llc.unwrap_or(LLC_PER_CORE * u64::from(cores))
    }

    /// The parameters with their sources.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let of = Parameter::new;
        vec![
            of(
                "host.l2",
                "size of each core's L2 cache",
                Value::Bytes(default.l2),
                "Xeon E5-2600 v1-v4 and i7-3770 alike: 256 KB (Intel's data sheets)",
                "none: a fact of the machine",
            ),
            of(
                "host.llc",
                "size of each last-level cache, per core of its domain",
                Value::Bytes(LLC_PER_CORE),
                "Xeon E5-2600 v1-v4: 2.5 MB of LLC per core (Intel's data sheets)",
                "none: a fact of the machine; tests have 8 MiB for 4 cores (i7-3770)",
            ),
            of(
                "host.llc_adaptive",
                "do last-level caches keep streams out?",
                Value::Switch(default.llc_adaptive),
                "Intel since Ivy Bridge (H. Wong, \"Intel Ivy Bridge Cache Replacement Policy\", 2013; \
                 Qureshi et al., ISCA 2007); Sandy Bridge and before do not",
                "both on experiments/aql/fig6.toml",
            ),
            of(
                "host.costs.llc",
                "an access that the LLC serves, beyond one that the L2 serves",
                Value::Time(default.llc_latency),
                "Xeon E5-2699 v4: L2 12-15 cycles, LLC 38-51 cycles (lmbench, AnandTech 11544, 2017), \
                 so 7-16 ns at 2.2-3.6 GHz; i7-3770: 30-12 cycles at 3.4 GHz, 5 ns (7-cpu.com)",
                "5 and 12 ns",
            ),
            of(
                "host.costs.memory",
                "an access that memory serves, beyond one that the LLC serves",
                Value::Time(default.memory_latency),
                "Xeon E5-2699 v4: memory at 95 ns (lmbench, AnandTech 11544, 2017), of which some 15 \
                 ns to the LLC; i7-3770: 53 ns (7-cpu.com)",
                "53 and 80 ns",
            ),
        ]
    }
}

/// All caches in the run.
#[derive(Debug)]
pub(in crate::host) struct Caches {
    params: CacheParams,
    topology: Topology,
    l2: Vec<Cache>,
    llc: Vec<Cache>,
    /// Per pCPU.
    walks: Vec<Option<Walk>>,
    /// pCPUs whose owner lost lines while it runs.
    disturbed: Vec<PcpuId>,
}

impl Caches {
    pub fn new(params: CacheParams, topology: Topology) -> Self {
        let (pcpus, threads) = (topology.pcpus(), topology.threads_per_core());
        let cores = pcpus / threads;
        let llcs = cores / topology.cores_per_llc();
        let l2 = Cache::new((params.l2 / LINE).max(1));
        let lines = (params.llc_bytes(&topology) / LINE).max(1);
        let llc = match params.llc_adaptive {
            true => Cache::adaptive(lines),
            false => Cache::new(lines),
        };
        Self {
            params,
            topology,
            l2: vec![l2; cores as usize],
            llc: vec![llc; llcs as usize],
            walks: vec![None; pcpus as usize],
            disturbed: Vec::new(),
        }
    }

    fn places(&self, cpu: PcpuId) -> (usize, usize) {
        let (core, llc) = (self.topology.core(cpu), self.topology.llc(cpu));
        (core as usize, llc as usize)
    }

    /// Work of this profile begins on `cpu`, at a progress of `from`.
    pub fn start(&mut self, cpu: PcpuId, profile: &Profile, from: Nanos) {
        let (core, llc) = self.places(cpu);
        let (l2, llc) = (&mut self.l2[core], &mut self.llc[llc]);
        let Some(mut walk) = Walk::new(profile, from, [l2.lines(), llc.lines()]) else {
            return;
        };
        let (owner, per_us) = (profile.owner, walk.per_us());
        let in_l2 = l2.enter(cpu, owner, per_us, walk.l2.fits);
        let in_llc = llc.enter(cpu, owner, per_us, walk.llc.fits);
        l2.trim(cpu, in_llc);
        walk.found(in_l2.min(in_llc), in_llc);
        self.walks[cpu.index()] = Some(walk);
    }

    /// The work on `cpu` ends at this progress. Returns how many lines it brought into its L2 and
    /// into its LLC since it began.
    pub fn stop(&mut self, cpu: PcpuId, progress: Nanos, now: Nanos) -> [u64; 2] {
        if self.walks[cpu.index()].is_none() {
            return [0; 2];
        }
        self.book(cpu, progress, now);
        let (core, llc) = self.places(cpu);
        self.l2[core].leave(cpu, now / US);
        self.llc[llc].leave(cpu, now / US);
        let walk = self.walks[cpu.index()].take();
        walk.map_or([0; 2], |walk| walk.brought())
    }

    /// The lines that the work on `cpu` has brought in by this progress.
    pub fn touched(&self, cpu: PcpuId, progress: Nanos) -> [u64; 2] {
        self.walks[cpu.index()].map_or([0; 2], |mut walk| {
            walk.book(progress); // a copy
            walk.brought()
        })
    }

    /// Books what the work on `cpu` touched until this progress.
    pub fn book(&mut self, cpu: PcpuId, progress: Nanos, now: Nanos) {
        let Some(walk) = &mut self.walks[cpu.index()] else {
            return;
        };
        let [to_l2, to_llc] = walk.book(progress);
        let (core, llc) = self.places(cpu);
        let (walks, disturbed) = (&mut self.walks, &mut self.disturbed);
        let mut lose = |loser: PcpuId, lines, level: fn(&mut Walk) -> &mut Level| {
            let walk: &mut Option<Walk> = &mut walks[loser.index()];
            let cares = walk.as_mut().is_some_and(|walk| walk.lose(lines, level));
            if cares && !disturbed.contains(&loser) {
                disturbed.push(loser);
            }
        };
        let now = now / US;
        self.l2[core].insert(cpu, to_l2, now, |loser, lines| {
            lose(loser, lines, |w| &mut w.l2)
        });
        self.llc[llc].insert(cpu, to_llc, now, |loser, lines| {
            lose(loser, lines, |w| &mut w.llc)
        });
    }

    /// A pCPU whose running owner lost lines since last asked.
    pub fn disturbed(&mut self) -> Option<PcpuId> {
        self.disturbed.pop()
    }

    /// Extra time per work on `cpu`, in units of [`ONE`](super::ONE).
    pub fn extra(&self, cpu: PcpuId) -> u64 {
        let CacheParams {
            llc_latency,
            memory_latency,
            ..
        } = self.params;
        let walk = &self.walks[cpu.index()];
        walk.map_or(0, |walk| walk.extra(llc_latency, memory_latency))
    }

    /// The progress at which the work on `cpu` must be booked; `Nanos::MAX`: not before it stops.
    pub fn next(&self, cpu: PcpuId) -> Nanos {
        let Some(walk) = &self.walks[cpu.index()] else {
            return Nanos::MAX;
        };
        let (core, llc) = self.places(cpu);
        let threads = self.topology.threads_per_core();
        // Streams update others' caches now and then: an L2 rarely, for it is refilled in a moment.
        let l2 = (threads > 1).then_some(self.l2[core].lines() * 4);
        let shared = threads * self.topology.cores_per_llc() > 1;
        let llc = shared.then_some(self.llc[llc].lines().div_ceil(4));
        walk.next([l2, llc])
    }
}

#[cfg(test)]
mod tests {
    use super::super::ONE;
    use super::*;
    use crate::workload::Memory;
    use corun_model::time::SEC;

    const MB: u64 = 1 << 20;

    fn walker(owner: u32, bytes: u64) -> Profile {
        let memory = Memory {
            bytes,
            lines_per_us: 50,
        };
        Profile {
            memory,
            ..Profile::new(owner)
        }
    }

    /// Work on `cpu` during the `second`th second: is it slowed as it begins?
    fn is_cold(caches: &mut Caches, cpu: u32, profile: &Profile, second: u64) -> bool {
        let cpu = PcpuId(cpu);
        caches.start(cpu, profile, 0);
        let slowed = caches.extra(cpu) > ONE / 10;
        caches.stop(cpu, SEC, second * SEC);
        slowed
    }

    #[test]
    fn a_migration_finds_the_caches_there_cold() {
        // pCPUs 0 and 1 share an LLC, 2 has another.
        let mut caches = Caches::new(CacheParams::default(), "1n2l2c1t".parse().unwrap());
        let large = walker(1, 4 * MB);
        assert!(is_cold(&mut caches, 0, &large, 1));
        assert!(!is_cold(&mut caches, 0, &large, 2));
        assert!(!is_cold(&mut caches, 1, &large, 3), "the same LLC");
        assert!(is_cold(&mut caches, 2, &large, 4), "another one");
        let small = walker(2, MB / 8);
        assert!(is_cold(&mut caches, 0, &small, 5));
        assert!(is_cold(&mut caches, 1, &small, 6), "another L2");
        assert!(!is_cold(&mut caches, 0, &small, 7));
    }

    #[test]
    fn what_is_larger_than_a_cache_is_not_slowed_by_it() {
        let mut caches = Caches::new(CacheParams::default(), "1n1l1c1t".parse().unwrap());
        assert!(!is_cold(&mut caches, 0, &walker(1, 3 * MB), 1));
        assert_eq!(caches.next(PcpuId(0)), Nanos::MAX);
    }

    #[test]
    fn a_walk_is_looked_at_when_its_pass_ends() {
        let mut caches = Caches::new(CacheParams::default(), "1n1l1c1t".parse().unwrap());
        caches.start(PcpuId(0), &walker(1, MB), 0);
        // 16384 lines at 50 per us.
        let end = 16_384 * 20;
        assert_eq!(caches.next(PcpuId(0)), end);
        assert_eq!(caches.extra(PcpuId(0)), ONE * 50 * 80 / 1000);
        caches.book(PcpuId(0), end, SEC);
        assert_eq!(caches.next(PcpuId(0)), Nanos::MAX);
        assert_eq!(caches.extra(PcpuId(0)), 0);
    }
}
