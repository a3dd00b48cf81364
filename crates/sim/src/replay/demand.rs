// SPDX-License-Identifier: GPL-2.0-only
//! From a recording to what the replay needs: bursts with causes, and each waker's points.
//!
//! For each burst a recording has its waker and how much work the waker had done by then. The
//! replay needs the reverse: for each task the points in its work at which it wakes others, in
//! order, each within one of its bursts. A point at the seam of two bursts (the waker had just
//! blocked, or was just woken: the same amount of work) belongs to the burst during which the wakee
//! was woken, as the recorded times show.

use super::{Spinning, names};
use crate::host::TaskSpec;
use crate::load::VmInfo;
use corun_model::{NEUTRAL_WEIGHT, Nanos, PcpuId, PcpuSet, TaskId};
use corun_recording::{AtEnd, AtStart, Burst, BurstEnd, Recording, Role, Task, WakeCause};

/// Everything that is to be replayed. Tasks are numbered by [`replay_order`].
#[derive(Debug)]
pub(super) struct Demand {
    pub tasks: Vec<TaskDemand>,
    pub vms: Vec<VmInfo>,
    /// Length of the recording, ns; at least 1.
    pub duration: Nanos,
    /// Wake-ups that cannot come from the recorded waker; they are replayed as coming from outside.
    pub unknown_wakers: u64,
    /// Last bursts that the recording's end cut short.
    pub cut: u64,
}

/// One task's demand.
#[derive(Debug)]
pub(super) struct TaskDemand {
    pub spec: TaskSpec,
    /// Did it have a pCPU when the recording began?
    pub ran_at_start: bool,
    pub pieces: Vec<Piece>,
    /// Where it wakes others, in order of its work.
    pub points: Vec<Point>,
    /// What follows the last piece.
    pub end: End,
    /// Did it want a pCPU for so long at the end that it counts as wanting one for ever?
    pub hog: bool,
    /// How long it waits before it starts again from its first piece, if nothing else determines
    /// that, ns.
    pub seam: Nanos,
    /// How long it may have waited after its last burst in the recording, ns.
    pub tail: Nanos,
}

/// A burst to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub cause: Cause,
    /// ns of CPU.
    pub work: Nanos,
}

/// What starts a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is there from the beginning.
    Start,
    /// A point in the work of this task.
    Task(usize),
    /// This many ns after the task blocked.
    After(Nanos),
}

/// How a task's recorded demand ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It blocks.
    Blocked,
    /// It exits.
    Exited,
    /// It wanted more.
    Cut,
}

/// A wake-up in the waker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// The waker's burst, and how much of it is done by then, ns.
    pub piece: usize,
    pub offset: Nanos,
    /// When it was recorded, ns since the start: the order of equal points.
    at: Nanos,
    pub wakee: usize,
    pub wakee_piece: usize,
}

/// The recorded task behind each replayed task: vCPUs by VM and number, then the VMs' other
/// threads, then the rest, each in the recording's order. A replayed task's id is its index here.
pub fn replay_order(recording: &Recording) -> Vec<TaskId> {
    let key = |id: usize| match recording.tasks.get(id).map(|task| task.role) {
        Some(Role::Vcpu { vm, index }) => (0, vm.0, index),
        Some(Role::VmThread { vm, .. }) => (1, vm.0, 0),
        _ => (2, 0, 0),
    };
    let mut order: Vec<usize> = (0..recording.tasks.len()).collect();
    order.sort_by_key(|&id| (key(id), id));
    order.into_iter().map(TaskId::from).collect()
}

impl Demand {
    /// The demand of a recording, for a host with `pcpus` pCPUs.
    pub fn of(recording: &Recording, pcpus: u32, spinning: Spinning) -> Self {
        let order = replay_order(recording);
        let mut place = vec![usize::MAX; order.len()];
        for (replayed, recorded) in order.iter().enumerate() {
            place[recorded.index()] = replayed;
        }
        let mut demand = Self {
            tasks: Vec::with_capacity(order.len()),
            vms: vms(recording),
            duration: recording.duration().max(1),
            unknown_wakers: 0,
            cut: 0,
        };
        let progress = Progress::of(recording);
        let mut points: Vec<Vec<Point>> = vec![Vec::new(); order.len()];
        for (replayed, recorded) in order.iter().enumerate() {
            let task = &recording.tasks[recorded.index()];
            let mut compiled = task_demand(recording, task, pcpus, spinning);
            demand.cut += u64::from(compiled.end == End::Cut);
            for (number, burst) in task.bursts.iter().enumerate() {
                let Some((waker, mut point)) = progress.point(recording, burst) else {
                    demand.unknown_wakers += unusable(task, &mut compiled, number);
                    continue;
                };
                if let Some(of) = recording.task(waker) {
                    point.offset = work(of, spinning, point.offset);
                }
                let waker = place[waker.index()];
                (point.wakee, point.wakee_piece) = (replayed, number);
                points[waker].push(point);
                compiled.pieces[number].cause = Cause::Task(waker);
            }
            demand.tasks.push(compiled);
        }
        for (task, mut points) in demand.tasks.iter_mut().zip(points) {
            points.sort_by_key(|p| (p.piece, p.offset, p.at, p.wakee, p.wakee_piece));
            task.points = points;
        }
        demand
    }
}

fn vms(recording: &Recording) -> Vec<VmInfo> {
    let info = |vm: &corun_recording::Vm| VmInfo {
        name: vm.name.clone(),
        weight: None,
        cookie: 0,
        cap: 0,
        realtime: false,
    };
    recording.vms.iter().map(info).collect()
}

