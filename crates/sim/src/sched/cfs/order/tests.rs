// SPDX-License-Identifier: GPL-2.0-only
//! The order of a runqueue, step by step.

use super::*;
use corun_model::time::{MS, US};

/// Does a task preempt one that has run for 2 ms more, after it ran for 10 us and woke others so
/// many times?
fn preempts(preset: &str, wakes: u32) -> bool {
    preempts_as(preset, wakes, [None; 2])
}

/// The same, if the tasks belong to these VMs, which have weights.
fn preempts_as(preset: &str, wakes: u32, groups: [Option<usize>; 2]) -> bool {
    let (cpu, waker, hog) = (PcpuId(0), TaskId(0), TaskId(1));
    let mut order = CfsOrder::new(CfsParams::preset(preset, 4).unwrap(), 1);
    for group in groups {
        order.add(1024, None);
        group.into_iter().for_each(|vm| order.is_grouped(vm));
    }
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

/// Which task goes next on a pCPU that runs the first of two hogs, which is behind the other by `lead`, if a task
/// yields to the other.
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
fn the_task_yielded_to_goes_next_unless_that_is_unfair() {
    assert_eq!(next_if_favoured(2 * MS), Some(TaskId(1)));
    assert_eq!(next_if_favoured(4 * MS), Some(TaskId(0)));
}

/// The granularity is 3 ms, in 2.6.33 less for a task that wakes others often.
#[test]
fn a_task_that_wakes_others_often_preempts_sooner() {
    assert!(!preempts("2.6.33", 0));
    assert!(!preempts("2.6.33", 1));
    assert!(preempts("2.6.33", 100));
    assert!(!preempts("4.x", 100));
}

/// Group entities have no `avg_wakeup`.
#[test]
fn a_vm_with_a_weight_preempts_others_at_once_in_2_6_33() {
    let (one, other) = (Some(0), Some(1));
    for groups in [[one, other], [one, None]] {
        assert!(preempts_as("2.6.33", 0, groups));
        assert!(!preempts_as("4.x", 0, groups));
    }
    assert!(!preempts_as("2.6.33", 0, [one, one]));
    assert!(!preempts_as("2.6.33", 0, [None, one]));
}

/// `clear_buddies()` clears the skip buddy only when that task is picked or leaves.
#[test]
fn a_yielding_task_is_passed_over_until_no_other_is_close() {
    let (cpu, spinner, others) = (PcpuId(0), TaskId(0), [TaskId(1), TaskId(2)]);
    let next_after = |lead: Nanos| {
        let mut order = CfsOrder::new(CfsParams::preset("4.x", 4).unwrap(), 1);
        for task in [spinner, others[0], others[1]] {
            order.add(1 << 20, None);
            order.join(cpu, task, Join::New);
            order.entities[task.index()].vruntime = 0;
        }
        for task in others {
            order.set_current(cpu, Some(task));
            order.charge(cpu, MS);
        }
        order.set_current(cpu, Some(others[1]));
        order.charge(cpu, lead);
        order.set_current(cpu, Some(spinner));
        order.yields(cpu, Some(&[]));
        assert_eq!(order.pick(cpu), Some(others[0]));
        order.set_current(cpu, Some(others[0]));
        order.leave(cpu, others[0], Leave::Sleeps);
        let next = order.pick(cpu);
        if next == Some(spinner) {
            order.set_current(cpu, next);
            assert_eq!(order.pick(cpu), next, "once picked it counts as any other");
        }
        next
    };
    assert_eq!(next_after(MS), Some(others[1]));
    // The granularity is 3 ms.
    assert_eq!(next_after(3 * MS), Some(spinner));
}

/// A task that counts a quarter of what it did is four times as far ahead in virtual time: on the runqueue, on its way
/// to another one, and asleep.
#[test]
fn what_counts_less_owes_the_same_in_pcpu_time() {
    let (cpu, own, ms) = (PcpuId(0), 1 << 20, MS as i64);
    let [a, b, c] = [TaskId(0), TaskId(1), TaskId(2)];
    let mut order = CfsOrder::new(CfsParams::preset("4.x", 4).unwrap(), 1);
    for task in [a, b, c] {
        order.add(own, None);
        order.join(cpu, task, Join::New);
        order.entities[task.index()].vruntime = 0;
    }
    order.set_current(cpu, Some(a));
    order.charge(cpu, 2 * MS);
    let lead = |order: &CfsOrder, task: TaskId| {
        order.entity(task).vruntime - order.queues[cpu.index()].min_vruntime
    };
    let before = lead(&order, a) - lead(&order, b);
    for task in [a, b, c] {
        order.stretch(cpu, task, None, own / 4);
    }
    assert_eq!(lead(&order, a) - lead(&order, b), 4 * before);
    assert_eq!(order.queues[cpu.index()].weight, 3 * own / 4);
    order.check(cpu, 3);
    let ahead = lead(&order, a);
    order.leave(cpu, a, Leave::Moves);
    order.stretch(cpu, a, Some(Join::Moved), own / 2);
    order.join(cpu, a, Join::Moved);
    assert_eq!(lead(&order, a), ahead / 2);
    order.leave(cpu, a, Leave::Sleeps);
    order.stretch(cpu, a, Some(Join::Woken(cpu)), own);
    assert_eq!(lead(&order, a), ahead / 4);
    assert!(before > 0 && before <= 2 * ms);
}
