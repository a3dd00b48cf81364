// SPDX-License-Identifier: GPL-2.0-only
//! When load is balanced (`rebalance_domains()`, `load_balance()`).
//!
//! Each pCPU balances each of its domains at intervals, on behalf of its group: seldom while it is
//! busy, often while it idles, and when it begins to idle ([`super::idle`]).
//! Where the running task is the one to move, repeated failure leads to active balancing.
//!
//! Affinity: tasks that may not go to the balancing pCPU may go to others of its group
//! (`LBF_DST_PINNED`); if all tasks of a runqueue have to stay, it is left out and the next busiest
//! is tried (`LBF_ALL_PINNED`); and where some had to stay, the level above considers the group
//! imbalanced, so that other groups pull from it (`LBF_SOME_PINNED`).
//!
//! Simplified: the cost of a pull is not measured, since it takes no time here. Linux 5.5 and later weigh that cost before
//! they try; a setting stands for it (`newidle_cost`, [`super::idle`]).

use super::decay::Average;
use super::domains::{Kind, Level};
use super::moving::{Amount, Moved, Transfer};
use super::state::WHOLE;
use super::tuning::Generation;
use super::{Fair, Order};
use crate::host::Host;
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuId, PcpuSet};
use std::ops::Range;

/// What the balancing pCPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// It has something to run.
    No,
    /// It idles.
    Yes,
    /// It is about to idle.
    Soon,
}

/// What came of balancing a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// Another pCPU balances on behalf of the group.
    NotOurs,
    /// There was nothing to move.
    Nothing,
    /// There was something to move, but nothing could be moved.
    InVain,
    /// The pCPU got something.
    Got,
}

/// The group to take from.
#[derive(Clone, Debug)]
pub(super) struct Busiest {
    pub(super) group: Range<u32>,
    pub(super) amount: Amount,
}

/// The longest interval that affinity may make a pCPU balance at (`MAX_PINNED_INTERVAL`).
const MAX_PINNED_INTERVAL: Nanos = 512 * MS;

impl<O: Order> Fair<O> {
    /// At a tick of the busy pCPU `cpu`.
    pub(super) fn balance_at_tick(&mut self, host: &mut Host, cpu: PcpuId) {
        let now = host.now();
        if now >= self.books.rq(cpu).next_balance {
            self.rebalance(host, cpu, Idle::No);
        }
        let kicks = self.books.rq(cpu).queued() > 1 || self.is_old() || self.two_are_busy(cpu);
        if !kicks || now < self.idle_balance {
            return;
        }
        self.idle_balance = now + self.tick;
        self.balance_for_idle(host);
    }

    /// Is another of the pCPUs that share the LLC of `cpu` busy, too? Then their tasks may have to spread
    /// (`nr_busy_cpus` in `nohz_balancer_kick()`, 4.x to 7.x).
    fn two_are_busy(&self, cpu: PcpuId) -> bool {
        let idle = self.crowds.idle();
        let mut llc = self.domains.llc_of(cpu).map(PcpuId);
        llc.any(|other| other != cpu && !idle.contains(other))
    }

    /// Balances the domains of `cpu` that are due.
    pub(super) fn rebalance(&mut self, host: &mut Host, cpu: PcpuId, mut idle: Idle) {
        let now = host.now();
        // As far off as in the kernel if no domain is due before (`rebalance_domains()`: 60 * HZ).
        let mut next = now + 60 * SEC;
        let mut tried = Tried::Nothing;
        for n in 0..self.domains.depth() {
            let Some(level) = self.domains.level(n) else {
                break;
            };
            let interval = self.interval(cpu, n, &level, idle);
            let last = self.domains.memory(cpu, n).last;
            if now >= last + interval || last == 0 {
                tried = self.balance_level(host, cpu, n, idle);
                if tried == Tried::Got {
                    idle = Idle::No;
                }
                self.domains.memory(cpu, n).last = now;
            }
            let interval = self.interval(cpu, n, &level, idle);
            next = next.min(self.domains.memory(cpu, n).last + interval);
            // Then wider domains are not up to this pCPU either (`continue_balancing`).
            if tried == Tried::NotOurs {
                break;
            }
        }
        self.books.rq_mut(cpu).next_balance = next;
    }

    /// `get_sd_balance_interval()`.
    pub(super) fn interval(&mut self, cpu: PcpuId, n: usize, level: &Level, idle: Idle) -> Nanos {
        // `max_load_balance_interval`: HZ * num_online_cpus() / 10 (`update_max_interval()`).
        let most = (100 * MS * self.books.rqs.len() as u64).max(self.tick);
        let own = self.domains.memory(cpu, n).interval;
        let interval = match (idle, self.tuning.balance_interval) {
            (Idle::No, Some(interval)) => interval,
            // Since 5.10 a little less, so that the levels' intervals are not multiples of each
            // other.
            (Idle::No, None) if self.tuning.generation == Generation::Linux6 => {
                (own * level.busy_factor).saturating_sub(self.tick)
            }
            (Idle::No, None) => own * level.busy_factor,
            _ => own,
        };
        interval.clamp(self.tick, most)
    }

