// SPDX-License-Identifier: GPL-2.0-only
//! On which pCPU a sleeper wakes up in Linux 2.6.33 (`select_task_rq_fair()` and `wake_affine()` of
//! kernel/sched_fair.c).
//!
//! That kernel does look for an idle pCPU near the one that the wake-up happens on, but only as a
//! better place to *pull* the task to. Whether it is pulled at all is decided by load alone, the
//! waker's pCPU against the one where the task ran last. If it is not pulled, the task stays where
//! it was, behind the one that runs there, however many pCPUs idle. A timer's wake-up happens where
//! the task was and so does not move it. Later kernels take the idle pCPU that they found.

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

    /// Where a wake-up on `here` would pull a task that ran on `last` to, and the innermost level
    /// that offers that pCPU: an idle pCPU that shares a cache with `here`, else `here` if both are
    /// in the domain.
    fn pull_target(
        &self,
        allowed: &PcpuSet,
        here: PcpuId,
        last: PcpuId,
    ) -> Option<(PcpuId, Level)> {
        let idle = self.crowds.unclaimed();
        let open = allowed.and(idle);
        let mut levels = (0..self.domains.depth()).filter_map(|n| self.domains.level(n));
        levels.find_map(|level| {
            let domain = level.domain(here);
            let spans = domain.contains(&last.0);
            let mut target = spans.then_some(here);
            // SD_SHARE_PKG_RESOURCES
            if matches!(level.kind, Kind::Smt | Kind::Llc) {
                target = match spans && idle.contains(last) {
                    true => Some(last),
                    false => open.first_in(domain).or(target),
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
        let balanced = this == 0 || u128::from(this + weight) * 100 <= u128::from(there) * slack;
        // Or the other pCPU is no less loaded, and both together are loaded with about one task.
        let light = this <= there && this + there <= self.books.rq(here).load_per_task(this);
        balanced || light
    }
}

#[cfg(test)]
mod tests {
    use crate::sched::cfs::{CfsParams, fair};
    use crate::sched::fair::state::Member;
    use crate::testing::host;
    use corun_model::{PcpuId, PcpuSet, TaskId};

    const WEIGHT: u64 = 1024;

    /// Where a sleeper goes on a host of two caches with two pCPUs each, with so many tasks on them.
    fn goes(tasks: [u32; 4], here: u32, last: u32, allowed: &str) -> u32 {
        let params = host("1n2l2c1t", 1000);
        let mut cfs = fair(CfsParams::preset("2.6.33", 4).unwrap(), &params);
        let allowed: PcpuSet = allowed.parse().unwrap();
        cfs.books.tasks.push(Member::new(WEIGHT, None, allowed));
        for (cpu, nr) in (0..4).map(PcpuId).zip(tasks) {
            cfs.books.rq_mut(cpu).nr = nr;
            cfs.books.weights[cpu.index()] = WEIGHT * u64::from(nr);
            cfs.crowds.claim(cpu, nr);
        }
        cfs.place_early(TaskId(0), PcpuId(here), PcpuId(last)).0
    }

    #[test]
    fn a_timers_wake_up_stays_behind_the_task_that_runs_there() {
        assert_eq!(goes([1, 0, 0, 0], 0, 0, "0-3"), 0);
        assert_eq!(goes([2, 0, 0, 0], 0, 0, "0-3"), 0);
        // A load of eight times its weight is too much to stay behind.
        assert_eq!(goes([9, 0, 0, 0], 0, 0, "0-3"), 1);
    }

    #[test]
    fn an_idle_pcpu_that_was_found_counts_only_if_the_load_pulls() {
        // The waker's pCPU is as busy as the last one: stays, though pCPUs idle.
        assert_eq!(goes([1, 1, 0, 0], 0, 1, "0-3"), 1);
        assert_eq!(goes([1, 0, 1, 0], 0, 2, "0-3"), 2);
        // The last one has two: pulled to the idle pCPU next to the waker's, else to the waker's.
        assert_eq!(goes([1, 0, 2, 0], 0, 2, "0-3"), 1);
        assert_eq!(goes([1, 1, 2, 0], 0, 2, "0-3"), 0);
        assert_eq!(goes([1, 0, 2, 0], 0, 2, "0,2-3"), 0);
    }

    #[test]
    fn an_interrupt_on_an_idle_pcpu_pulls() {
        assert_eq!(goes([0, 0, 1, 0], 1, 2, "0-3"), 0);
        assert_eq!(goes([0, 0, 1, 0], 1, 2, "1-3"), 1);
        // An idle last pCPU in the same cache domain is better still.
        assert_eq!(goes([0, 0, 1, 1], 0, 1, "0-3"), 1);
        // A task that may not run on the waker's pCPU is not pulled at all.
        assert_eq!(goes([0, 0, 1, 0], 1, 2, "0,2-3"), 2);
    }
}
