// SPDX-License-Identifier: GPL-2.0-only
//! What the models of CFS and EEVDF share: everything but the order of a runqueue.
//!
//! Linux has one fair class (`kernel/sched/fair.c`). In 6.6 EEVDF replaced the order of each runqueue there and left
//! the rest. So it is here: [`Fair`] keeps runqueues, accounts and load averages
//! ([`queueing`], [`state`], [`decay`], [`weights`], [`levels`]), chooses a pCPU at a wake-up ([`placement`],
//! [`search`]) and moves tasks between pCPUs ([`balance`], and [`idle`] for idle pCPUs, with [`classic`] or [`groups`]
//! to find out from where, [`moving`] to do it, [`ghosts`] for sleepers that still count) along the scheduling domains
//! of the host ([`domains`]); an [`Order`] decides whose turn it is, unless a VM's vCPUs are to run together
//! ([`gang`]).
//!
//! Simplified throughout: work the kernel does for itself costs nothing (the host charges switches
//! and IPIs), and all work is of the one fair class: no deadline, real-time or idle policy.

mod above;
mod balance;
mod bandwidth;
mod calls;
mod classic;
mod crowds;
mod decay;
mod domains;
mod early;
mod gang;
mod ghosts;
mod groups;
mod idle;
mod levels;
mod moving;
#[cfg(test)]
mod nesting_tests;
mod order;
mod placement;
mod queueing;
#[cfg(test)]
mod rank_tests;
mod ranks;
mod search;
mod siblings;
mod state;
mod steering;
mod throttle;
#[cfg(test)]
mod throttle_tests;
mod tree;
mod tuning;
mod urgent;
mod weights;

pub(crate) use bandwidth::parameters;
pub(crate) use decay::{Average, Decay, FULL};
pub use gang::Gangs;
pub(crate) use order::{Join, Leave, Order};
pub(crate) use search::{LOOK, Search};
pub use siblings::Siblings;
pub(crate) use tree::{Forest, Root};
pub use tuning::Generation;
pub(crate) use tuning::{LONGEST, Tuning, scaling};
pub(crate) use weights::{real_time, scaled, virtual_time, weight_of};

use crate::event_queue::EventId;
use crate::host::{Host, HostParams};
use crate::load::{Cgroups, VmInfo};
use crate::rng::Rng;
use crate::sched::HostScheduler;
use corun_model::{Nanos, PcpuId, TaskId};
use crowds::Crowds;
use domains::Domains;
use levels::Levels;
use ranks::Ranks;
use state::{Member, RunqueueAccounts};
use throttle::Quotas;
use weights::{Group, Groups};

/// The fair class with runqueues in the order `O`.
pub(crate) struct Fair<O> {
    order: O,
    tuning: Tuning,
    books: RunqueueAccounts,
    domains: Domains,
    crowds: Crowds,
    groups: Groups,
    /// Up to which of the groups around VMs tasks count, if there are such groups.
    levels: Option<Box<Levels>>,
    /// Which groups give way to which, if any group is idle.
    ranks: Option<Box<Ranks>>,
    /// What limits cgroups, if anything does.
    quotas: Option<Box<Quotas>>,
    /// vCPUs by VM, and the pCPUs that they are bound to, where that matters.
    siblings: Vec<Vec<TaskId>>,
    homes: Vec<(usize, Option<PcpuId>)>,
    gangs: gang::State,
    /// By pCPU.
    dice: Vec<Rng>,
    /// By LLC, how many pCPUs are worth a look for an idle one.
    looks: Vec<u32>,
    tick: Nanos,
    /// When the next round of balancing on behalf of idle pCPUs is due.
    idle_balance: Nanos,
    /// Which idle pCPU keeps its ticks.
    idle_owner: Option<PcpuId>,
    /// Did a task wait for a pCPU when the whole host was balanced last, or has one begun to since
    /// (`rd->overload`)?
    overloaded: bool,
    /// Has a higher class used any pCPU?
    shared_above: bool,
}

