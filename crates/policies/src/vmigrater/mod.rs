// SPDX-License-Identifier: GPL-2.0-only
//! vMigrater: keeps a guest's I/O-bound tasks on vCPUs that are active (Jia et al., "Effectively
//! Mitigating I/O Inactivity in vCPU Scheduling", USENIX ATC 2018; dissertation ch. 2).
//!
//! Problem: a task cannot issue its next request while its vCPU is descheduled, so with `n` vCPUs per pCPU it gets an
//! n-th part of a disk's speed, although the VM has other vCPUs that are active. The only remedy that needs nothing
//! from the host: know which vCPUs are active ([`monitor`]), know the I/O-bound tasks ([`detector`]), and move those in
//! time ([`migrater`]). [`model`] says how much that can gain at most.
//!
//! [`Core`] is all of that as one state machine without clock and I/O. Its driver (the simulator's
//! guests, the daemon in a real one) tells it of beats, tasks and requests, asks it
//! [what to move](Core::decide), and moves it. Times are ns of one monotonic clock.

pub mod detector;
pub mod migrater;
pub mod model;
pub mod monitor;
mod params;
mod slices;

#[cfg(test)]
mod tests;

pub use migrater::{Move, Why};
pub use monitor::{Activity, Beat};
pub use params::{MOST_SLICES, MigraterParams, constants, parameters};

use corun_model::Nanos;
use detector::Detector;
use migrater::{TaskView, VcpuView};
use monitor::Monitor;
use std::collections::BTreeMap;

/// A task that may be moved.
#[derive(Clone, Copy, Debug)]
struct Task {
    vcpu: u32,
    priority: u8,
    detector: Detector,
    /// Has its vCPU been active for a heartbeat since it was sent there?
    settled: bool,
}

/// The decisions of vMigrater in one guest.
#[derive(Clone, Debug)]
pub struct Core {
    params: MigraterParams,
    monitors: Vec<Monitor>,
    /// vCPUs that have become active since the last decision.
    fresh: Vec<bool>,
    tasks: BTreeMap<u64, Task>,
}

impl Core {
    /// For a guest with this many vCPUs, numbered from 0; more can [come](Core::heartbeat).
    pub fn new(params: MigraterParams, vcpus: u32) -> Self {
        Self {
            params,
            monitors: vec![Monitor::default(); vcpus as usize],
            fresh: vec![false; vcpus as usize],
            tasks: BTreeMap::new(),
        }
    }

    /// Its settings.
    pub fn params(&self) -> &MigraterParams {
        &self.params
    }

    /// The timer of `vcpu` went off at `now`; `stolen` is its steal time so far, where the host
    /// tells it, in ns. A number not known yet is a vCPU that was plugged in.
    pub fn heartbeat(&mut self, vcpu: u32, now: Nanos, stolen: Option<Nanos>) -> Beat {
        let index = vcpu as usize;
        if self.monitors.len() <= index {
            self.monitors.resize(index + 1, Monitor::default());
            self.fresh.resize(index + 1, false);
        }
        let beat = self.monitors[index].beat(&self.params, now, stolen);
        self.fresh[index] |= beat == Beat::Rescheduled;
        let on_it = self.tasks.values_mut().filter(|task| task.vcpu == vcpu);
        for task in on_it {
            task.detector.beat(&self.params, now, beat == Beat::Regular);
            task.settled |= beat == Beat::Regular;
        }
        beat
    }

    /// The timer of `vcpu` woke it, and its heart is about to beat at `now`: what its tasks did since the last beat
    /// counts, whether or not the vCPU had to wait for its pCPU in the end. The vCPU idled, so they did not compute.
    pub fn woke_up(&mut self, vcpu: u32, now: Nanos) {
        let on_it = self.tasks.values_mut().filter(|task| task.vcpu == vcpu);
        for task in on_it {
            task.detector.beat(&self.params, now, true);
        }
    }

    /// The vCPU, which has just beaten, idled until then. Returns by how much its next beat should be put off: a beat
    /// wakes an idle vCPU, which costs the host two switches, and tells little. By nothing where an I/O-bound task
    /// waits for its disk: that vCPU is not idle for long.
    pub fn idled(&mut self, vcpu: u32) -> Nanos {
        let rest = self.params.idle.saturating_sub(self.params.heartbeat);
        if rest == 0 || self.bound_tasks().any(|task| task.vcpu == vcpu) {
            return 0;
        }
        if let Some(monitor) = self.monitors.get_mut(vcpu as usize) {
            monitor.rests(rest);
        }
        rest
    }

