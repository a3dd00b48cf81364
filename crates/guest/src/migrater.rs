// SPDX-License-Identifier: GPL-2.0-only
//! Between the heartbeats and the decisions: what beats, requests and masks mean to
//! [`Core`], and what its moves mean to threads.
//!
//! Every heartbeat asks for decisions, so that they are made on some vCPU that runs. The migrater is behind a lock that
//! beats only try: a holder that was descheduled costs a few decisions, not the others' beats.

use crate::counts::{Moves, VcpuCounts};
use crate::detector::Detector;
use crate::pins::Pins;
use crate::state::{Before, set_back};
use corun_model::time::US;
use corun_model::{Nanos, PcpuId, PcpuSet};
use corun_policies::vmigrater::{Activity, Beat, Core, MigraterParams, Move};
use corun_system::affinity;
use corun_system::procfs::{Proc, ThreadKey};
use std::collections::BTreeMap;
use std::io;

/// A thread that may be moved: it is written down in the state file.
#[derive(Clone, Copy, Debug)]
struct Task {
    key: ThreadKey,
    /// What to give back to it.
    before: Before,
    /// Where it was moved to last; `None`: it still has its own mask.
    pinned: Option<u32>,
    /// When it was last I/O-bound.
    bound: Nanos,
    /// The number of the order that is under way.
    moving: Option<u64>,
}

/// What became of a move.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The thread may run there only.
    Made,
    /// Somebody else has set its mask since; it was left alone.
    Foreign,
    /// The kernel refused it.
    Refused(io::Error),
}

/// Why a thread is out of our hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It has gone.
    Gone,
    /// Somebody else has set its mask, which stays.
    Foreign,
    /// The kernel does not let us move it. It may have the mask of its last move.
    Refused,
}

/// A move that is to be made, with the mask that the thread has if nobody else has set it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) what: Move,
    key: ThreadKey,
    before: Before,
    expected: PcpuSet,
    /// No other order has it.
    number: u64,
}

impl Order {
    /// Makes the move. This may take as long as the thread's vCPU is descheduled, if the thread was running there.
    ///
    /// The order may have waited for as long, too: meanwhile the thread may have ended, and another thread may have its
    /// number.
    pub(crate) fn carry_out(&self, proc: &Proc) -> Outcome {
        let gone = || Outcome::Refused(io::Error::from_raw_os_error(libc::ESRCH));
        if !proc.is_there(&self.key) {
            return gone();
        }
        match affinity::get(self.key.tid) {
            // The mask is empty if its vCPU was unplugged while the thread slept.
            Ok(mask) if !mask.is_empty() && mask != self.expected => return Outcome::Foreign,
            Err(error) => return Outcome::Refused(error),
            Ok(_) => {}
        }
        match affinity::pin(self.key.tid, PcpuId(self.what.to)) {
            Ok(()) if proc.is_there(&self.key) => Outcome::Made,
            Ok(()) => {
                self.free_stranger();
                gone()
            }
            Err(error) => Outcome::Refused(error),
        }
    }

    /// The thread ended in the middle of its move: if another one has its number by now and was moved instead, frees
    /// that one.
    fn free_stranger(&self) {
        if self.is_where_moved() {
            // It may have gone as well: then there is nothing to free.
            let _ = affinity::free(self.key.tid);
        }
    }

    /// Gives the thread back what it had again: that had happened already before this order was carried out.
    pub(crate) fn undo(&self, proc: &Proc) {
        if self.is_where_moved() {
            // The kernel let us set its mask a moment ago.
            let _ = set_back(proc, &self.key, &self.before);
        }
    }

    fn is_where_moved(&self) -> bool {
        let there = affinity::only(self.what.to);
        affinity::get(self.key.tid).is_ok_and(|mask| mask == there)
    }
}

/// A vCPU that began to run something this shortly before its beat was woken by the beat (assumed: a thread switch
/// takes a few us; in a nested guest some tens).
const WOKEN: Nanos = 50 * US;

/// What all beats share.
pub(crate) struct Migrater {
    core: Core,
    vcpus: PcpuSet,
    tasks: BTreeMap<u32, Task>,
    pub(crate) pins: Pins,
    /// Orders so far.
    orders: u64,
    pub(crate) detector: Detector,
    /// May anything be moved now?
    pub(crate) at_work: bool,
    pub(crate) moves: Moves,
    counts: BTreeMap<u32, VcpuCounts>,
    /// When a vCPU was last found to have been descheduled.
    shared: Option<Nanos>,
    /// Time stolen from vCPUs so far, as of their last gaps.
    stolen: BTreeMap<u32, Nanos>,
    /// Threads that are out of our hands.
    pub(crate) lost: Vec<(ThreadKey, Loss)>,
}

