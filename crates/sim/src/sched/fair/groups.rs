// SPDX-License-Identifier: GPL-2.0-only
//! Which group is busiest, by kind of group: 5.5 and later (`update_sd_pick_busiest()`,
//! `find_busiest_group()`, `calculate_imbalance()`).
//!
//! A group has spare capacity, is fully busy, is kept from balance by affinity or is overloaded; depending on the kinds
//! of the two groups, load, utilisation or a number of tasks is moved. An imbalance in load that is smaller than a task
//! is not rounded up any more; tasks that are too large move after some failures, each of which makes
//! them look half as large. Left out: misfit tasks, asymmetric capacities, the NUMA allowance.

use super::balance::{Busiest, Idle};
use super::decay::FULL;
use super::domains::{Kind, Level};
use super::moving::Amount;
use super::{Fair, Order};
use corun_model::{PcpuId, PcpuSet};
use std::cmp::Ordering;
use std::ops::Range;

/// How busy, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Spare,
    FullyBusy,
    /// Affinity kept its pCPUs from being balanced among themselves.
    Imbalanced,
    Overloaded,
}

/// What is known of a group.
#[derive(Clone, Debug)]
struct Group {
    pcpus: Range<u32>,
    size: u64,
    /// Tasks that could be moved from here (`sum_h_nr_running`), and all that are queued.
    movable: u64,
    nr: u64,
    idle: u64,
    load: u64,
    util: u64,
    state: State,
}

impl Group {
    fn mean(&self) -> u64 {
        self.load / self.size
    }

    fn capacity(&self) -> u64 {
        self.size * FULL
    }
}

impl<O: Order> Fair<O> {
    pub(super) fn busiest_by_kind(
        &self,
        cpu: PcpuId,
        level: &Level,
        idle: Idle,
        left_out: &PcpuSet,
    ) -> Option<Busiest> {
        let mut groups = level
            .groups(cpu)
            .map(|group| self.group_by_kind(group, level, left_out));
        let own = groups.next()?;
        let (mut total, mut pcpus) = (own.load, own.size);
        let mut busiest: Option<Group> = None;
        let cores = level.kind == Kind::Llc && level.group > 1;
        let last_of_equals = self.tuning.spreads_if_idle && !cores;
        for group in groups {
            total += group.load;
            pcpus += group.size;
            let busier = busiest
                .as_ref()
                .is_none_or(|other| group.busier_than(other, last_of_equals));
            if group.movable > 0 && busier {
                busiest = Some(group);
            }
        }
        let busiest = busiest?;
        let mean = total / pcpus;
        let spreads = idle != Idle::No || !self.tuning.spreads_if_idle;
        let amount = amount(&own, &busiest, mean, level, (idle, spreads))?;
        amount_left(amount).then_some(Busiest {
            group: busiest.pcpus,
            amount,
        })
    }

    fn group_by_kind(&self, pcpus: Range<u32>, level: &Level, left_out: &PcpuSet) -> Group {
        let size = u64::from(pcpus.end - pcpus.start);
        let (mut movable, mut nr, mut idle) = (0, 0, 0);
        let (mut load, mut util, mut runnable) = (0, 0, 0);
        let counted = |cpu: &PcpuId| !left_out.contains(*cpu);
        for cpu in pcpus.clone().map(PcpuId).filter(counted) {
            let rq = self.books.rq(cpu);
            movable += u64::from(self.movable(rq));
            nr += u64::from(rq.queued());
            idle += u64::from(rq.idle());
            load += rq.load.value;
            util += rq.util.value;
            runnable += rq.runnable.value;
        }
        let full = size * FULL;
        let used_up = full * 100 < util * level.imbalance_pct;
        let has_room = full * 100 > util * level.imbalance_pct;
        // By how many tasks want to run on average, even if they leave some of the time unused.
        let crowded = full * level.imbalance_pct < runnable * 100;
        let state = if nr > size && (used_up || crowded) {
            State::Overloaded
        } else if self.domains.imbalanced(level, &pcpus) {
            State::Imbalanced
        } else if nr < size || (has_room && !crowded) {
            State::Spare
        } else {
            State::FullyBusy
        };
        Group {
            pcpus,
            size,
            movable,
            nr,
            idle,
            load,
            util,
            state,
        }
    }
}

impl Group {
    /// `update_sd_pick_busiest()`. Of groups that are fully busy the first one is taken; since 6.6 the last one, unless
    /// they are cores of several threads: the mean loads that the kernel's comment says decide are not computed.
    fn busier_than(&self, other: &Group, last_of_equals: bool) -> bool {
        match self.state.cmp(&other.state) {
            Ordering::Greater => true,
            Ordering::Less => false,
            // Among groups imbalanced by affinity, any is as good as another.
            Ordering::Equal if self.state == State::Imbalanced => false,
            Ordering::Equal if self.state == State::Spare => match self.idle.cmp(&other.idle) {
                Ordering::Greater => false,
                Ordering::Equal => self.nr > other.nr,
                Ordering::Less => true,
            },
            Ordering::Equal if self.state == State::FullyBusy => last_of_equals,
            Ordering::Equal => self.mean() > other.mean(),
        }
    }
}

fn amount_left(amount: Amount) -> bool {
    match amount {
        Amount::Load(n) | Amount::Util(n) | Amount::Tasks(n) => n > 0,
    }
}