impl<O: Order> Fair<O> {
    pub(crate) fn new(order: O, tuning: Tuning, host: &HostParams) -> Self {
        let pcpus = host.topology.pcpus() as usize;
        let domains = Domains::new(&host.topology, &tuning);
        let threads = domains.core_of(PcpuId(0)).len() as u64;
        let whole = match tuning.generation {
            Generation::Linux2_6_33 if threads > 1 => state::CORE / threads,
            _ => state::WHOLE,
        };
        Self {
            order,
            tuning,
            books: RunqueueAccounts::new(pcpus, 2 * tuning.migration_cost, whole),
            crowds: Crowds::new(host.topology.pcpus(), &domains),
            // The scheduler has no seed; the load varies with it.
            dice: (0..pcpus as u64)
                .map(|cpu| Rng::of(0, "newidle", cpu))
                .collect(),
            looks: vec![domains.llc_size(); pcpus / domains.llc_size() as usize],
            domains,
            groups: Groups::default(),
            levels: None,
            ranks: None,
            quotas: None,
            siblings: Vec::new(),
            homes: Vec::new(),
            gangs: gang::State::new(tuning.gangs, pcpus),
            tick: 1_000_000_000 / Nanos::from(host.hz.clamp(1, 10_000)),
            idle_balance: 0,
            idle_owner: None,
            overloaded: false,
            shared_above: false,
        }
    }

    /// Charges the current task of `cpu` for its time up to now and brings the averages up to date.
    /// True if the task should make way.
    fn update(&mut self, cpu: PcpuId, now: Nanos) -> bool {
        self.books.age_rq(cpu, now);
        let rq = self.books.rq_mut(cpu);
        let Some(task) = rq.current else { return false };
        let time = now.saturating_sub(rq.charged);
        rq.charged = rq.charged.max(now);
        self.books.task_mut(task).ran_at = now;
        self.gangs.charge(task, time);
        self.charge_quotas(task, cpu, time, now);
        time > 0 && self.order.charge(cpu, time)
    }

    /// The same for a pCPU whose runqueue another pCPU changes: it reschedules if its task should make way
    /// (`update_curr()`).
    fn update_from_afar(&mut self, host: &mut Host, cpu: PcpuId) {
        if self.update(cpu, host.now()) {
            match self.tuning.lazy_preemption {
                true => self.books.rq_mut(cpu).lazy = true,
                false => host.resched(cpu, None),
            }
        }
    }

    /// The interrupt of a tick of `cpu` is not charged to any task: tasks are charged by `rq_clock_task()`, which
    /// leaves interrupts out (`CONFIG_IRQ_TIME_ACCOUNTING`, since 2.6.37). So from tick to tick less than a period is
    /// charged, and a slice of a whole number of periods is not over after that many ticks: the task gets one more
    /// (Linux 2ae891b82695, "sched: Reduce the default slice to avoid tasks getting
    /// an extra tick", which finds ticks too short by their clock's precision without it, too). How long an interrupt
    /// takes matters little as long as it takes more than nothing; here, as long as a VM exit.
    ///
    /// It is not left out where a timer ends the slice: the model's timer runs by the same clock as the account, so
    /// that it does not fire a moment early.
    fn leave_out_interrupt(&mut self, host: &Host, cpu: PcpuId) {
        let rq = self.books.rq_mut(cpu);
        let known = self.tuning.generation != Generation::Linux2_6_33;
        if known && rq.stop_timer == EventId::NONE {
            rq.charged = host.now() + host.params().costs.exit;
        }
    }

    /// Sets the timer that stops the current task between ticks, where the order wants that.
    fn set_stop_timer(&mut self, host: &mut Host, cpu: PcpuId) {
        let rq = self.books.rq_mut(cpu);
        let alone = rq.of_this_class() <= 1;
        if self.tuning.timer_stays && rq.current.is_some() && alone {
            return;
        }
        let old = std::mem::replace(&mut rq.stop_timer, EventId::NONE);
        if old != EventId::NONE {
            host.cancel(old);
        }
        if rq.current.is_some()
            && !alone
            && let Some(time) = self
                .gang_stops_after(cpu)
                .or_else(|| self.order.stop_after(cpu))
        {
            let at = host.now().saturating_add(time + host.lateness(cpu));
            self.books.rq_mut(cpu).stop_timer = host.sched_timer(at, u64::from(cpu.0));
        }
    }

    /// A task joined the runqueue of `cpu`, whose current task goes on (`hrtick_update()`). True if
    /// that interrupted `cpu`, because its timer had to be set.
    fn keep_stop_timer(&mut self, host: &mut Host, cpu: PcpuId) -> bool {
        let active = self.books.rq(cpu).stop_timer != EventId::NONE;
        if active && self.tuning.slice_at_switch {
            return false;
        }
        self.set_stop_timer(host, cpu);
        !active && self.books.rq(cpu).stop_timer != EventId::NONE
    }

