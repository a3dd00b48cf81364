// SPDX-License-Identifier: GPL-2.0-only
//! The task migrater: which tasks move, and where to.
//!
//! Problem: an I/O-bound task should never be on a vCPU that is descheduled. vMigrater (ATC 2018,
//! §3.4 and 4; dissertation §2.4.1, 2.4.3, 2.5) moves it
//!
//! - *PUSH*: away from a vCPU whose slice is about to end, while that one still can;
//! - *PULL*: from a vCPU that was descheduled before it could, by one that is active;
//! - to the vCPU *about to be active*, when no active one has time left: the first that is expected to
//!   be back, if that is before its own. It matters most where few vCPUs are active at a time: a task
//!   that is left behind in the middle of a request cannot be pulled, since the request's interrupt waits
//!   for its vCPU, too.
//!
//! All that are to move at once are spread: the tasks with most I/O go to the vCPUs with most time
//! left, one by one, and no vCPU gets more than its part of the I/O-bound tasks while another has
//! fewer (the papers: "in a globally balanced way"). For the same reason a vCPU that holds more than
//! its part gives one to a vCPU that has none and has just become active (*spread*; the authors'
//! program does so, too).

use super::monitor::Activity;
use super::params::MigraterParams;
use corun_model::Nanos;
use std::cmp::Reverse;

/// Why a task moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its vCPU's slice is about to end.
    Push,
    /// Its vCPU has been descheduled.
    Pull,
    /// Its vCPU's slice is about to end, and no active one has time left: to one about to be active.
    Soon,
    /// Its vCPU has more than its part of the I/O-bound tasks, another one none.
    Spread,
}

/// One task that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The task.
    pub task: u64,
    /// The vCPU that it is on.
    pub from: u32,
    /// The vCPU that it should be on.
    pub to: u32,
    /// Why.
    pub why: Why,
}

/// A vCPU as the migrater sees it.
#[derive(Clone, Copy, Debug)]
pub struct VcpuView {
    /// Its number.
    pub vcpu: u32,
    /// What it is doing.
    pub activity: Activity,
    /// How long it was away last time, ns; `None`: it is not known.
    pub away: Option<Nanos>,
    /// Has it become active since the last look?
    pub fresh: bool,
}

/// An I/O-bound task as the migrater sees it.
#[derive(Clone, Copy, Debug)]
pub struct TaskView {
    /// Its number.
    pub task: u64,
    /// The vCPU that it is on.
    pub vcpu: u32,
    /// Its user's priority: tasks of a higher one choose first.
    pub priority: u8,
    /// Its I/O load, thousandths.
    pub load: u64,
}

/// A vCPU that tasks may go to: what is left of its slice, how many of them it has.
#[derive(Clone, Copy, Debug)]
struct Place {
    vcpu: u32,
    left: Nanos,
    has: usize,
}

/// What an active vCPU has left; one whose slice's end is not known is good for long.
fn left(view: &VcpuView) -> Option<Nanos> {
    match view.activity {
        Activity::Active { left } => Some(left.unwrap_or(Nanos::MAX)),
        _ => None,
    }
}

/// Which of the I/O-bound `tasks` should move now. `vcpus` are in the order of their numbers.
pub fn moves(params: &MigraterParams, vcpus: &[VcpuView], tasks: &[TaskView]) -> Vec<Move> {
    let mut leaving = leaving(params, vcpus, tasks);
    if leaving.is_empty() {
        return spread(params, vcpus, tasks);
    }
    // Heaviest first; pushes before pulls, since theirs is the last chance.
    leaving
        .sort_by_key(|(task, why)| (Reverse(task.priority), *why, Reverse(task.load), task.task));
    let mut places = places(params, vcpus, tasks, &leaving);
    let mut moves = Vec::with_capacity(leaving.len());
    if places.is_empty() {
        return soon(vcpus, &leaving);
    }
    let part = tasks.len().div_ceil(places.len());
    let mut next = 0;
    for (task, why) in leaving {
        let count = places.len();
        let free = (0..count)
            .map(|step| (next + step) % count)
            .find(|place| places[*place].has < part);
        let Some(place) = free else { break };
        places[place].has += 1;
        next = (place + 1) % count;
        moves.push(Move {
            task: task.task,
            from: task.vcpu,
            to: places[place].vcpu,
            why,
        });
    }
    moves
}

/// The tasks on vCPUs that are about to be, or have been, descheduled.
fn leaving(
    params: &MigraterParams,
    vcpus: &[VcpuView],
    tasks: &[TaskView],
) -> Vec<(TaskView, Why)> {
    let why = |task: &TaskView| {
        let view = vcpus.iter().find(|view| view.vcpu == task.vcpu)?;
        match view.activity {
            Activity::Active { left: Some(left) } if left < params.push => Some(Why::Push),
            Activity::Inactive { .. } => Some(Why::Pull),
            _ => None,
        }
    };
    let leaves = |task: &TaskView| why(task).map(|why| (*task, why));
    tasks.iter().filter_map(leaves).collect()
}

