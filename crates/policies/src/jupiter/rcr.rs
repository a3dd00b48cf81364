// SPDX-License-Identifier: GPL-2.0-only
//! RCR, the resource conflict resolver: swaps vCPUs between pCPUs where their claims conflict
//! (dissertation, §4.4.1).
//!
//! Slices conflict where those of a pCPU's vCPUs add up to more time than it has. If the largest such sum exceeds the
//! smallest by more than a tenth, two vCPUs of these two pCPUs are swapped: the pair that brings the sums closest. Low
//! latencies conflict where several vCPUs that should run at once are on one pCPU; that shows when such vCPUs are
//! preempted, or start late. If that happens on one pCPU more than twice as often as on another, half of the former's
//! vCPUs with low latencies are swapped with as many of the latter's with high ones.
//!
//! Moving vCPUs costs: there is one resolution of each kind in a period. Where cpusets divide a host, there is one in
//! each part, since no vCPU may go from one to another. One pair for slices is our reading; the dissertation swaps
//! "some". Siblings may change places, but are not brought together. A swap holds for a period: it resolves the
//! conflicts of that one. What a VM leaves to all others because its bucket is full ([`elb`](super::elb)) claims no
//! pCPU's time: VMs that leave all they have take no part. Neither do those that Jupiter is off for: their slices are
//! predictions that have failed. If vCPUs have moved since, because of tasks that are owed time somewhere else, the
//! next period is judged by where the vCPUs are then.

use crate::parts::Part;
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};
use std::cmp::Reverse;
use std::ops::Range;

/// A vCPU where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub task: TaskId,
    /// Its VM's place among all.
    pub vm: usize,
    pub cpu: PcpuId,
    pub allowed: &'a PcpuSet,
    /// Its slice in the next period.
    pub slice: Nanos,
    /// Is its latency one of the low ones?
    pub low: bool,
    /// If so: times it was preempted, or started late.
    pub conflicts: u64,
}

/// Do slices that add up to `sum` conflict: is that more time than a period has?
pub(super) fn exceed(sum: Nanos, period: Nanos) -> bool {
    sum > period
}

fn slice(vcpu: &Placed) -> Nanos {
    vcpu.slice
}

/// The conflicts of a low latency.
fn conflicts(vcpu: &Placed) -> u64 {
    if vcpu.low { vcpu.conflicts } else { 0 }
}

/// The vCPUs of a host, by pCPU.
pub(super) struct Layout<'a, 'b> {
    vcpus: &'a mut [Placed<'b>],
    parts: &'a [Part],
    /// Places in `vcpus`: those of pCPU 0, then those of pCPU 1, and so on.
    by_pcpu: Vec<usize>,
    /// Where those of each pCPU begin, and the last end. Swaps do not change how many there are.
    begins: Vec<usize>,
    period: Nanos,
}

/// A pCPU and what it has of something.
#[derive(Clone, Copy)]
struct Has {
    cpu: usize,
    sum: u64,
}