    /// Shall `woken`, just queued on `cpu`, take it from its current task?
    fn preempts(&mut self, cpu: PcpuId, woken: TaskId, now: Nanos) -> bool {
        let by_rank = self.preempts_by_rank(cpu, woken);
        let preempts = by_rank.unwrap_or_else(|| self.order.preempts(cpu, woken));
        self.end_released(now);
        preempts
    }

    /// A woken task shall have `cpu` instead of its current one. Without lazy preemption it gets
    /// the pCPU at once; with it (`TIF_NEED_RESCHED_LAZY` sends no interrupt) when the pCPU enters
    /// the kernel: now if the wake-up happened there, else at its next tick or slice timer.
    fn preempt(&mut self, host: &mut Host, cpu: PcpuId, waker: Option<PcpuId>, local: bool) {
        let set = self.tuning.lazy_preemption && self.keep_stop_timer(host, cpu);
        if !self.tuning.lazy_preemption || local || set {
            host.resched(cpu, waker);
        } else {
            self.books.rq_mut(cpu).lazy = true;
        }
    }

    /// Gives `cpu` to `next`.
    fn set_current(&mut self, cpu: PcpuId, next: Option<TaskId>, now: Nanos) {
        let old = self.books.rq(cpu).current;
        self.order.set_current(cpu, next);
        if old == next {
            return;
        }
        self.gangs.switches(cpu, old, next);
        for task in [old, next].into_iter().flatten() {
            self.books.age_task(task, now);
        }
        let rq = self.books.rq_mut(cpu);
        rq.current = next;
        rq.charged = rq.charged.max(now);
        if let Some(task) = next {
            if self.tuning.generation != Generation::Linux2_6_33 {
                self.books.unlink(task, cpu);
                self.books.link(task, cpu);
            }
            self.books.task_mut(task).ran_at = now;
        }
    }

    fn check(&self, cpu: PcpuId) {
        if cfg!(debug_assertions) {
            let members = self.books.check(cpu);
            self.order.check(cpu, members);
            self.check_level(cpu);
        }
    }
}

