// SPDX-License-Identifier: GPL-2.0-only
//! A scenario as plain data. `None` means: not given; the default of the model or policy that uses it applies.

use crate::cgroups::{CgroupKeys, CpuMax, Group};
use crate::disks::{Disk, DiskUse};
use crate::network::{Channel, Client, Network};
use crate::policy::PolicyKeys;
use crate::problem::Located;
use corun_model::{IdleState, Nanos, PcpuSet, Topology};
use std::sync::Arc;

/// A scenario that was read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name as the user gave it.
    pub file: String,
    /// One line for people.
    pub title: Option<String>,
    /// Where the setting comes from: paper and table.
    pub source: Option<String>,
    /// The variants to run, at least one.
    pub cases: Vec<Case>,
}

/// One variant: everything that a run needs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; empty if the scenario has no cases.
    pub name: String,
    /// The machine.
    pub host: Host,
    /// How long, how often.
    pub run: Run,
    /// The schedulers' parameters.
    pub schedulers: Schedulers,
    /// The host's disks.
    pub disks: Vec<Disk>,
    /// The host's cgroups around VMs, outer ones first.
    pub groups: Vec<Group>,
    /// The VMs, one by one: `count` is spelled out.
    pub vms: Vec<Vm>,
    /// Host tasks that are no vCPUs.
    pub tasks: Vec<HostTask>,
    /// The NIC, the LAN and TCP.
    pub network: Network,
    /// Programs outside the host.
    pub clients: Vec<Client>,
    /// Connections between VMs.
    pub channels: Vec<Channel>,
}

/// `[host]`.
#[derive(Clone, Debug)]
pub struct Host {
    /// Nodes, LLCs, cores, SMT threads.
    pub topology: Topology,
    /// Scheduler ticks per second.
    pub hz: u32,
    /// Wake-ups of the kernel's own threads, per second and pCPU.
    pub housekeeping: Option<u32>,
    /// Are the ticks of the pCPUs spread over half a period?
    pub tick_skew: bool,
    /// `[host.costs]`.
    pub costs: Costs,
    /// States that idle cores are put into, the shallowest first; empty: that of `costs.idle_wake`.
    pub idle_states: Vec<IdleState>,
    /// What tasks that share hardware do to each other.
    pub hardware: Hardware,
    /// `[host.halt_poll]`.
    pub halt_poll: HaltPoll,
}

/// `[vm.NAME.emulator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmulatorKeys {
    /// How long packets wait for others to go with them.
    pub transmit_timer: Option<Nanos>,
    /// The shortest time that the alarm for that timer is set for.
    pub shortest_alarm: Option<Nanos>,
    /// Do kicks go to the thread, rather than being served by the vCPU's own thread?
    pub ioeventfd: Option<bool>,
}

/// Caches, and `[host.smt]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hardware {
    /// Bytes of each core's L2.
    pub l2: Option<u64>,
    /// Bytes of each last-level cache.
    pub llc: Option<u64>,
    /// Do last-level caches keep streams out?
    pub llc_adaptive: Option<bool>,
    /// `[host.smt]`.
    pub smt: Smt,
}

/// `[host.smt]`: speeds by what the SMT sibling does, percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smt {
    /// It switches tasks.
    pub switching: Option<u32>,
    /// KVM polls on it.
    pub halt_polling: Option<u32>,
    /// A guest's idle loop polls on it.
    pub idle_polling: Option<u32>,
    /// It spins for a lock or barrier.
    pub spinning: Option<u32>,
    /// What two typical threads do together, relative to one alone.
    pub yields: Option<u32>,
}

/// `[host.costs]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// From one task to another.
    pub switch: Option<Nanos>,
    /// From asking another pCPU to schedule until it does.
    pub ipi: Option<Nanos>,
    /// What an idle pCPU needs in addition.
    pub idle_wake: Option<Nanos>,
    /// Starting on another pCPU than last time.
    pub migration: Option<Nanos>,
    /// A VM exit and entry.
    pub exit: Option<Nanos>,
    /// An access that the last-level cache serves.
    pub llc: Option<Nanos>,
    /// An access that memory serves.
    pub memory: Option<Nanos>,
    /// What a preempted task loses besides the switch.
    pub preemption: Option<Nanos>,
    /// How late the timer that ends a slice may come.
    pub timer: Option<Nanos>,
}

