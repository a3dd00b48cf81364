// SPDX-License-Identifier: GPL-2.0-only
//! What a running daemon says about its host: for `corun status`, `corun top` and `corun metrics`.
//!
//! Times are sums since each vCPU was first seen, in seconds; to get shares, ask twice.

use crate::control::Control;
use crate::counters::Counters;
use crate::discovery::{Vcpu, Vm};
use crate::halt_poll::{self, HaltPollNow};
use crate::helpers::Helper;
use crate::holds::{Holds, HoldsNow};
use crate::inventory::{Manager, Role};
use crate::safety::Limits;
use crate::tables::Tables;
use corun_model::time::{MS, seconds};
use corun_model::{CyclesSeen, Nanos, Placement, VmStatus, Wakers, counted};
use corun_system::clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

/// A host under corun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// corun's version.
    pub version: String,
    /// The policy in force.
    pub policy: String,
    /// How long it has been, s.
    pub policy_for_s: f64,
    /// How long corun has been in charge, s.
    pub for_s: f64,
    /// What is promised: longest wait, s.
    pub max_wait_s: Option<f64>,
    /// Most ready time of a VM, percent.
    pub max_ready_percent: Option<f64>,
    /// Most CPU pressure, percent.
    pub max_pressure_percent: Option<f64>,
    /// Findings of the preflight that were forced.
    pub forced: Vec<String>,
    /// How often VMs fell back to fair order because the daemon hung.
    pub lapses: u64,
    /// The dispatcher's table of cgroups.
    #[serde(default)]
    pub cgroups: CgroupsNow,
    /// pCPUs held for vCPUs that had halted since corun took over, and how that ended (vSMT-IO).
    #[serde(default)]
    pub holds: HoldsNow,
    /// KVM's halt polling, if KVM's module is loaded.
    #[serde(default)]
    pub halt_poll: Option<HaltPollNow>,
    /// What the policy cannot see or do here, a sentence each.
    pub notes: Vec<String>,
    /// Its VMs.
    pub vms: Vec<VmNow>,
}

/// How crowded the dispatcher's table of cgroups is. A task in a cgroup without a place counts in
/// the enclosing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupsNow {
    /// Places that are taken.
    pub taken: u64,
    /// How many there are.
    pub places: u64,
    /// How often one was looked for and there was none, since corun took over.
    pub crowded: u64,
}

impl fmt::Display for CgroupsNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cgroups: {} of {} places are taken; {} there was none for a cgroup, whose tasks count in the one around it",
            self.taken,
            self.places,
            counted(self.crowded, "time")
        )
    }
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmNow {
    /// Its name.
    pub name: String,
    /// Its UUID, if it says.
    pub uuid: Option<String>,
    /// Its manager.
    pub manager: Manager,
    /// What the manager calls it, if that is something else.
    pub id: Option<String>,
    /// Its process.
    pub pid: u32,
    /// Its place in the dispatcher's table `vm_confs`, for `bpftool map`.
    pub slot: u32,
    /// `cpu.weight` of its own cgroup.
    pub weight: Option<u32>,
    /// Is it under the policy? Otherwise it is in fair order.
    pub under_policy: bool,
    /// Where its vCPUs may be queued.
    pub placement: String,
    /// Is what the policy decides for it carried out? For policies that leave VMs alone if these do not do what was
    /// expected of them (jupiter).
    #[serde(default)]
    pub enforced: Option<bool>,
    /// CPU time it has borrowed (lent, if negative), percent of what it is entitled to; for policies with loans.
    #[serde(default)]
    pub loan_percent: Option<f64>,
    /// What wakes its vCPUs, for policies that want to know.
    #[serde(default)]
    pub wakers: Option<Wakers>,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuNow>,
    /// Its other threads, by what they are for.
    #[serde(default)]
    pub helpers: Vec<HelpersNow>,
}

/// Threads of a VM that are not vCPUs, and that have the same purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HelpersNow {
    /// What for: `io`, `vhost` or `emulator`.
    pub role: String,
    /// How many there are.
    pub threads: u64,
    /// Time on a pCPU, s.
    pub run_s: f64,
    /// Time spent wanting one, s.
    pub ready_s: f64,
    /// The pool they are in with their VM, if it has one.
    pub pool: Option<u32>,
}

/// A vCPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VcpuNow {
    /// Its number, if its thread's name shows it.
    pub number: Option<u32>,
    /// Its thread.
    pub tid: u32,
    /// Time on a pCPU, s.
    pub run_s: f64,
    /// Time spent wanting one, s; co-stopped time is part of it.
    pub ready_s: f64,
    /// Time halted, s.
    pub wait_s: f64,
    /// Time co-stopped: held back for its siblings' sake, s.
    pub costop_s: f64,
    /// Time it wanted a pCPU and a quota (`cpu.max`) was used up, s; no part of its ready time.
    #[serde(default)]
    pub throttled_s: f64,
    /// How often it was given a pCPU.
    pub switches: u64,
    /// What the policy takes it to be, if it has types.
    pub class: Option<String>,
    /// The slice the policy gives it, ms.
    pub slice_ms: Option<f64>,
    /// How long it may stay ready, if the policy says, ms.
    pub latency_ms: Option<f64>,
    /// Its home pCPU, if it has one.
    pub home: Option<u32>,
    /// Its pool, if it has one.
    pub pool: Option<u32>,
    /// How its cycles divided while its SMT sibling idled, if a policy wants to know.
    #[serde(default)]
    pub cycles: Option<CyclesSeen>,
}