impl<O: Order> HostScheduler for Fair<O> {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        let averages = self.tuning.generation != Generation::Linux2_6_33;
        let weights = vms.iter().map(|vm| vm.weight.map(scaled));
        self.groups = Groups::of(weights, averages);
    }

    /// A VM that has a cgroup because of other settings has that cgroup's weight.
    fn know_cgroups(&mut self, cgroups: &Cgroups) {
        self.groups.know_cgroups(cgroups);
        self.ranks = Ranks::of(cgroups, &self.groups);
        if self.ranks.is_some() {
            self.crowds.tell_calm();
        }
        let pcpus = self.books.rqs.len();
        self.levels = Levels::of(&self.groups, cgroups.of_vms.len(), pcpus);
        self.quotas = Quotas::of(cgroups, pcpus, self.tuning.interleaves_quotas);
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        let known = host.task(task);
        let weight = scaled(known.spec.weight);
        let vm = known.vm().map(|vm| vm.index());
        self.order.add(weight, known.spec.slice);
        if let Some(vm) = vm.filter(|&vm| self.groups.get(vm).is_some_and(Group::is_group)) {
            self.order.is_grouped(vm);
        }
        let ranks = self.ranks.as_ref();
        if ranks.is_some_and(|ranks| ranks.is_within_idle(vm)) {
            self.order.is_idle();
        }
        if let Some(quotas) = &mut self.quotas {
            let around = known.vm().or(known.spec.helper_of);
            quotas.add(around.map(|vm| vm.index()), known.spec.vcpu.is_some());
        }
        if let Some(levels) = &mut self.levels {
            levels.add();
        }
        self.gangs.add();
        let mut member = Member::new(weight, vm, known.spec.allowed);
        member.last = known.spec.last_on;
        self.books.tasks.push(member);
        self.know_sibling(task, host.params().topology.pcpus());
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let now = host.now();
        self.books.age_task(task, now);
        let last = self.books.task(task).last;
        self.keep_apart(task);
        let cpu = match self.order.bound_to(task) {
            Some(cpu) => cpu,
            None => self.place(task, waker, now),
        };
        let wanted = self.update(cpu, now);
        self.end_idling(cpu, now);
        self.end_ghost(task, now);
        self.count_in_group(task, true, now);
        self.refresh_weight(task, now);
        self.bring_load(task, cpu, last.is_none(), now);
        let why = last.map_or(Join::New, Join::Woken);
        if last.is_some() {
            self.gangs.wakes(task);
        }
        self.attach(host, task, cpu, why);
        if let Some(here) = waker {
            self.order.woke(here);
        }
        self.woken_by_sibling(task, waker);
        match self.books.rq(cpu).current.is_some() {
            false => host.resched(cpu, waker),
            true if self.is_throttled(task) => {}
            true if self.preempts(cpu, task, now) || wanted => {
                // Timers interrupt the pCPU that the sleeper was on.
                let local = waker.or(last) == Some(cpu);
                self.preempt(host, cpu, waker, local);
            }
            true => _ = self.keep_stop_timer(host, cpu),
        }
        self.answer_quotas(host, waker, false);
        self.check(cpu);
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        let now = host.now();
        self.update(cpu, now);
        self.books.age_task(task, now);
        let load = self.books.task(task).load();
        self.detach(task, cpu, Leave::Sleeps, now);
        if !self.tuning.counts_sleepers() {
            let rq = self.books.rq_mut(cpu);
            rq.load.value = rq.load.value.saturating_sub(load);
        }
        if !self.stays_as_ghost(task, cpu) {
            self.count_in_group(task, false, now);
        }
        self.check_quotas(Some(task), cpu, now);
        self.answer_quotas(host, Some(cpu), true);
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let now = host.now();
        self.update(cpu, now);
        self.check_quotas(self.books.rq(cpu).current, cpu, now);
        if let Some(target) = self.books.rq_mut(cpu).push_to.take() {
            self.push_one(host, cpu, target);
        }
        if self.books.rq(cpu).all() == 0 {
            self.end_all_ghosts(cpu, now);
            self.go_idle(host, cpu);
        }
        let next = self.whose_turn(host, cpu);
        self.end_released(now);
        if next.is_some() {
            self.end_idling_at_switch(cpu, now);
        }
        let switches = self.books.rq(cpu).current != next;
        self.set_current(cpu, next, now);
        self.books.rq_mut(cpu).lazy = false;
        if switches || next.is_none() || !self.tuning.slice_at_switch {
            self.set_stop_timer(host, cpu);
        }
        self.answer_quotas(host, Some(cpu), true);
        self.check(cpu);
        next
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        let now = host.now();
        let over = self.update(cpu, now);
        self.leave_out_interrupt(host, cpu);
        if let Some(task) = self.books.rq(cpu).current {
            self.refresh_weight(task, now);
        }
        let over = self.order.tick(cpu) || over;
        if let Some(task) = self.books.rq(cpu).current.filter(|_| over) {
            self.gangs.slice_is_over(task);
        }
        let over = over || self.books.rq(cpu).lazy;
        if over && self.books.rq(cpu).of_this_class() > 1 {
            host.resched(cpu, Some(cpu));
        }
        let load = self.present_load(cpu);
        self.books.rq_mut(cpu).book_tick(load);
        self.balance_at_tick(host, cpu);
        self.answer_quotas(host, Some(cpu), false);
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        if self.quota_timer(host, token) {
            return;
        }
        let cpu = PcpuId::from(token as usize);
        let Some(rq) = self.books.rqs.get_mut(cpu.index()) else {
            return;
        };
        rq.stop_timer = EventId::NONE;
        host.resched(cpu, Some(cpu));
    }

    fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        let quotas = self.quotas.as_ref();
        quotas.map_or(0, |quotas| quotas.throttled(now, task))
    }

    fn directs_yields(&self) -> bool {
        true
    }

    fn flush_ipi(&mut self, host: &mut Host, task: TaskId) {
        self.flush_awaited(host, task);
    }

    /// `yield_task_fair()` and `yield_to_task_fair()`.
    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool {
        let now = host.now();
        self.update(cpu, now);
        if let Some(other) = to {
            let there = host.task(other).runqueue();
            let Some(there) = there.filter(|_| !self.is_throttled(other)) else {
                return false;
            };
            self.update(there, now);
            self.order.favour(there, other);
            if there != cpu {
                host.resched(there, Some(cpu));
            }
        }
        if self.books.rq(cpu).queued() > 1 {
            let siblings = self.siblings_beside(task, cpu);
            self.order.yields(cpu, siblings.as_deref());
            self.gangs.yields(cpu);
            host.resched(cpu, Some(cpu));
        }
        self.answer_quotas(host, Some(cpu), false);
        true
    }
}