impl Migrater {
    pub(crate) fn new(params: MigraterParams, vcpus: PcpuSet, detector: Detector) -> Self {
        Self {
            core: core(params, &vcpus),
            vcpus,
            tasks: BTreeMap::new(),
            pins: Pins::default(),
            orders: 0,
            detector,
            at_work: false,
            moves: Moves::default(),
            counts: BTreeMap::new(),
            shared: None,
            stolen: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Beats come at another pace from now on, or from other vCPUs: what was learnt no longer holds.
    pub(crate) fn restart(&mut self, params: MigraterParams, vcpus: PcpuSet, now: Nanos) {
        self.core = core(params, &vcpus);
        self.vcpus = vcpus;
        for (&tid, task) in &self.tasks {
            let vcpu = task.pinned.unwrap_or_else(|| self.detector.vcpu(tid));
            self.core.task_appeared(u64::from(tid), vcpu, 0, now);
        }
    }

    pub(crate) fn params(&self) -> &MigraterParams {
        self.core.params()
    }

    /// A thread may be moved from now on; it is on `vcpu`, and was allowed `before`.
    pub(crate) fn add(
        &mut self,
        key: ThreadKey,
        before: Before,
        vcpu: u32,
        now: Nanos,
    ) -> io::Result<()> {
        self.detector.watch(&key, now)?;
        let task = Task {
            key,
            before,
            pinned: None,
            bound: now,
            moving: None,
        };
        self.tasks.insert(key.tid, task);
        self.pins.begin(key, before);
        self.core.task_appeared(u64::from(key.tid), vcpu, 0, now);
        Ok(())
    }

    /// A thread may not be moved any more.
    pub(crate) fn remove(&mut self, key: &ThreadKey) {
        if self.knows(key) {
            self.detector.unwatch(key.tid);
            self.core.task_gone(u64::from(key.tid));
            self.tasks.remove(&key.tid);
        }
    }

    /// May this very thread be moved?
    pub(crate) fn knows(&self, key: &ThreadKey) -> bool {
        self.tasks
            .get(&key.tid)
            .is_some_and(|task| task.key == *key)
    }

    /// All threads that may be moved.
    pub(crate) fn keys(&self) -> Vec<ThreadKey> {
        self.tasks.values().map(|task| task.key).collect()
    }

    /// Those that have not been I/O-bound for `time`.
    pub(crate) fn unbound_for(&self, time: Nanos, now: Nanos) -> Vec<ThreadKey> {
        let unbound = |task: &&Task| now.saturating_sub(task.bound) > time;
        let tasks = self.tasks.values().filter(unbound);
        tasks.map(|task| task.key).collect()
    }

    /// How many are I/O-bound.
    pub(crate) fn bound(&self) -> usize {
        let is_bound = |tid: &&u32| self.core.io_bound(u64::from(**tid)) == Some(true);
        self.tasks.keys().filter(is_bound).count()
    }

    /// When a vCPU was last found to have been descheduled.
    pub(crate) fn shared(&self) -> Option<Nanos> {
        self.shared
    }

    pub(crate) fn counts(&self) -> Vec<VcpuCounts> {
        let slice = |vcpu: u32| self.core.monitor(vcpu)?.slice(self.core.params());
        let with_slice = |count: &VcpuCounts| VcpuCounts {
            slice_ns: slice(count.vcpu),
            ..*count
        };
        self.counts.values().map(with_slice).collect()
    }

    /// Takes in the heartbeats of `vcpu` that found the migrater taken, in their order.
    pub(crate) fn catch_up(&mut self, vcpu: u32, missed: &[Nanos]) {
        for &then in missed {
            let regular = self.is_regular(vcpu, then);
            self.hear(vcpu, then, regular);
        }
    }

    /// Has the vCPU been active up to its beat at `now`?
    fn is_regular(&self, vcpu: u32, now: Nanos) -> bool {
        let monitor = self.core.monitor(vcpu);
        let activity = monitor.map(|it| it.activity(self.core.params(), now));
        matches!(activity, Some(Activity::Active { .. }))
    }

    fn hear(&mut self, vcpu: u32, now: Nanos, regular: bool) {
        let stolen = self.stolen(vcpu, regular);
        let heard = self.core.heartbeat(vcpu, now, stolen);
        self.count(vcpu, now, heard);
    }

    /// The heartbeat of `vcpu` at `now`; returns the moves to make.
    pub(crate) fn beat(&mut self, vcpu: u32, now: Nanos) -> Vec<Order> {
        let regular = self.is_regular(vcpu, now);
        self.feed(vcpu, now, regular);
        if self.idled_until(vcpu, now) {
            self.core.woke_up(vcpu, now);
        }
        self.hear(vcpu, now, regular);
        if !self.at_work || self.tasks.is_empty() {
            return Vec::new();
        }
        for (tid, task) in &mut self.tasks {
            if self.core.io_bound(u64::from(*tid)) == Some(true) {
                task.bound = now;
            }
        }
        let moves = self.core.decide(now);
        moves.iter().filter_map(|it| self.order(it, now)).collect()
    }

    /// By how much the next beat of `vcpu`, whose heart has just beaten at `now`, is delayed because the vCPU idles.
    pub(crate) fn rest(&mut self, vcpu: u32, now: Nanos) -> Nanos {
        match self.idled_until(vcpu, now) {
            true => self.core.idled(vcpu),
            false => 0,
        }
    }

    /// Did `vcpu` idle until its heart beat at `now`?
    fn idled_until(&self, vcpu: u32, now: Nanos) -> bool {
        let since = self.detector.awake_since(vcpu);
        since.is_some_and(|since| now.saturating_sub(since) < WOKEN)
    }

    /// The time stolen from `vcpu` so far. The kernel is asked only after a gap. It accounts for stolen time in its
    /// tick, so an unchanged value may mean that no tick has come since: then it is not known.
    fn stolen(&mut self, vcpu: u32, regular: bool) -> Option<Nanos> {
        let before = self.stolen.get(&vcpu).copied();
        if regular {
            return before;
        }
        let now = self.detector.stolen(vcpu)?;
        self.stolen.insert(vcpu, now);
        (before != Some(now)).then_some(now)
    }

    /// Passes on what the threads on `vcpu` did since its last beat.
    fn feed(&mut self, vcpu: u32, now: Nanos, regular: bool) {
        for (&tid, task) in &self.tasks {
            let id = u64::from(tid);
            if task.pinned.is_none() {
                self.core.task_located(id, self.detector.vcpu(tid), now);
            }
            if self.core.vcpu_of(id) == Some(vcpu) {
                self.detector.feed(&mut self.core, tid, now, regular);
            }
        }
    }

    fn count(&mut self, vcpu: u32, now: Nanos, heard: Beat) {
        let count = self.counts.entry(vcpu).or_default();
        count.vcpu = vcpu;
        count.beats += 1;
        if heard == Beat::Rescheduled {
            count.descheduled += 1;
            let monitor = self.core.monitor(vcpu);
            count.away_ns += monitor.and_then(|it| it.away()).unwrap_or(0);
            self.shared = Some(now);
        }
    }

    /// The move as an order; `None`: the thread's last one is not over yet.
    fn order(&mut self, what: &Move, now: Nanos) -> Option<Order> {
        let tid = u32::try_from(what.task).ok()?;
        let task = self.tasks.get_mut(&tid)?;
        if task.moving.is_some() {
            self.core.task_located(what.task, what.from, now);
            return None;
        }
        self.orders += 1;
        task.moving = Some(self.orders);
        self.pins.ordered(&task.key, what.to, now);
        Some(Order {
            what: *what,
            key: task.key,
            before: task.before,
            expected: task.pinned.map_or(self.vcpus, affinity::only),
            number: self.orders,
        })
    }

    /// A move was tried, and took this long. Threads that have gone, or are not ours to place, are lost. `false`: the
    /// thread was given back after it was ordered, so that the move must be undone.
    #[must_use]
    pub(crate) fn done(
        &mut self,
        order: &Order,
        outcome: &Outcome,
        took: Nanos,
        now: Nanos,
    ) -> bool {
        self.moves.longest_ns = self.moves.longest_ns.max(took);
        let task = self.tasks.get_mut(&order.key.tid);
        let Some(task) = task.filter(|task| task.moving == Some(order.number)) else {
            return !matches!(outcome, Outcome::Made);
        };
        task.moving = None;
        let loss = match outcome {
            Outcome::Made => {
                task.pinned = Some(order.what.to);
                self.pins.moved(&order.key, now);
                self.moves.count(order.what.why);
                return true;
            }
            Outcome::Foreign => {
                self.moves.foreign += 1;
                Loss::Foreign
            }
            Outcome::Refused(error) if affinity::is_gone(error) => Loss::Gone,
            Outcome::Refused(_) => {
                self.moves.refused += 1;
                Loss::Refused
            }
        };
        let key = task.key;
        self.core
            .task_located(order.what.task, order.what.from, now);
        self.remove(&key);
        self.lost.push((key, loss));
        true
    }
}

/// Numbers of vCPUs may have holes; the core takes those for vCPUs that never beat.
fn core(params: MigraterParams, vcpus: &PcpuSet) -> Core {
    Core::new(params, vcpus.iter().last().map_or(0, |cpu| cpu.0 + 1))
}

#[cfg(test)]
mod tests;
