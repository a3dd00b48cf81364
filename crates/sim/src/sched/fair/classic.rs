// SPDX-License-Identifier: GPL-2.0-only
//! Which group is busiest, by load: 2.6.33 to 5.4 (`find_busiest_group()`,
//! `calculate_imbalance()`, `fix_small_imbalance()`).
//!
//! A group's load is the sum of its pCPUs' loads, each taken high for the own group and low for the
//! others, between the present one and one averaged over ticks. All pCPUs have the same capacity except for what
//! real-time tasks take of it, so that a mean load is load per whole pCPU ([`WHOLE`]). In 2.6.33 the capacity of an SMT
//! thread is its part of a core's [`CORE`](super::state::CORE), so that a core has room for one task.
//!
//! The last step is what keeps hogs that do not divide evenly on the move: with 5 on 4 pCPUs, an
//! imbalance below one task is rounded up to one (`fix_small_imbalance()`).

use super::balance::{Busiest, Idle};
use super::decay::FULL;
use super::domains::Level;
use super::moving::Amount;
use super::state::WHOLE;
use super::tuning::Generation;
use super::{Fair, Order};
use corun_model::{PcpuId, PcpuSet};
use std::ops::Range;

/// What is known about a group.
#[derive(Clone, Debug)]
struct Group {
    pcpus: Range<u32>,
    /// pCPUs, members and idle pCPUs.
    size: u64,
    power: u64,
    nr: u64,
    idle: u64,
    util: u64,
    /// Sum of loads as balancing sees them, and as they really are.
    load: u64,
    weighted: u64,
    /// Members that it has room for.
    capacity: u64,
    /// 2.6.33: its pCPUs' loads differ much. Later: affinity kept them from being balanced.
    imbalanced: bool,
    overloaded: bool,
}

impl Group {
    fn mean(&self) -> u64 {
        self.load * WHOLE / self.power
    }

    fn per_task(&self) -> u64 {
        self.weighted / self.nr.max(1)
    }

    /// Does it have room for one more task (`group_has_capacity()`)?
    fn has_room(&self, level: &Level) -> bool {
        self.nr < self.size || self.size * FULL * 100 > self.util * level.imbalance_pct
    }
}

/// What is known about a domain.
struct Survey {
    /// The group of the pCPU that balances.
    own: Group,
    /// Mean load of a whole pCPU.
    mean: u64,
    busiest: Option<Group>,
}

/// Which of the load averages counts; 0: the present load.
fn index(level: &Level, idle: Idle) -> usize {
    match idle {
        Idle::No => level.busy_idx,
        Idle::Yes => level.idle_idx,
        Idle::Soon => 0,
    }
}

impl<O: Order> Fair<O> {
    pub(super) fn busiest_by_load(
        &self,
        cpu: PcpuId,
        level: &Level,
        idle: Idle,
        left_out: &PcpuSet,
    ) -> Option<Busiest> {
        let Survey { own, mean, busiest } = self.survey(cpu, level, idle, left_out)?;
        let busiest = busiest.filter(|group| group.nr > 0)?;
        // Where affinity is in the way, comparing means does not help.
        let pinned = !self.is_old() && busiest.imbalanced;
        let room = !self.is_old() && idle != Idle::No && own.has_room(level) && busiest.overloaded;
        if !pinned && !room && self.balanced_by_load(&own, &busiest, mean, level, idle) {
            return None;
        }
        let load = self.imbalance(&own, &busiest, mean, cpu);
        (load > 0).then(|| Busiest {
            group: busiest.pcpus.clone(),
            amount: Amount::Load(load),
        })
    }

    /// All groups of the domain of `cpu`.
    fn survey(&self, cpu: PcpuId, level: &Level, idle: Idle, left_out: &PcpuSet) -> Option<Survey> {
        match self.is_flat(level, idle) && left_out.is_empty() {
            true => Some(self.survey_flat(cpu, level, idle)),
            false => self.survey_groups(cpu, level, idle, left_out),
        }
    }

