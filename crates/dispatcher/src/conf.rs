// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher is told: plans and knobs as the C structs of `dispatcher/types.h` hold them.
//!
//! Through these the simulator and the daemon tell the dispatcher what is wanted of it, so that a plan means the same
//! to both. Tests compare them with what the C compilers laid out ([`crate::layout`]).

use crate::layout::MAX_PCPUS;
use corun_model::time::{MS, US};
use corun_model::{
    Claim, Demand, DispatcherParams, Gang, Nanos, PcpuPlan, PcpuSet, Placement, Pool, Sharing,
    Skew, TaskPlan, VmPlan,
};
use std::collections::BTreeMap;

/// Weight of a cgroup with `cpu.weight` 100.
pub const GROUP_NEUTRAL: u32 = 1024;
/// Weight of an idle cgroup (`cpu.idle`), the kernel's `WEIGHT_IDLEPRIO`.
pub const GROUP_IDLE: u32 = 3;

/// `enum gang_mode`.
pub(crate) mod gang_mode {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const DYNAMIC: u32 = 1;
    pub(crate) const STRICT: u32 = 2;
    pub(crate) const DEMAND: u32 = 3;
    pub(crate) const RELAXED: u32 = 4;
    pub(crate) const RELAXED_ALL: u32 = 5;
    pub(crate) const ASYMMETRIC: u32 = 6;
}

/// `struct vm_conf`: what the policy wants for a VM.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmConf {
    /// The VM this is meant for.
    pub id: u32,
    /// Placement mode, as [`Placement::number`](corun_model::Placement::number).
    pub placement: u32,
    /// 1–10000; 0: the vCPUs count one by one.
    pub weight: u32,
    /// The load up to which a pCPU is light, percent of the mean.
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
    /// Strict: the pCPUs that any of its vCPUs may use.
    pub pcpus: PcpuSet,
}

impl VmConf {
    /// What `plan` asks for the VM that the dispatcher knows as `id`, which weighs `weight`
    /// (`None`: vCPU by vCPU), and of whose vCPUs any may use each of the `allowed` pCPUs. A skew to be looked at
    /// without end is looked at every 100 µs.
    pub fn of(id: u32, plan: &VmPlan, weight: Option<u32>, allowed: &PcpuSet) -> Self {
        let alone = Self {
            id,
            placement: plan.placement.number(),
            weight: weight.unwrap_or(0),
            light: plan.light,
            gang: gang_mode::NONE,
            ..Self::default()
        };
        let skew = |gang, skew: Skew| Self {
            gang,
            stop: skew.stop,
            resume: skew.resume,
            sample: skew.sample.max(100 * US),
            ..alone
        };
        match plan.gang {
            Gang::None => alone,
            Gang::Dynamic => Self {
                gang: gang_mode::DYNAMIC,
                ..alone
            },
            Gang::Strict(slots) => Self {
                gang: gang_mode::STRICT,
                fill: u32::from(slots.fill),
                slot: slots.length.max(MS),
                pcpus: open_to(allowed),
                ..alone
            },
            Gang::Demand(boost) => Self {
                gang: gang_mode::DEMAND,
                wake_boost: boost.wake,
                flush_boost: if boost.sees_flushes { boost.flush } else { 0 },
                boost_limit: boost.limit,
                boost_lead: boost.lead,
                ..alone
            },
            Gang::Relaxed(said) => skew(gang_mode::RELAXED, said),
            Gang::RelaxedAll(said) => skew(gang_mode::RELAXED_ALL, said),
            Gang::Asymmetric(said) => Self {
                gang: gang_mode::ASYMMETRIC,
                weight: weight.map_or(0, |weight| part_of(weight, said.has)),
                period: said.period.max(MS),
                neutral: said.neutral.max(1),
                ..alone
            },
        }
    }

    /// The same for a VM that weighs `weight` by now, and whose vCPUs may use these pCPUs.
    pub fn with(self, weight: Option<u32>, allowed: &PcpuSet) -> Self {
        Self {
            weight: weight.unwrap_or(0),
            pcpus: match self.pcpus.is_empty() {
                true => self.pcpus,
                false => open_to(allowed),
            },
            ..self
        }
    }
}

/// Where a VM whose vCPUs may use `allowed` gets slots: anywhere, as long as nothing is known of it.
fn open_to(allowed: &PcpuSet) -> PcpuSet {
    match allowed.is_empty() {
        true => PcpuSet::first(MAX_PCPUS as u32),
        false => *allowed,
    }
}

/// The part `has` of `weight`, rounded, but not 0.
fn part_of(weight: u32, has: u32) -> u32 {
    let part = u64::from(weight) * u64::from(has) + u64::from(Claim::NEUTRAL / 2);
    let part = part / u64::from(Claim::NEUTRAL);
    u32::try_from(part).unwrap_or(u32::MAX).max(1)
}

