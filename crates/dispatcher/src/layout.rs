// SPDX-License-Identifier: GPL-2.0-only
//! The C structs of `dispatcher/types.h` and `platform/native.h`, field by field.
//!
//! A test compares the sizes with what the C compiler laid out.

use corun_model::{Nanos, PcpuPlan, PcpuSet, TaskPlan, Topology, VmPlan};

/// Most pCPUs the dispatcher's tables hold.
pub const MAX_PCPUS: usize = Topology::MAX_PCPUS as usize;
/// Most VMs they hold.
pub const MAX_VMS: usize = 1024;
/// Most vCPUs of a VM whose progress is compared.
pub const GANG_VCPUS: usize = 64;
/// Most cgroups with tasks that run.
pub const MAX_GROUPS: usize = 4096;
/// How deep they may be nested.
pub const GROUP_LEVELS: usize = 10;
/// Weight of a cgroup with `cpu.weight` 100.
pub const GROUP_NEUTRAL: u32 = 1024;
/// Weight of an idle cgroup (`cpu.idle`), the kernel's `WEIGHT_IDLEPRIO`.
pub const GROUP_IDLE: u32 = 3;
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

/// Siblings remembered that woke a vCPU.
pub const WAKERS: usize = 8;

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
    pub urgent: u64,
    pub urgent_since: u64,
    pub urgent_from: u64,
    pub member: u32,
    pub share: u32,
    pub home: i32,
    pub claims: u32,
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
    pub pad: u32,
}

/// `struct task_conf`: what the policy wants for a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskConf {
    /// Slice, ns; 0: its pool's, else the host's default.
    pub slice: u64,
    /// Home pCPU plus 1; 0: none.
    pub home: i32,
    /// Share of its VM's weight, as [`corun_model::Claim::share`]; 0: as by default.
    pub share: u32,
    /// Rescheduling latency, ns; 0: none of its own.
    pub latency: Nanos,
    /// For so much run time in a period that holds, ns.
    pub allotment: Nanos,
    /// Its pool plus 1; 0: none.
    pub pool: u32,
    /// What it takes of its core beside anybody, thousandths of the time alone, and in the upper bytes
    /// its shares of waiting and missing, percent; 0: not known. [`corun_model::Demand`].
    pub demand: u32,
}

impl TaskConf {
    /// What `plan` asks for.
    pub fn of(plan: &TaskPlan) -> Self {
        Self {
            slice: plan.slice.unwrap_or(0),
            home: plan.home.map_or(0, |cpu| cpu.0 as i32 + 1),
            share: plan.claim.map_or(0, |claim| claim.share),
            latency: plan.claim.map_or(0, |claim| claim.latency),
            allotment: plan.claim.map_or(0, |claim| claim.allotment),
            pool: plan.pool.map_or(0, |pool| pool as u32 + 1),
            demand: plan.demand.map_or(0, demand),
        }
    }
}

/// A vCPU's demand in one word; the least that is known is not 0.
pub fn demand(of: corun_model::Demand) -> u32 {
    of.alone.clamp(1, 0xffff) | of.wait.min(100) << 16 | of.miss.min(100) << 24
}

/// `struct pcpu_conf`: what is wanted of a hardware thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpuConf {
    /// How long it is held for a vCPU that has halted there, ns; 0: it is not.
    pub hold: Nanos,
    /// Its SMT sibling plus 1; 0: none.
    pub partner: u32,
    /// Slowdown of two that both wait, thousandths.
    pub wait_wait: u32,
    /// Of two that both miss.
    pub miss_miss: u32,
    /// Nothing: the size is the same everywhere.
    pub unused: u32,
}

impl PcpuConf {
    /// What `plan` asks for.
    pub fn of(plan: &PcpuPlan) -> Self {
        Self {
            hold: plan.hold,
            partner: plan.partner.0 + 1,
            wait_wait: plan.wait_wait.min(10_000),
            miss_miss: plan.miss_miss.min(10_000),
            unused: 0,
        }
    }
}

/// `struct pool_conf`: pCPUs that belong together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolConf {
    /// Slice of vCPUs in it, ns; 0: the host's default.
    pub slice: u64,
    /// Its pCPUs.
    pub pcpus: PcpuSet,
}

