// SPDX-License-Identifier: GPL-2.0-only
//! What a recording says about a host: which tasks wanted a pCPU when, why, and what came of it.
//!
//! A task's *demand* is a list of [`Burst`]s: how it was woken, how much CPU time it then used, and
//! how that ended. Demand leaves out what the recorded scheduler decided (which task waited for
//! which), so that a replay can decide anew. What the recorded scheduler made of it is kept
//! alongside the demand as *observed* figures, the truth that a replay is checked against.
//!
//! All times are nanoseconds since the recording's start unless said otherwise. Time spent in
//! interrupt handlers counts as work of the task they interrupted: the events do not distinguish
//! it.

use corun_model::{Nanos, PcpuId, TaskId, VmId};
use std::collections::BTreeMap;
use std::fmt;

/// A recorded host. [`TaskId`] and [`VmId`] are indices into `tasks` and `vms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The form it was read from.
    pub format: Format,
    /// What is known about the host.
    pub host: Host,
    /// First event's timestamp on the recorded clock, ns.
    pub start: Nanos,
    /// Last event's timestamp on the recorded clock, ns. Always later than `start`.
    pub end: Nanos,
    /// The VMs, in the order of their process id, or of their first vCPU's thread id.
    pub vms: Vec<Vm>,
    /// Every task seen or listed, except the idle tasks, in order of appearance.
    pub tasks: Vec<Task>,
    /// What the host as a whole did.
    pub observed: HostObserved,
}

impl Recording {
    /// How long the recording lasts, ns.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }

    /// A task by id.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.index())
    }
}

/// A form that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `corun record`.
    Corun,
    /// `/sys/kernel/tracing/trace`.
    Ftrace,
    /// `trace-cmd report`.
    TraceCmd,
    /// `perf script`.
    PerfScript,
    /// A trace of Perfetto with ftrace events.
    Perfetto,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corun => "corun record",
            Self::Ftrace => "ftrace text",
            Self::TraceCmd => "trace-cmd report",
            Self::PerfScript => "perf script",
            Self::Perfetto => "Perfetto trace",
        })
    }
}

/// A fact about the host and where it was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The fact.
    pub value: T,
    /// Where it stands, such as "the `# host:` line" or "the highest pCPU number seen".
    pub source: &'static str,
}

/// What is known about the recorded host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Number of pCPUs, 1 to [`corun_model::Topology::MAX_PCPUS`].
    pub pcpus: Fact<u32>,
    /// Kernel release, if stated.
    pub kernel: Option<Fact<String>>,
    /// The scheduler that ran, as written in the recording, if stated.
    pub scheduler: Option<Fact<String>>,
    /// The trace clock, if stated.
    pub clock: Option<Fact<String>>,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name: stated on the command line, or made up from the process or first vCPU thread.
    pub name: String,
    /// The process, if known.
    pub tgid: Option<u32>,
    /// Its vCPUs, in order of their index.
    pub vcpus: Vec<TaskId>,
    /// Its other threads: emulator, I/O threads, workers, vhost.
    pub threads: Vec<TaskId>,
    /// How it is known which vCPUs belong together.
    pub grouping: Grouping,
}

/// How it is known which vCPUs form a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The recording states the process of each thread.
    Stated,
    /// Guessed from sibling wake-ups (tasks waking each other outside interrupts), then from the
    /// order of thread ids.
    Inferred,
}

/// Something the host scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub tid: u32,
    /// Process id, if known.
    pub tgid: Option<u32>,
    /// Thread name, the last one seen.
    pub comm: String,
    /// What it is to the host.
    pub role: Role,
    /// Its state when the recording began.
    pub at_start: AtStart,
    /// The pCPU whose runqueue it was on first, as far as the recording shows.
    pub first_pcpu: Option<PcpuId>,
    /// Its state when the recording ended.
    pub at_end: AtEnd,
    /// Its demand, in order. Empty for a task that waited throughout.
    pub bursts: Vec<Burst>,
    /// What the recorded scheduler gave it.
    pub observed: TaskObserved,
    /// What KVM said about it; all zero for tasks that are not vCPUs or if KVM was not traced.
    pub kvm: KvmSeen,
}

