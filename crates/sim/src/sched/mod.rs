// SPDX-License-Identifier: GPL-2.0-only
//! The host schedulers, which decide what runs.
//!
//! [`dispatcher`] runs corun's own C dispatcher under the sched_ext contract; the others are models
//! of schedulers whose code cannot be shared (Linux' [`cfs`] and [`eevdf`]; [`rr`], which is CFS
//! with Linux' real-time class; Xen's [`credit`]).

pub mod cfs;
pub mod credit;
pub mod dispatcher;
pub mod eevdf;
pub(crate) mod fair;
pub(crate) mod forward;
pub mod rr;

use crate::host::Host;
use crate::load::{Cgroups, VmInfo};
use corun_model::{Nanos, PcpuId, Plan, TaskId, Turns};

/// A host scheduler.
///
/// The simulation keeps the states: when `wake` is called the task is ready, when `block` is called
/// it is waiting and its pCPU is free. A scheduler that puts a ready task on a runqueue reports that with
/// [`Host::queue_on`], and asks for [`Host::resched`] on a pCPU that should pick anew.
pub trait HostScheduler {
    /// The host's VMs, in the order of their ids. Told once, before any task is added.
    fn know_vms(&mut self, vms: &[VmInfo]) {
        let _ = vms;
    }

    /// The host's cgroups. Told once, before any task is added. A scheduler without cgroups ignores
    /// them.
    fn know_cgroups(&mut self, groups: &Cgroups) {
        let _ = groups;
    }

    /// A task exists from now on; it begins by waiting.
    fn add(&mut self, host: &mut Host, task: TaskId);

    /// `task` became ready, woken from pCPU `waker` (`None`: by a device or timer).
    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>);

    /// `task`, which had `cpu`, began to wait. `pick` follows at once.
    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId);

    /// Which task gets `cpu` now? [`Host::current`] is the task that has it and still wants it, if
    /// any; the answer may be the same task. A task that loses its pCPU stays ready: queue it.
    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId>;

    /// The tick of the busy pCPU `cpu`.
    fn tick(&mut self, host: &mut Host, cpu: PcpuId);

    /// A timer set with [`Host::sched_timer`] fired.
    fn timer(&mut self, host: &mut Host, token: u64);

    /// Does the host look for a sibling to yield to when a vCPU spins, as KVM does? In Xen such a
    /// vCPU lets any other tasks go first.
    fn directs_yields(&self) -> bool {
        false
    }

    /// Does the weight of a VM count once for each of its vCPUs, as in Xen, instead of once for all of them?
    fn weighs_each_vcpu(&self) -> bool {
        false
    }

    /// `task`, running on `cpu`, lets others go first: the ready task `to` on whichever pCPU it
    /// waits (`yield_to()`), or any task on its own pCPU. False: `task` goes on running.
    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool;

    /// A sibling waits for the ready `task` to flush its TLB. A scheduler that cannot see IPIs does
    /// nothing.
    fn flush_ipi(&mut self, host: &mut Host, task: TaskId) {
        let _ = (host, task);
    }

    /// How long the ready `task` was held back so far to let its siblings catch up: co-stop, ns.
    fn co_stopped(&self, now: Nanos, task: TaskId) -> Nanos {
        let _ = (now, task);
        0
    }

    /// How long a quota kept `task` from running so far although it wanted to, ns.
    fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        let _ = (now, task);
        0
    }

    /// How the turns of `task` went since the run began, and which tasks woke it since `since`, as
    /// far as the scheduler records that. For policies that steer the scheduler.
    fn turns(&self, host: &Host, task: TaskId, since: Nanos) -> Turns {
        let _ = (host, task, since);
        Turns::default()
    }

    /// Applies a policy's wishes. Schedulers that no policy steers ignore them.
    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        let _ = (host, plan);
    }
}
