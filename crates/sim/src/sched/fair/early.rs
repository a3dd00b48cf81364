// SPDX-License-Identifier: GPL-2.0-only
//! On which pCPU a sleeper wakes up in Linux 2.6.33 (`select_task_rq_fair()` and `wake_affine()` of
//! kernel/sched_fair.c).
//!
//! That kernel does look for an idle pCPU near the one that the wake-up happens on, but only as a
//! better place to *pull* the task to. Whether it is pulled at all is decided by load alone, the
//! waker's pCPU against the one where the task ran last; if it is not, the task stays where it was,
//! behind whoever runs there, however many pCPUs idle. A timer's wake-up happens where the task was
//! and so does not move it. Later kernels take the idle pCPU that they found.

use super::domains::{Kind, Level};
use super::{Fair, Order};
use corun_model::{PcpuId, PcpuSet, TaskId};

impl<O: Order> Fair<O> {
    /// The pCPU for `task`, which ran on `last` and is woken on `here`.
    pub(super) fn place_early(&self, task: TaskId, here: PcpuId, last: PcpuId) -> PcpuId {
        let allowed = &self.books.task(task).allowed;
        let target = match allowed.contains(here) {
            true => self.pull_target(allowed, here, last),
            false => None,
        };
        match target {
            Some((target, level)) if self.pulls(task, here, last, &level) => target,
            _ => last,
        }
    }

    /// Where a wake-up on `here` would pull a task to that ran on `last`, and the innermost level
    /// that offers it: an idle pCPU that shares a cache with `here`, else `here` if both are in the
    /// domain.
    fn pull_target(
        &self,
        allowed: &PcpuSet,
        here: PcpuId,
        last: PcpuId,
    ) -> Option<(PcpuId, Level)> {
        let idle = |cpu: PcpuId| self.books.rq(cpu).nr == 0;
        let levels = (0..self.domains.depth()).filter_map(|n| self.domains.level(n));
        levels.into_iter().find_map(|level| {
            let domain = level.domain(here);
            let spans = domain.contains(&last.0);
            let mut target = spans.then_some(here);
            // SD_SHARE_PKG_RESOURCES
            if matches!(level.kind, Kind::Smt | Kind::Llc) {
                let open = |cpu: &PcpuId| allowed.contains(*cpu) && idle(*cpu);
                target = match spans && idle(last) {
                    true => Some(last),
                    false => domain.map(PcpuId).find(open).or(target),
                };
            }
            target.map(|target| (target, level))
        })
    }

    /// Is the load such that `task` is pulled from `last` towards `here` (`wake_affine()`)?
    fn pulls(&self, task: TaskId, here: PcpuId, last: PcpuId, level: &Level) -> bool {
        let weight = self.books.task(task).weight;
        let (this, there) = (self.present_load(here), self.present_load(last));
        let slack = u128::from(100 + (level.imbalance_pct - 100) / 2);
        let balanced =
            this == 0 || u128::from(this + weight) * 100 <= u128::from(there) * slack;
        // Or the other pCPU is no less loaded, and both together about as much as one task.
        let light = this <= there && this + there <= self.books.rq(here).load_per_task(this);
        balanced || light
    }
}