/// `[host.halt_poll]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HaltPoll {
    /// The longest poll; 0: none.
    pub most: Option<Nanos>,
    /// Factor by which the window grows.
    pub grow: Option<u32>,
    /// The first window.
    pub grow_start: Option<Nanos>,
    /// Divisor by which it shrinks; 0: reset.
    pub shrink: Option<u32>,
    /// Also while another task waits?
    pub shared: Option<bool>,
    /// And then to the end?
    pub to_end: Option<bool>,
}

/// `[run]`.
#[derive(Clone, Debug)]
pub struct Run {
    /// The measured part.
    pub duration: Nanos,
    /// The part before that.
    pub warm_up: Nanos,
    /// VMs and their threads begin within this time, each at a moment of its own.
    pub stagger: Option<Nanos>,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// Policies to compare if the command line names none.
    pub policies: Option<Vec<Located<String>>>,
}

/// `[scheduler]`.
#[derive(Clone, Debug, Default)]
pub struct Schedulers {
    /// `[scheduler.cfs]`.
    pub cfs: CfsKeys,
    /// `[scheduler.eevdf]`.
    pub eevdf: EevdfKeys,
    /// `[scheduler.rr]`.
    pub rr: RrKeys,
    /// `[scheduler.credit]`.
    pub credit: CreditKeys,
    /// `[scheduler.corun]`.
    pub corun: CorunKeys,
    /// `[policy.…]`: of the policies that steer the dispatcher.
    pub policies: PolicyKeys,
}

/// `[scheduler.cfs]`: a preset and what differs from it.
#[derive(Clone, Debug, Default)]
pub struct CfsKeys {
    /// Name of the preset.
    pub preset: Option<Located<String>>,
    /// `sched_latency`.
    pub latency: Option<Nanos>,
    /// `sched_min_granularity`.
    pub min_granularity: Option<Nanos>,
    /// `sched_idle_min_granularity`.
    pub idle_min_granularity: Option<Located<Nanos>>,
    /// `sched_wakeup_granularity`.
    pub wakeup_granularity: Option<Nanos>,
    /// The interval at which a busy pCPU balances; not given: as in the kernel's scheduling domains.
    pub balance_interval: Option<Nanos>,
    /// A task that ran within this time is not moved.
    pub migration_cost: Option<Nanos>,
    /// What it costs to look whether another pCPU idles; 0: wake-ups look at all that share the LLC.
    pub search_cost: Option<Located<Nanos>>,
    /// Are sleepers credited with half a latency rather than a whole one?
    pub gentle_fair_sleepers: Option<bool>,
    /// How far behind its runqueue a woken task may be placed, instead of that credit.
    pub sleeper_credit: Option<Nanos>,
    /// Does a new task begin one slice behind?
    pub start_debit: Option<bool>,
    /// Do woken tasks preempt at all?
    pub wakeup_preemption: Option<bool>,
}

/// `[scheduler.eevdf]`.
#[derive(Clone, Debug, Default)]
pub struct EevdfKeys {
    /// Name of the preset.
    pub preset: Option<Located<String>>,
    /// `base_slice`.
    pub base_slice: Option<Nanos>,
    /// The interval at which a busy pCPU balances; not given: as in the kernel's scheduling domains.
    pub balance_interval: Option<Nanos>,
    /// A task that ran within this time is not moved.
    pub migration_cost: Option<Nanos>,
    /// Does a task keep its lag while it sleeps?
    pub place_lag: Option<bool>,
    /// Does a new task get half a slice to begin with?
    pub place_deadline_initial: Option<bool>,
    /// Is the running task protected from wake-up preemption for a slice?
    pub run_to_parity: Option<bool>,
    /// May a woken task with a shorter slice preempt nevertheless?
    pub preempt_short: Option<bool>,
    /// Does a sleeper with negative lag stay queued until it has worn off?
    pub delay_dequeue: Option<bool>,
    /// Do woken tasks preempt at all?
    pub wakeup_preemption: Option<bool>,
    /// Does a timer end slices, rather than the next tick?
    pub hrtick: Option<bool>,
    /// Is the slice that is protected the shortest one on the runqueue?
    pub protect_shortest: Option<bool>,
    /// Do slices begin only when a pCPU changes its task?
    pub slice_at_switch: Option<bool>,
    /// Does the slice timer of a task that left stay, if the pCPU goes on with a single task?
    pub timer_stays: Option<bool>,
    /// Does the task that somebody yields to go next?
    pub pick_buddy: Option<bool>,
    /// Does an eligible task that yields forgo the rest of its slice for good?
    pub forfeits_on_yield: Option<bool>,
    /// Do wake-ups from other pCPUs wait for the next tick or slice timer?
    pub lazy_preemption: Option<bool>,
    /// Does a pCPU about to idle try to pull only as often as that brings something?
    pub ni_random: Option<bool>,
    /// The most that a pCPU about to idle spends on looking for work, per domain.
    pub newidle_cost: Option<Nanos>,
}

