// SPDX-License-Identifier: GPL-2.0-only
//! The order of a runqueue, step by step.

use super::*;
use corun_model::time::{MS, US};

/// Does a task preempt one that has run for 2 ms more, after so many times 10 us between which
/// it woke others?
fn preempts(preset: &str, wakes: u32) -> bool {
    let (cpu, waker, hog) = (PcpuId(0), TaskId(0), TaskId(1));
    let mut order = CfsOrder::new(CfsParams::preset(preset, 4).unwrap(), 1);
    order.add(1024, None);
    order.add(1024, None);
    order.join(cpu, waker, Join::New);
    order.set_current(cpu, Some(waker));
    order.charge(cpu, MS);
    for _ in 0..wakes {
        order.charge(cpu, 10 * US);
        order.woke(cpu);
    }
    order.leave(cpu, waker, Leave::Sleeps);
    order.entities[hog.index()].vruntime = order.entity(waker).vruntime;
    order.join(cpu, hog, Join::Woken(cpu));
    order.set_current(cpu, Some(hog));
    order.charge(cpu, 2 * MS);
    order.join(cpu, waker, Join::Woken(cpu));
    order.preempts(cpu, waker)
}

/// Who goes next on a pCPU that runs the first of two hogs, which is so far behind the other, if
/// somebody yields to the other.
fn next_if_favoured(lead: Nanos) -> Option<TaskId> {
    let (cpu, first, second) = (PcpuId(0), TaskId(0), TaskId(1));
    let mut order = CfsOrder::new(CfsParams::preset("4.x", 4).unwrap(), 1);
    order.add(1024, None);
    order.add(1024, None);
    order.join(cpu, first, Join::New);
    order.join(cpu, second, Join::New);
    order.entities[second.index()].vruntime = order.entity(first).vruntime;
    order.set_current(cpu, Some(second));
    order.charge(cpu, lead);
    order.set_current(cpu, Some(first));
    order.favour(cpu, second);
    order.pick(cpu)
}

/// The granularity is 3 ms.
#[test]
fn whom_somebody_yields_to_goes_next_unless_that_is_unfair() {
    assert_eq!(next_if_favoured(2 * MS), Some(TaskId(1)));
    assert_eq!(next_if_favoured(4 * MS), Some(TaskId(0)));
}

/// The granularity is 3 ms, in 2.6.33 less for who wakes others often.
#[test]
fn who_wakes_others_often_preempts_sooner() {
    assert!(!preempts("2.6.33", 0));
    assert!(!preempts("2.6.33", 1));
    assert!(preempts("2.6.33", 100));
    assert!(!preempts("4.x", 100));
}
