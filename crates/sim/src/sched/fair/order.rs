// SPDX-License-Identifier: GPL-2.0-only
//! What CFS and EEVDF differ in: the order of one pCPU's runqueue.

use corun_model::{Nanos, PcpuId, TaskId};

/// Why a task joins a runqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// For the first time.
    New,
    /// It woke up; it ran last on this pCPU.
    Woken(PcpuId),
    /// It was moved while it was ready.
    Moved,
}

/// Why a task leaves a runqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It does not want a pCPU any more.
    Sleeps,
    /// It is moved to another runqueue.
    Moves,
    /// A quota keeps it waiting.
    Throttled,
}

/// The order of each pCPU's runqueue. The current task of a pCPU is a member of its runqueue.
///
/// The current task's time is charged up to now before any of these is called.
pub(crate) trait Order {
    /// One more task of this weight, which asks for slices of this length if any.
    fn add(&mut self, weight: u64, slice: Option<Nanos>);

    /// The last task added is of this VM, which is scheduled as a group.
    fn is_grouped(&mut self, vm: usize) {
        let _ = vm;
    }

    /// The last task added is in an idle group (`cpu.idle`).
    fn is_idle(&mut self) {}

    /// `task`, which is on the runqueue of `on` (`None`: on no runqueue), has another weight from
    /// now on.
    fn reweigh(&mut self, task: TaskId, on: Option<PcpuId>, weight: u64);

    /// `task`, which is on the runqueue of `cpu` or about to join it for this reason, weighs `weight` from now on,
    /// since its weight counts up to another group now. What it is owed and what is left of its slice stay the same in
    /// pCPU time.
    fn stretch(&mut self, cpu: PcpuId, task: TaskId, joins: Option<Join>, weight: u64);

    /// The current task of `cpu` had it for `time`. True if it should make way.
    fn charge(&mut self, cpu: PcpuId, time: Nanos) -> bool;

    /// `task` joins the runqueue of `cpu`.
    fn join(&mut self, cpu: PcpuId, task: TaskId, why: Join);

    /// `task` leaves the runqueue of `cpu`, whose current task it may be.
    fn leave(&mut self, cpu: PcpuId, task: TaskId, why: Leave);

    /// The task that has its turn on `cpu`.
    fn pick(&mut self, cpu: PcpuId) -> Option<TaskId>;

    /// `task` is the current task of `cpu` from now on; called for an unchanged one, too.
    fn set_current(&mut self, cpu: PcpuId, task: Option<TaskId>);

    /// The current task of `cpu` wakes another one.
    fn woke(&mut self, cpu: PcpuId) {
        let _ = cpu;
    }

    /// Shall `woken`, just queued on `cpu`, take it from the current task?
    fn preempts(&mut self, cpu: PcpuId, woken: TaskId) -> bool;

    /// The current task of `cpu`, of an idle group, is not protected from a woken task of no idle
    /// group.
    fn unprotect(&mut self, cpu: PcpuId) {
        let _ = cpu;
    }

    /// Shall the current task of `cpu` make way at this tick?
    fn tick(&mut self, cpu: PcpuId) -> bool;

    /// The current task of `cpu` lets others go first. `siblings`, if its VM has a cgroup: the tasks of that cgroup
    /// that are members or ghosts on this runqueue.
    fn yields(&mut self, cpu: PcpuId, siblings: Option<&[TaskId]>);

    /// Another task yields to `task`, which waits on the runqueue of `cpu`: `task` goes next if
    /// that is not unfair (`set_next_buddy()`).
    fn favour(&mut self, cpu: PcpuId, task: TaskId);

    /// How long a turn of `task`, a member of the runqueue of `cpu`, is to be.
    fn slice(&self, cpu: PcpuId, task: TaskId) -> Nanos {
        let _ = (cpu, task);
        0
    }

    /// How far `task`, a member of the runqueue of `cpu`, is ahead of the first of the others, in
    /// virtual time; negative if it is behind all of them.
    fn lead(&self, cpu: PcpuId, task: TaskId) -> i64 {
        let _ = (cpu, task);
        0
    }

    /// Is `task` ahead of `other`, both members of the runqueue of `cpu`, by more than fair order tolerates
    /// (`wakeup_preempt_entity()`) plus so many `slices` of its own?
    fn is_far_ahead(&self, cpu: PcpuId, task: TaskId, other: TaskId, slices: u64) -> bool {
        let _ = (cpu, task, other, slices);
        false
    }

    /// The pCPU that a sleeping `task` has to wake up on: it left a *ghost* on its runqueue.
    fn bound_to(&self, task: TaskId) -> Option<PcpuId> {
        let _ = task;
        None
    }

    /// The time after which the current task of `cpu` should be stopped without waiting for a tick.
    fn stop_after(&self, cpu: PcpuId) -> Option<Nanos> {
        let _ = cpu;
        None
    }

    /// If `task` has a ghost on the runqueue of `cpu`, the ghost leaves it although it would not be picked yet.
    fn let_go(&mut self, cpu: PcpuId, task: TaskId) {
        let _ = (cpu, task);
    }

    /// A ghost that has left its runqueue since this was last asked.
    fn released(&mut self) -> Option<TaskId> {
        None
    }

    /// A ghost moves from one runqueue to another.
    fn move_ghost(&mut self, task: TaskId, from: PcpuId, to: PcpuId) {
        let _ = (task, from, to);
    }

    /// Has `task`, a member or ghost on the runqueue of `cpu`, got no more than its share?
    fn owes_nothing(&self, cpu: PcpuId, task: TaskId) -> bool {
        let _ = (cpu, task);
        true
    }

    /// Checks the books of `cpu`, which has so many `members`; for debug builds.
    fn check(&self, cpu: PcpuId, members: usize);
}
