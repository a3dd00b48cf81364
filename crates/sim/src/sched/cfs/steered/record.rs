// SPDX-License-Identifier: GPL-2.0-only
//! How a vCPU's turns went: what a policy is told about them.

use corun_model::{Nanos, TaskId, Turns};

/// A vCPU's turns since the run began.
#[derive(Debug, Default)]
pub(super) struct Record {
    depleted: u64,
    preempted: u64,
    late: u64,
    wakeups: u64,
    /// Siblings that woke it, and when they did so last.
    wakers: Vec<(TaskId, Nanos)>,
    /// It has offered its pCPU to others.
    pub yields: bool,
}

impl Record {
    /// It was woken, by this sibling or (`None`) by something else.
    pub fn woken(&mut self, by: Option<TaskId>, now: Nanos) {
        self.wakeups += 1;
        let Some(by) = by else { return };
        match self.wakers.iter_mut().find(|(waker, _)| *waker == by) {
            Some((_, at)) => *at = now,
            None => self.wakers.push((by, now)),
        }
    }

    /// It lost its pCPU, wanting to run on. Was it cut short?
    pub fn lost(&mut self, over: bool) -> bool {
        let yields = std::mem::take(&mut self.yields);
        self.depleted += u64::from(over);
        let cut_short = !over && !yields;
        self.preempted += u64::from(cut_short);
        cut_short
    }

    /// It begins to run; if it had a promise it was `due` to run by then.
    pub fn began(&mut self, due: Option<Nanos>, now: Nanos) {
        self.yields = false;
        self.late += u64::from(due.is_some_and(|due| now > due));
    }

    /// What the policy is told; wakers since `since`.
    pub fn turns(&self, since: Nanos) -> Turns {
        let lately = self.wakers.iter().filter(|(_, at)| *at >= since);
        Turns {
            depleted: self.depleted,
            preempted: self.preempted,
            late: self.late,
            wakeups: self.wakeups,
            wakers: lately.map(|(waker, _)| *waker).collect(),
            ..Turns::default()
        }
    }
}
