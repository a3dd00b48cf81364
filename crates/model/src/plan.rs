// SPDX-License-Identifier: GPL-2.0-only
//! What a policy sees of a period, and what it wants to hold in the next one.
//!
//! Both are plain data, so that a recorded host can be replayed through a policy in a unit test.
//! The dispatcher's C structs (`dispatcher/types.h`) carry the same fields.

use crate::time::SEC;
use crate::{Gang, Nanos, PcpuId, PcpuSet, Signals, TaskId, Topology, VmId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a VM's vCPUs may be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Any allowed pCPU: the least loaded one.
    #[default]
    Free,
    /// Only the vCPU's home pCPU.
    Fixed,
    /// Any allowed pCPU on which no sibling vCPU is queued or running (balance scheduling).
    Balance,
    /// As balance, among pCPUs that are lightly loaded; if siblings are on all of these, on one of them.
    LoadConscious,
    /// The pCPUs of the vCPU's pool: the least loaded one.
    Pool,
    /// The vCPU's home, a hardware thread of its core; another pCPU only while that would idle otherwise.
    Core,
}

impl Placement {
    /// Every mode by the name users write.
    pub const NAMES: [(&'static str, Placement); 6] = [
        ("free", Self::Free),
        ("fixed", Self::Fixed),
        ("balance", Self::Balance),
        ("load-conscious", Self::LoadConscious),
        ("pool", Self::Pool),
        ("core", Self::Core),
    ];

    /// The dispatcher's number for it (`enum placement_mode` in `dispatcher/types.h`).
    pub fn number(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Fixed => 1,
            Self::Balance => 2,
            Self::LoadConscious => 3,
            Self::Pool => 4,
            Self::Core => 5,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES
            .iter()
            .find(|(_, mode)| mode == self)
            .map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Placement {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, mode)| *mode).ok_or_else(|| {
            let [names @ .., last] = Self::NAMES.map(|(name, _)| name);
            format!(
                "unknown placement {text:?}: expected {} or {last}",
                names.join(", ")
            )
        })
    }
}

/// A host as a policy finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSeen {
    /// Nodes, LLCs, cores, SMT threads.
    pub topology: Topology,
    /// The pCPUs of each last-level cache. Kernels number pCPUs as they like: on a real host these sets say which pCPUs
    /// share a cache, not the order of numbers in `topology`.
    pub llcs: Vec<PcpuSet>,
    /// The pCPUs of each NUMA node, likewise; empty if the host does not say: it counts as one node.
    pub nodes: Vec<PcpuSet>,
    /// How the hardware threads of a core are numbered, if each core has two and that is known.
    pub smt: Option<SmtOrder>,
    /// Does hardware wake vCPUs for their siblings, so that the host does not see which sibling it was?
    pub wakers_hidden: bool,
    /// Why it cannot be seen when a vCPU waits for a sibling that is ready, if so.
    pub awaited_hidden: Option<AwaitedHidden>,
}

/// Why it cannot be seen which interrupts KVM delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwaitedHidden {
    /// Its modules were loaded after corun was started, or not at all.
    NoKvm,
    /// Its module has no type information.
    NoTypes,
    /// corun is in a namespace of its own, where threads have other ids, or another clock.
    Namespace,
    /// The kernel refuses the program that looks.
    Refused,
}

impl AwaitedHidden {
    /// A clause for people.
    pub fn why(self) -> &'static str {
        match self {
            Self::NoKvm => "KVM's modules were not loaded when corun started",
            Self::NoTypes => "KVM's module has no type information (CONFIG_DEBUG_INFO_BTF_MODULES)",
            Self::Namespace => "corun is in a PID or time namespace of its own",
            Self::Refused => "the kernel refuses the program that looks",
        }
    }
}

/// How pCPUs are numbered where each core has two hardware threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmtOrder {
    /// SMT siblings are neighbours: 0 and 1, 2 and 3 (QEMU; AMD's and Intel's desktops).
    Neighbours,
    /// First a hardware thread of each core, then the other ones: 0 and 24 of 48 (Intel's servers).
    Halves,
}