/// A burst whose recorded waker cannot have woken it is woken from outside instead; counts it.
fn unusable(task: &Task, compiled: &mut TaskDemand, number: usize) -> u64 {
    let claimed = task.bursts.get(number).map(|burst| burst.wake);
    if !matches!(claimed, Some(WakeCause::Task { .. })) {
        return 0;
    }
    compiled.pieces[number].cause = Cause::After(mean_wait(task));
    1
}

/// How long a task waited before a burst, on average, ns.
fn mean_wait(task: &Task) -> Nanos {
    task.observed.wait / (task.bursts.len() as u64).max(1)
}

fn task_demand(recording: &Recording, task: &Task, pcpus: u32, spinning: Spinning) -> TaskDemand {
    let duration = recording.duration();
    let mut pieces: Vec<Piece> = task.bursts.iter().map(piece).collect();
    for piece in &mut pieces {
        piece.work = work(task, spinning, piece.work);
    }
    // Only the first piece can be there from the beginning.
    for piece in pieces.iter_mut().skip(1) {
        if piece.cause == Cause::Start {
            piece.cause = Cause::After(0);
        }
    }
    let last = task.bursts.last();
    let end = match (last.map(|burst| burst.end), task.at_end) {
        (Some(BurstEnd::Exited), _) | (_, AtEnd::Exited) => End::Exited,
        (Some(BurstEnd::RecordingEnded), _) => End::Cut,
        _ => End::Blocked,
    };
    let known = last.map_or(0, |burst| burst.woken_at.saturating_add(burst.work));
    TaskDemand {
        spec: spec(recording, task, pcpus),
        ran_at_start: matches!(task.at_start, AtStart::Running(_)),
        points: Vec::new(),
        end,
        hog: end == End::Cut && last.is_some_and(|burst| burst.woken_at <= duration / 2),
        seam: match end {
            End::Exited => duration,
            _ => mean_wait(task),
        },
        tail: match end {
            End::Blocked => duration.saturating_sub(known),
            End::Cut | End::Exited => 0,
        },
        pieces,
    }
}

/// How much of the CPU time that a task used was work.
fn work(task: &Task, spinning: Spinning, used: Nanos) -> Nanos {
    let (run, contested) = (task.observed.run, task.observed.contested);
    match spinning {
        Spinning::Waste if run > 0 => {
            let kept = u128::from(run - contested.min(run));
            // At most `used`, which has 64 bits.
            (u128::from(used) * kept / u128::from(run)) as Nanos
        }
        _ => used,
    }
}

fn piece(burst: &Burst) -> Piece {
    Piece {
        cause: match burst.wake {
            WakeCause::AtStart => Cause::Start,
            WakeCause::External { delay } => Cause::After(delay),
            // Replaced when the waker's point is known.
            WakeCause::Task { .. } => Cause::After(0),
        },
        work: burst.work,
    }
}

fn spec(recording: &Recording, task: &Task, pcpus: u32) -> TaskSpec {
    let vm_name = |vm: corun_model::VmId| {
        let vm = recording.vms.get(vm.index());
        vm.map_or("vm", |vm| vm.name.as_str())
    };
    let (name, vcpu, helper_of) = match task.role {
        Role::Vcpu { vm, index } => (format!("{}/{index}", vm_name(vm)), Some((vm, index)), None),
        Role::VmThread { vm, .. } => (format!("{}-{}", task.comm, task.tid), None, Some(vm)),
        Role::Host => (format!("{}-{}", task.comm, task.tid), None, None),
    };
    TaskSpec {
        name,
        vcpu,
        helper_of,
        weight: match task.role {
            Role::Host => names::weight(&task.comm),
            _ => NEUTRAL_WEIGHT,
        },
        allowed: allowed(task, pcpus),
        last_on: task.first_pcpu.filter(|cpu| cpu.0 < pcpus),
        slice: None,
    }
}

/// All pCPUs; for the kernel's own per-CPU threads only the one in their name. Threads of pCPUs
/// that the replay's host does not have may run anywhere.
fn allowed(task: &Task, pcpus: u32) -> PcpuSet {
    let everywhere = PcpuSet::first(pcpus);
    if task.role != Role::Host {
        return everywhere;
    }
    match names::bound_to(&task.comm).filter(|&cpu| cpu < pcpus) {
        Some(cpu) => std::iter::once(PcpuId(cpu)).collect(),
        None => everywhere,
    }
}

/// For finding points: per recorded task, the work before each burst, and when each was woken.
struct Progress(Vec<Vec<(Nanos, Nanos)>>);

impl Progress {
    fn of(recording: &Recording) -> Self {
        let along = |task: &Task| {
            let mut before: Nanos = 0;
            let step = |burst: &Burst| {
                let here = (before, burst.woken_at);
                before = before.saturating_add(burst.work);
                here
            };
            task.bursts.iter().map(step).collect()
        };
        Self(recording.tasks.iter().map(along).collect())
    }

    /// The waker of a burst and the place of the wake-up in its work; `None` if no task woke it,
    /// or one that did nothing in the recording.
    fn point(&self, recording: &Recording, burst: &Burst) -> Option<(TaskId, Point)> {
        let WakeCause::Task { waker, waker_work } = burst.wake else {
            return None;
        };
        let along = self.0.get(waker.index())?;
        let begun = along.partition_point(|&(before, _)| before <= waker_work);
        let awake = along.partition_point(|&(_, woken)| woken < burst.woken_at);
        let piece = begun.min(awake).max(1) - 1;
        let &(before, _) = along.get(piece)?;
        let work = recording.task(waker)?.bursts.get(piece)?.work;
        let point = Point {
            piece,
            offset: (waker_work - before.min(waker_work)).min(work),
            at: burst.woken_at,
            wakee: 0,
            wakee_piece: 0,
        };
        Some((waker, point))
    }
}
