// SPDX-License-Identifier: GPL-2.0-only
//! The host schedulers, which decide what runs.
//!
//! [`dispatcher`] runs corun's own C dispatcher under the sched_ext contract; the others are models
//! of schedulers whose code cannot be shared (Linux' [`cfs`] and [`eevdf`], [`rr`]: the
//! former with its real-time class, Xen's [`credit`]).

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
/// it is waiting and its pCPU is free. A scheduler that puts a ready task on a runqueue says so with
/// [`Host::queue_on`] and asks for [`Host::resched`] where something should change.
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

    /// A task exists from now on; it waits.
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

    /// Does the host look for a sibling to yield to when a vCPU spins, as KVM does? Xen's lets
    /// other tasks go first, whichever they are.
    fn directs_yields(&self) -> bool {
        false
    }

    /// Does the weight of a VM count once for each of its vCPUs, as Xen's has it, instead of once for all?
    fn weighs_each_vcpu(&self) -> bool {
        false
    }

    /// `task`, running on `cpu`, lets others go first: `to`, a ready task, wherever that waits
    /// (`yield_to()`), or any task on its pCPU. False: it goes on.
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

    /// How long `task` was held back so far, ready, so that its siblings catch up: co-stop, ns.
    fn co_stopped(&self, now: Nanos, task: TaskId) -> Nanos {
        let _ = (now, task);
        0
    }

    /// How long `task` wanted to run so far and was kept from it by a quota, ns.
    fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        let _ = (now, task);
        0
    }

    /// How the turns of `task` went since the run began, and which tasks woke it since `since`, as
    /// far as the scheduler records that: policies that steer it may look at that.
    fn turns(&self, host: &Host, task: TaskId, since: Nanos) -> Turns {
        let _ = (host, task, since);
        Turns::default()
    }

    /// A policy's wishes. Schedulers that are not corun's have no ear for them.
    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        let _ = (host, plan);
    }
}