impl HostSeen {
    /// A host whose pCPUs are numbered as `topology` says.
    pub fn of(topology: Topology) -> Self {
        let by = |number: fn(&Topology, PcpuId) -> u32| {
            let mut sets: Vec<PcpuSet> = Vec::new();
            for cpu in topology.all() {
                let at = number(&topology, cpu) as usize;
                sets.resize_with(sets.len().max(at + 1), PcpuSet::default);
                sets[at].insert(cpu);
            }
            sets
        };
        let two = topology.threads_per_core() == 2;
        Self {
            topology,
            llcs: by(Topology::llc),
            nodes: by(Topology::node),
            smt: two.then_some(SmtOrder::Neighbours),
            wakers_hidden: false,
            awaited_hidden: None,
        }
    }

    /// The number of the NUMA node of `cpu`.
    pub fn node(&self, cpu: PcpuId) -> usize {
        let with = self.nodes.iter().position(|node| node.contains(cpu));
        with.unwrap_or(self.nodes.len())
    }

    /// The SMT sibling of `cpu`, if each core has two hardware threads.
    pub fn partner(&self, cpu: PcpuId) -> Option<PcpuId> {
        let half = self.topology.pcpus() / 2;
        let partner = match self.smt? {
            SmtOrder::Neighbours => cpu.0 ^ 1,
            SmtOrder::Halves if cpu.0 < half => cpu.0 + half,
            SmtOrder::Halves => cpu.0 - half,
        };
        (partner < self.topology.pcpus()).then_some(PcpuId(partner))
    }
}

/// The weight of a thread with nice 0, and of a cgroup whose `cpu.weight` has not been set.
pub const NEUTRAL_WEIGHT: u32 = 100;

/// A cgroup's limit of pCPU time: `cpu.max` in cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The cgroup: VMs with the same one share what it has.
    pub of: u64,
    /// pCPU time per second for all its members together, ns; above 0.
    pub time: Nanos,
}

/// A VM as a policy finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSeen {
    /// The VM.
    pub vm: VmId,
    /// What the VM is worth against others: cgroup `cpu.weight`, 1–10000, 100 is neutral.
    /// `None` if it has no cgroup of its own: then each vCPU counts with its own weight.
    pub weight: Option<u32>,
    /// The same against VMs in other cgroups, in thousandths: 100,000 for one of weight 100 in the root, at least 1.
    /// The cgroups around its own and `cpu.idle` count. `None` if these are not known, or there are none: then `weight`
    /// holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<u64>,
    /// The limits of pCPU time that hold for it, from its own cgroup and those around it, the outermost first; empty if
    /// none are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Quota>,
    /// Its core-scheduling cookie: only VMs with the same cookie may share a core. 0 is a cookie, too.
    pub cookie: u64,
    /// Its vCPU threads, vCPU 0 first.
    pub vcpus: Vec<TaskSeen>,
}

/// A vCPU in the period that has just ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSeen {
    /// The vCPU's host task.
    pub task: TaskId,
    /// pCPUs it may use, by affinity and cpuset.
    pub allowed: PcpuSet,
    /// What it weighs among its siblings, and against all others where its VM has no weight: 1 to 10000, 100 is
    /// neutral.
    pub weight: u32,
    /// pCPU time per second that the quota (`cpu.max`) of a cgroup of its own allows it, ns; above 0. `None`: there is
    /// no such quota.
    pub quota: Option<Nanos>,
    /// Time on a pCPU, ns.
    pub run: Nanos,
    /// Time spent wanting a pCPU, ns, without the time for which a quota kept it from one: that is not counted here.
    pub ready: Nanos,
    /// Time halted, ns.
    pub wait: Nanos,
    /// How its turns went.
    pub turns: Turns,
    /// What else the host can tell.
    pub signals: Signals,
}

impl TaskSeen {
    /// The most pCPU time that it can use in `period`, by itself.
    pub fn most(&self, period: Nanos) -> Nanos {
        let limit = |quota| u128::from(quota) * u128::from(period) / u128::from(SEC);
        self.quota.map_or(period, |quota| {
            Nanos::try_from(limit(quota)).map_or(period, |limit| limit.min(period))
        })
    }
}

/// What a vCPU does at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// Halted, or kept from a pCPU by a quota.
    #[default]
    Waiting,
    /// Wants a pCPU and has none.
    Ready,
    /// Has one.
    Running,
}