/// What the daemon knows besides its control loop.
pub(crate) struct Beside<'a> {
    pub(crate) now: Nanos,
    pub(crate) began: Nanos,
    pub(crate) limits: Limits,
    pub(crate) forced: &'a [String],
    pub(crate) lapses: u64,
    pub(crate) cgroups: CgroupsNow,
}

impl HostStatus {
    /// What it says about the VM that this process is.
    pub fn vm(&self, tgid: u32) -> Option<&VmNow> {
        self.vms.iter().find(|vm| vm.pid == tgid)
    }

    pub(crate) fn of(
        control: &mut Control,
        tables: &Tables<'_, '_>,
        beside: &Beside<'_>,
    ) -> libbpf_rs::Result<Self> {
        let reading = control.read(tables)?;
        let pcpus = control.online().iter();
        let holds = pcpus.fold(Holds::default(), |holds, cpu| {
            holds.plus(&tables.cpu(cpu.0).unwrap_or_default())
        });
        let thoughts = control.status();
        let mut vms = Vec::new();
        for vm in &control.vms.list {
            let costop = tables.costop(vm.slot)?;
            let vcpu = |vcpu: &Vcpu| {
                let counters = reading.get(vcpu.task).copied().unwrap_or_default();
                let class = control.recognised(vcpu.task).map(str::to_string);
                VcpuNow {
                    cycles: control.cycles_of(vcpu),
                    ..vcpu_now(vcpu, &counters, &costop, class)
                }
            };
            vms.push(vm_now(
                vm,
                control.is_for(vm),
                thoughts.vms.iter().find(|thought| thought.vm == vm.vm),
                vm.vcpus.iter().map(vcpu).collect(),
                helpers_now(&vm.helpers, tables)?,
            ));
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_string(),
            policy: control.policy().name.to_string(),
            policy_for_s: seconds(beside.now.saturating_sub(control.since())),
            for_s: seconds(beside.now.saturating_sub(beside.began)),
            max_wait_s: beside.limits.max_wait.map(seconds),
            max_ready_percent: beside.limits.max_ready,
            max_pressure_percent: beside.limits.max_pressure,
            forced: beside.forced.to_vec(),
            lapses: beside.lapses,
            cgroups: beside.cgroups,
            holds: holds.into(),
            halt_poll: HaltPollNow::read(Path::new(halt_poll::KNOBS)),
            notes: control
                .notes()
                .into_iter()
                .chain(tables.slow_because())
                .collect(),
            vms,
        })
    }
}

fn vm_now(
    vm: &Vm,
    under_policy: bool,
    thought: Option<&VmStatus>,
    vcpus: Vec<VcpuNow>,
    helpers: Vec<HelpersNow>,
) -> VmNow {
    let placement = vm.told.map_or(0, |told| told.placement);
    let mut modes = Placement::NAMES.iter();
    let placement = modes.find(|(_, mode)| mode.number() == placement);
    VmNow {
        name: vm.name.clone(),
        uuid: vm.identity.uuid.clone(),
        manager: vm.identity.manager,
        id: vm.identity.id.clone(),
        pid: vm.key.tgid,
        slot: vm.slot,
        weight: vm.weight,
        under_policy,
        placement: placement.map_or("?", |(name, _)| name).to_string(),
        enforced: thought.map(|thought| thought.enforced),
        loan_percent: thought.map(|thought| thought.loan as f64 / 10.0),
        wakers: thought.map(|thought| thought.wakers),
        vcpus,
        helpers,
    }
}

fn helpers_now(helpers: &[Helper], tables: &Tables<'_, '_>) -> libbpf_rs::Result<Vec<HelpersNow>> {
    let mut sums = BTreeMap::<Role, HelpersNow>::new();
    for helper in helpers {
        let Some(ctx) = tables.task(helper.pidfd.as_fd())? else {
            continue;
        };
        let counters = Counters::of(&ctx, clock::now());
        let sum = sums.entry(helper.role).or_default();
        sum.role = helper.role.name().to_string();
        sum.threads += 1;
        sum.run_s += seconds(counters.run);
        sum.ready_s += seconds(counters.ready);
        sum.pool = helper.told.pool.checked_sub(1);
    }
    Ok(sums.into_values().collect())
}

fn vcpu_now(
    vcpu: &Vcpu,
    counters: &Counters,
    costop: &BTreeMap<u32, Nanos>,
    class: Option<String>,
) -> VcpuNow {
    let told = vcpu.told.unwrap_or_default();
    let ms = |time: u64| (time > 0).then(|| time as f64 / MS as f64);
    VcpuNow {
        number: vcpu.number,
        tid: vcpu.key.tid,
        run_s: seconds(counters.run),
        ready_s: seconds(counters.ready),
        wait_s: seconds(counters.wait),
        throttled_s: seconds(counters.throttled),
        costop_s: seconds(costop.get(&vcpu.key.tid).copied().unwrap_or(0)),
        switches: counters.switches,
        class,
        slice_ms: ms(told.slice),
        latency_ms: ms(told.latency),
        home: u32::try_from(told.home - 1).ok(),
        pool: told.pool.checked_sub(1),
        cycles: None,
    }
}