    /// There is a task on `vcpu` that may be moved; its `priority` is higher if its user wants it to choose first. A
    /// task that is known already begins anew.
    pub fn task_appeared(&mut self, task: u64, vcpu: u32, priority: u8, now: Nanos) {
        let detector = Detector::new(now);
        let known = Task {
            vcpu,
            priority,
            detector,
            settled: true,
        };
        self.tasks.insert(task, known);
    }

    /// A task has ended, or may not be moved any more.
    pub fn task_gone(&mut self, task: u64) {
        self.tasks.remove(&task);
    }

    /// A task was seen on `vcpu`. What [`Core::decide`] moves is where it should be from then on, so
    /// only what differs needs telling: the kernel moved a task by itself, or refused to.
    pub fn task_located(&mut self, task: u64, vcpu: u32, now: Nanos) {
        if let Some(task) = self.tasks.get_mut(&task)
            && task.vcpu != vcpu
        {
            task.vcpu = vcpu;
            task.detector.beat(&self.params, now, false);
        }
    }

    /// A request of the task begins.
    pub fn io_started(&mut self, task: u64, now: Nanos) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.detector.io_started(now);
        }
    }

    /// A request of the task has ended.
    pub fn io_ended(&mut self, task: u64, now: Nanos) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.detector.io_ended(now);
        }
    }

    /// Instead of events: the share of its time on active vCPUs that the task was in I/O lately,
    /// thousandths. Not to be mixed with events for the same task.
    pub fn io_sampled(&mut self, task: u64, share: u64) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.detector.sampled(&self.params, share);
        }
    }

    /// Does the guest share its pCPUs: was a vCPU descheduled lately? If not, nothing is ever moved.
    pub fn shared(&self, now: Nanos) -> bool {
        let lately = |at: Nanos| now.saturating_sub(at) < self.params.unshared;
        let mut away = self.monitors.iter().map(Monitor::rescheduled);
        away.any(|at| at.is_some_and(lately))
    }

    /// Is the task I/O-bound? `None`: it is not known.
    pub fn io_bound(&self, task: u64) -> Option<bool> {
        self.tasks.get(&task).map(|task| task.detector.bound())
    }

    /// Where the task is, or was told to go.
    pub fn vcpu_of(&self, task: u64) -> Option<u32> {
        self.tasks.get(&task).map(|task| task.vcpu)
    }

    /// The monitor of a vCPU.
    pub fn monitor(&self, vcpu: u32) -> Option<&Monitor> {
        self.monitors.get(vcpu as usize)
    }

    /// What a vCPU is taken to be doing at `now`.
    pub fn activity(&self, vcpu: u32, now: Nanos) -> Activity {
        self.monitor(vcpu).map_or(Activity::Absent, |monitor| {
            monitor.activity(&self.params, now)
        })
    }

    /// Which tasks are to move now, and where to. From then on they count as being there.
    ///
    /// To be asked after each beat: then a slice's end is foreseen to a beat. Nothing moves in a guest that does not
    /// [share its pCPUs](Core::shared) or has one vCPU only.
    pub fn decide(&mut self, now: Nanos) -> Vec<Move> {
        let tasks: Vec<_> = self.bound_tasks().collect();
        if tasks.is_empty() || self.monitors.len() < 2 || !self.shared(now) {
            self.fresh.fill(false);
            return Vec::new();
        }
        let view = |(vcpu, monitor): (u32, &Monitor)| VcpuView {
            vcpu,
            activity: monitor.activity(&self.params, now),
            away: monitor.away(),
            slice: monitor.whole(&self.params),
            fresh: self.fresh[vcpu as usize],
        };
        let vcpus: Vec<_> = (0..).zip(&self.monitors).map(view).collect();
        let moves = migrater::moves(&self.params, &vcpus, &tasks);
        self.fresh.fill(false);
        for it in &moves {
            self.task_located(it.task, it.to, now);
            if let Some(task) = self.tasks.get_mut(&it.task) {
                task.settled = false;
            }
        }
        moves
    }

    fn bound_tasks(&self) -> impl Iterator<Item = TaskView> {
        let bound = self.tasks.iter().filter(|(_, task)| task.detector.bound());
        bound.map(|(id, task)| TaskView {
            task: *id,
            vcpu: task.vcpu,
            priority: task.priority,
            load: task.detector.load(),
            settled: task.settled,
        })
    }
}
