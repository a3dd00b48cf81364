// SPDX-License-Identifier: GPL-2.0-only
//! What tasks want: the side of the simulation that makes demand.
//!
//! Two loads exist: modelled guests ([`crate::guest`]) and the demand of a recorded host
//! ([`crate::replay`]). When its tasks run, stop or finish what they ordered, a load responds by
//! calling the host's methods "for loads".

mod cgroups;
mod patterns;

pub use cgroups::{Cgroup, Cgroups, Quota};
pub use patterns::{Pattern, Patterns};

use crate::device::net::ClientOutcome;
use crate::host::{Host, TaskSpec};
use crate::waits::Waits;
use corun_model::{Nanos, Signals, TaskId, VmId};

/// A VM for the report.
#[derive(Clone, Debug)]
pub struct VmInfo {
    /// The name users gave it.
    pub name: String,
    /// Weight against other VMs (`cpu.weight`), `None`: its vCPUs count one by one.
    pub weight: Option<u32>,
    /// Its core-scheduling cookie: only VMs with the same one may share a core; 0 is a cookie like
    /// any other.
    pub cookie: u64,
    /// The most pCPU time it gets, in percent of one pCPU; 0: no limit. Xen's Credit has caps.
    pub cap: u32,
    /// Are its vCPUs real-time tasks, if the scheduler knows such?
    pub realtime: bool,
}

/// What a VM achieved since the accounts were last reset.
#[derive(Clone, Debug, Default)]
pub struct Achieved {
    /// Units of work per second.
    pub throughput: f64,
    /// What a unit is, such as `work s/s`.
    pub throughput_unit: String,
    /// Further kinds of work that its programs count: what, and how much per second.
    pub other_throughputs: Vec<(String, f64)>,
    /// Waits for contended locks; empty where there are none.
    pub lock_waits: Waits,
    /// Times a kernel spin lock was taken, contended or not.
    pub lock_acquisitions: u64,
    /// Progress of its threads' own work, ns, summed over the vCPUs like the next three.
    pub work: Nanos,
    /// Spent spinning.
    pub spin: Nanos,
    /// Spent on interrupts and thread switches in the guest.
    pub kernel: Nanos,
    /// Time without a thread, as the guest's kernel sees it. It counts the rest of the time as CPU
    /// use, including time in which the vCPU had no pCPU, unless it accounts for steal time.
    /// `None` for a load without guests.
    pub idle: Option<Nanos>,
    /// Time idle, but on a pCPU: polling in the guest or the host, or keeping its context.
    pub idling: Nanos,
    /// Times a vCPU halted while it waited for a paravirtual spin lock.
    pub lock_halts: u64,
    /// Pause-loop exits.
    pub pause_loop_exits: u64,
    /// Times a vCPU changed its guest thread.
    pub thread_switches: u64,
    /// TLB shootdowns.
    pub shootdowns: u64,
    /// How long shootdowns waited for the other vCPUs.
    pub shootdown_waits: Waits,
    /// Halts for which the host polled.
    pub halt_polls: u64,
    /// How many of these polls caught the wake-up.
    pub halt_poll_hits: u64,
    /// What it did with its disk, if it has one.
    pub io: Option<IoAchieved>,
    /// What its agent against I/O inactivity did, if it has one.
    pub agent: Option<AgentAchieved>,
}

/// What vMigrater or xBalloon did in a VM.
#[derive(Clone, Debug, Default)]
pub struct AgentAchieved {
    /// Tasks moved from vCPUs whose slice was about to end.
    pub pushed: u64,
    /// Tasks moved from vCPUs that were descheduled.
    pub pulled: u64,
    /// Tasks moved from vCPUs whose slice was about to end to ones about to be active.
    pub soon: u64,
    /// Tasks moved from vCPUs with more than their part of I/O-bound tasks.
    pub spread: u64,
    /// What each of these moves cost the task: from when it was told to move (if it was asleep then: from when it woke)
    /// until it ran on its new vCPU.
    pub costs: Waits,
    /// vCPU time of the agent itself, ns.
    pub work: Nanos,
    /// How long vCPUs slept although they had computing to do, ns, summed over them.
    pub ballooned: Nanos,
}

