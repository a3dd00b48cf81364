// SPDX-License-Identifier: GPL-2.0-only
//! Moving ready tasks from one runqueue to another (`can_migrate_task()`, `detach_tasks()`,
//! `active_load_balance_cpu_stop()`).

use super::tuning::Generation;
use super::{Fair, Join, Leave, Order};
use crate::host::Host;
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};

/// How much to move, and in what it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Weighted load.
    Load(u64),
    /// Use of a pCPU, of [`FULL`](super::decay::FULL).
    Util(u64),
    /// Tasks.
    Tasks(u64),
}

impl Amount {
    pub(super) fn left(self) -> bool {
        match self {
            Amount::Load(n) | Amount::Util(n) | Amount::Tasks(n) => n > 0,
        }
    }
}

/// From where to where, and how hard to try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) from: PcpuId,
    pub(super) to: PcpuId,
    pub(super) amount: Amount,
    /// Attempts of this domain that moved nothing, and how many of them spare cache-hot tasks.
    pub(super) failed: u32,
    pub(super) patience: u32,
    /// Is `to` about to idle, and so about to pick?
    pub(super) newidle: bool,
    /// Are the two on one core, whose caches they share?
    pub(super) same_core: bool,
}

/// What came of an attempt (the `LBF_*` flags and `env->imbalance`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) tasks: u32,
    /// What is left to move.
    pub(super) left: Amount,
    /// Did affinity keep a candidate where it is, or all of them?
    pub(super) some_pinned: bool,
    pub(super) all_pinned: bool,
    /// Where one of those may go instead.
    pub(super) instead: Option<PcpuId>,
}

/// The most tasks looked at in one attempt (`sysctl_sched_nr_migrate`).
const MOST_LOOKED_AT: u32 = 32;

impl<O: Order> Fair<O> {
    /// Moves ready tasks as `transfer` says. One that may not go there may go to a pCPU of
    /// `others` another time.
    pub(super) fn move_tasks(
        &mut self,
        host: &mut Host,
        transfer: Transfer,
        others: &PcpuSet,
    ) -> Moved {
        let now = host.now();
        // 2.6.33 takes the newest first, later kernels the one that has waited longest.
        let newest_first = self.tuning.generation == Generation::Linux2_6_33;
        let mut next = self.books.members(transfer.from, newest_first);
        let mut moved = Moved {
            tasks: 0,
            left: transfer.amount,
            some_pinned: false,
            all_pinned: true,
            instead: None,
        };
        let rq = self.books.rq(transfer.from);
        for _ in 0..rq.of_this_class().min(MOST_LOOKED_AT) {
            let Some(task) = next else { break };
            next = self.books.next_member(task, newest_first);
            if !moved.left.left() || self.books.rq(transfer.from).queued() < 2 {
                break;
            }
            match self.left_after(task, &transfer, &mut moved, others, now) {
                Some(left) => moved.left = left,
                None => {
                    if !newest_first {
                        // Next time this task is looked at last.
                        self.books.unlink(task, transfer.from);
                        self.books.link(task, transfer.from);
                    }
                    continue;
                }
            }
            match self.books.task(task).ghost {
                Some(_) => self.move_ghost(host, task, transfer.to, transfer.newidle),
                None => self.move_task(host, task, transfer.from, transfer.to, transfer.newidle),
            }
            moved.tasks += 1;
            if transfer.newidle && self.stops_at_one() {
                break;
            }
        }
        moved
    }

    /// What is left to move after `task`; `None` if it may not be moved. What affinity prevents is noted in `moved`.
    fn left_after(
        &mut self,
        task: TaskId,
        transfer: &Transfer,
        moved: &mut Moved,
        others: &PcpuSet,
        now: Nanos,
    ) -> Option<Amount> {
        if self.is_held(task, transfer.from, transfer.to)
            || self.may_not_move_ghost(task, transfer.amount)
            || transfer.failed == 0 && !self.may_go_at_once(task, transfer.from, transfer.to)
        {
            return None;
        }
        let allowed = &self.books.task(task).allowed;
        if !allowed.contains(transfer.to) {
            moved.some_pinned = true;
            moved.instead = moved.instead.or(allowed.and(others).iter().next());
            return None;
        }
        moved.all_pinned = false;
        match self.may_move(task, transfer, now) {
            true => self.take(task, moved.left, transfer.failed, now),
            false => None,
        }
    }