    fn survey_groups(
        &self,
        cpu: PcpuId,
        level: &Level,
        idle: Idle,
        left_out: &PcpuSet,
    ) -> Option<Survey> {
        let mut groups = level.groups(cpu);
        let own = self.group_by_load(groups.next()?, cpu, level, idle, left_out);
        let (mut total, mut power) = (own.load, own.power);
        let mut busiest: Option<Group> = None;
        for pcpus in groups {
            let mut group = self.group_by_load(pcpus, cpu, level, idle, left_out);
            total += group.load;
            power += group.power;
            if level.prefer_sibling && self.is_old() {
                group.capacity = group.capacity.min(1);
            } else if level.prefer_sibling && own.has_room(level) && group.nr > own.nr + 1 {
                // Since 4.12 two tasks more than the own group has are too many (05b40e057734).
                (group.overloaded, group.imbalanced) = (true, false);
            }
            if self.busier(&group, busiest.as_ref()) {
                busiest = Some(group);
            }
        }
        Some(Survey {
            own,
            mean: total * WHOLE / power,
            busiest,
        })
    }

    /// Are groups of this level single pCPUs whose loads are their present weights? Then groups with at most one task
    /// have nothing to give away.
    fn is_flat(&self, level: &Level, idle: Idle) -> bool {
        let whole = !self.shared_above && self.domains.core_of(PcpuId(0)).len() == 1;
        self.is_old() && level.group == 1 && index(level, idle) == 0 && whole
    }

    /// The same, faster on a large host: looks only at pCPUs that a task waits for.
    fn survey_flat(&self, cpu: PcpuId, level: &Level, idle: Idle) -> Survey {
        let domain = level.domain(cpu);
        let others = self.crowds.waited_for().iter();
        let others = others.filter(|other| *other != cpu && domain.contains(&other.0));
        // The waiting tasks may all be of a higher class.
        let others = others.filter(|other| self.books.weight(*other) > 0);
        // Of equals, the first one behind the own pCPU, as in `Level::groups`.
        let behind = |other: PcpuId| (other.0 + level.span - cpu.0) % level.span;
        let at = others.max_by(|&a, &b| {
            let weights = self.books.weight(a).cmp(&self.books.weight(b));
            weights.then_with(|| behind(b).cmp(&behind(a)))
        });
        let group =
            |at: PcpuId| self.group_by_load(at.0..at.0 + 1, cpu, level, idle, &PcpuSet::default());
        let weights = &self.books.weights[domain.start as usize..domain.end as usize];
        Survey {
            own: group(cpu),
            mean: weights.iter().sum::<u64>() / u64::from(level.span),
            busiest: at.map(group),
        }
    }

    /// The load of a pCPU, taken high if it is of the own group, low if of another.
    fn load_by_idleness(&self, cpu: PcpuId, local: bool, level: &Level, idle: Idle) -> u64 {
        let present = self.present_load(cpu);
        let ticked = index(level, idle)
            .checked_sub(1)
            .and_then(|n| self.books.rq(cpu).ticked.get(n))
            .copied()
            .unwrap_or(present);
        match local {
            true => present.max(ticked),
            false => present.min(ticked),
        }
    }

    pub(super) fn is_old(&self) -> bool {
        self.tuning.generation == Generation::Linux2_6_33
    }

