// SPDX-License-Identifier: GPL-2.0-only
//! What a vCPU has done so far: `struct task_ctx` as policies and statistics need it.
//!
//! The kernel writes while this reads, field by field: some fields may be a moment old, and a counter that seems to go
//! back counts as no change.

use crate::perf::Tally;
use crate::skel::types;
use corun_dispatcher::{TASK_READY, TASK_RUNNING, TASK_THROTTLED, WAKERS};
use corun_model::{CyclesSeen, Doing, Nanos, PcpuId, Signals, TaskId, Turns};

/// `struct task_counters`, with the state the vCPU is in counted up to now, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) run: Nanos,
    pub(crate) ready: Nanos,
    pub(crate) wait: Nanos,
    /// How long it has been ready by now; 0 if it is not.
    pub(crate) ready_for: Nanos,
    pub(crate) switches: u64,
    depleted: u64,
    preempted: u64,
    late: u64,
    wakeups: u64,
    /// Time in which pCPUs were held for it, and how often it came back meanwhile.
    pub(crate) retained: Nanos,
    pub(crate) kept: u64,
    /// Time for which it had to wait because a quota around it (`cpu.max`) was used up.
    pub(crate) throttled: Nanos,
    doing: Doing,
    cpu: Option<PcpuId>,
    /// When siblings woke it last, and their thread ids.
    wakers: [(Nanos, u32); WAKERS],
}

/// What else this host counts for a vCPU, from the beginning. It is apart from [`Counters`], since few policies ask for
/// it, and it is larger than all the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    pub(crate) tally: Tally,
    pub(crate) cycles: Option<CyclesSeen>,
}

impl Signs {
    /// What happened since `before`, as far as this host counts it.
    pub(crate) fn since(&self, before: &Self) -> Signals {
        let cycles = before.cycles.unwrap_or_default();
        Signals {
            cycles: self.cycles.map(|it| it.since(&cycles)),
            ..self.tally.since(&before.tally)
        }
    }
}

impl Counters {
    pub(crate) fn of(ctx: &types::task_ctx, now: Nanos) -> Self {
        let since = |then: u64| {
            if then == 0 {
                0
            } else {
                now.saturating_sub(then)
            }
        };
        let pcpu = |cpu: i32| u32::try_from(cpu).ok().map(PcpuId);
        let mut sum = Self {
            run: ctx.sum.run,
            ready: ctx.sum.ready,
            wait: ctx.sum.wait,
            ready_for: 0,
            switches: ctx.sum.switches,
            depleted: ctx.sum.depleted,
            preempted: ctx.sum.preempted,
            late: ctx.sum.late,
            wakeups: ctx.sum.wakeups,
            retained: ctx.sum.held,
            kept: ctx.sum.kept,
            throttled: ctx.sum.throttled,
            doing: Doing::Waiting,
            cpu: pcpu(ctx.cpu).or(pcpu(ctx.last_cpu)),
            wakers: std::array::from_fn(|at| (ctx.woken_at[at], ctx.wakers[at])),
        };
        match ctx.state {
            TASK_RUNNING => {
                sum.run += since(ctx.charged);
                sum.doing = Doing::Running;
            }
            TASK_READY => {
                sum.ready_for = since(ctx.since);
                sum.ready += sum.ready_for;
                sum.doing = Doing::Ready;
            }
            // It wants a pCPU, and a quota keeps it from one: no policy's doing.
            TASK_THROTTLED => sum.throttled += since(ctx.since),
            _ => {
                sum.wait += since(ctx.since);
                // Under way, or over and not booked yet.
                if ctx.held_since != 0 {
                    let until = now.min(ctx.held_until);
                    sum.retained += until.saturating_sub(ctx.held_since);
                }
            }
        }
        sum
    }

    /// What happened since `then`.
    pub(crate) fn since(&self, then: &Self) -> Self {
        Self {
            run: self.run.saturating_sub(then.run),
            ready: self.ready.saturating_sub(then.ready),
            wait: self.wait.saturating_sub(then.wait),
            switches: self.switches.saturating_sub(then.switches),
            depleted: self.depleted.saturating_sub(then.depleted),
            preempted: self.preempted.saturating_sub(then.preempted),
            late: self.late.saturating_sub(then.late),
            wakeups: self.wakeups.saturating_sub(then.wakeups),
            retained: self.retained.saturating_sub(then.retained),
            kept: self.kept.saturating_sub(then.kept),
            throttled: self.throttled.saturating_sub(then.throttled),
            ..*self
        }
    }

    /// How turns went since `before`, which was read at `then`; `siblings` in the order of their thread ids.
    pub(crate) fn turns_since(
        &self,
        before: &Self,
        then: Nanos,
        siblings: &[(u32, TaskId)],
    ) -> Turns {
        let task_of = |tid: u32| {
            let at = siblings.binary_search_by_key(&tid, |(tid, _)| *tid).ok()?;
            siblings.get(at).map(|(_, task)| *task)
        };
        let mut wakers = Vec::new();
        for (_, tid) in self.wakers.iter().filter(|(at, _)| *at > then) {
            wakers.extend(task_of(*tid));
        }
        Turns {
            doing: self.doing,
            cpu: self.cpu,
            depleted: self.depleted.saturating_sub(before.depleted),
            preempted: self.preempted.saturating_sub(before.preempted),
            late: self.late.saturating_sub(before.late),
            wakeups: self.wakeups.saturating_sub(before.wakeups),
            wakers,
            retained: self.retained.saturating_sub(before.retained),
            kept: self.kept.saturating_sub(before.kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_state_counts_up_to_now() {
        let mut ctx = types::task_ctx {
            since: 1_000,
            charged: 1_200,
            state: TASK_RUNNING,
            ..types::task_ctx::default()
        };
        ctx.sum.run = 50;
        assert_eq!(Counters::of(&ctx, 1_500).run, 350);
        ctx.state = TASK_READY;
        let ready = Counters::of(&ctx, 1_500);
        assert_eq!((ready.ready, ready.ready_for), (500, 500));
        ctx.state = 0;
        assert_eq!(Counters::of(&ctx, 1_500).wait, 500);
        ctx.since = 0;
        assert_eq!(Counters::of(&ctx, 1_500).wait, 0);
    }

    #[test]
    fn what_seems_to_go_back_is_nothing() {
        let later = Counters {
            run: 5,
            ..Counters::default()
        };
        let earlier = Counters {
            run: 7,
            ..Counters::default()
        };
        assert_eq!(later.since(&earlier).run, 0);
    }

    #[test]
    fn wakers_of_the_period_are_told_by_their_tasks() {
        let mut ctx = types::task_ctx::default();
        for (at, (when, tid)) in [(900, 41), (1_100, 42), (1_200, 99)]
            .into_iter()
            .enumerate()
        {
            (ctx.woken_at[at], ctx.wakers[at]) = (when, tid);
        }
        let siblings = [(41, TaskId(0)), (42, TaskId(1))];
        let sum = Counters::of(&ctx, 1_500);
        let turns = sum.turns_since(&Counters::default(), 1_000, &siblings);
        assert_eq!(turns.wakers, [TaskId(1)]);
    }
}
