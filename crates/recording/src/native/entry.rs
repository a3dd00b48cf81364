// SPDX-License-Identifier: GPL-2.0-only
//! What a recording of corun consists of.

use corun_model::Nanos;

/// Something that happened, or a fact. Times are those of the host's monotonic clock, ns; threads are identified by the
/// number that the host's first PID namespace gives them, and 0 is the idle task of a pCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Something about the host: `kernel`, `scheduler`, `pcpus`, `version` …
    Fact {
        /// What.
        name: String,
        /// Its value.
        value: String,
    },
    /// A VM.
    Vm {
        /// Its process.
        tgid: u32,
        /// Its name.
        name: String,
    },
    /// A thread that later entries name.
    Thread(Thread),
    /// Recording begins or ends here.
    Edge {
        /// When.
        at: Nanos,
        /// The last entry: events that were not lost are complete up to here.
        last: bool,
    },
    /// A pCPU goes from one thread to another (`sched_switch`).
    Switch {
        /// When.
        at: Nanos,
        /// Where.
        cpu: u32,
        /// The thread that had it.
        prev: u32,
        /// How that thread left it.
        left: Left,
        /// The thread that has it now.
        next: u32,
    },
    /// A thread is about to be woken (`sched_waking`).
    Waking {
        /// When.
        at: Nanos,
        /// Where.
        cpu: u32,
        /// Whatever ran there.
        running: u32,
        /// On whose behalf.
        cause: Cause,
        /// The thread that is woken.
        wakee: u32,
    },
    /// A woken thread is on a runqueue (`sched_wakeup`, `sched_wakeup_new`).
    Queued {
        /// When.
        at: Nanos,
        /// Where that was done.
        cpu: u32,
        /// Whatever ran there.
        running: u32,
        /// The thread.
        thread: u32,
        /// The runqueue's pCPU.
        on: u32,
    },
    /// A thread goes to another pCPU's runqueue (`sched_migrate_task`).
    Migrate {
        /// When.
        at: Nanos,
        /// Where that was done.
        cpu: u32,
        /// Whatever ran there.
        running: u32,
        /// The thread.
        thread: u32,
        /// From this pCPU.
        from: u32,
        /// To this one.
        to: u32,
    },
    /// A thread made another (`sched_process_fork`).
    Fork {
        /// When.
        at: Nanos,
        /// Where.
        cpu: u32,
        /// The thread that made it.
        parent: u32,
        /// The new one.
        child: u32,
        /// Its process.
        tgid: u32,
        /// Its name.
        comm: String,
    },
    /// A thread has another name now (`task_rename`).
    Rename {
        /// When.
        at: Nanos,
        /// Where.
        cpu: u32,
        /// The thread.
        thread: u32,
        /// Its name.
        comm: String,
    },
    /// A vCPU's halt is over (`kvm_vcpu_wakeup`).
    Halt {
        /// When.
        at: Nanos,
        /// Where.
        cpu: u32,
        /// The vCPU's thread.
        thread: u32,
        /// Did it end while KVM was still polling, without a switch?
        polled: bool,
        /// How long it was, ns.
        took: Nanos,
    },
    /// How often a vCPU left its guest for one reason since the previous entry of this kind.
    Exits {
        /// The vCPU's thread.
        thread: u32,
        /// The vCPU's number in its VM, if KVM gave it.
        vcpu: Option<u32>,
        /// The reason as the kernel calls it, such as `HLT`; `ipi` stands for interrupts sent to
        /// sibling vCPUs.
        reason: String,
        /// How often.
        count: u64,
    },
    /// There was no room for events of a pCPU.
    Lost {
        /// When that was found out.
        at: Nanos,
        /// The pCPU.
        cpu: u32,
        /// How many since this was last found out.
        events: u64,
    },
}

/// What is known about a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
}

/// How a thread left its pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It wants to go on.
    Ready,
    /// It waits, in the state that the kernel gives this letter.
    Blocked(u8),
    /// It is gone.
    Exited,
}

/// On whose behalf a thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The thread that ran.
    Running,
    /// An interrupt, hard or soft, that came from a device or another pCPU.
    Interrupt,
    /// A timer.
    Timer,
    /// The kernel did not say.
    Unknown,
}

impl Entry {
    /// Is it something that happened, reported by the kernel?
    pub fn is_event(&self) -> bool {
        !matches!(self, Self::Edge { .. } | Self::Lost { .. }) && self.at().is_some()
    }

    /// When it happened, if it is something that happens.
    pub fn at(&self) -> Option<Nanos> {
        match *self {
            Self::Fact { .. } | Self::Vm { .. } | Self::Thread(_) | Self::Exits { .. } => None,
            Self::Edge { at, .. }
            | Self::Switch { at, .. }
            | Self::Waking { at, .. }
            | Self::Queued { at, .. }
            | Self::Migrate { at, .. }
            | Self::Fork { at, .. }
            | Self::Rename { at, .. }
            | Self::Halt { at, .. }
            | Self::Lost { at, .. } => Some(at),
        }
    }
}