impl Task {
    /// The VM it belongs to.
    pub fn vm(&self) -> Option<VmId> {
        self.role.vm()
    }
}

/// What a task is to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A virtual CPU.
    Vcpu {
        /// Its VM.
        vm: VmId,
        /// Its number within the VM, as the thread name or KVM gives it.
        index: u32,
    },
    /// Another thread of a VM.
    VmThread {
        /// Its VM.
        vm: VmId,
        /// What it does.
        kind: VmThread,
    },
    /// Any other task, kernel threads included.
    Host,
}

impl Role {
    /// The VM of a task with this role.
    pub fn vm(self) -> Option<VmId> {
        match self {
            Self::Vcpu { vm, .. } | Self::VmThread { vm, .. } => Some(vm),
            Self::Host => None,
        }
    }
}

/// What a VM's thread that is not a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmThread {
    /// The main loop.
    Emulator,
    /// A QEMU I/O thread.
    Iothread,
    /// A member of a worker pool.
    Worker,
    /// A vhost kernel thread.
    Vhost,
    /// Anything else.
    Other,
}

/// A task's state when the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStart {
    /// On a pCPU. Its first burst is [`WakeCause::AtStart`].
    Running(PcpuId),
    /// Waiting for a pCPU. Its first burst is [`WakeCause::AtStart`].
    Ready,
    /// Blocked.
    Waiting,
    /// It did not exist yet: it was created during the recording. Its first burst says by which
    /// task.
    Unborn,
}

/// A task's state when the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// On a pCPU.
    Running(PcpuId),
    /// Waiting for a pCPU.
    Ready,
    /// Blocked.
    Waiting,
    /// It had exited.
    Exited,
}

/// One piece of demand: from a wake-up until the task blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How it came to want a pCPU.
    pub wake: WakeCause,
    /// When it came to want one, ns since the start. For checking; a replay uses `wake`.
    pub woken_at: Nanos,
    /// CPU time used until it ended, summed over all the pieces it ran in, ns.
    pub work: Nanos,
    /// How it ended.
    pub end: BurstEnd,
}

/// How a burst began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// It was running or ready when the recording began.
    AtStart,
    /// A task woke it.
    Task {
        /// The waker.
        waker: TaskId,
        /// CPU time the waker had used within the recording by then, ns: a replay wakes the task
        /// when the waker reaches this point. If the task has not blocked yet by then, the replay
        /// must remember the wake-up.
        waker_work: Nanos,
    },
    /// An interrupt, a timer, or something the recording does not show woke it.
    External {
        /// Time since it blocked, ns; for the first burst, since the recording's start.
        delay: Nanos,
    },
}

/// How a burst ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstEnd {
    /// The task blocked, in the state given by its letter: `S`, `D`, `I`, `T` …
    Blocked(char),
    /// The task exited.
    Exited,
    /// The recording ended first.
    RecordingEnded,
}

/// What the recorded scheduler made of a task's demand.
/// `run + ready + wait` is the time the task existed within the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskObserved {
    /// Time on a pCPU, ns.
    pub run: Nanos,
    /// Time spent wanting a pCPU, ns. After a wake-up it counts from `sched_waking` if recorded.
    pub ready: Nanos,
    /// Time blocked, ns.
    pub wait: Nanos,
    /// The part of `run` during which a sibling vCPU wanted a pCPU and had none, ns: the most that a vCPU can have spun
    /// for siblings. 0 for tasks that are not vCPUs.
    pub contested: Nanos,
    /// Times it was switched in.
    pub switches_in: u64,
    /// Times it moved to another pCPU's runqueue.
    pub migrations: u64,
    /// Wake-ups that made it ready.
    pub wakeups: u64,
    /// What woke it.
    pub wakers: Wakers,
    /// The time from each wake-up until it ran, ns, in order.
    pub wake_to_run: Vec<Nanos>,
}

