// SPDX-License-Identifier: GPL-2.0-only
//! The order of one runqueue by hand: ghosts (tasks that sleep but owe), what becomes of a slice, and how long it is
//! protected.

use super::EevdfOrder;
use crate::sched::eevdf::EevdfParams;
use crate::sched::fair::{Join, Leave, Order};
use crate::testing::host;
use corun_model::time::{MS, US};
use corun_model::{Nanos, PcpuId, TaskId};

/// A preset on one pCPU with 250 Hz, slices of 3 ms and that many tasks of one weight.
fn equals(name: &str, tasks: u32) -> EevdfOrder {
    let params = EevdfParams {
        base_slice: 3 * MS,
        ..EevdfParams::preset(name, 1).unwrap()
    };
    let mut order = EevdfOrder::new(params, &host("1n1l2c1t", 250));
    (0..tasks).for_each(|_| order.add(1 << 20, None));
    order
}

/// A task that sleeps but owes is a member of the runqueue for the slice timer (`h_nr_queued`) until it is taken off.
#[test]
fn a_ghost_counts_for_the_slice_timer() {
    const CPU: PcpuId = PcpuId(0);
    let params = EevdfParams::preset("7.x", 1).unwrap();
    let mut order = EevdfOrder::new(params, &host("1n1l1c1t", 250));
    let [sleeper, hog] = [TaskId(0), TaskId(1)];
    for task in [sleeper, hog] {
        order.add(1024, None);
        order.join(CPU, task, Join::New);
    }
    order.set_current(CPU, Some(sleeper));
    order.charge(CPU, MS);
    assert_eq!(order.ghosts_on(CPU), 0);
    order.leave(CPU, sleeper, Leave::Sleeps);
    assert_eq!(order.ghosts_on(CPU), 1, "it is ahead of the hog");
    assert_eq!(order.pick(CPU), Some(hog));
    order.set_current(CPU, Some(hog));
    order.charge(CPU, 3 * MS);
    assert_eq!(order.pick(CPU), Some(hog));
    assert_eq!(order.ghosts_on(CPU), 0, "its debt has worn off");
}

/// Two tasks fall asleep, the second one 1 ms ahead of the first one's ghost. The ghost is let go before it, and then
/// the second one is alone and owes nothing (`dequeue_entity()`, `pick_next_entity()`).
#[test]
fn a_sleeper_beside_ghosts_only_is_let_go_after_them() {
    let [cpu, other] = [PcpuId(0), PcpuId(1)];
    let mut order = equals("6.12", 3);
    for task in [TaskId(0), TaskId(1)] {
        order.join(cpu, task, Join::New);
    }
    for (task, ran) in [(TaskId(0), MS), (TaskId(1), 2 * MS)] {
        order.set_current(cpu, Some(task));
        order.charge(cpu, ran);
        order.leave(cpu, task, Leave::Sleeps);
    }
    assert_eq!(order.ghosts_on(cpu), 2);
    assert_eq!(order.pick(cpu), None);
    order.join(other, TaskId(2), Join::New);
    order.join(other, TaskId(1), Join::Woken(cpu));
    assert_eq!(order.state(TaskId(1)).0, order.state(TaskId(2)).0);
}

/// A ghost that is due, a hog and a woken task. (vruntime; deadline) in ms: the ghost has (1; 3), the hog
/// (1.5; 3), the woken one (1.25; 4.25), whose vruntime is the average: the ghost would be picked, but is gone by then
/// (ac8e69e69363).
#[test]
fn a_ghost_does_not_keep_others_from_preempting_in_7_x() {
    const CPU: PcpuId = PcpuId(0);
    let [ghost, hog, woken] = [TaskId(0), TaskId(1), TaskId(2)];
    for (name, preempts) in [("6.12", false), ("7.x", true)] {
        let mut order = equals(name, 3);
        order.join(CPU, ghost, Join::Woken(CPU));
        order.join(CPU, hog, Join::Woken(CPU));
        order.set_current(CPU, Some(ghost));
        order.charge(CPU, MS);
        order.leave(CPU, ghost, Leave::Sleeps);
        order.set_current(CPU, Some(hog));
        order.charge(CPU, 1500 * US);
        order.join(CPU, woken, Join::Woken(CPU));
        assert_eq!(order.ghosts_on(CPU), 1);
        assert_eq!(order.preempts(CPU, woken), preempts, "{name}");
        assert_eq!(order.ghosts_on(CPU), u64::from(!preempts), "{name}");
    }
}

