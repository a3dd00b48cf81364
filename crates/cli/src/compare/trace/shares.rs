// SPDX-License-Identifier: GPL-2.0-only
//! How much pCPU time each VM had, interval by interval, and how many vCPUs want a pCPU.

use corun_model::{Nanos, VmId, time::MS};
use corun_sim::host::TaskState;

/// Length of an interval.
pub const INTERVAL: Nanos = 10 * MS;

#[derive(Clone, Default)]
struct Share {
    /// vCPUs that have a pCPU.
    running: u64,
    /// The time since which that holds, or since the interval began.
    since: Nanos,
    /// Run time of the interval up to then, summed over the vCPUs.
    run: Nanos,
}

impl Share {
    fn settle(&mut self, now: Nanos) {
        self.run += self.running * (now - self.since);
        self.since = now;
    }
}

/// Adds up what states show.
#[derive(Default)]
pub struct Shares {
    vms: Vec<Share>,
    /// When the interval began.
    began: Nanos,
    runnable: u64,
}

impl Shares {
    /// Makes this VM known.
    pub fn know(&mut self, vm: VmId) {
        let least = vm.index() + 1;
        if self.vms.len() < least {
            self.vms.resize(least, Share::default());
        }
    }

    /// vCPUs that have or want a pCPU, on the whole host.
    pub fn runnable(&self) -> u64 {
        self.runnable
    }

    /// A vCPU of `vm` goes from `old` to `new`.
    pub fn state(&mut self, now: Nanos, vm: VmId, old: TaskState, new: TaskState) {
        self.know(vm);
        let share = &mut self.vms[vm.index()];
        share.settle(now);
        let runs = |state| u64::from(matches!(state, TaskState::Running(_)));
        share.running = share.running + runs(new) - runs(old);
        let wants = |state| u64::from(state != TaskState::Waiting);
        self.runnable = self.runnable + wants(new) - wants(old);
    }

    /// If an interval is over by `now`: its end and each VM's share of a pCPU in it, percent.
    pub fn over(&mut self, now: Nanos) -> Option<(Nanos, Vec<(VmId, i64)>)> {
        let end = self.began + INTERVAL;
        if now < end {
            return None;
        }
        self.began = end;
        let share = |(index, share): (usize, &mut Share)| {
            share.settle(end);
            let percent = std::mem::take(&mut share.run) * 100 / INTERVAL;
            (VmId::from(index), percent as i64)
        };
        Some((end, self.vms.iter_mut().enumerate().map(share).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::PcpuId;

    #[test]
    fn shares_of_intervals() {
        let mut shares = Shares::default();
        let (vm, runs) = (VmId(0), TaskState::Running(PcpuId(0)));
        shares.state(0, vm, TaskState::Waiting, TaskState::Ready);
        shares.state(4 * MS, vm, TaskState::Ready, runs);
        shares.state(6 * MS, vm, TaskState::Waiting, runs);
        assert_eq!(shares.runnable(), 2);
        assert_eq!(shares.over(9 * MS), None);
        // 6 ms of the one, 4 ms of the other; then both all the time.
        assert_eq!(shares.over(25 * MS), Some((10 * MS, vec![(vm, 100)])));
        assert_eq!(shares.over(25 * MS), Some((20 * MS, vec![(vm, 200)])));
        assert_eq!(shares.over(25 * MS), None);
    }
}