/// What woke a task, in wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakers {
    /// vCPUs of its own VM.
    pub siblings: u64,
    /// Other threads of its VM: I/O threads, vhost, the emulator.
    pub vm_threads: u64,
    /// Tasks that are not of its VM.
    pub others: u64,
    /// Interrupts, hard or soft, other than by a timer, if the recording distinguishes these: only
    /// those of `corun record` do.
    pub interrupts: u64,
    /// Timers.
    pub timers: u64,
    /// Something that was not recorded, such as an interrupt that no event shows.
    pub unknown: u64,
}

/// What KVM's own events said about a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvmSeen {
    /// Guest entries.
    pub entries: u64,
    /// Guest exits by reason, as the kernel names them.
    pub exits: BTreeMap<String, u64>,
    /// Interrupts sent to sibling vCPUs through the emulated APIC.
    pub ipis: u64,
    /// Halts that ended (`kvm_vcpu_wakeup`).
    pub halts: u64,
    /// Those of them that ended while KVM was still polling, without a switch.
    pub polled_halts: u64,
    /// Time spent polling in those, ns. It is part of the bursts' work.
    pub polled: Nanos,
}

/// Why a vCPU leaves its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitClass {
    /// It has nothing to do.
    Halt,
    /// It spins, for a lock or a sibling (pause-loop exits).
    Pause,
    /// An interrupt for the host or the guest.
    Interrupt,
    /// The interrupt controller: interrupts sent, ends of interrupts.
    Apic,
    /// Model-specific registers: timers, and the interrupt controller in x2APIC mode.
    Msr,
    /// Devices: ports and memory-mapped registers.
    Io,
    /// Memory that the host must provide.
    Memory,
    /// Anything else.
    Other,
}

impl ExitClass {
    /// The class of a reason as Linux' trace names it, on Intel or AMD.
    pub fn of(reason: &str) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "hlt" | "mwait" | "mwait_instruction" => Self::Halt,
            "pause" | "pause_instruction" => Self::Pause,
            "external_interrupt" | "interrupt" | "preemption_timer" | "vintr" | "nmi"
            | "interrupt_window" | "nmi_window" | "exception_nmi" => Self::Interrupt,
            "apic_access"
            | "apic_write"
            | "eoi_induced"
            | "tpr_below_threshold"
            | "avic_incomplete_ipi"
            | "avic_unaccelerated_access" => Self::Apic,
            "msr" | "msr_read" | "msr_write" => Self::Msr,
            "io" | "io_instruction" | "ept_misconfig" => Self::Io,
            "npf" | "ept_violation" | "pml_full" => Self::Memory,
            _ => Self::Other,
        }
    }

    /// Its name as shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Halt => "halt",
            Self::Pause => "pause",
            Self::Interrupt => "interrupt",
            Self::Apic => "apic",
            Self::Msr => "msr",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Other => "other",
        }
    }
}

impl KvmSeen {
    /// Guest exits by class.
    pub fn exits_by_class(&self) -> BTreeMap<ExitClass, u64> {
        let mut classes = BTreeMap::new();
        for (reason, count) in &self.exits {
            let sum: &mut u64 = classes.entry(ExitClass::of(reason)).or_default();
            *sum = sum.saturating_add(*count);
        }
        classes
    }
}

/// What the host as a whole did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostObserved {
    /// Context switches.
    pub switches: u64,
    /// Per pCPU, in order.
    pub pcpus: Vec<PcpuObserved>,
    /// Time summed over pCPUs during which at least two sibling vCPUs were queued or running on
    /// that pCPU, ns.
    pub stacked: Nanos,
    /// Every kind of event in the recording and how many there were.
    pub events: BTreeMap<String, u64>,
}

impl HostObserved {
    /// Stacking probability: the fraction of (pCPU × time) with stacked siblings, 0 to 1.
    pub fn stacking_probability(&self) -> f64 {
        let total: Nanos = self.pcpus.iter().map(|p| p.busy + p.idle).sum();
        if total == 0 {
            return 0.0;
        }
        self.stacked as f64 / total as f64
    }
}

/// What a pCPU did. `busy + idle` is the recording's duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpuObserved {
    /// Time some task ran, ns.
    pub busy: Nanos,
    /// Time in which the idle task ran, or about which nothing is known (lost events), ns.
    pub idle: Nanos,
    /// Context switches.
    pub switches: u64,
}