/// What a VM did with its disk.
#[derive(Clone, Debug, Default)]
pub struct IoAchieved {
    /// Reads and writes that its threads finished.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times from the beginning of a read or write that had to wait until its thread ran again;
    /// those that the guest's page cache answered do not count.
    pub waits: Waits,
    /// Requests of its block layer of whose end the guest has learnt: reads, then writes.
    /// Read-ahead counts as a read, whether or not a thread waits for it.
    pub requests: [Requests; 2],
    /// I/O inactivity, ns, summed over the VM's I/O threads (those with a read or write in their
    /// program): an I/O thread is inactive while it could run, or while the last request that it
    /// waits for is done and its interrupt posted, but the vCPU that it is on (or that has the
    /// interrupt) wants a pCPU and has none. This is vMigrater's definition (USENIX ATC 2018,
    /// §5.3): the time that I/O-bound tasks "run" on descheduled vCPUs.
    pub inactivity: Nanos,
    /// Number of those threads.
    pub threads: usize,
}

/// Requests of a block layer, as Linux counts them in `/sys/block/*/stat`: from when the guest issues one until it
/// takes the interrupt of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// How long they took together, ns.
    pub total: Nanos,
}

impl Requests {
    /// How long one took on average, ns; `None` if there was none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total as f64 / self.count as f64)
    }
}

/// What a device of the host did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// Its accounts.
    pub totals: crate::device::disk::Totals,
}

/// What came of a spinning vCPU's offer to let a sibling go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The sibling goes first.
    Taken,
    /// The scheduler refused.
    Refused,
    /// Neither vCPU shares its pCPU with another task: nothing would be gained.
    Pointless,
}

/// The demand of all tasks.
///
/// All methods are called with the host at the time of the event. `step`, `run` and `stop` concern
/// one task; the load must not assume anything about the others beyond what it was told.
pub trait Load {
    /// The VMs, in the order of their ids.
    fn vms(&self) -> Vec<VmInfo>;

    /// The host's cgroups. Asked once, before the run.
    fn cgroups(&self) -> Cgroups {
        Cgroups::default()
    }

    /// The tasks, in the order of their ids. Asked once, before the run.
    fn tasks(&self) -> Vec<TaskSpec>;

    /// The run begins: wake what wants to run, set timers.
    fn start(&mut self, host: &mut Host);

    /// I/O events and pause-loop exits of `task` since the run began, if it is a vCPU and they are known.
    fn signals(&self, task: TaskId) -> Signals {
        let _ = task;
        Signals::default()
    }

    /// `task` has a pCPU from now on. Order work ([`Host::step_after`]) or let it run open-ended.
    fn run(&mut self, host: &mut Host, task: TaskId);

    /// `task` lost its pCPU and still wants one. It did `done` ns of work since [`Load::run`].
    fn stop(&mut self, host: &mut Host, task: TaskId, done: Nanos);

    /// The work ordered for `task` is done; it still has its pCPU. Order more, or
    /// [`Host::block`].
    fn step(&mut self, host: &mut Host, task: TaskId);

    /// The host looks for a sibling that `task`, which spins, may be waiting for: `offer` lets that one go first.
    fn on_spin(
        &mut self,
        host: &mut Host,
        task: TaskId,
        offer: &mut dyn FnMut(&mut Host, TaskId) -> Offered,
    ) {
        let _ = (host, task, offer);
    }

    /// Another task wants the pCPU of `task`, for which the host polls, or whose context is
    /// retained there as the policy says.
    fn crowded(&mut self, host: &mut Host, task: TaskId) {
        let _ = (host, task);
    }

    /// The scheduler wants another task on the pCPU of `task`, for which the host polls: the load ends the poll, after
    /// which `task` waits; or it lets the poll go on, and asks for a reschedule when that ends.
    fn end_poll(&mut self, host: &mut Host, task: TaskId) {
        let _ = (host, task);
    }

    /// A timer set with [`Host::load_timer`] fired.
    fn timer(&mut self, host: &mut Host, token: u64);

    /// What a timer is for, in words.
    fn timer_is(&self, token: u64) -> String {
        format!("a timer of the load (its number {token})")
    }

    /// Accounts are about to be reset or read: book what running tasks have done so far
    /// ([`Host::progress`]).
    fn settle(&mut self, host: &Host) {
        let _ = host;
    }

    /// The warm-up is over: what was achieved so far does not count.
    fn reset(&mut self, now: Nanos);

    /// What `vm` achieved since the reset.
    fn achieved(&self, vm: VmId, now: Nanos) -> Achieved;

    /// What the host's devices did since the reset.
    fn devices(&self) -> Vec<DeviceOutcome> {
        Vec::new()
    }

    /// What clients outside the host and channels between VMs saw since the reset.
    fn clients(&self, now: Nanos) -> Vec<ClientOutcome> {
        let _ = now;
        Vec::new()
    }
}
