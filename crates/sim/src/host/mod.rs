// SPDX-License-Identifier: GPL-2.0-only
//! The modelled host: pCPUs, tasks, the clock, and what goes on between them.
//!
//! `Host` knows facts only: which task runs where since when, what work is under way. Which task
//! *should* run is up to a [`HostScheduler`](crate::sched::HostScheduler), what tasks *want* to a
//! [`Load`](crate::load::Load). Both act on the host through its methods; what concerns the other
//! (a task blocks, a task wakes) is kept as an order until the caller has returned, so that neither
//! is called while it is at work.
//!
//! Work and time differ: a load orders work in ns of undisturbed progress; the host turns it into
//! time, with the cost of the switch before it, at the pace that the hardware allows.
//!
//! Its methods are in one file per party: `facts` for all, `scheduling` for schedulers, `demand`
//! for loads, `switching` for the simulation.

mod activity;
mod costs;
mod counters;
mod demand;
mod facts;
mod hardware;
mod idle_states;
mod moment;
mod observer;
mod pacing;
mod scheduling;
mod siblings;
mod stacking;
mod switching;
mod task;
#[cfg(test)]
mod tests;

pub use activity::{Activity, Profile};
pub use costs::{Costs, parameters};
pub use hardware::{CacheParams, HardwareParams, SmtParams};
pub(crate) use moment::Happening;
pub use moment::{MOST as MOST_AT_ONCE, Standstill};
pub use observer::{Counter, Instant, Lane, Observer, Span, VcpuActivity, Waker};
pub use siblings::{SiblingSkew, Siblings};
pub use stacking::{MOST as MOST_SIBLINGS, Stacking};
pub use task::{Task, TaskSpec, TaskState, Totals};

use crate::event_queue::{EventId, EventQueue};
use crate::rng::Rng;
use crate::waits::Waits;
use corun_model::{IdleState, Nanos, PcpuId, TaskId, Topology};
use hardware::{Caches, Smt};
use idle_states::Governor;
use moment::Moment;
use std::collections::VecDeque;

/// The machine and its kernel's clockwork.
#[derive(Clone, Debug)]
pub struct HostParams {
    /// Nodes, LLCs, cores, SMT threads.
    pub topology: Topology,
    /// Scheduler ticks per second on a busy pCPU, 1–10000. An idle pCPU has none.
    pub hz: u32,
    /// Are the ticks of the pCPUs spread over half a period? Linux did so until 2.6.38.
    pub tick_skew: bool,
    /// What scheduling costs.
    pub costs: Costs,
    /// States that idle cores are put into, the shallowest first; empty: waking a core takes
    /// [`Costs::idle_wake`].
    pub idle_states: Vec<IdleState>,
    /// What tasks that share hardware do to each other.
    pub hardware: HardwareParams,
}

/// What is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Resched(PcpuId),
    Tick(PcpuId),
    Step(TaskId),
    Switched(PcpuId),
    LoadTimer(u64),
    SchedTimer(u64),
    Policy,
    WarmUpOver,
}

/// What a load asked for that the scheduler must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Wake {
        task: TaskId,
        by: Option<Waker>,
    },
    Block(TaskId),
    /// The CPU noticed that this task spins.
    PauseExit(TaskId),
    /// The host polls on behalf of this task, and another one wants its pCPU.
    Crowded(TaskId),
    /// A sibling waits for this task, which is ready, to flush its TLB.
    FlushIpi(TaskId),
}

/// A pCPU in the run.
#[derive(Debug)]
struct Pcpu {
    current: Option<TaskId>,
    /// The next reschedule, if one is due.
    resched: Option<(Nanos, EventId)>,
    tick: EventId,
    switches: u64,
    /// The vCPU that it had last, and how often a different one followed.
    last_vcpu: Option<TaskId>,
    vcpus_followed: u64,
    idle_since: Nanos,
    idle: Nanos,
    governor: Governor,
    /// Ready and running tasks on its runqueue.
    tasks: u32,
    /// Until when its SMT siblings feel a switch.
    switching_until: Nanos,
    /// Is an event for the end of that ordered?
    switched_ordered: bool,
    /// How long guests may retain their contexts here by themselves, ns.
    retention: Nanos,
    /// Does a retention end when any task wants to run there?
    gives_way: bool,
}

/// How long the vCPUs of a VM waited for pCPUs and had them, each time.
#[derive(Debug, Default)]
struct VmMeters {
    /// Waits that began with a wake-up, and those that began with losing a pCPU. They are kept
    /// separately so that a switch counts a time only once; both together are all waits.
    wakeups: Waits,
    losses: Waits,
    /// Times on a pCPU that ended although the vCPU still wanted it.
    turns: Waits,
}

/// The modelled host.
pub struct Host {
    params: HostParams,
    /// Present if cores have more than one hardware thread and the threads are to feel each other.
    smt: Option<Smt>,
    caches: Option<Caches>,
    now: Nanos,
    pub(crate) events: EventQueue<Event>,
    pub(crate) orders: VecDeque<Order>,
    cpus: Vec<Pcpu>,
    tasks: Vec<Task>,
    stacking: Stacking,
    siblings: Siblings,
    observer: Option<Box<dyn Observer>>,
    /// By VM.
    meters: Vec<VmMeters>,
    /// How late timer interrupts of each pCPU come. Runs with different seeds share these streams:
    /// the host has no seed, its load does.
    lateness: Vec<Rng>,
    /// What has happened since the clock last moved on.
    moment: Moment,
}

impl Host {
    pub(crate) fn new(params: HostParams, observer: Option<Box<dyn Observer>>) -> Self {
        let pcpus = params.topology.pcpus() as usize;
        let cpu = || Pcpu {
            current: None,
            resched: None,
            tick: EventId::NONE,
            switches: 0,
            last_vcpu: None,
            vcpus_followed: 0,
            idle_since: 0,
            idle: 0,
            governor: Governor::default(),
            tasks: 0,
            switching_until: 0,
            switched_ordered: false,
            retention: 0,
            gives_way: false,
        };
        let shared = params.topology.threads_per_core() > 1;
        let caches = params.hardware.caches;
        Self {
            smt: params.hardware.smt.filter(|_| shared).map(Smt::new),
            caches: caches.map(|caches| Caches::new(caches, params.topology)),
            params,
            now: 0,
            events: EventQueue::default(),
            orders: VecDeque::new(),
            cpus: (0..pcpus).map(|_| cpu()).collect(),
            tasks: Vec::new(),
            stacking: Stacking::new(pcpus),
            siblings: Siblings::default(),
            observer,
            meters: Vec::new(),
            lateness: (0..pcpus as u64)
                .map(|cpu| Rng::of(0, "timer interrupt", cpu))
                .collect(),
            moment: Moment::default(),
        }
    }

    /// How late the next timer interrupt of `cpu` is.
    pub(crate) fn lateness(&mut self, cpu: PcpuId) -> Nanos {
        self.lateness[cpu.index()].between(0, self.params.costs.timer)
    }
}