/// `struct task_conf`: what the policy wants for a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskConf {
    /// Slice, ns; 0: its pool's, or the host's default.
    pub slice: u64,
    /// Home pCPU plus 1; 0: none.
    pub home: i32,
    /// Share of its VM's weight, as [`corun_model::Claim::share`]; 0: as by default.
    pub share: u32,
    /// Rescheduling latency, ns; 0: none of its own.
    pub latency: Nanos,
    /// The run time in a period for which that latency holds, ns.
    pub allotment: Nanos,
    /// Its pool plus 1; 0: none.
    pub pool: u32,
    /// How long it takes beside any other vCPU, thousandths of the time alone, and in the upper bytes its shares of
    /// waiting and missing, percent; 0: not known. [`corun_model::Demand`].
    pub demand: u32,
    /// May it be dormant while it runs, and do others go first after its slice?
    pub dormant: u32,
    /// Its cookie; 0: not known yet.
    pub cookie: u32,
    /// Are its slices micro slices?
    pub micro: u32,
    /// Nothing.
    pub pad: u32,
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
            dormant: plan.dormant.into(),
            cookie: plan.cookie,
            micro: plan.micro.into(),
            pad: 0,
        }
    }
}

impl TaskConf {
    /// The settings of a thread that serves a VM (an I/O thread, say): `placement` is the VM's,
    /// [`Placement::number`](corun_model::Placement::number), `vcpus` the settings of its vCPUs. Under pools the thread
    /// is in the pool that most of them are in, of several such in the first; otherwise it has no settings.
    pub fn of_helper(placement: u32, vcpus: impl IntoIterator<Item = Self>) -> Self {
        if placement != Placement::Pool.number() {
            return Self::default();
        }
        let mut members = BTreeMap::<u32, usize>::new();
        for vcpu in vcpus.into_iter().filter(|vcpu| vcpu.pool > 0) {
            *members.entry(vcpu.pool).or_default() += 1;
        }
        let most = members.iter().rev().max_by_key(|(_, count)| **count);
        Self {
            pool: most.map_or(0, |(pool, _)| *pool),
            ..Self::default()
        }
    }
}

/// A vCPU's demand in one word; never 0, which means that none is known.
fn demand(of: Demand) -> u32 {
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
    /// Slowdown of two that both miss.
    pub miss_miss: u32,
    /// Does a hold end for a task that is queued there?
    pub gives_way: u32,
    /// Are vCPUs with different cookies kept apart?
    pub cookies: u32,
    /// Nothing.
    pub pad: u32,
}

impl PcpuConf {
    /// What `plan` asks for.
    pub fn of(plan: &PcpuPlan) -> Self {
        Self {
            hold: plan.hold,
            partner: plan.partner.0 + 1,
            wait_wait: plan.wait_wait.min(10_000),
            miss_miss: plan.miss_miss.min(10_000),
            gives_way: plan.gives_way.into(),
            cookies: plan.cookies.into(),
            pad: 0,
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

impl PoolConf {
    /// What `pool` is.
    pub fn of(pool: &Pool) -> Self {
        Self {
            slice: pool.slice,
            pcpus: pool.pcpus,
        }
    }
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

/// `struct knobs`: the host's knobs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Default slice, ns; [`LEAST_SLICE`](corun_model::DispatcherParams::LEAST_SLICE) at least.
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
    /// Mode of VMs for which the policy has named none, as [`Placement::number`](corun_model::Placement::number).
    pub placement: u32,
    /// 1: slices end by timer; 0: at the tick.
    pub slice_timer: u16,
    /// 1: tasks' cgroups are looked at; 0: no task has one.
    pub groups: u16,
    /// 1: VMs' gang modes are looked at; 0: no VM has one.
    pub gangs: u16,
    /// 1: the settings of hardware threads are looked at; 0: there are none.
    pub cores: u16,
    /// 1: the settings of tasks are looked at; 0: there are none. The native build always looks.
    pub tasks: u16,
    /// 1: some tasks have micro slices; 0: none has.
    pub micro: u16,
    /// How many last-level caches there are, at least 1.
    pub llcs: u32,
    /// How many pCPUs may be used.
    pub online_pcpus: u32,
    /// Nothing.
    pub pad: u32,
    /// The other hardware thread of a pCPU's core, plus 1; 0: it has none.
    pub sibling: [u16; MAX_PCPUS],
    /// A pCPU's last-level cache, below `llcs`.
    pub llc: [u16; MAX_PCPUS],
}

impl Knobs {
    /// `params` for a host with these pCPUs, some of which share cores and caches. VMs for which the policy has named
    /// no mode are placed freely; no task has a cgroup, and settings that only some plans need are not looked at.
    pub fn of(params: &DispatcherParams, online: &PcpuSet, sharing: &Sharing) -> Self {
        Self {
            slice: params.slice.max(DispatcherParams::LEAST_SLICE),
            wakeup_gran: params.wakeup_granularity,
            sleeper_credit: params.sleeper_credit,
            max_lead: params.max_lead,
            balance_interval: params.balance_interval,
            online: *online,
            pcpus: online.iter().map(|cpu| cpu.0 + 1).max().unwrap_or(0),
            placement: Placement::Free.number(),
            slice_timer: u16::from(params.slice_timer),
            groups: 0,
            gangs: 0,
            cores: 0,
            tasks: 0,
            micro: 0,
            llcs: sharing.llcs,
            online_pcpus: online.len(),
            pad: 0,
            sibling: sharing.sibling,
            llc: sharing.llc,
        }
    }
}
