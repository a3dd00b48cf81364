// SPDX-License-Identifier: GPL-2.0-only
//! Which group is busiest, by kind of group: 5.5 and later (`update_sd_pick_busiest()`,
//! `find_busiest_group()`, `calculate_imbalance()`).
//!
//! A group has spare capacity, is fully busy, kept from balance by affinity or overloaded; by the kinds of the two groups, load,
//! utilisation or a number of tasks is moved. An imbalance in load that is smaller than a task is
//! not rounded up any more; tasks that are too large move after some failures, each of which makes
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
        for group in groups {
            total += group.load;
            pcpus += group.size;
            let busier = busiest
                .as_ref()
                .is_none_or(|other| group.busier_than(other));
            if group.nr > 0 && busier {
                busiest = Some(group);
            }
        }
        let busiest = busiest?;
        let mean = total / pcpus;
        let amount = amount(&own, &busiest, mean, level, idle)?;
        amount_left(amount).then_some(Busiest {
            group: busiest.pcpus,
            amount,
        })
    }

    fn group_by_kind(&self, pcpus: Range<u32>, level: &Level, left_out: &PcpuSet) -> Group {
        let size = u64::from(pcpus.end - pcpus.start);
        let (mut nr, mut idle, mut load, mut util, mut runnable) = (0, 0, 0, 0, 0);
        let counted = |cpu: &PcpuId| !left_out.contains(*cpu);
        for cpu in pcpus.clone().map(PcpuId).filter(counted) {
            let rq = self.books.rq(cpu);
            nr += u64::from(rq.all());
            idle += u64::from(rq.idle());
            load += rq.load.value;
            util += rq.util.value;
            runnable += rq.runnable.value;
        }
        let full = size * FULL;
        let used_up = full * 100 < util * level.imbalance_pct;
        let has_room = full * 100 > util * level.imbalance_pct;
        // How many want to run on average, even if they leave some of the time unused.
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
            nr,
            idle,
            load,
            util,
            state,
        }
    }
}

impl Group {
    /// `update_sd_pick_busiest()`.
    fn busier_than(&self, other: &Group) -> bool {
        match self.state.cmp(&other.state) {
            Ordering::Greater => true,
            Ordering::Less => false,
            // One is as good as another.
            Ordering::Equal if self.state == State::Imbalanced => false,
            Ordering::Equal if self.state == State::Spare => match self.idle.cmp(&other.idle) {
                Ordering::Greater => false,
                Ordering::Equal => self.nr > other.nr,
                Ordering::Less => true,
            },
            Ordering::Equal => self.mean() > other.mean(),
        }
    }
}

fn amount_left(amount: Amount) -> bool {
    match amount {
        Amount::Load(n) | Amount::Util(n) | Amount::Tasks(n) => n > 0,
    }
}

/// What to move between the two groups; `None` if they are balanced.
fn amount(own: &Group, busiest: &Group, mean: u64, level: &Level, idle: Idle) -> Option<Amount> {
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
    let spread = level.prefer_sibling && own.state == State::Spare && busiest.nr > own.nr + 1;
    if !spread && busiest.state != State::Overloaded {
        let even = busiest.size > 1 && own.idle <= busiest.idle + 1;
        if idle == Idle::No || even || busiest.nr == 1 {
            return None;
        }
    }
    if own.state == State::Spare {
        return Some(amount_for_spare(own, busiest, level, idle));
    }
    if own.mean() >= mean || own.mean() >= busiest.mean() || busiest.mean() <= mean {
        return None;
    }
    let load = ((busiest.mean() - mean) * busiest.size).min((mean - own.mean()) * own.size);
    Some(Amount::Load(load))
}

/// The own group has room.
fn amount_for_spare(own: &Group, busiest: &Group, level: &Level, idle: Idle) -> Amount {
    let shares_llc = matches!(level.kind, Kind::Smt | Kind::Llc);
    if busiest.state == State::Overloaded && !shares_llc {
        let room = own.capacity().saturating_sub(own.util);
        return match room == 0 && idle != Idle::No {
            true => Amount::Tasks(1),
            false => Amount::Util(room),
        };
    }
    if busiest.size == 1 || level.prefer_sibling {
        return Amount::Tasks(busiest.nr.saturating_sub(own.nr) / 2);
    }
    Amount::Tasks(own.idle.saturating_sub(busiest.idle) / 2)
}
