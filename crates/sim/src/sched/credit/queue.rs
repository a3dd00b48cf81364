// SPDX-License-Identifier: GPL-2.0-only
//! One pCPU's queue: by priority, first come first served within one.

use super::accounts::Priority;
use crate::event_queue::EventId;
use corun_model::{Nanos, PcpuId, TaskId};
use std::collections::VecDeque;

/// A pCPU (`struct csched_pcpu`). The current vCPU is not on its queue.
#[derive(Debug)]
pub(super) struct Pcpu {
    pub(super) queue: VecDeque<TaskId>,
    pub(super) current: Option<TaskId>,
    /// Since when it has been the current one.
    pub(super) since: Nanos,
    /// It idles and has not been told about work yet.
    pub(super) idler: bool,
    /// The slice of vCPUs that run here.
    pub(super) slice: Nanos,
    pub(super) slice_timer: EventId,
    pub(super) ticker: EventId,
    /// A time at which a tick was or would have been; the others are whole periods from it.
    pub(super) tick_phase: Nanos,
    /// Where the next search for an idle pCPU of this core or socket goes on.
    pub(super) idle_bias: PcpuId,
    /// The pCPU that a wake-up from here told about work last.
    pub(super) last_tickled: PcpuId,
    /// The accounting after which the queue was sorted.
    sorted: u64,
}

impl Pcpu {
    pub(super) fn new(slice: Nanos, tick_phase: Nanos, pcpus: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            current: None,
            since: 0,
            idler: true,
            slice,
            slice_timer: EventId::NONE,
            ticker: EventId::NONE,
            tick_phase,
            idle_bias: PcpuId(pcpus - 1),
            last_tickled: PcpuId(0),
            sorted: 0,
        }
    }

    /// How many vCPUs are ready here, the current one included.
    pub(super) fn ready(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }

    /// `__runq_insert()`: behind its equals; a vCPU that yields, behind one of lower priority, too.
    pub(super) fn insert(&mut self, task: TaskId, yields: bool, of: impl Fn(TaskId) -> Priority) {
        let own = of(task);
        let lower = self.queue.iter().position(|&other| own > of(other));
        let at = match lower {
            Some(at) => at + usize::from(yields),
            None => self.queue.len(),
        };
        self.queue.insert(at, task);
    }

    /// Before its equals.
    pub(super) fn insert_first(&mut self, task: TaskId, of: impl Fn(TaskId) -> Priority) {
        let own = of(task);
        let at = self.queue.iter().position(|&other| own >= of(other));
        self.queue.insert(at.unwrap_or(self.queue.len()), task);
    }

    /// Takes a vCPU off the queue, if it is there.
    pub(super) fn remove(&mut self, task: TaskId) {
        self.queue.retain(|&other| other != task);
    }

    /// `csched_runq_sort()`: moves vCPUs in debt behind the others, once after each accounting.
    pub(super) fn sort(&mut self, epoch: u64, of: impl Fn(TaskId) -> Priority) {
        if self.sorted == epoch {
            return;
        }
        self.sorted = epoch;
        let in_debt = |task: &TaskId| of(*task) < Priority::Under;
        self.queue.make_contiguous().sort_by_key(in_debt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{Boost, Over, Under};

    fn of(task: TaskId) -> Priority {
        [Boost, Under, Under, Over, Over][task.index() % 5]
    }

    fn queue(tasks: &[u32]) -> Pcpu {
        let mut pcpu = Pcpu::new(1, 0, 1);
        tasks.iter().for_each(|&n| pcpu.queue.push_back(TaskId(n)));
        pcpu
    }

    #[test]
    fn first_come_first_served_within_a_priority() {
        let mut pcpu = queue(&[]);
        for n in [3, 1, 0, 4, 2, 5] {
            pcpu.insert(TaskId(n), false, of);
        }
        assert_eq!(pcpu.queue, [0, 5, 1, 2, 3, 4].map(TaskId));
    }

    #[test]
    fn a_yielding_vcpu_lets_one_of_lower_priority_go_first() {
        let mut pcpu = queue(&[1, 3, 4]);
        pcpu.insert(TaskId(2), true, of);
        assert_eq!(pcpu.queue, [1, 3, 2, 4].map(TaskId));
        let mut pcpu = queue(&[3]);
        pcpu.insert(TaskId(4), true, of);
        assert_eq!(pcpu.queue, [3, 4].map(TaskId), "equals only: behind them");
    }

    #[test]
    fn sorting_keeps_the_order_and_happens_once() {
        let mut pcpu = queue(&[3, 2, 4, 0, 1]);
        pcpu.sort(0, of);
        assert_eq!(
            pcpu.queue,
            [3, 2, 4, 0, 1].map(TaskId),
            "nothing changed yet"
        );
        pcpu.sort(1, of);
        assert_eq!(pcpu.queue, [2, 0, 1, 3, 4].map(TaskId));
    }
}