    fn group_by_load(
        &self,
        pcpus: Range<u32>,
        here: PcpuId,
        level: &Level,
        idle: Idle,
        left_out: &PcpuSet,
    ) -> Group {
        let local = pcpus.contains(&here.0);
        let size = u64::from(pcpus.end - pcpus.start);
        let mut group = Group {
            pcpus: pcpus.clone(),
            size,
            power: pcpus
                .clone()
                .map(|cpu| self.books.rq(PcpuId(cpu)).power)
                .sum(),
            nr: 0,
            idle: 0,
            util: 0,
            load: 0,
            weighted: 0,
            capacity: size,
            imbalanced: false,
            overloaded: false,
        };
        let (mut least, mut most, mut longest) = (u64::MAX, 0, 0);
        let counted = |cpu: &PcpuId| !left_out.contains(*cpu);
        for cpu in pcpus.clone().map(PcpuId).filter(counted) {
            let rq = self.books.rq(cpu);
            let load = self.load_by_idleness(cpu, local, level, idle);
            (least, most, longest) = (least.min(load), most.max(load), longest.max(rq.all()));
            group.nr += u64::from(rq.all());
            group.idle += u64::from(rq.idle());
            group.load += load;
            group.weighted += self.present_load(cpu);
            group.util += rq.util.value;
        }
        // In whole pCPUs, rounded.
        group.capacity = (group.power + WHOLE / 2) / WHOLE;
        let full = size * FULL;
        group.overloaded = group.nr > size && full * 100 < group.util * level.imbalance_pct;
        group.imbalanced = match self.is_old() {
            true => longest > 1 && most.saturating_sub(least) > 2 * group.per_task(),
            false => !group.overloaded && self.domains.imbalanced(level, &pcpus),
        };
        group
    }

    /// `update_sd_pick_busiest()`.
    fn busier(&self, group: &Group, than: Option<&Group>) -> bool {
        if self.is_old() {
            let crowded = group.nr > group.capacity || group.imbalanced;
            return crowded && group.mean() > than.map_or(0, Group::mean);
        }
        let kind = |group: &Group| (group.overloaded, group.imbalanced);
        than.is_none_or(|other| match kind(group) == kind(other) {
            true => group.mean() > other.mean(),
            false => kind(group) > kind(other),
        })
    }

    /// Is there no reason to move anything?
    fn balanced_by_load(
        &self,
        own: &Group,
        busiest: &Group,
        mean: u64,
        level: &Level,
        idle: Idle,
    ) -> bool {
        if own.mean() >= busiest.mean() || own.mean() >= mean {
            return true;
        }
        if !self.is_old() && idle == Idle::Yes {
            return !busiest.overloaded && own.idle <= busiest.idle + 1;
        }
        100 * busiest.mean() <= level.imbalance_pct * own.mean()
    }

    /// The load to move (`calculate_imbalance()`).
    fn imbalance(&self, own: &Group, busiest: &Group, mean: u64, here: PcpuId) -> u64 {
        let mut per_task = busiest.per_task();
        if busiest.imbalanced {
            per_task = per_task.min(mean);
        }
        if busiest.mean() <= mean || own.mean() >= mean {
            return self.small_imbalance(own, busiest, per_task, here);
        }
        let mut pull = busiest.mean() - mean;
        if (self.is_old() && !busiest.imbalanced) || (busiest.overloaded && own.overloaded) {
            let room = if self.is_old() {
                busiest.capacity
            } else {
                busiest.size
            };
            let above =
                busiest.nr.saturating_sub(room) * super::weights::NICE_0 * WHOLE / busiest.power;
            pull = pull.min(above);
        }
        let load = (pull * busiest.power).min((mean - own.mean()) * own.power) / WHOLE;
        if load < per_task {
            return self.small_imbalance(own, busiest, per_task, here).max(load);
        }
        load
    }