/// A task with a slice of 0.1 ms waits for 20 ms while one with 3 ms runs, so that it is 10 ms behind the average. The
/// bound is the longest slice and a tick, 7 ms, in 7.x (6e3c0a4e1ad1); two of its own slices, but at least a tick, in
/// 6.12. With the other alone on the runqueue it is placed twice as far behind.
#[test]
fn the_longest_slice_bounds_the_lag_in_7_x() {
    const CPU: PcpuId = PcpuId(0);
    for (name, vruntime) in [("6.12", 12 * MS), ("7.x", 6 * MS)] {
        let mut order = equals(name, 1);
        order.add(1 << 20, Some(100 * US));
        for task in [TaskId(0), TaskId(1)] {
            order.join(CPU, task, Join::Woken(CPU));
        }
        order.set_current(CPU, Some(TaskId(0)));
        order.charge(CPU, 20 * MS);
        order.leave(CPU, TaskId(1), Leave::Sleeps);
        order.join(CPU, TaskId(1), Join::Woken(CPU));
        assert_eq!(order.state(TaskId(1)).0, vruntime as i64, "{name}");
    }
}

/// Of three tasks at 0 one runs for 3 ms; another, 1 ms behind the average, goes to sleep, then the first one does: it
/// is 1.5 ms ahead and becomes a ghost. The other's return makes that 2 ms; in 7.x it counts as 1.5 ms
/// (`update_entity_lag()`), which is 2.25 beyond the average of the others, 0.
#[test]
fn the_debt_of_a_ghost_does_not_grow_in_7_x() {
    const CPU: PcpuId = PcpuId(0);
    let [ghost, sleeper, hog] = [TaskId(0), TaskId(1), TaskId(2)];
    for (name, vruntime) in [("6.12", 3 * MS), ("7.x", 2250 * US)] {
        let mut order = equals(name, 3);
        for task in [ghost, sleeper, hog] {
            order.join(CPU, task, Join::Woken(CPU));
        }
        order.set_current(CPU, Some(ghost));
        order.charge(CPU, 3 * MS);
        order.leave(CPU, sleeper, Leave::Sleeps);
        order.leave(CPU, ghost, Leave::Sleeps);
        order.set_current(CPU, Some(hog));
        order.join(CPU, sleeper, Join::Woken(CPU));
        assert_eq!(order.ghosts_on(CPU), 1);
        order.join(CPU, ghost, Join::Woken(CPU));
        assert_eq!(order.state(ghost).0, vruntime as i64, "{name}");
    }
}

/// `PLACE_REL_DEADLINE` came with 6.12.
#[test]
fn the_rest_of_a_slice_moves_along_since_6_12() {
    for (name, left) in [("6.6", 3 * MS), ("6.12", 2 * MS), ("7.x", 2 * MS)] {
        let mut order = equals(name, 1);
        order.join(PcpuId(0), TaskId(0), Join::Woken(PcpuId(0)));
        order.set_current(PcpuId(0), Some(TaskId(0)));
        order.charge(PcpuId(0), MS);
        order.leave(PcpuId(0), TaskId(0), Leave::Moves);
        order.join(PcpuId(1), TaskId(0), Join::Moved);
        let (vruntime, deadline) = order.state(TaskId(0));
        assert_eq!(deadline - vruntime, left as i64, "{name}");
    }
}

