// SPDX-License-Identifier: GPL-2.0-only
//! Which tasks move where, on vCPUs and tasks as they are described.

use super::*;
use corun_model::time::{MS, US};
use proptest::prelude::*;

fn active(vcpu: u32, left: Nanos) -> VcpuView {
    VcpuView {
        vcpu,
        activity: Activity::Active { left: Some(left) },
        away: Some(11 * MS),
        slice: Some(11 * MS),
        fresh: false,
    }
}

fn away(vcpu: u32, back: Nanos) -> VcpuView {
    VcpuView {
        vcpu,
        activity: Activity::Inactive { back: Some(back) },
        away: Some(11 * MS),
        slice: Some(11 * MS),
        fresh: false,
    }
}

fn task(task: u64, vcpu: u32, load: u64) -> TaskView {
    TaskView {
        task,
        vcpu,
        priority: 0,
        load,
        settled: true,
    }
}

fn decided(vcpus: &[VcpuView], tasks: &[TaskView]) -> Vec<(u64, u32, Why)> {
    let moves = moves(&MigraterParams::default(), vcpus, tasks);
    moves.iter().map(|it| (it.task, it.to, it.why)).collect()
}

#[test]
fn the_heaviest_task_goes_to_the_longest_rest() {
    let vcpus = [
        active(0, 100 * US),
        active(1, 3 * MS),
        active(2, 9 * MS),
        active(3, 6 * MS),
        away(4, MS),
    ];
    let tasks = [task(7, 0, 400), task(8, 0, 900), task(9, 0, 600)];
    let push = Why::Push;
    assert_eq!(
        decided(&vcpus, &tasks),
        [(8, 2, push), (9, 3, push), (7, 1, push)]
    );
}

#[test]
fn a_users_priority_comes_before_load() {
    let vcpus = [active(0, 0), active(1, 3 * MS), active(2, 9 * MS)];
    let mut tasks = [task(7, 0, 400), task(8, 0, 900)];
    tasks[0].priority = 1;
    assert_eq!(
        decided(&vcpus, &tasks),
        [(7, 2, Why::Push), (8, 1, Why::Push)]
    );
}

#[test]
fn nobody_moves_before_the_threshold() {
    let params = MigraterParams::default();
    let tasks = [task(7, 0, 900)];
    let at = |left| decided(&[active(0, left), active(1, 9 * MS)], &tasks);
    assert_eq!(at(params.push), []);
    assert_eq!(at(params.push - 1), [(7, 1, Why::Push)]);
}

#[test]
fn pull_is_for_tasks_whose_vcpu_is_gone_already() {
    let vcpus = [away(0, 8 * MS), active(1, 9 * MS), active(2, 100 * US)];
    let tasks = [task(7, 0, 900), task(8, 2, 100)];
    // The push goes first, although it is lighter; both end up on the one place there is.
    assert_eq!(
        decided(&vcpus, &tasks),
        [(8, 1, Why::Push), (7, 1, Why::Pull)]
    );
}

#[test]
fn no_vcpu_gets_more_than_its_part() {
    let vcpus = [active(0, 0), active(1, 9 * MS), active(2, 5 * MS)];
    let tasks = [
        task(1, 1, 900),
        task(2, 1, 900),
        task(3, 0, 800),
        task(4, 0, 700),
    ];
    // vCPU 1 has its two of four already.
    assert_eq!(
        decided(&vcpus, &tasks),
        [(3, 2, Why::Push), (4, 2, Why::Push)]
    );
}

#[test]
fn more_tasks_than_vcpus_go_round() {
    let vcpus = [active(0, 0), active(1, 9 * MS), active(2, 5 * MS)];
    let tasks: Vec<_> = (0..4).map(|at| task(at, 0, 900 - at)).collect();
    let to: Vec<_> = decided(&vcpus, &tasks).iter().map(|it| it.1).collect();
    assert_eq!(to, [1, 2, 1, 2]);
}

#[test]
fn with_no_time_left_anywhere_the_vcpu_about_to_be_active_gets_it() {
    let tasks = [task(7, 0, 900)];
    let vcpus = [active(0, 0), active(1, MS), away(2, MS), away(3, 300 * US)];
    assert_eq!(decided(&vcpus, &tasks), [(7, 3, Why::Soon)]);
    // If it is not known when others are back, the one with some time.
    let mut vcpus = [active(0, 0), active(1, MS), away(2, MS)];
    vcpus[2].activity = Activity::Inactive { back: None };
    assert_eq!(decided(&vcpus, &tasks), [(7, 1, Why::Push)]);
    // And if all others are back later than its own, it stays.
    let vcpus = [active(0, 0), active(1, 100 * US), away(2, 12 * MS)];
    assert_eq!(decided(&vcpus, &tasks), []);
}