/// `struct group_conf`: what an administrator wants for a cgroup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupConf {
    /// pCPU time of all its tasks in a period, ns; 0: no limit.
    pub quota: Nanos,
    /// Period, ns.
    pub period: Nanos,
    /// What may be saved up beyond the quota, ns.
    pub burst: Nanos,
    /// [`GROUP_NEUTRAL`] is that of a task with nice 0; 0: a free place.
    pub weight: u32,
    /// Place of the cgroup around it plus 1; 0: that is the root.
    pub parent: u32,
    /// Has it, or one around it, a quota?
    pub limited: u32,
    /// Nothing.
    pub pad: u32,
}

/// `struct group_ctx`: who of a cgroup wants to run, and what is left of its quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the C header documents the fields
pub struct GroupCtx {
    pub own: u64,
    pub below: i64,
    pub left: i64,
    pub period_end: u64,
    pub freed_at: u64,
    pub members: u32,
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
    pub group: u32,
    pub pad: u32,
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
    /// Up to which load a pCPU is light, percent of the mean.
    pub light: u32,
    /// `enum gang_mode`; what follows are its settings, see [`corun_model::Gang`].
    pub gang: u32,
    /// Strict: may others run where a slot's owner leaves pCPUs idle?
    pub fill: u32,
    /// Strict: length of a time slot, ns.
    pub slot: Nanos,
    /// Relaxed: lead at which a vCPU is stopped, ns of progress.
    pub stop: Nanos,
    /// Relaxed: lead below which it goes on, ns of progress.
    pub resume: Nanos,
    /// Relaxed: how often leads are looked at, ns.
    pub sample: Nanos,
    /// Demand: urgent time for being woken by a sibling, ns.
    pub wake_boost: Nanos,
    /// Demand: urgent time for a TLB shootdown by a sibling, ns.
    pub flush_boost: Nanos,
    /// Demand: most urgent time that adds up, ns.
    pub boost_limit: Nanos,
    /// Demand: how far ahead of its pCPU an urgent vCPU may run, ns of virtual time.
    pub boost_lead: Nanos,
    /// Asymmetric: how often allotments begin anew, ns.
    pub period: Nanos,
    /// Asymmetric: the latency that stands for the host's wake-up granularity, ns.
    pub neutral: Nanos,
}

impl VmConf {
    /// What `plan` asks for the VM that the dispatcher knows as `id`, which weighs `weight`
    /// (`None`: vCPU by vCPU).
    pub fn of(id: u32, plan: &VmPlan, weight: Option<u32>) -> Self {
        let gang = plan.gang.fields();
        Self {
            id,
            placement: plan.placement.number(),
            weight: weight.unwrap_or(0),
            light: plan.light,
            gang: gang.gang,
            fill: gang.fill,
            slot: gang.slot,
            stop: gang.stop,
            resume: gang.resume,
            sample: gang.sample,
            wake_boost: gang.wake_boost,
            flush_boost: gang.flush_boost,
            boost_limit: gang.boost_limit,
            boost_lead: gang.boost_lead,
            period: gang.period,
            neutral: gang.neutral,
        }
    }
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
    pub pad: u32,
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
            pad: 0,
            target: [0; MAX_PCPUS],
            vcpu: [GangVcpu::default(); GANG_VCPUS],
        }
    }
}

/// `struct gang_slots`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GangSlots {
    end: u64,
    opening: u64,
    first: u32,
    pad: u32,
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
    pub cur_vm: u32,
    pub cur_member: u32,
    pub owner: u32,
    pub held_until: u64,
    pub held_end: u64,
    pub held: u32,
    pub held_last: u32,
    pub cur_away: u32,
    pub cur_demand: u32,
    pub called: u32,
    pub cur_limited: u32,
    pub release_at: u64,
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
    pub slice_timer: u16,
    /// 1: tasks' cgroups are looked at; 0: no task has one.
    pub groups: u16,
    /// 1: VMs' gang modes are looked at; 0: no VM has one.
    pub gangs: u16,
    /// 1: what is wanted of hardware threads is looked at; 0: nothing is.
    pub cores: u16,
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
