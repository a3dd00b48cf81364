// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher knows: the C structs of `dispatcher/types.h` and `platform/native.h` that it writes itself,
//! field by field. The structs that tell it what to do are in [`crate::conf`].
//!
//! Tests here compare sizes, and the fields of structs that only native builds have, with what the C compiler laid out;
//! a test of `corun-linux` (`layout_tests.rs`) compares every other field with what the BPF compiler did.

use crate::conf::TaskConf;
use corun_model::{PcpuSet, Sharing, Topology};

/// Most pCPUs the dispatcher's tables hold.
pub const MAX_PCPUS: usize = Topology::MAX_PCPUS as usize;
/// Most VMs they hold.
pub const MAX_VMS: usize = 1024;
/// Most vCPUs of a VM whose progress is compared.
pub const GANG_VCPUS: usize = 64;
/// Most cgroups with tasks that run.
pub const MAX_GROUPS: usize = 4096;
/// Levels of nesting that are told apart.
pub const GROUP_LEVELS: usize = 10;
/// `NO_VM`: stands for no place in the table of VMs.
pub const NO_VM: u32 = u32::MAX;
/// `enum task_state`: the task wants a pCPU.
pub const TASK_READY: u32 = 1;
/// `enum task_state`: the task has a pCPU.
pub const TASK_RUNNING: u32 = 2;
/// `enum task_state`: the task wants a pCPU, and its cgroup's quota is used up.
pub const TASK_THROTTLED: u32 = 3;

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
    pub preempted: u64,
    pub late: u64,
    pub held: u64,
    pub kept: u64,
    pub throttled: u64,
}

/// How many siblings that woke a vCPU are remembered.
pub const WAKERS: usize = 8;

/// For how many holds of a pCPU the ends are remembered.
pub const HOLD_ENDS: usize = 8;

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
    pub woken: u8,
    pub queued: u8,
    pub fresh: u16,
    pub load: u32,
    pub urgent: u64,
    pub urgent_at: u64,
    pub urgent_from: u64,
    pub member: u32,
    pub share: u32,
    pub home: i32,
    pub claims: u16,
    pub over: u16,
    pub gran: u64,
    pub allot_end: u64,
    pub allot_run: u64,
    pub woken_at: [u64; WAKERS],
    pub wakers: [u32; WAKERS],
    pub held_since: u64,
    pub held_until: u64,
    pub reserved: u64,
    pub group: u32,
    pub group_weight: u32,
    pub parked_for: i32,
    pub rest: u32,
    pub hold_no: u32,
    pub released: u32,
    pub awaited: u64,
    pub parked_active: u32,
    pub parked_weight: u32,
    /// When it is due; 0: it has no micro slices.
    pub due: u64,
    pub parked_since: u64,
    pub parked_clock: u64,
    pub group_sum: u64,
    pub beyond: u64,
}

/// `struct group_ctx`: which tasks of a cgroup want to run, and what is left of its quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the C header documents the fields
pub struct GroupCtx {
    pub own: u64,
    pub below: i64,
    pub left: i64,
    pub reserved: i64,
    pub period_end: u64,
    pub freed_at: u64,
    pub members: u32,
    pub counted: u32,
    pub changed: u64,
    pub sum: u64,
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
    pub group: u32,
    pub pinned: u32,
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
    pub llc: u32,
    pub pad: u32,
    pub here: [u32; MAX_PCPUS],
    pub r#where: [u64; MAX_PCPUS / 64],
}

/// `struct gang_vcpu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the C header documents the fields
pub struct GangVcpu {
    pub behind: u64,
    pub since: u64,
    pub stopped: u64,
    pub costop: u64,
    pub id: u32,
    pub pad: u32,
}

/// `struct gang_ctx`.
#[repr(C)]
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the C header documents the fields
pub struct GangCtx {
    pub until: u64,
    pub stopped: u64,
    pub leader: u32,
    pub epoch: u32,
    pub members: u32,
    pub turn: u32,
    pub target: [u32; MAX_PCPUS],
    pub vcpu: [GangVcpu; GANG_VCPUS],
}

impl Default for GangCtx {
    fn default() -> Self {
        Self {
            until: 0,
            stopped: 0,
            leader: 0,
            epoch: 0,
            members: 0,
            turn: 0,
            target: [0; MAX_PCPUS],
            vcpu: [GangVcpu::default(); GANG_VCPUS],
        }
    }
}

/// `struct gang_slots`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GangSlots {
    pub end: u64,
    pub opening: u64,
    pub first: u32,
    pub number: u32,
    pub round: u32,
    pub spare: u32,
}

/// `struct hold_counters`: holds of a pCPU, and how they ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the C header documents the fields
pub struct HoldCounters {
    pub begun: u64,
    pub woke: u64,
    pub expired: u64,
    pub gave_way: u64,
    pub length: u64,
    pub longest: u64,
    pub latest: u64,
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
    pub offered_at: u64,
    pub switches: u64,
    pub idle: u64,
    pub nr: u64,
    pub load: u64,
    pub incoming: u32,
    pub incoming_vm: u32,
    pub incoming_load: u32,
    pub cur_vm: u32,
    pub cur_member: u32,
    pub owner: u32,
    pub held_until: u64,
    pub hold_ends: [u64; HOLD_ENDS],
    pub held: u32,
    pub hold_no: u32,
    pub cur_is: u32,
    pub cur_demand: u32,
    pub called: u16,
    pub runs: u16,
    pub brief: u16,
    pub cur_limited: u16,
    pub cut: u16,
    pub behind: u16,
    pub busier_by: u32,
    pub turn_vtime: u64,
    pub release_at: u64,
    pub timer_at: u64,
    pub favoured: u32,
    pub tick: u32,
    pub favour_end: u64,
    pub held_since: u64,
    pub holds: HoldCounters,
    pub cur_cookie: u32,
    pub ceded: u32,
    pub unknown: u64,
    pub offer_due: u64,
    pub grace_end: u64,
    pub put_off: u64,
}

/// `struct pcpu_index`: how the untapped build finds pCPUs; only C looks into it.
#[repr(C)]
pub(crate) struct PcpuIndex {
    pub trees: [[i64; MAX_PCPUS + MAX_PCPUS / 8 + MAX_PCPUS / 64]; 2],
    pub waiting: PcpuSet,
    /// pCPUs whose waiting tasks cannot be pulled, as C found from the policy's settings.
    pub fixed: PcpuSet,
    pub llc: [PcpuSet; Sharing::MAX_LLCS],
    pub llcs_known: u64,
}

impl PcpuIndex {
    /// No task anywhere.
    pub(crate) fn empty() -> Self {
        Self {
            trees: [[0; MAX_PCPUS + MAX_PCPUS / 8 + MAX_PCPUS / 64]; 2],
            waiting: PcpuSet::default(),
            fixed: PcpuSet::default(),
            llc: [PcpuSet::default(); Sharing::MAX_LLCS],
            llcs_known: 0,
        }
    }
}