    /// Brings the averages of the pCPUs in a domain of `cpu` up to date, where they count.
    pub(super) fn age_domain(&mut self, cpu: PcpuId, level: usize, now: Nanos) {
        if !self.tuning.tracks_load() {
            return;
        }
        let Some(span) = self.domains.level(level).map(|level| level.domain(cpu)) else {
            return;
        };
        let step = Average::step(now);
        if self.domains.aged(cpu, level).replace(step) != Some(step) {
            span.for_each(|n| self.books.age_rq(PcpuId(n), now));
        }
    }

    /// Balances one domain of `cpu`.
    pub(super) fn balance_level(
        &mut self,
        host: &mut Host,
        cpu: PcpuId,
        n: usize,
        idle: Idle,
    ) -> Tried {
        let Some(level) = self.domains.level(n) else {
            return Tried::Nothing;
        };
        if idle != Idle::Soon && self.balances_for(cpu, &level) != cpu {
            // The kernel then goes on as if the domain were balanced.
            if self.retargets() {
                self.domains.set_imbalanced(cpu, n, false);
            }
            self.found_nothing(cpu, n, level.max_interval, idle);
            return Tried::NotOurs;
        }
        let waits = self.crowds.somebody_waits(cpu, n, &self.domains);
        if n + 1 == self.domains.depth() {
            self.overloaded = waits;
        }
        let now = host.now();
        self.age_domain(cpu, n, now);
        if idle != Idle::Soon {
            self.learn_looks(cpu, &level);
        }
        if self.shared_above {
            let domain = level.domain(cpu);
            domain.for_each(|cpu| self.books.rq_mut(PcpuId(cpu)).update_power(now));
        }
        if idle == Idle::Soon && !self.is_old() && !waits && !self.domains.is_imbalanced(cpu, n) {
            self.domains.memory(cpu, n).failed = 0;
            return Tried::Nothing;
        }
        self.pull_from_busiest(host, cpu, &level, idle)
    }

    /// Moves tasks of the busiest runqueue in a domain of `cpu` to it.
    fn pull_from_busiest(
        &mut self,
        host: &mut Host,
        cpu: PcpuId,
        level: &Level,
        idle: Idle,
    ) -> Tried {
        let n = level.number;
        let mut out = PcpuSet::default();
        // Every iteration leaves one more pCPU out, all of whose tasks are bound to other pCPUs.
        loop {
            let Some(busiest) = self.busiest_group(cpu, level, idle, &out) else {
                // Balanced, whether or not affinity played a part.
                if out.is_empty() {
                    self.domains.set_imbalanced(cpu, n, false);
                }
                break;
            };
            let Some(from) = self.busiest_queue(&busiest, cpu, &out) else {
                break;
            };
            let moved = self.move_from(host, (cpu, n, idle), from, busiest.amount, &mut out);
            if moved.some_pinned && moved.left.left() && self.retargets() {
                self.domains.set_imbalanced(cpu, n, true);
            }
            if moved.tasks > 0 {
                self.got(cpu, n, level.min_interval, idle);
                return Tried::Got;
            }
            if !moved.all_pinned {
                if idle != Idle::Soon {
                    self.nothing_moved(host, cpu, n, (from, busiest.amount));
                }
                return Tried::InVain;
            }
            out.insert(from);
        }
        let most = match out.is_empty() {
            true => level.max_interval,
            false => level.max_interval.max(MAX_PINNED_INTERVAL),
        };
        self.found_nothing(cpu, n, most, idle);
        Tried::Nothing
    }

    /// Tasks came: the domain is looked at again after its shortest interval.
    fn got(&mut self, cpu: PcpuId, n: usize, least: Nanos, idle: Idle) {
        let keeps = idle == Idle::Soon && self.is_old();
        let memory = self.domains.memory(cpu, n);
        memory.failed = 0;
        if !keeps {
            memory.interval = least;
        }
    }

    /// There was nothing to move: the domain is looked at half as often, but at least once in `most` or so.
    fn found_nothing(&mut self, cpu: PcpuId, n: usize, most: Nanos, idle: Idle) {
        let memory = self.domains.memory(cpu, n);
        memory.failed = 0;
        if idle != Idle::Soon && memory.interval < most {
            memory.interval *= 2;
        }
    }

    /// Does this kernel move what may not go to the balancing pCPU to others of its group
    /// (`LBF_SOME_PINNED`, since 3.7)?
    fn retargets(&self) -> bool {
        self.tuning.generation != Generation::Linux2_6_33
    }