/// `[scheduler.rr]`.
#[derive(Clone, Debug, Default)]
pub struct RrKeys {
    /// What real-time vCPUs may use of each period.
    pub runtime: Option<Nanos>,
    /// The period.
    pub period: Option<Nanos>,
    /// Turns of real-time vCPUs on one pCPU.
    pub slice: Option<Nanos>,
}

/// `[scheduler.credit]`.
#[derive(Clone, Debug, Default)]
pub struct CreditKeys {
    /// How long a vCPU runs, and the period of accounting.
    pub slice: Option<Nanos>,
    /// The slice for which ticks and credits stay made.
    pub boot_slice: Option<Nanos>,
    /// How long a vCPU runs before another may preempt it; 0: not protected.
    pub ratelimit: Option<Nanos>,
    /// Do vCPUs wake up with priority BOOST?
    pub boost: Option<bool>,
}

/// `[scheduler.corun]`: the dispatcher's parameters.
#[derive(Clone, Debug, Default)]
pub struct CorunKeys {
    /// How long a task runs before others get a turn.
    pub slice: Option<Nanos>,
    /// By how much a woken task must be behind to take a pCPU at once.
    pub wakeup_granularity: Option<Nanos>,
    /// The most that a sleeper is put ahead.
    pub sleeper_credit: Option<Nanos>,
    /// The most that a task may lead the queue.
    pub max_lead: Option<Nanos>,
    /// Between two balancings of the load.
    pub balance_interval: Option<Nanos>,
    /// Does a timer end slices, instead of the tick?
    pub slice_timer: Option<bool>,
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// The NAME of the `[vm.NAME]` that it comes from: another name than its own if a `count` made it.
    pub table: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// `cpu.weight` of the VM; `None`: it has no cgroup of its own.
    pub weight: Option<u32>,
    /// Weight of each vCPU thread.
    pub vcpu_weight: u32,
    /// What else is given for its cgroup; `None`: nothing.
    pub cgroup: Option<CgroupKeys>,
    /// What limits the cgroup that each of its vCPUs has to itself, within the VM's; `None`: they have none.
    pub vcpu_max: Option<CpuMax>,
    /// Its core-scheduling cookie: only VMs with the same one may share a core; 0 is a cookie, too.
    pub cookie: u64,
    /// The most pCPU time it gets, in percent of one pCPU; `None`: no limit.
    pub cap: Option<u32>,
    /// Are its vCPUs real-time tasks of the host?
    pub realtime: bool,
    /// The host slice that its vCPU threads ask for; `None`: the scheduler's own.
    pub slice: Option<Nanos>,
    /// pCPUs its vCPUs may use; `None`: all.
    pub allowed: Option<PcpuSet>,
    /// The same for each vCPU; empty: all as `allowed` says.
    pub vcpu_allowed: Vec<PcpuSet>,
    /// Its place on a disk.
    pub disk: DiskUse,
    /// What it does.
    pub demand: Demand,
    /// What it does besides, or instead, from a file of rt-app's.
    pub rt_app: Option<RtApp>,
    /// `[vm.….guest]`.
    pub guest: GuestKeys,
    /// `[vm.….emulator]`, if there is one.
    pub emulator: Option<EmulatorKeys>,
}

/// What a VM does: named workloads, threads with programs, or both.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Named workloads.
    pub workloads: Vec<Workload>,
    /// Threads, each with its program.
    pub threads: Vec<Thread>,
}

/// A named workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub preset: Located<String>,
    /// Its number of threads; `None`: the workload's own number.
    pub threads: Option<u32>,
}