/// How a vCPU's turns on pCPUs went in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// What it did when the period ended.
    pub doing: Doing,
    /// The pCPU it occupied then, or ran on last.
    pub cpu: Option<PcpuId>,
    /// Times it lost its pCPU because its slice was used up.
    pub depleted: u64,
    /// Times it lost its pCPU before that, wanting to run on.
    pub preempted: u64,
    /// Times it began to run later than its rescheduling latency allows; counted under
    /// [`Gang::Asymmetric`].
    pub late: u64,
    /// Times it was woken.
    pub wakeups: u64,
    /// Siblings that woke it, as far as that could be seen; reported under [`Gang::Asymmetric`].
    pub wakers: Vec<TaskId>,
    /// Time in which its context was retained on a pCPU although it was halted, ns.
    pub retained: Nanos,
    /// Times that such a retention ended because it was woken, before its timeout.
    pub kept: u64,
}

/// One period of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// End of the period, ns since the start of the run or of the daemon.
    pub now: Nanos,
    /// The host.
    pub host: HostSeen,
    /// The VMs that the policy is for: all, unless there is a canary.
    pub vms: Vec<VmSeen>,
    /// The other VMs, which are in fair order whatever the policy says about them. They count where a policy works out
    /// which part of the host each VM may have.
    pub others: Vec<VmSeen>,
}

impl Snapshot {
    /// All VMs, whether or not the policy is for them.
    pub fn all(&self) -> impl Iterator<Item = &VmSeen> {
        self.vms.iter().chain(&self.others)
    }
}

/// What should hold for one VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlan {
    /// The VM.
    pub vm: VmId,
    /// Placement mode of its vCPUs.
    pub placement: Placement,
    /// [`Placement::LoadConscious`]: the load up to which a pCPU is light, percent of the mean, at least 100.
    pub light: u32,
    /// How its vCPUs are scheduled in time with respect to each other.
    pub gang: Gang,
}

impl VmPlan {
    /// The load up to which a pCPU is light, percent of the mean: `balsched_load_imbalance_pct` of the published kernel
    /// of Kim et al., ASPLOS 2013.
    pub const LIGHT: u32 = 150;

    /// A VM with this placement and without a gang.
    pub fn placed(vm: VmId, placement: Placement) -> Self {
        Self {
            vm,
            placement,
            light: Self::LIGHT,
            gang: Gang::None,
        }
    }
}

/// What should hold for one vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlan {
    /// The vCPU's host task.
    pub task: TaskId,
    /// How long it may run before others get a turn, ns; `None` keeps the host's default.
    pub slice: Option<Nanos>,
    /// Its home pCPU: for [`Placement::Fixed`] where it must be, for [`Placement::Core`] its hardware thread (it
    /// may be lent others), under [`Gang::Asymmetric`] where it had better be.
    pub home: Option<PcpuId>,
    /// What it may claim, under [`Gang::Asymmetric`].
    pub claim: Option<Claim>,
    /// Its pool, for [`Placement::Pool`]: an index into [`Plan::pools`]. Without one it goes where it
    /// may.
    pub pool: Option<usize>,
    /// What it asks of its core, if that is known; for [`Placement::Core`].
    pub demand: Option<Demand>,
    /// It may be dormant while it has its pCPU (its guest halts without an exit): on a hardware thread of a
    /// [`PcpuPlan`], a vCPU that waits there goes first when its slice is over, whatever it is owed.
    pub dormant: bool,
    /// The number of its core-scheduling cookie, from 1 to 2³¹ - 1; 0: none is known. On hardware threads of a
    /// [`PcpuPlan`] with `cookies`.
    pub cookie: u32,
    /// Its slice is a micro slice: it gets its share in turns of that length, spread over the longer turns of others,
    /// which it interrupts.
    pub micro: bool,
}

impl TaskPlan {
    /// A plan for a vCPU that sets nothing.
    pub fn of(task: TaskId) -> Self {
        Self {
            task,
            slice: None,
            home: None,
            claim: None,
            pool: None,
            demand: None,
            dormant: false,
            cookie: 0,
            micro: false,
        }
    }
}