impl<'a, 'b> Layout<'a, 'b> {
    /// `parts`: what cpusets divide the host into.
    pub fn new(vcpus: &'a mut [Placed<'b>], parts: &'a [Part], period: Nanos) -> Self {
        let pcpus = vcpus.iter().map(|vcpu| vcpu.cpu.index() + 1).max();
        let mut begins = vec![0; pcpus.unwrap_or(0) + 1];
        for vcpu in vcpus.iter() {
            begins[vcpu.cpu.index() + 1] += 1;
        }
        let mut sum = 0;
        for begin in &mut begins {
            sum += *begin;
            *begin = sum;
        }
        let mut next = begins.clone();
        let mut by_pcpu = vec![0; vcpus.len()];
        for (at, vcpu) in vcpus.iter().enumerate() {
            let next = &mut next[vcpu.cpu.index()];
            by_pcpu[*next] = at;
            *next += 1;
        }
        Self {
            vcpus,
            parts,
            by_pcpu,
            begins,
            period,
        }
    }

    fn range(&self, cpu: usize) -> Range<usize> {
        self.begins[cpu]..self.begins[cpu + 1]
    }

    /// The vCPUs of a pCPU.
    fn on(&self, cpu: usize) -> &[usize] {
        &self.by_pcpu[self.range(cpu)]
    }

    /// For each part, its pCPUs (among those with vCPUs) with the largest and the smallest sum of something; ties go to
    /// the lowest number.
    fn extremes(&self, of: impl Fn(&Placed) -> u64) -> Vec<(Has, Has)> {
        let mut sums = vec![0; self.begins.len() - 1];
        for vcpu in self.vcpus.iter() {
            sums[vcpu.cpu.index()] += of(vcpu);
        }
        let of_part = |part: &Part| {
            let sum = |cpu: usize| {
                Some(Has {
                    cpu,
                    sum: *sums.get(cpu)?,
                })
            };
            let mut used = (part.pcpus.iter().filter_map(|cpu| sum(cpu.index())))
                .filter(|has| !self.range(has.cpu).is_empty());
            let first = used.next()?;
            let (most, least) = used.fold((first, first), |(most, least), has| {
                (
                    if has.sum > most.sum { has } else { most },
                    if has.sum < least.sum { has } else { least },
                )
            });
            (most.cpu != least.cpu).then_some((most, least))
        };
        self.parts.iter().filter_map(of_part).collect()
    }

    /// May the vCPU at `at` go to the pCPU of `other`, if that one leaves it?
    fn may_replace(&self, at: usize, other: usize) -> bool {
        let (vcpu, gone) = (&self.vcpus[at], &self.vcpus[other]);
        let sibling = |&there: &usize| there != other && self.vcpus[there].vm == vcpu.vm;
        vcpu.allowed.contains(gone.cpu) && !self.on(gone.cpu.index()).iter().any(sibling)
    }

    /// Siblings may be swapped, too: where every VM has a vCPU on each pCPU, no others can be.
    fn may_swap(&self, one: usize, other: usize) -> bool {
        self.may_replace(one, other) && self.may_replace(other, one)
    }

    fn swap(&mut self, one: usize, other: usize) {
        let (from, to) = (self.vcpus[one].cpu, self.vcpus[other].cpu);
        for (cpu, leaves, joins) in [(from, one, other), (to, other, one)] {
            let range = self.range(cpu.index());
            let there = &mut self.by_pcpu[range];
            // The vCPU that joins comes last.
            if let Some(at) = there.iter().position(|&at| at == leaves) {
                there[at] = joins;
                there[at..].rotate_left(1);
            }
            self.vcpus[joins].cpu = cpu;
        }
    }

    /// Resolves a conflict of slices in each part where sums differ by more than `percent`. Returns the places of vCPUs
    /// that were moved.
    pub fn even_out_slices(&mut self, percent: u32) -> Vec<usize> {
        let extremes = self.extremes(slice).into_iter();
        let pairs = extremes.filter_map(|(most, least)| self.closest(most, least, percent));
        let pairs = pairs.collect();
        self.carry_out(pairs)
    }

    /// The pair that brings the sums of these two pCPUs closest, if they conflict.
    fn closest(&self, most: Has, least: Has, percent: u32) -> Option<(usize, usize)> {
        let (large, small) = (most.sum, least.sum);
        // Where there is time for all, nothing conflicts.
        if large * 100 <= small * (100 + Nanos::from(percent)) || !exceed(large, self.period) {
            return None;
        }
        let mut best = (large - small, None);
        for &one in self.on(most.cpu) {
            for &other in self.on(least.cpu) {
                let (gives, takes) = (self.vcpus[one].slice, self.vcpus[other].slice);
                let after = (large + takes - gives).abs_diff(small + gives - takes);
                if after < best.0 && self.may_swap(one, other) {
                    best = (after, Some((one, other)));
                }
            }
        }
        best.1
    }

    /// Resolves a conflict of low latencies in each part where there are more than `times` as many on one pCPU as
    /// on another. Returns the places of vCPUs that were moved.
    pub fn spread_low_latencies(&mut self, times: u32) -> Vec<usize> {
        let extremes = self.extremes(conflicts).into_iter();
        let many = |most: &Has, fewest: &Has| most.sum > u64::from(times) * fewest.sum.max(1);
        let pairs = extremes
            .filter(|(most, fewest)| many(most, fewest))
            .flat_map(|(most, fewest)| self.low_for_high(most.cpu, fewest.cpu));
        let pairs = pairs.collect();
        self.carry_out(pairs)
    }

    /// Pairs of half of the vCPUs with low latencies of the pCPU `most` and as many with high ones of `fewest`.
    fn low_for_high(&self, most: usize, fewest: usize) -> Vec<(usize, usize)> {
        let group = |cpu: usize, low: bool| -> Vec<usize> {
            let those = self.on(cpu).iter().copied();
            those.filter(|&at| self.vcpus[at].low == low).collect()
        };
        let (mut low, mut high) = (group(most, true), group(fewest, false));
        low.sort_by_key(|&at| (Reverse(self.vcpus[at].conflicts), at));
        let count = low.len().div_ceil(2).min(high.len().div_ceil(2));
        let mut pairs = Vec::new();
        for one in low {
            let fits = |&other: &usize| self.may_swap(one, other);
            if let Some(at) = high.iter().position(fits)
                && pairs.len() < count
            {
                pairs.push((one, high.remove(at)));
            }
        }
        pairs
    }

    /// Swaps these pairs, unless an earlier one is in the way.
    fn carry_out(&mut self, pairs: Vec<(usize, usize)>) -> Vec<usize> {
        let mut moved = Vec::new();
        for (one, other) in pairs {
            if self.may_swap(one, other) {
                self.swap(one, other);
                moved.extend([one, other]);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;
    use proptest::prelude::*;

    const PERIOD: Nanos = 100 * MS;

    /// For as long as the tests run.
    fn set(cpus: impl Iterator<Item = PcpuId>) -> &'static PcpuSet {
        Box::leak(Box::new(cpus.collect()))
    }

    fn vcpu(task: u32, vm: u32, cpu: u32, slice: Nanos) -> Placed<'static> {
        Placed {
            task: TaskId(task),
            vm: vm as usize,
            cpu: PcpuId(cpu),
            allowed: set((0..8).map(PcpuId)),
            slice,
            low: false,
            conflicts: 0,
        }
    }

    fn layout<'a, 'b>(vcpus: &'a mut [Placed<'b>], parts: &'a [Part]) -> Layout<'a, 'b> {
        Layout::new(vcpus, parts, PERIOD)
    }

    /// Eight pCPUs that nothing divides.
    fn whole() -> [Part; 1] {
        [Part::of(PcpuSet::first(8))]
    }

    /// The example of §4.4.1: a period of 80 ms, two vCPUs of a pCPU with 50 ms each.
    #[test]
    fn two_slices_of_50_ms_exceed_a_period_of_80() {
        assert!(exceed(50 * MS + 50 * MS, 80 * MS));
        assert!(!exceed(50 * MS + 30 * MS, 80 * MS));
    }

    #[test]
    fn the_pair_is_swapped_that_brings_sums_closest() {
        let mut vcpus = [
            vcpu(0, 0, 0, 70 * MS),
            vcpu(1, 1, 0, 50 * MS),
            vcpu(2, 2, 1, 40 * MS),
            vcpu(3, 3, 1, 20 * MS),
        ];
        // 120 and 60 ms: with 70 for 40, or 50 for 20, 90 and 90.
        let moved = layout(&mut vcpus, &whole()).even_out_slices(10);
        assert_eq!(moved, [0, 2]);
        assert_eq!(vcpus.map(|vcpu| vcpu.cpu.0), [1, 0, 0, 1]);
    }

    #[test]
    fn a_tenth_is_no_conflict_nor_are_sums_that_fit() {
        for (large, small) in [(110 * MS, 100 * MS), (90 * MS, 30 * MS)] {
            let mut vcpus = [
                vcpu(0, 0, 0, large - 10 * MS),
                vcpu(1, 1, 0, 10 * MS),
                vcpu(2, 2, 1, small - 10 * MS),
                vcpu(3, 3, 1, 10 * MS),
            ];
            assert_eq!(layout(&mut vcpus, &whole()).even_out_slices(10), [0; 0]);
        }
    }

    /// Four low latencies on pCPU 0, four high ones on pCPU 1: half of them are swapped.
    #[test]
    fn half_of_the_low_latencies_are_swapped_where_they_conflict() {
        let mut vcpus: Vec<Placed> = (0..8).map(|n| vcpu(n, n, n / 4, 10 * MS)).collect();
        for vcpu in &mut vcpus[..4] {
            vcpu.low = true;
            vcpu.conflicts = 1;
        }
        let moved = layout(&mut vcpus, &whole()).spread_low_latencies(2);
        assert_eq!(moved, [0, 4, 1, 5]);
        vcpus[1].conflicts = 0;
        // Now two and two: no more than twice as many.
        assert_eq!(layout(&mut vcpus, &whole()).spread_low_latencies(2), [0; 0]);
    }

    /// Each VM has a vCPU on each pCPU, as many have on hosts where they have as many vCPUs as there are pCPUs.
    #[test]
    fn siblings_change_places_and_are_not_brought_together() {
        let mut vcpus = [
            vcpu(0, 0, 0, 90 * MS),
            vcpu(1, 1, 0, 80 * MS),
            vcpu(2, 0, 1, 10 * MS),
            vcpu(3, 1, 1, 20 * MS),
        ];
        let moved = layout(&mut vcpus, &whole()).even_out_slices(10);
        assert_eq!(moved, [0, 2]);
        assert_eq!(vcpus.map(|vcpu| vcpu.cpu.0), [1, 0, 0, 1]);
    }

    /// The pCPU with the most is in one part, that with the least in another: what can be done in the first is done, and
    /// in the second there is no conflict.
    #[test]
    fn each_part_that_cpusets_divide_a_host_into_has_its_own_conflicts() {
        let parts = ["0-3", "4-7"].map(|pcpus| Part::of(pcpus.parse().unwrap()));
        let sets = [0..4, 4..8].map(|cpus| set(cpus.map(PcpuId)));
        let bound = |(task, vm, cpu, slice): (u32, u32, u32, Nanos)| Placed {
            allowed: sets[cpu as usize / 4],
            ..vcpu(task, vm, cpu, slice * MS)
        };
        let place = [
            (0, 0, 0, 90),
            (1, 1, 0, 90),
            (2, 2, 1, 74),
            (3, 3, 2, 80),
            (4, 4, 4, 90),
            (5, 4, 5, 12),
        ];
        let mut vcpus = place.map(bound);
        assert_eq!(layout(&mut vcpus, &parts).even_out_slices(10), [0, 2]);
        // Low latencies: on pCPU 0 and on 4, each with another to go to in its part.
        let mut vcpus = place.map(bound);
        for at in [0, 1, 4] {
            (vcpus[at].low, vcpus[at].conflicts) = (true, 10);
        }
        vcpus[5].vm = 5;
        assert_eq!(
            layout(&mut vcpus, &parts).spread_low_latencies(2),
            [0, 2, 4, 5]
        );
    }

    prop_compose! {
        fn any_vcpus()(each in prop::collection::vec(
            (0u32..5, 0u32..6, 1u64..100, any::<bool>(), 0u64..20,
             prop::collection::vec(0u32..6, 0..6)), 0..24)) -> Vec<Placed<'static>> {
            let vcpu = |(task, (vm, cpu, slice, low, conflicts, allowed)): (usize, _)| Placed {
                allowed: set(<Vec<u32>>::into_iter(allowed).map(PcpuId).chain([PcpuId(cpu)])),
                low,
                conflicts,
                ..vcpu(task as u32, vm, cpu, slice * MS)
            };
            each.into_iter().enumerate().map(vcpu).collect()
        }
    }

    /// The sum over pCPUs of pairs of siblings there.
    fn stacked(vcpus: &[Placed]) -> usize {
        let pair = |a: &Placed, b: &Placed| a.task < b.task && (a.vm, a.cpu) == (b.vm, b.cpu);
        let with = |a: &Placed| vcpus.iter().filter(|b| pair(a, b)).count();
        vcpus.iter().map(with).sum()
    }

    fn difference(vcpus: &mut [Placed]) -> Nanos {
        let used = layout(vcpus, &whole()).extremes(slice);
        used.first().map_or(0, |(most, least)| most.sum - least.sum)
    }

    proptest! {
        #[test]
        fn swaps_keep_affinity_numbers_and_siblings_apart(before in any_vcpus()) {
            let mut after = before.clone();
            let moved = layout(&mut after, &whole()).even_out_slices(10);
            prop_assert!(moved.len() <= 2);
            prop_assert!(difference(&mut after) <= difference(&mut before.clone()));
            layout(&mut after, &whole()).spread_low_latencies(2);
            prop_assert!(stacked(&after) <= stacked(&before));
            for cpu in (0..6).map(PcpuId) {
                let on = |all: &[Placed]| all.iter().filter(|vcpu| vcpu.cpu == cpu).count();
                prop_assert_eq!(on(&before), on(&after));
            }
            prop_assert!(after.iter().all(|vcpu| vcpu.allowed.contains(vcpu.cpu)));
        }
    }
}