    /// Is one task enough for a pCPU about to idle? Only where the kernel can be preempted (`CONFIG_PREEMPTION`): since
    /// 5.12 that is any kernel that may choose it at boot, as distributions' kernels do; Fedora's 2.6.33 and Ubuntu's
    /// 4.x had `CONFIG_PREEMPT_VOLUNTARY`.
    fn stops_at_one(&self) -> bool {
        self.tuning.generation == Generation::Linux6
    }

    /// A task may move if it is not running, and not cache-hot unless that has been respected often enough. Since 5.10
    /// no task counts as cache-hot within a core.
    fn may_move(&self, task: TaskId, transfer: &Transfer, now: Nanos) -> bool {
        if self.books.rq(transfer.from).current == Some(task) {
            return false;
        }
        let lately = now.saturating_sub(self.books.task(task).ran_at) < self.tuning.migration_cost;
        let hot = lately && !(transfer.same_core && self.tuning.generation == Generation::Linux6);
        !hot || transfer.failed > transfer.patience
    }

    /// What is left to move after `task`; `None` if it is too much for what is wanted.
    fn take(&mut self, task: TaskId, amount: Amount, failed: u32, now: Nanos) -> Option<Amount> {
        self.books.age_task(task, now);
        let member = self.books.task(task);
        let shrunk = |value: u64| value >> failed.min(63);
        match amount {
            Amount::Load(wanted) => {
                let load = if self.tuning.tracks_load() {
                    member.load().max(1)
                } else {
                    member.weight
                };
                let fits = match self.tuning.generation {
                    Generation::Linux6 => shrunk(load) <= wanted,
                    _ => load / 2 <= wanted,
                };
                fits.then(|| Amount::Load(wanted.saturating_sub(load)))
            }
            Amount::Util(wanted) => {
                let util = member.util.value;
                (shrunk(util) <= wanted).then(|| Amount::Util(wanted.saturating_sub(util)))
            }
            Amount::Tasks(wanted) => Some(Amount::Tasks(wanted - 1)),
        }
    }

    /// Moves the ready task `task`.
    pub(super) fn move_task(
        &mut self,
        host: &mut Host,
        task: TaskId,
        from: PcpuId,
        to: PcpuId,
        quiet: bool,
    ) {
        let now = host.now();
        self.books.age_task(task, now);
        self.update_from_afar(host, from);
        let wanted = self.update(to, now);
        let member = self.books.task(task);
        let part = member.part();
        self.detach(task, from, Leave::Moves, now);
        self.books.carry(&part, from, to);
        self.attach(host, task, to, Join::Moved);
        if !quiet && !self.is_throttled(task) {
            let runs = self.books.rq(to).current.is_some();
            let preempts = !runs || self.preempts(to, task, now) || wanted;
            if preempts {
                host.resched(to, None);
            } else {
                self.keep_stop_timer(host, to);
            }
        }
    }

    /// Active balancing: `from` gives a task, its current one if need be, to `to`.
    pub(super) fn push_one(&mut self, host: &mut Host, from: PcpuId, to: PcpuId) {
        let now = host.now();
        let newest_first = self.tuning.generation == Generation::Linux2_6_33;
        if self.books.rq(from).current.is_some() {
            // The kernel's stopper thread takes the pCPU from it.
            self.set_current(from, None, now);
        }
        let mut next = self.books.members(from, newest_first);
        while let Some(task) = next {
            let member = self.books.task(task);
            let free = member.ghost.is_none() && !self.is_held(task, from, to);
            if free && member.allowed.contains(to) {
                self.move_task(host, task, from, to, false);
                return;
            }
            next = self.books.next_member(task, newest_first);
        }
    }

    /// Asks `from` to push a task to `to`, if its current one may go there.
    pub(super) fn ask_to_push(&mut self, host: &mut Host, from: PcpuId, to: PcpuId) -> bool {
        let rq = self.books.rq(from);
        let current_may = rq
            .current
            .is_some_and(|task| self.books.task(task).allowed.contains(to));
        if !current_may || rq.push_to.is_some() {
            return false;
        }
        self.books.rq_mut(from).push_to = Some(to);
        host.resched(from, Some(to));
        true
    }
}