/// Vruntimes and deadlines of tasks of which the first one yields when it has run for `before` of a slice of 1 ms.
fn all_after(
    name: &str,
    tasks: u32,
    before: Nanos,
    siblings: Option<&[TaskId]>,
) -> (Vec<(i64, i64)>, Option<TaskId>) {
    const CPU: PcpuId = PcpuId(0);
    let params = EevdfParams {
        base_slice: MS,
        ..EevdfParams::preset(name, 1).unwrap()
    };
    let mut order = EevdfOrder::new(params, &host("1n1l1c1t", 1000));
    for task in (0..tasks).map(TaskId) {
        order.add(1 << 20, None);
        order.join(CPU, task, Join::Woken(CPU));
    }
    order.set_current(CPU, Some(TaskId(0)));
    order.charge(CPU, before);
    order.yields(CPU, siblings);
    order.check(CPU, tasks as usize);
    let states = (0..tasks).map(|task| order.state(TaskId(task)));
    (states.collect(), order.pick(CPU))
}

/// Those of the first of two tasks.
fn yields_after(name: &str, before: Nanos, siblings: Option<&[TaskId]>) -> (i64, i64) {
    all_after(name, 2, before, siblings).0[0]
}

/// A task is eligible at the beginning of its slice, later not.
#[test]
fn a_yielding_task_forfeits_its_slice_if_it_is_eligible() {
    let (us, ms) = (US as i64, MS as i64);
    assert_eq!(yields_after("6.6", 0, None), (0, 2 * ms));
    assert_eq!(yields_after("6.6", 300 * US, None), (300 * us, 2 * ms));
    for name in ["6.12", "7.x"] {
        assert_eq!(yields_after(name, 0, None), (ms, 2 * ms));
        assert_eq!(yields_after(name, 300 * US, None), (300 * us, ms));
        assert_eq!(
            yields_after(name, 0, Some(&[])),
            (0, ms),
            "its group's slice goes on"
        );
    }
}

/// Siblings in a plain cgroup share a `cfs_rq`: if they are alone on the pCPU it is as if there were no group.
#[test]
fn a_yield_among_siblings_is_one_among_tasks() {
    for name in ["6.6", "6.12", "7.x"] {
        for before in [0, 300 * US] {
            let group = yields_after(name, before, Some(&[TaskId(1)]));
            assert_eq!(group, yields_after(name, before, None), "{name}");
        }
    }
}

/// With an outsider on the pCPU, a sibling goes on with the group's slice: the one that yielded is due one slice later,
/// and what the two had together stays what it was.
#[test]
fn a_yield_in_a_group_costs_the_group_nothing() {
    let ms = MS as i64;
    for name in ["6.12", "7.x"] {
        let (states, next) = all_after(name, 3, 0, Some(&[TaskId(2)]));
        let [own, other, sibling] = states[..] else {
            panic!("{states:?}");
        };
        assert_eq!(own, (ms / 2, 3 * ms / 2), "{name}");
        assert_eq!(other, (0, ms), "{name}");
        assert_eq!(sibling, (-ms / 2, ms / 2), "{name}");
        assert_eq!(next, Some(TaskId(2)), "{name}");
    }
    let (states, next) = all_after("6.6", 3, 0, Some(&[TaskId(2)]));
    assert_eq!(states, [(0, 2 * ms), (0, ms), (0, ms)]);
    assert!(next != Some(TaskId(0)));
    // The task is ahead of its sibling, so yielding does nothing.
    let (states, _) = all_after("6.12", 3, 300 * US, Some(&[TaskId(2)]));
    assert_eq!(states, [(300 * US as i64, ms), (0, ms), (0, ms)]);
}

/// Does a task that wakes up 1 ms after the current one was picked get the pCPU? The current one
/// was picked so many times before, for a slice of 3 ms each.
///
/// Weights of a, b and the woken task are 2 : 1 : 64, and b had 3 ms before, so that a is eligible
/// and due first. (vruntime; deadline) of a, the average, and when the woken task is due, in ms:
///
/// | before | a          | average | due  |                                                       |
/// |--------|------------|---------|------|-------------------------------------------------------|
/// |      0 | (0.5; 1.5) |    4/3  | 1.38 | a would make way if its first slice was not protected |
/// |      1 | (2.0; 3.0) |    7/3  | 2.38 | likewise in its second                                |
fn woken_preempts(params: EevdfParams, before: u32) -> bool {
    woken_preempts_after(params, before, |_| {})
}

