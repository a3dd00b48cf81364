// SPDX-License-Identifier: GPL-2.0-only
//! The task migrater: which tasks move, and where to.
//!
//! Problem: an I/O-bound task should never be on a vCPU that is descheduled. vMigrater (ATC 2018,
//! §3.4 and 4; dissertation §2.4.1, 2.4.3, 2.5) moves it
//!
//! - *PUSH*: away from a vCPU whose slice is about to end, by that vCPU while it still can;
//! - *PULL*: from a vCPU that was descheduled before it could, by one that is active;
//! - to the vCPU *about to be active*, when no active one has time left: the first that is expected back, if that is
//!   before the task's own vCPU. It matters most where few vCPUs are active at a time: a task that is left behind in
//!   the middle of a request cannot be pulled, since the request's interrupt waits for its vCPU, too.
//!
//! Tasks that are to move at the same time are spread: the tasks with most I/O go to the vCPUs with most time left, one
//! by one, and no vCPU gets more than its part of the I/O-bound tasks while another has fewer (the papers: "in a
//! globally balanced way"). For the same reason a vCPU that holds more than its part gives one to a vCPU that has none
//! and has just become active (*spread*; the authors' program does so, too).
//!
//! A move costs the task what it could have done meanwhile. So a task is not sent where it would have to leave at once,
//! nor away from where it has just arrived: on a host with short or uneven slices all vCPUs are about to be
//! descheduled, and the task would be on its way for ever.

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
    /// What is left of its slice when one begins, ns; `None`: it is not known.
    pub slice: Option<Nanos>,
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
    /// Has its vCPU been active for a heartbeat since it was sent there?
    pub settled: bool,
}

/// A vCPU that tasks may go to: what is left of its slice, how many of them it has.
#[derive(Clone, Copy, Debug)]
struct Place {
    vcpu: u32,
    left: Nanos,
    has: usize,
}

/// What an active vCPU has left of its slice; if its end is not known, it is taken to be far away.
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
    // Heaviest first; pushes before pulls, since a push is the last chance.
    leaving
        .sort_by_key(|(task, why)| (Reverse(task.priority), *why, Reverse(task.load), task.task));
    let mut places = places(params, vcpus, tasks, &leaving);
    let mut moves = Vec::with_capacity(leaving.len());
    if places.is_empty() {
        return soon(params, vcpus, &leaving);
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
            Activity::Active { left: Some(left) } => {
                (left < params.push && task.settled).then_some(Why::Push)
            }
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
    if !good.is_empty() || (pushed && !returning(params, vcpus).is_empty()) {
        return good;
    }
    with(params.push)
}

/// The vCPUs about to be active, the first to be so first; without those whose tasks have to leave at the
/// first beat already.
fn returning(params: &MigraterParams, vcpus: &[VcpuView]) -> Vec<(Nanos, u32)> {
    let stays = |view: &&VcpuView| view.slice.is_none_or(|slice| slice >= params.push);
    let back = |view: &VcpuView| match view.activity {
        Activity::Inactive { back: Some(back) } => Some((back, view.vcpu)),
        _ => None,
    };
    let mut soon: Vec<_> = vcpus.iter().filter(stays).filter_map(back).collect();
    soon.sort_unstable();
    soon
}

/// No active vCPU has time left: tasks whose vCPU's slice ends go, in rotation, to the vCPUs that are expected back
/// first, if that is sooner than their own vCPU.
fn soon(params: &MigraterParams, vcpus: &[VcpuView], leaving: &[(TaskView, Why)]) -> Vec<Move> {
    let returning = returning(params, vcpus);
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

/// No task has to leave: does an active vCPU have too many, and one that is just back none?
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
#[path = "migrater_tests.rs"]
mod tests;