    /// Would moving one task help although the imbalance is smaller (`fix_small_imbalance()`)?
    fn small_imbalance(&self, own: &Group, busiest: &Group, per_task: u64, here: PcpuId) -> u64 {
        let (mut factor, mut own_per_task) = (2, own.per_task());
        if own.nr > 0 {
            if per_task > own_per_task {
                factor = 1;
            }
        } else {
            own_per_task = self.books.rq(here).load_per_task(self.present_load(here));
        }
        let (high, low) = (busiest.mean(), own.mean());
        let scaled = per_task * WHOLE / busiest.power;
        if (high + scaled).saturating_sub(low) >= scaled * factor {
            return per_task;
        }
        let now = busiest.power * per_task.min(high) + own.power * own_per_task.min(low);
        let rest = high.saturating_sub(scaled);
        let arriving = per_task.min(high * busiest.power / WHOLE) * WHOLE / own.power;
        let then =
            busiest.power * per_task.min(rest) + own.power * own_per_task.min(low + arriving);
        // In load of whole pCPUs, as the kernel compares them.
        if then / WHOLE > now / WHOLE {
            per_task
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::cfs::{CfsOrder, CfsParams, fair};
    use crate::sched::fair::weights::NICE_0;
    use crate::testing::host;
    use proptest::prelude::*;

    /// A host of two caches under 2.6.33. Each pCPU has so many tasks of this class, with this total weight, and so
    /// many of a higher class.
    fn with(queues: &[(u32, u64, u32)]) -> Fair<CfsOrder> {
        let params = host("1n2l8c1t", 1000);
        let mut cfs = fair(CfsParams::preset("2.6.33", 16).unwrap(), &params);
        for (cpu, &(nr, weight, above)) in (0..).map(PcpuId).zip(queues) {
            let rq = cfs.books.rq_mut(cpu);
            (rq.nr, rq.above) = (nr, above);
            cfs.books.weights[cpu.index()] = if nr > 0 { weight } else { 0 };
            for n in 0..nr + above {
                cfs.crowds.change(cpu, n, n + 1, &cfs.domains);
            }
        }
        cfs
    }

    proptest! {
        /// The variant that is faster on a large host finds the same.
        #[test]
        fn a_flat_survey_says_what_one_by_groups_does(
            queues in prop::collection::vec(
                prop_oneof![9 => Just((0, 0, 0)), 1 => (0u32..4, 1u64..5, 0u32..3)], 16),
            cpu in 0u32..16,
        ) {
            let (cfs, cpu) = (with(&queues), PcpuId(cpu));
            let level = cfs.domains.level(0).unwrap();
            prop_assert!(cfs.is_flat(&level, Idle::Soon));
            let flat = cfs.survey_flat(cpu, &level, Idle::Soon);
            let groups = cfs.survey_groups(cpu, &level, Idle::Soon, &PcpuSet::default()).unwrap();
            let said = |survey: &Survey| {
                let busiest = survey.busiest.clone().map(|group| (group.pcpus, group.load, group.nr));
                (survey.own.load, survey.own.nr, survey.mean, busiest)
            };
            prop_assert_eq!(said(&flat), said(&groups));
        }
    }

    /// Two nodes of four pCPUs under 4.x, with so many hogs that have run for long: does an idle pCPU of the first node
    /// want something from the other?
    fn wants(own: u32, other: u32) -> bool {
        let params = host("2n1l4c1t", 1000);
        let mut cfs = fair(CfsParams::preset("4.x", 8).unwrap(), &params);
        for cpu in (0..own).chain(4..4 + other).map(PcpuId) {
            let rq = cfs.books.rq_mut(cpu);
            rq.nr = 1;
            (rq.load.value, rq.ticked) = (NICE_0, [NICE_0; 5]);
            rq.util.value = FULL;
            cfs.books.weights[cpu.index()] = NICE_0;
            cfs.crowds.change(cpu, 0, 1, &cfs.domains);
        }
        let level = cfs.domains.level(1).unwrap();
        cfs.busiest_by_load(PcpuId(3), &level, Idle::Yes, &PcpuSet::default())
            .is_some()
    }

    /// `update_sd_lb_stats()` since 4.12: a group has too many only if it has two more than the own one.
    #[test]
    fn one_hog_more_is_no_imbalance() {
        let seen = [(2, 3), (0, 1), (1, 3), (0, 2)].map(|(own, other)| wants(own, other));
        assert_eq!(seen, [false, false, true, true]);
    }
}