/// The same, if `happens` is applied right before the wake-up.
fn woken_preempts_after(
    params: EevdfParams,
    before: u32,
    happens: impl Fn(&mut EevdfOrder),
) -> bool {
    const CPU: PcpuId = PcpuId(0);
    let [a, b, woken] = [TaskId(0), TaskId(1), TaskId(2)];
    let mut order = EevdfOrder::new(params, &host("1n1l1c1t", 1000));
    for weight in [2, 1, 64] {
        order.add(1024 * weight, None);
    }
    order.join(CPU, a, Join::Woken(CPU));
    order.join(CPU, b, Join::Woken(CPU));
    order.set_current(CPU, Some(b));
    assert!(order.charge(CPU, 3 * MS));
    for round in 0..=before {
        assert_eq!(order.pick(CPU), Some(a));
        order.set_current(CPU, Some(a));
        let last = round == before;
        assert!(order.charge(CPU, if last { MS } else { 3 * MS }) || last);
    }
    happens(&mut order);
    order.join(CPU, woken, Join::Woken(CPU));
    order.preempts(CPU, woken)
}

/// In no version is a task that is picked again protected again.
#[test]
fn the_protection_of_a_slice_is_not_renewed() {
    for name in EevdfParams::PRESETS {
        let preset = EevdfParams {
            base_slice: 3 * MS,
            ..EevdfParams::preset(name, 1).unwrap()
        };
        assert!(!woken_preempts(preset, 0), "{name}");
        assert!(woken_preempts(preset, 1), "{name}");
        let renewed = EevdfParams {
            slice_at_switch: false,
            ..preset
        };
        assert!(!woken_preempts(renewed, 1), "{name}");
    }
}

/// Until 6.16 a slice is protected as long as its deadline is the one it began with, which
/// `reweight_entity()` changes. 7.0 keeps the rest of the protection.
#[test]
fn a_change_of_weight_ends_the_protection_until_6_16() {
    for (name, preempts) in [("6.6", true), ("6.12", true), ("7.x", false)] {
        let params = EevdfParams {
            base_slice: 3 * MS,
            ..EevdfParams::preset(name, 1).unwrap()
        };
        let reweighed = |order: &mut EevdfOrder| {
            order.reweigh(TaskId(0), Some(PcpuId(0)), 2 * 1024 + 1);
        };
        let seen = woken_preempts_after(params, 0, reweighed);
        assert_eq!(seen, preempts, "{name}");
    }
}

/// A waiting task is 1 ms behind the average, the current one as much ahead of it; both count a quarter, then what they
/// did before. In pCPU time everything stays as it was, including the protection.
#[test]
fn what_counts_less_owes_the_same_in_pcpu_time() {
    const CPU: PcpuId = PcpuId(0);
    let (own, ms) = (1 << 20, MS as i64);
    for name in EevdfParams::PRESETS {
        let mut order = equals(name, 2);
        for task in [TaskId(0), TaskId(1)] {
            order.join(CPU, task, Join::Woken(CPU));
        }
        order.set_current(CPU, Some(TaskId(0)));
        order.charge(CPU, 2 * MS);
        let seen = |order: &EevdfOrder, times: i64| {
            let states = [TaskId(0), TaskId(1)].map(|task| order.state(task));
            let [(a, due), (b, _)] = states;
            assert_eq!((a + b) / 2, ms, "{name}: {states:?}");
            assert_eq!((a - b, due - a), (2 * times * ms, times * ms), "{name}");
            assert!(order.protected(TaskId(0)));
            order.check(CPU, 2);
        };
        seen(&order, 1);
        for (weight, times) in [(own / 4, 4), (own, 1)] {
            for task in [TaskId(0), TaskId(1)] {
                order.stretch(CPU, task, None, weight);
            }
            seen(&order, times);
        }
        order.leave(CPU, TaskId(1), Leave::Sleeps);
        order.stretch(CPU, TaskId(1), Some(Join::Woken(CPU)), own / 4);
        order.reweigh(TaskId(0), Some(CPU), own / 4);
        order.join(CPU, TaskId(1), Join::Woken(CPU));
        let lead = order.state(TaskId(0)).0 - order.state(TaskId(1)).0;
        assert!((lead - 8 * ms).abs() < 10, "{name}: {lead}");
    }
}