/// `rt_app` and what belongs to it.
#[derive(Clone, Debug)]
pub struct RtApp {
    /// The file, relative to the scenario's.
    pub file: Located<String>,
    /// Kinds of events to leave out.
    pub ignore: Vec<Located<String>>,
    /// What is in the file; empty until the caller, which reads files, has filled it in.
    pub text: Arc<str>,
}

/// `[[vm.….thread]]`.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Number of such threads.
    pub count: u32,
    /// The vCPU that it stays on.
    pub vcpu: Option<u32>,
    /// What it does.
    pub program: Located<String>,
}

/// `[vm.….guest]`: the guest kernel.
#[derive(Clone, Debug, Default)]
pub struct GuestKeys {
    /// Ticks per second of a busy vCPU.
    pub hz: Option<u32>,
    /// What a tick costs.
    pub tick: Option<Nanos>,
    /// What receiving an interrupt costs.
    pub interrupt: Option<Nanos>,
    /// What sending an IPI costs.
    pub ipi: Option<Nanos>,
    /// From one guest thread to another.
    pub thread_switch: Option<Nanos>,
    /// A futex call that neither sleeps nor wakes.
    pub futex: Option<Nanos>,
    /// How late sleeps may end.
    pub timer_slack: Option<Nanos>,
    /// The guest scheduler's latency.
    pub latency: Option<Nanos>,
    /// The guest scheduler's least slice.
    pub min_granularity: Option<Nanos>,
    /// The guest scheduler's wake-up granularity.
    pub wakeup_granularity: Option<Nanos>,
    /// How its spin locks work.
    pub lock: Option<Located<String>>,
    /// Spinning before a paravirtual waiter halts.
    pub pv_spin: Option<Nanos>,
    /// How long a vCPU spins before its pCPU leaves the guest; 0: for ever.
    pub ple_window: Option<Nanos>,
    /// The factor by which each such exit widens that.
    pub ple_grow: Option<u32>,
    /// Which vCPU the host favours then.
    pub ple_favours: Option<Located<String>>,
    /// How it has other vCPUs flush their TLBs.
    pub tlb_flush: Option<Located<String>>,
    /// What a flush costs.
    pub flush: Option<Nanos>,
    /// What its idle vCPUs do.
    pub idle: Option<Located<String>>,
    /// How long an idle vCPU keeps its context; 0: without limit.
    pub retention: Option<Nanos>,
    /// Which vCPU gets a disk's interrupts.
    pub block_irq: Option<Located<String>>,
    /// What a request to the disk costs.
    pub block_submit: Option<Nanos>,
    /// What a read costs that the page cache answers.
    pub cached_read: Option<Nanos>,
    /// What copying 1 KiB from the page cache costs.
    pub copy_kib: Option<Nanos>,
    /// Bytes of a read-ahead window.
    pub read_ahead: Option<u64>,
    /// The vCPU that takes the first receive queue's interrupt.
    pub net_irq: Option<u32>,
    /// Receive queues.
    pub net_queues: Option<u32>,
    /// What a packet costs.
    pub net_packet: Option<Nanos>,
    /// What copying a KiB costs.
    pub net_copy: Option<Nanos>,
    /// What telling the host of packets costs.
    pub net_kick: Option<Nanos>,
    /// What it runs against I/O inactivity.
    pub agent: Option<Located<String>>,
    /// Period of vMigrater's heartbeats.
    pub heartbeat: Option<Nanos>,
    /// Period of an idle vCPU's heartbeats.
    pub heartbeat_idle: Option<Nanos>,
    /// How many past slices vMigrater's prediction looks at; 0: as many as predicted best lately.
    pub predict_from: Option<u32>,
    /// Does vMigrater get to know steal time?
    pub steal_time: Option<bool>,
    /// The most time that xBalloon may have a vCPU sleep, percent.
    pub balloon_sleep: Option<u32>,
}

/// `[task.…]`: a host task, or `count` alike.
#[derive(Clone, Debug)]
pub struct HostTask {
    /// Its name.
    pub name: String,
    /// Own weight.
    pub weight: u32,
    /// pCPUs it may use; `None`: all.
    pub allowed: Option<PcpuSet>,
    /// The VM that it works for: its place in the list of VMs.
    pub helper_of: Option<usize>,
    /// What it does.
    pub program: Located<String>,
}