/// On a host whose slices end before a heartbeat is over, or where every other one does.
#[test]
fn a_vcpu_about_to_be_active_for_less_than_the_threshold_gets_nothing() {
    let params = MigraterParams::default();
    let tasks = [task(7, 0, 900)];
    let mut vcpus = [active(0, 0), away(1, 2 * MS), away(2, 300 * US)];
    vcpus[2].slice = Some(params.push - 1);
    assert_eq!(decided(&vcpus, &tasks), [(7, 1, Why::Soon)]);
    vcpus[2].slice = Some(params.push);
    assert_eq!(decided(&vcpus, &tasks), [(7, 2, Why::Soon)]);
    vcpus[1].slice = Some(0);
    vcpus[2].slice = Some(0);
    assert_eq!(decided(&vcpus, &tasks), []);
    // Then an active one with some time will do.
    vcpus[1] = active(1, MS);
    assert_eq!(decided(&vcpus, &tasks), [(7, 1, Why::Push)]);
}

#[test]
fn a_task_is_not_sent_on_from_where_it_has_hardly_been() {
    let mut tasks = [task(7, 0, 900)];
    tasks[0].settled = false;
    let ends = [active(0, 0), active(1, 9 * MS)];
    assert_eq!(decided(&ends, &tasks), []);
    // Where its vCPU is gone, it cannot settle.
    let gone = [away(0, 8 * MS), active(1, 9 * MS)];
    assert_eq!(decided(&gone, &tasks), [(7, 1, Why::Pull)]);
}

#[test]
fn a_vcpu_just_back_takes_one_of_too_many() {
    let tasks = [task(7, 0, 500), task(8, 0, 900)];
    let mut vcpus = [active(0, 5 * MS), active(1, 9 * MS)];
    assert_eq!(decided(&vcpus, &tasks), []);
    vcpus[1].fresh = true;
    assert_eq!(decided(&vcpus, &tasks), [(7, 1, Why::Spread)]);
}

#[test]
fn unknown_slices_are_long_and_keep_their_tasks() {
    let unknown = |vcpu| VcpuView {
        activity: Activity::Active { left: None },
        ..active(vcpu, 0)
    };
    let tasks = [task(7, 0, 900), task(8, 1, 900)];
    assert_eq!(
        decided(&[active(0, 0), unknown(1), active(2, 9 * MS)], &tasks),
        [(7, 2, Why::Push)]
    );
}

fn any_vcpus() -> impl Strategy<Value = Vec<VcpuView>> {
    let one = (0u8..4, 0..20 * MS, any::<bool>()).prop_map(|(kind, time, fresh)| VcpuView {
        away: fresh.then_some(9 * MS),
        slice: fresh.then_some(time),
        vcpu: 0,
        activity: match kind {
            0 => Activity::Absent,
            1 => Activity::Inactive { back: Some(time) },
            2 => Activity::Active { left: None },
            _ => Activity::Active { left: Some(time) },
        },
        fresh,
    });
    prop::collection::vec(one, 1..12).prop_map(|mut views| {
        (0..).zip(&mut views).for_each(|(at, view)| view.vcpu = at);
        views
    })
}

proptest! {
    /// Each task moves once at most, elsewhere, to a vCPU that is there and, unless it is about
    /// to be active, active for longer than the one it leaves; and all that may leave do if
    /// there is a good place.
    #[test]
    fn moves_make_sense(
        vcpus in any_vcpus(),
        tasks in prop::collection::vec((0u32..12, 0u64..1000, 0u8..3), 0..20),
    ) {
        let params = MigraterParams::default();
        let tasks: Vec<_> = (0..).zip(tasks).map(|(task, (vcpu, load, priority))| TaskView {
            task, vcpu: vcpu % vcpus.len() as u32, priority, load, settled: load % 4 > 0,
        }).collect();
        let moves = moves(&params, &vcpus, &tasks);
        let mut seen = std::collections::BTreeSet::new();
        for it in &moves {
            prop_assert!(seen.insert(it.task), "moves twice");
            prop_assert_ne!(it.from, it.to);
            let (from, to) = (&vcpus[it.from as usize], &vcpus[it.to as usize]);
            match it.why {
                Why::Soon => {
                    let back = matches!(to.activity, Activity::Inactive { back: Some(back) } if from.away.is_none_or(|away| back < away));
                    prop_assert!(back);
                }
                Why::Pull => prop_assert!(left(to).is_some() && left(from).is_none()),
                Why::Push => prop_assert!(left(to) >= Some(params.push) && left(from) < Some(params.push)),
                Why::Spread => prop_assert!(to.fresh),
            }
        }
        let good = vcpus.iter().any(|view| left(view).is_some_and(|it| it >= params.worth));
        let leave = leaving(&params, &vcpus, &tasks).len();
        if good && leave > 0 {
            prop_assert_eq!(moves.len(), leave);
        }
    }
}