/// The active vCPUs with enough time left, most first; among equals the one with fewer I/O-bound
/// tasks that stay. If none has enough and none is about to be active, those with some.
fn places(
    params: &MigraterParams,
    vcpus: &[VcpuView],
    tasks: &[TaskView],
    leaving: &[(TaskView, Why)],
) -> Vec<Place> {
    let on = |vcpu: u32| {
        let leaves = |task: &TaskView| leaving.iter().any(|(it, _)| it.task == task.task);
        let stays = |task: &&TaskView| task.vcpu == vcpu && !leaves(task);
        tasks.iter().filter(stays).count()
    };
    let with = |least: Nanos| -> Vec<Place> {
        let place = |view: &VcpuView| {
            let left = left(view).filter(|left| *left >= least)?;
            let (vcpu, has) = (view.vcpu, on(view.vcpu));
            Some(Place { vcpu, left, has })
        };
        let mut places: Vec<_> = vcpus.iter().filter_map(place).collect();
        places.sort_by_key(|place| (Reverse(place.left), place.has, place.vcpu));
        places
    };
    let good = with(params.worth);
    let pushed = leaving.iter().any(|(_, why)| *why == Why::Push);
    if !good.is_empty() || (pushed && !returning(vcpus).is_empty()) {
        return good;
    }
    with(params.push)
}

/// The vCPUs about to be active, the first to be so first.
fn returning(vcpus: &[VcpuView]) -> Vec<(Nanos, u32)> {
    let back = |view: &VcpuView| match view.activity {
        Activity::Inactive { back: Some(back) } => Some((back, view.vcpu)),
        _ => None,
    };
    let mut soon: Vec<_> = vcpus.iter().filter_map(back).collect();
    soon.sort_unstable();
    soon
}

/// No active vCPU has time left: those whose slices end go where one is about to begin, round and round
/// the first that are back, if that is sooner than where they are.
fn soon(vcpus: &[VcpuView], leaving: &[(TaskView, Why)]) -> Vec<Move> {
    let returning = returning(vcpus);
    let pushed = leaving.iter().filter(|(_, why)| *why == Why::Push);
    let away = |vcpu: u32| {
        let from = vcpus.iter().find(|view| view.vcpu == vcpu);
        from.and_then(|view| view.away).unwrap_or(Nanos::MAX)
    };
    let sooner = |(task, (back, to)): (&TaskView, &(Nanos, u32))| {
        (*back < away(task.vcpu)).then_some(Move {
            task: task.task,
            from: task.vcpu,
            to: *to,
            why: Why::Soon,
        })
    };
    let tasks = pushed.map(|(task, _)| task);
    tasks
        .zip(returning.iter().cycle())
        .filter_map(sooner)
        .collect()
}

/// Nobody has to leave: does an active vCPU have too many, and one that is just back none?
fn spread(params: &MigraterParams, vcpus: &[VcpuView], tasks: &[TaskView]) -> Vec<Move> {
    let active = |view: &&VcpuView| left(view).is_some_and(|left| left >= params.worth);
    let part = tasks
        .len()
        .div_ceil(vcpus.iter().filter(active).count().max(1));
    let on = |vcpu: u32| tasks.iter().filter(move |task| task.vcpu == vcpu);
    let empty = |view: &&VcpuView| view.fresh && on(view.vcpu).next().is_none();
    let to = vcpus.iter().filter(active).find(empty);
    let full = |view: &&VcpuView| on(view.vcpu).count() > part.max(1);
    let from = vcpus
        .iter()
        .filter(|view| left(view).is_some())
        .filter(full)
        .max_by_key(|view| (on(view.vcpu).count(), Reverse(view.vcpu)));
    let (Some(to), Some(from)) = (to, from) else {
        return Vec::new();
    };
    // The lightest one: the heavy ones have found their place.
    let lightest = on(from.vcpu).min_by_key(|task| (task.priority, task.load, task.task));
    let moved = |task: &TaskView| Move {
        task: task.task,
        from: from.vcpu,
        to: to.vcpu,
        why: Why::Spread,
    };
    lightest.map(moved).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};
    use proptest::prelude::*;

    fn active(vcpu: u32, left: Nanos) -> VcpuView {
        VcpuView {
            vcpu,
            activity: Activity::Active { left: Some(left) },
            away: Some(11 * MS),
            fresh: false,
        }
    }

    fn away(vcpu: u32, back: Nanos) -> VcpuView {
        VcpuView {
            vcpu,
            activity: Activity::Inactive { back: Some(back) },
            away: Some(11 * MS),
            fresh: false,
        }
    }

    fn task(task: u64, vcpu: u32, load: u64) -> TaskView {
        TaskView {
            task,
            vcpu,
            priority: 0,
            load,
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
                task, vcpu: vcpu % vcpus.len() as u32, priority, load,
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
}