    /// Moves tasks from one runqueue to the balancing pCPU, and those that may not go there to
    /// others of its group, one pCPU after the other. These pCPUs are left out from then on.
    fn move_from(
        &mut self,
        host: &mut Host,
        (cpu, n, idle): (PcpuId, usize, Idle),
        from: PcpuId,
        amount: Amount,
        out: &mut PcpuSet,
    ) -> Moved {
        let (memory, level) = (*self.domains.memory(cpu, n), self.domains.level(n));
        let group = level.map_or(0..0, |level| level.group_of(cpu));
        let mut transfer = Transfer {
            from,
            to: cpu,
            amount,
            failed: memory.failed,
            patience: level.map_or(0, |level| level.cache_nice_tries),
            newidle: idle == Idle::Soon,
            same_core: level.is_some_and(|level| level.kind == Kind::Smt),
        };
        let mut all = Moved {
            tasks: 0,
            left: amount,
            some_pinned: false,
            all_pinned: self.books.rq(from).queued() > 1,
            instead: None,
        };
        while self.books.rq(from).queued() > 1 {
            let open = |other: &PcpuId| *other != transfer.to && !out.contains(*other);
            let others = match self.retargets() && idle != Idle::Soon {
                true => group.clone().map(PcpuId).filter(open).collect(),
                false => PcpuSet::default(),
            };
            let moved = self.move_tasks(host, transfer, &others);
            all.tasks += moved.tasks;
            all.left = moved.left;
            all.some_pinned |= moved.some_pinned;
            all.all_pinned &= moved.all_pinned;
            match moved.instead.filter(|_| moved.left.left()) {
                Some(other) => {
                    out.insert(transfer.to);
                    (transfer.to, transfer.amount) = (other, moved.left);
                }
                None => break,
            }
        }
        all
    }

    /// There was something to move, but nothing could be.
    fn nothing_moved(
        &mut self,
        host: &mut Host,
        cpu: PcpuId,
        n: usize,
        (from, amount): (PcpuId, Amount),
    ) {
        let Some(level) = self.domains.level(n) else {
            return;
        };
        let memory = self.domains.memory(cpu, n);
        memory.failed += 1;
        let by_count = matches!(amount, Amount::Tasks(_));
        let active = memory.failed > level.cache_nice_tries + 2
            && (by_count || self.tuning.generation != Generation::Linux6)
            && self.ask_to_push(host, from, cpu);
        let memory = self.domains.memory(cpu, n);
        if active {
            memory.failed = level.cache_nice_tries + 1;
            memory.interval = (memory.interval * 2).min(level.max_interval);
        } else {
            memory.interval = level.min_interval;
        }
    }

    /// The pCPU that balances on behalf of the group of `cpu`: its first idle pCPU, else its first.
    /// Since 6.6 a pCPU of an idle core goes before others, except among the threads of a core
    /// (`should_we_balance()`).
    fn balances_for(&self, cpu: PcpuId, level: &Level) -> PcpuId {
        let group = level.group_of(cpu);
        let idle_core = match self.tuning.spreads_if_idle && level.kind != Kind::Smt {
            true => self.crowds.idle_cores().first_in(group.clone()),
            false => None,
        };
        let idle = idle_core.or_else(|| self.crowds.idle().first_in(group.clone()));
        idle.unwrap_or(PcpuId(group.start))
    }

    fn busiest_group(
        &self,
        cpu: PcpuId,
        level: &Level,
        idle: Idle,
        left_out: &PcpuSet,
    ) -> Option<Busiest> {
        match self.tuning.generation {
            Generation::Linux6 => self.busiest_by_kind(cpu, level, idle, left_out),
            _ => self.busiest_by_load(cpu, level, idle, left_out),
        }
    }

    /// The runqueue to take from (`find_busiest_queue()`).
    fn busiest_queue(&self, busiest: &Busiest, to: PcpuId, left_out: &PcpuSet) -> Option<PcpuId> {
        let mut best: Option<(u64, PcpuId)> = None;
        for cpu in busiest.group.clone().map(PcpuId) {
            let rq = self.books.rq(cpu);
            let nr = self.movable(rq);
            if nr == 0 || cpu == to || left_out.contains(cpu) {
                continue;
            }
            let load = self.present_load(cpu);
            let measure = match busiest.amount {
                Amount::Load(most) if nr == 1 && load > most => continue,
                Amount::Load(_) => load * WHOLE / rq.power,
                Amount::Util(_) if nr == 1 => continue,
                Amount::Util(_) => rq.util.value,
                Amount::Tasks(_) => u64::from(nr - rq.above),
            };
            if best.is_none_or(|(most, _)| measure > most) {
                best = Some((measure, cpu));
            }
        }
        best.map(|(_, cpu)| cpu)
    }
}
