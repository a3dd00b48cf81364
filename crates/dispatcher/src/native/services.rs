// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher asks of the host that it works for, and the types for that.
//!
//! In the kernel these are kfuncs and BPF helpers; here a host implements [`Services`]: the simulator's
//! sched_ext model, the replay of a recording, or a test.

use corun_model::Nanos;

/// How the dispatcher asks a pCPU to schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Only if it idles.
    Idle,
    /// The running task's slice is over.
    Preempt,
}

/// `IN_MICRO` and others: kinds that are recorded only where they are not 0.
const NOT_0: [u32; 6] = [24, 26, 27, 28, 29, 30];

/// Does a value of this kind pass the tap? Some inputs do only where they are not 0.
pub fn passes(kind: u32, value: u64) -> bool {
    value != 0 || !NOT_0.contains(&kind)
}

/// How the dispatcher is compiled (dispatcher/platform/native.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// pCPUs are found by an index: for simulations.
    Indexed,
    /// The host takes part in every exchange: for replays.
    Tapped,
    /// pCPUs are gone through one by one, as in the kernel's build: for counting instructions.
    Plain,
}

/// What the dispatcher is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Callback {
    /// A task wakes: to which pCPU should it go?
    SelectCpu,
    /// A task is ready and must be queued.
    Enqueue,
    /// A pCPU needs something to run.
    Dispatch,
    /// A task has a pCPU from now on.
    Running,
    /// A task loses its pCPU.
    Stopping,
    /// A task lets others go first.
    Yield,
    /// The timer of a pCPU fired.
    Timer,
    /// The release timer of a pCPU fired.
    Release,
    /// A sibling waits for a ready vCPU to flush its TLB.
    FlushIpi,
    /// A task exists from now on.
    InitTask,
    /// A task is gone.
    ExitTask,
}

impl Callback {
    /// Its name in `struct sched_ext_ops`, or among corun's own.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelectCpu => "select_cpu",
            Self::Enqueue => "enqueue",
            Self::Dispatch => "dispatch",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Yield => "yield",
            Self::Timer => "timer",
            Self::Release => "release",
            Self::FlushIpi => "flush_ipi",
            Self::InitTask => "init_task",
            Self::ExitTask => "exit_task",
        }
    }
}

/// What the dispatcher needs done. Tasks are indices as given by [`Native::add_task`], queues are
/// numbered like pCPUs; from [`MAX_PCPUS`] on, they hold the tasks that are parked there.
///
/// [`Native::add_task`]: super::Native::add_task
/// [`MAX_PCPUS`]: crate::MAX_PCPUS
pub trait Services {
    /// Was `cpu` idle? If so it is claimed.
    fn claim_idle(&mut self, cpu: u32) -> bool;
    /// Tasks in a queue.
    fn queue_length(&mut self, queue: u64) -> u32;
    /// Moves the head of a queue to the dispatching pCPU's local queue.
    fn move_first(&mut self, queue: u64) -> bool;
    /// The task behind `after` in a queue, or its head.
    fn next_queued(&mut self, queue: u64, after: Option<usize>) -> Option<usize>;
    /// Moves a queued task to the local queue of `cpu`.
    fn move_queued(&mut self, task: usize, cpu: u32) -> bool;
    /// Moves a task from the queue it is in to another.
    fn requeue(&mut self, task: usize, queue: u64, vtime: u64) -> bool;
    /// Puts a task into a queue by virtual time.
    fn insert(&mut self, task: usize, queue: u64, slice: Nanos, vtime: u64);
    /// Puts a task at the head of the local queue of `cpu`, whose running task's slice is over.
    fn insert_next(&mut self, task: usize, cpu: u32, slice: Nanos);
    /// Puts the task being woken into the local queue of the pCPU that select_cpu returns.
    fn insert_local(&mut self, task: usize, slice: Nanos);
    /// Asks `cpu` to schedule.
    fn kick(&mut self, cpu: u32, how: Kick);
    /// The running task keeps its pCPU for another slice.
    fn set_slice(&mut self, task: usize, slice: Nanos);
    /// Calls [`Native::timer`] for the pCPU `timer` after `delay`; from [`MAX_PCPUS`] on calls [`Native::release`], for
    /// pCPU `timer` - [`MAX_PCPUS`].
    ///
    /// [`Native::timer`]: super::Native::timer
    /// [`Native::release`]: super::Native::release
    /// [`MAX_PCPUS`]: crate::MAX_PCPUS
    fn start_timer(&mut self, timer: u32, delay: Nanos);

    /// Which of the dispatcher's builds works for this host.
    const BUILD: Build = Build::Indexed;
    /// A callback, made at `now`, has returned.
    #[inline]
    fn returned(&mut self, callback: Callback, now: Nanos) {
        let _ = (callback, now);
    }

    /// [`Build::Tapped`]: an input of `kind` is about to be used; what shall its value be?
    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        let _ = kind;
        value
    }

    /// [`Build::Tapped`]: a decision of `kind` was made.
    fn tap_out(&mut self, kind: u32, value: u64) {
        let _ = (kind, value);
    }
}
