// SPDX-License-Identifier: GPL-2.0-only
//! What tasks want: the side of the simulation that makes demand.
//!
//! Two loads exist: modelled guests ([`crate::guest`]) and the demand of a recorded host
//! ([`crate::replay`]). A load answers when its tasks run, stop or finish what they ordered, by
//! calling the host's methods "for loads".

mod patterns;

pub use patterns::{Pattern, Patterns};

use crate::device::net::ClientOutcome;
use crate::host::{Host, TaskSpec};
use crate::waits::Waits;
use corun_model::{Nanos, TaskId, VmId};

/// A VM for the report.
#[derive(Clone, Debug)]
pub struct VmInfo {
    /// The name users gave it.
    pub name: String,
    /// Weight against other VMs (`cpu.weight`), `None`: its vCPUs count one by one.
    pub weight: Option<u32>,
}

/// What a VM achieved since the accounts were last reset.
#[derive(Clone, Debug, Default)]
pub struct Achieved {
    /// Units of work per second.
    pub throughput: f64,
    /// What a unit is, such as `work s/s`.
    pub throughput_unit: String,
    /// Waits for contended locks; empty where there are none.
    pub lock_waits: Waits,
    /// Times a kernel spin lock was taken, contended or not.
    pub lock_acquisitions: u64,
    /// Progress of its threads' own work, ns, summed over the vCPUs like the next two.
    pub work: Nanos,
    /// Spent spinning.
    pub spin: Nanos,
    /// Spent on interrupts and thread switches in the guest.
    pub kernel: Nanos,
    /// Times a vCPU halted while it waited for a paravirtual spin lock.
    pub lock_halts: u64,
    /// Pause-loop exits.
    pub pause_loop_exits: u64,
    /// Times a vCPU changed its guest thread.
    pub thread_switches: u64,
}

/// The demand of all tasks.
///
/// All methods are called with the host at the time of the event. `step`, `run` and `stop` concern
/// one task; the load must not assume anything of the others but what it was told.
pub trait Load {
    /// The VMs, in the order of their ids.
    fn vms(&self) -> Vec<VmInfo>;

    /// The tasks, in the order of their ids. Asked once, before the run.
    fn tasks(&self) -> Vec<TaskSpec>;

    /// The run begins: wake what wants to run, set timers.
    fn start(&mut self, host: &mut Host);

    /// `task` has a pCPU from now on. Order work ([`Host::step_after`]) or let it run open-ended.
    fn run(&mut self, host: &mut Host, task: TaskId);

    /// `task` lost its pCPU and still wants one. It did `done` ns of work since [`Load::run`].
    fn stop(&mut self, host: &mut Host, task: TaskId, done: Nanos);

    /// The work ordered for `task` is done; it still has its pCPU. Order more, or
    /// [`Host::block`].
    fn step(&mut self, host: &mut Host, task: TaskId);

    /// A timer set with [`Host::load_timer`] fired.
    fn timer(&mut self, host: &mut Host, token: u64);

    /// Accounts are about to be reset or read: book what running tasks have done so far
    /// ([`Host::progress`]).
    fn settle(&mut self, host: &Host) {
        let _ = host;
    }

    /// The warm-up is over: what was achieved so far does not count.
    fn reset(&mut self, now: Nanos);

    /// What `vm` achieved since the reset.
    fn achieved(&self, vm: VmId, now: Nanos) -> Achieved;

    /// What clients outside the host and channels between VMs saw since the reset.
    fn clients(&self, now: Nanos) -> Vec<ClientOutcome> {
        let _ = now;
        Vec::new()
    }
}
