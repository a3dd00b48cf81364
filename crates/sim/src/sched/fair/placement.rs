// SPDX-License-Identifier: GPL-2.0-only
//! On which pCPU a task wakes up (`select_task_rq_fair()`).
//!
//! A new task goes to the idlest pCPU of the idlest group, from the host down to the core
//! (`find_idlest_group()`, `find_idlest_cpu()`). A sleeper chooses between the pCPU it ran on last
//! and the one its wake-up comes from (`wake_affine()`), then looks for an idle pCPU that shares the
//! LLC of that choice ([`super::search`]). 2.6.33 was different: [`super::early`].
//!
//! A wake-up from a device or timer is taken to happen on the pCPU that the task ran on last: KVM's
//! timers follow the vCPU. A new task that no task on a pCPU wakes is started from pCPU 0. Left
//! out: synchronous wake-ups and NUMA preferences.

use super::tuning::Generation;
use super::{Fair, Order, Siblings};
use corun_model::{Nanos, PcpuId, TaskId, time::SEC};
use std::ops::Range;

impl<O: Order> Fair<O> {
    /// The pCPU for `task`, which wakes up.
    pub(super) fn place(&mut self, task: TaskId, waker: Option<PcpuId>, now: Nanos) -> PcpuId {
        let member = self.books.task(task);
        let Some(last) = member.last else {
            return self.place_new(task, waker.unwrap_or(PcpuId(0)), now);
        };
        let found = match self.tuning.generation {
            Generation::Linux2_6_33 => self.place_early(task, waker.unwrap_or(last), last),
            _ => self.place_sleeper(task, waker, last, now),
        };
        match self.books.task(task).allowed.contains(found) {
            true => found,
            false if matches!(self.tuning.siblings, Siblings::Light(_)) => {
                self.lightest(task, last)
            }
            false => self.least_crowded(task, found),
        }
    }

    /// The pCPU for a sleeper, since 4.x.
    fn place_sleeper(
        &mut self,
        task: TaskId,
        waker: Option<PcpuId>,
        last: PcpuId,
        now: Nanos,
    ) -> PcpuId {
        let here = waker.unwrap_or(last);
        let wide = waker.is_some() && self.wakes_many(task, here, now);
        let pulls = !wide && self.books.task(task).allowed.contains(here);
        let mut target = last;
        if pulls && here != last {
            self.books.age_rq(here, now);
            self.books.age_rq(last, now);
            target = self.affine(task, here, last);
        }
        let found = self.idle_near(task, target, last, here);
        if pulls {
            self.remember_waking(here);
        }
        found
    }

    /// Of the pCPUs that a task may use, the one with the fewest tasks; `otherwise` if it may use none.
    fn least_crowded(&self, task: TaskId, otherwise: PcpuId) -> PcpuId {
        let pcpus = self.books.rqs.len() as u32;
        let open = self.books.task(task).allowed;
        let open = open.iter().filter(|cpu| cpu.0 < pcpus);
        open.min_by_key(|cpu| self.books.rq(*cpu).nr)
            .unwrap_or(otherwise)
    }

    /// The pCPU for a task that has just been created and will be run by a higher class.
    pub(crate) fn place_as_new(
        &mut self,
        task: TaskId,
        from: Option<PcpuId>,
        now: Nanos,
    ) -> PcpuId {
        self.place_new(task, from.unwrap_or(PcpuId(0)), now)
    }