/// What a vCPU asks of its core: it is lent hardware threads beside the vCPUs that it disturbs least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// How long it takes beside any other vCPU, thousandths of the time alone; below 65,536.
    pub alone: u32,
    /// Share of its cycles in which it waits for units of the core, percent.
    pub wait: u32,
    /// Share of its cycles on misses, percent.
    pub miss: u32,
}

/// What should hold for a pCPU that is a hardware thread of a core with two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcpuPlan {
    /// The pCPU.
    pub cpu: PcpuId,
    /// Its SMT sibling.
    pub partner: PcpuId,
    /// How long it is held, idle, for a vCPU that has halted there, ns; 0: it is not.
    pub hold: Nanos,
    /// How long guests that retain their context by themselves may do so there, ns; 0: not at all.
    pub retention: Nanos,
    /// Do holds and retentions end for a vCPU that wants to run there?
    pub gives_way: bool,
    /// Are vCPUs with different cookies kept off each other's cores? A vCPU without a number shares cores with its
    /// siblings only.
    pub cookies: bool,
    /// How much two vCPUs slow each other down that both wait for units of the core, thousandths.
    pub wait_wait: u32,
    /// The same, for two that both miss.
    pub miss_miss: u32,
}

/// What a vCPU may claim of its VM's time: how much, and how soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its weight among its siblings; [`Claim::NEUTRAL`] is the default.
    pub share: u32,
    /// Rescheduling latency: how long it may stay ready, while it has some of `allotment` left, ns; 0: the host's, as
    /// of any task. From the neutral latency of [`Allotments`](crate::Allotments) on it is no promise: the vCPU waits
    /// for its turn, and the longer the latency, the less readily it preempts.
    pub latency: Nanos,
    /// How much it may run in a period under that promise, ns.
    pub allotment: Nanos,
}

impl Claim {
    /// The share of a vCPU that counts as by default: fixed point, 16 bits behind the point.
    pub const NEUTRAL: u32 = 1 << 16;
    /// The dispatcher bounds shares: to the neutral one times this, and divided by this (`SHARE_RANGE` in
    /// `dispatcher/gang_asymmetric.h`).
    pub const RANGE: u32 = 64;
}

/// pCPUs that belong together, and how long a vCPU runs there before others get a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its slice, ns; 50 µs to 1 s.
    pub slice: Nanos,
    /// Its pCPUs.
    pub pcpus: PcpuSet,
}

/// What a policy wants. Whatever it does not mention stays as last set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Per VM.
    pub vms: Vec<VmPlan>,
    /// Per vCPU.
    pub tasks: Vec<TaskPlan>,
    /// The pools that vCPUs are assigned to, at most [`Topology::MAX_PCPUS`].
    pub pools: Vec<Pool>,
    /// Per pCPU. Empty: hardware threads keep what was set last; it is cleared only when another policy takes over.
    pub pcpus: Vec<PcpuPlan>,
}

/// What a policy thinks at the moment, for people and timelines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Per VM, if the policy keeps a status for VMs.
    pub vms: Vec<VmStatus>,
    /// What people should know about it now, a sentence each: what it cannot see, for example.
    pub notes: Vec<String>,
}

/// What a policy thinks of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// The VM.
    pub vm: VmId,
    /// Is what is decided for it carried out?
    pub enforced: bool,
    /// CPU time per period that it has borrowed (lent, if negative), thousandths of what it is
    /// entitled to.
    pub loan: i64,
    /// What wakes its vCPUs, as far as that is seen.
    pub wakers: Wakers,
    /// Its vCPUs, vCPU 0 first.
    pub vcpus: Vec<VcpuStatus>,
}

/// What wakes a VM's vCPUs, as far as that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wakers {
    /// Siblings, lately.
    Siblings,
    /// Others: timers, devices, or nothing.
    Others,
    /// Hardware hides it.
    Hidden,
}

impl Wakers {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Siblings => "siblings",
            Self::Others => "others",
            Self::Hidden => "hidden",
        }
    }
}

/// What a policy thinks of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuStatus {
    /// Its host task.
    pub task: TaskId,
    /// Its weight among its siblings, thousandths of the default.
    pub weight: u32,
    /// Its rescheduling latency, ns.
    pub latency: Nanos,
}