/// What to move between the two groups; `None` if they are balanced. `spreads`: may numbers of tasks be
/// evened out? Since 6.6 not by a busy pCPU (`sibling_imbalance()`).
fn amount(
    own: &Group,
    busiest: &Group,
    mean: u64,
    level: &Level,
    (idle, spreads): (Idle, bool),
) -> Option<Amount> {
    if busiest.state == State::Imbalanced {
        return Some(Amount::Tasks(1));
    }
    if own.state > busiest.state {
        return None;
    }
    if own.state == State::Overloaded
        && (own.mean() >= busiest.mean()
            || own.mean() >= mean
            || 100 * busiest.mean() <= level.imbalance_pct * own.mean())
    {
        return None;
    }
    let spread =
        spreads && level.prefer_sibling && own.state == State::Spare && busiest.nr > own.nr + 1;
    if !spread && busiest.state != State::Overloaded {
        let even = busiest.size > 1 && own.idle <= busiest.idle + 1;
        if idle == Idle::No || even || busiest.movable == 1 {
            return None;
        }
    }
    if own.state == State::Spare {
        return Some(amount_for_spare(own, busiest, level, (idle, spreads)));
    }
    if own.mean() >= mean || own.mean() >= busiest.mean() {
        return None;
    }
    Some(Amount::Load(load_to_take(own, busiest, mean)))
}

/// How much load the own group lacks, but no more than the other group has in excess. Another group that is itself
/// below the mean, as when there is a heavy task elsewhere, sets no bound: the kernel's difference is unsigned and
/// wraps round.
fn load_to_take(own: &Group, busiest: &Group, mean: u64) -> u64 {
    let lacks = (mean - own.mean()) * own.size;
    match busiest.mean().checked_sub(mean) {
        Some(more) => lacks.min(more * busiest.size),
        None => lacks,
    }
}

/// The own group has room.
fn amount_for_spare(
    own: &Group,
    busiest: &Group,
    level: &Level,
    (idle, spreads): (Idle, bool),
) -> Amount {
    let shares_llc = matches!(level.kind, Kind::Smt | Kind::Llc);
    if busiest.state == State::Overloaded && !shares_llc {
        let room = own.capacity().saturating_sub(own.util);
        return match room == 0 && idle != Idle::No {
            true => Amount::Tasks(1),
            false => Amount::Util(room),
        };
    }
    if busiest.size == 1 || level.prefer_sibling {
        let more = busiest.nr.saturating_sub(own.nr);
        return Amount::Tasks(if spreads { more / 2 } else { 0 });
    }
    Amount::Tasks(own.idle.saturating_sub(busiest.idle) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::cfs::{CfsParams, fair};
    use crate::testing::host;

    /// A light sleeper runs on pCPU 0 and three tasks are on pCPU 1: how many does pCPU 0 want, depending on whether
    /// only an idle pCPU spreads tasks?
    fn wants(spreads_if_idle: bool, idle: Idle) -> Option<u64> {
        let params = host("1n1l4c1t", 1000);
        let mut cfs = fair(CfsParams::preset("5.x", 4).unwrap(), &params);
        cfs.tuning.spreads_if_idle = spreads_if_idle;
        for (cpu, nr, busy) in [(0, 1, FULL / 10), (1, 3, FULL), (2, 1, FULL), (3, 1, FULL)] {
            let rq = cfs.books.rq_mut(PcpuId(cpu));
            (rq.nr, rq.util.value, rq.runnable.value) = (nr, busy, u64::from(nr) * busy);
        }
        let level = cfs.domains.level(0).unwrap();
        let busiest = cfs.busiest_by_kind(PcpuId(0), &level, idle, &PcpuSet::default());
        busiest.map(|busiest| match busiest.amount {
            Amount::Tasks(n) => n,
            other => panic!("{other:?}"),
        })
    }

    /// One task is on each of pCPUs 0, 2 and 3, two are on pCPU 1; all weigh the same but the one on pCPU 3: how much
    /// load does pCPU 0 want?
    fn wants_beside(heavy: u64) -> Option<Amount> {
        let params = host("1n1l4c1t", 1000);
        let mut cfs = fair(CfsParams::preset("5.x", 4).unwrap(), &params);
        for (cpu, nr, load) in [(0, 1, 100), (1, 2, 200), (2, 1, 100), (3, 1, heavy)] {
            let rq = cfs.books.rq_mut(PcpuId(cpu));
            (rq.nr, rq.load.value, rq.util.value) = (nr, load, FULL);
            rq.runnable.value = u64::from(nr) * FULL;
        }
        let level = cfs.domains.level(0).unwrap();
        let busiest = cfs.busiest_by_kind(PcpuId(0), &level, Idle::No, &PcpuSet::default())?;
        assert_eq!(busiest.group, 1..2);
        Some(busiest.amount)
    }

    #[test]
    fn a_heavy_task_elsewhere_keeps_equals_from_nothing() {
        // The mean is 125: neither is to be above it, nor below.
        assert_eq!(wants_beside(100), Some(Amount::Load(25)));
        // It is 350, which neither of them comes near.
        assert_eq!(wants_beside(1000), Some(Amount::Load(250)));
        // It is 200, which pCPU 1 has.
        assert_eq!(wants_beside(400), None);
    }

    #[test]
    fn a_busy_pcpu_takes_none_to_spread_them_since_6_6() {
        assert_eq!(wants(false, Idle::No), Some(1));
        assert_eq!(wants(true, Idle::No), None);
        assert_eq!(wants(true, Idle::Yes), Some(1));
    }
}