    /// The idlest pCPU, level by level (`find_idlest_group()`).
    fn place_new(&mut self, task: TaskId, here: PcpuId, now: Nanos) -> PcpuId {
        if let Some(outermost) = self.domains.depth().checked_sub(1) {
            self.age_domain(here, outermost, now);
        }
        let mut at = here;
        for level in (0..self.domains.depth()).rev() {
            let Some(level) = self.domains.level(level) else {
                break;
            };
            let mut best: Option<(u64, PcpuId)> = None;
            for (n, group) in level.groups(at).enumerate() {
                let Some((load, cpu)) = self.group_for_new(task, group.clone(), at) else {
                    continue;
                };
                // Others must be clearly better than the own group.
                let biased = match n {
                    0 => load * 100,
                    _ => load * (100 + (level.imbalance_pct - 100) / 2),
                };
                if best.is_none_or(|(least, _)| biased < least) {
                    best = Some((biased, cpu));
                }
            }
            match best {
                Some((_, cpu)) => at = cpu,
                None => break,
            }
        }
        self.allowed_near(task, at)
    }

    /// A group's mean load, and its pCPU for a new task: the least loaded, `at` among equals.
    fn group_for_new(&self, task: TaskId, group: Range<u32>, at: PcpuId) -> Option<(u64, PcpuId)> {
        let size = u64::from(group.end - group.start);
        let mut best: Option<((u64, bool), PcpuId)> = None;
        let mut total = 0;
        for cpu in group.map(PcpuId) {
            // The number of tasks is added: a pCPU of equal tracked load may be idle at present.
            let load = self.present_load(cpu) + u64::from(self.books.rq(cpu).queued());
            total += load;
            let rank = (load, cpu != at);
            if self.books.task(task).allowed.contains(cpu)
                && best.is_none_or(|(least, _)| rank < least)
            {
                best = Some((rank, cpu));
            }
        }
        best.map(|(_, cpu)| (total / size, cpu))
    }

    /// `cpu` if `task` may use it, else the first pCPU that it may use.
    fn allowed_near(&self, task: TaskId, cpu: PcpuId) -> PcpuId {
        let allowed = &self.books.task(task).allowed;
        match allowed.contains(cpu) {
            true => cpu,
            false => allowed.iter().next().unwrap_or(cpu),
        }
    }

    /// Does the task that runs on `here` wake so many others that pulling them to it would not do
    /// (`wake_wide()`, since 3.12)? Also books this wake-up.
    fn wakes_many(&mut self, task: TaskId, here: PcpuId, now: Nanos) -> bool {
        let Some(waker) = self.books.rq(here).current else {
            return false;
        };
        let member = self.books.task_mut(waker);
        if now.saturating_sub(member.flips_since) > SEC {
            member.flips /= 2;
            member.flips_since = now;
        }
        if member.wakee != Some(task) {
            member.wakee = Some(task);
            member.flips = member.flips.saturating_add(1);
        }
        let (a, b) = (self.books.task(waker).flips, self.books.task(task).flips);
        let (master, slave) = (a.max(b), a.min(b));
        let factor = self.domains.llc_size();
        slave >= factor && master >= slave.saturating_mul(factor)
    }

    /// `here`, where the wake-up comes from, or `last`, where the task was (`wake_affine()`).
    fn affine(&self, task: TaskId, here: PcpuId, last: PcpuId) -> PcpuId {
        let idle = |cpu| self.books.rq(cpu).idle();
        if idle(here) && self.domains.share_llc(here, last) {
            return if idle(last) { last } else { here };
        }
        if idle(last) {
            return last;
        }
        let load = self.books.task(task).load();
        let pct = self
            .domains
            .common(here, last)
            .map_or(125, |level| level.imbalance_pct);
        let slack = i128::from(100 + (pct - 100) / 2);
        let (there, here_load) = (self.present_load(last), self.present_load(here));
        // Subtracted from the last pCPU's load even where that does not include sleepers' load (up to 5.4): a bias in
        // favour of that pCPU.
        let with = i128::from(here_load + load) * 100;
        let without = (i128::from(there) - i128::from(load)) * slack;
        if with < without { here } else { last }
    }

    /// The load of `cpu` as placement sees it.
    pub(super) fn present_load(&self, cpu: PcpuId) -> u64 {
        match self.tuning.tracks_load() {
            true => self.books.rq(cpu).load.value,
            false => self.books.weight(cpu),
        }
    }
}
