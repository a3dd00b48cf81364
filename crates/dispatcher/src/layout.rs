// SPDX-License-Identifier: GPL-2.0-only
//! The C structs of `dispatcher/types.h` and `platform/native.h`, field by field.
//!
//! A test compares the sizes with what the C compiler laid out.

use corun_model::{Nanos, PcpuSet, Topology};

/// Most pCPUs the dispatcher's tables hold.
pub const MAX_PCPUS: usize = Topology::MAX_PCPUS as usize;
/// Most VMs they hold.
pub const MAX_VMS: usize = 1024;
/// `enum task_state`: the task has a pCPU.
pub const TASK_RUNNING: u32 = 2;

/// `struct task_counters`: ns and counts since the task was first seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the C header documents the fields
pub struct TaskCounters {
    pub run: u64,
    pub ready: u64,
    pub wait: u64,
    pub switches: u64,
    pub wakeups: u64,
    pub migrations: u64,
    pub depleted: u64,
}

/// `struct task_ctx`: the dispatcher's own knowledge of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the C header documents the fields
pub struct TaskCtx {
    pub vtime: u64,
    pub since: u64,
    pub charged: u64,
    pub seq: u64,
    pub sum: TaskCounters,
    pub state: u32,
    pub vm: u32,
    pub active_weight: u32,
    pub cpu: i32,
    pub last_cpu: i32,
    pub clock_cpu: i32,
    pub woken: u32,
    pub load: u32,
}

/// `struct task_conf`: what the policy wants for a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskConf {
    /// Slice, ns; 0: the host's default.
    pub slice: u64,
    /// Home pCPU plus 1; 0: none.
    pub home: i32,
    /// Unused.
    pub pad: u32,
}

/// `struct task_struct` of the native build: a host task as the dispatcher sees it.
#[repr(C)]
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the C header documents the fields
pub struct TaskStruct {
    pub id: u32,
    pub vcpu_of: u32,
    pub weight: u32,
    pub cpu: i32,
    pub queued_vtime: u64,
    pub allowed: PcpuSet,
    pub conf: TaskConf,
    pub ctx: TaskCtx,
}

/// `struct vm_ctx`.
#[repr(C)]
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the C header documents the fields
pub struct VmCtx {
    pub id: u32,
    pub vcpus: u32,
    pub active_weight: u64,
    pub here: [u32; MAX_PCPUS],
}

/// `struct vm_conf`: what the policy wants for a VM.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmConf {
    /// The VM this is meant for.
    pub id: u32,
    /// Placement mode, as [`Placement::number`](corun_model::Placement::number).
    pub placement: u32,
    /// 1–10000; 0: the vCPUs count one by one.
    pub weight: u32,
    /// Unused.
    pub pad: u32,
}

/// `struct cpu_ctx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the C header documents the fields
pub struct CpuCtx {
    pub vnow: u64,
    pub cur_vtime: u64,
    pub cur_since: u64,
    pub cur_rate: u64,
    pub slice_end: u64,
    pub balanced_at: u64,
    pub rescued_at: u64,
    pub switches: u64,
    pub idle: u64,
    pub nr: u64,
    pub load: u64,
    pub incoming: u32,
    pub incoming_vm: u32,
    pub incoming_load: u32,
    pub pad: u32,
}

/// `struct knobs`: the host's knobs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Default slice, ns.
    pub slice: Nanos,
    /// Lead in virtual time that a waking task needs to preempt, ns.
    pub wakeup_gran: Nanos,
    /// How far behind its pCPU a task may start after waiting, ns of virtual time.
    pub sleeper_credit: Nanos,
    /// How far ahead of its pCPU a task may be queued, ns of virtual time.
    pub max_lead: Nanos,
    /// How often a busy pCPU looks for a busier one, ns.
    pub balance_interval: Nanos,
    /// pCPUs that may be used.
    pub online: PcpuSet,
    /// Highest pCPU number plus 1.
    pub pcpus: u32,
    /// Mode of VMs the policy has not spoken about, as [`Placement::number`](corun_model::Placement::number).
    pub placement: u32,
    /// 1: slices end by timer; 0: at the tick.
    pub slice_timer: u32,
    /// Unused.
    pub pad: u32,
}

/// `struct pcpu_index`: what the untapped build finds pCPUs by; only C looks into it.
#[repr(C)]
pub(crate) struct PcpuIndex {
    trees: [[i64; MAX_PCPUS + MAX_PCPUS / 8 + MAX_PCPUS / 64]; 2],
    waiting: PcpuSet,
    /// What C found out from the policy's wishes.
    pub fixed: PcpuSet,
}

impl PcpuIndex {
    /// Nobody anywhere.
    pub(crate) fn empty() -> Self {
        Self {
            trees: [[0; MAX_PCPUS + MAX_PCPUS / 8 + MAX_PCPUS / 64]; 2],
            waiting: PcpuSet::default(),
            fixed: PcpuSet::default(),
        }
    }
}
