// SPDX-License-Identifier: GPL-2.0-only
//! Carries out a plan: plan → the dispatcher's tables.
//!
//! What a plan says about a VM, a vCPU, a pool or a pCPU replaces what the last plan said. Those that a plan does not
//! mention keep what they have. Only what has changed is written (allotments only if they change by more than an
//! eighth). When a policy takes over from another, its first plan begins from nothing: homes, slices and modes that the
//! old policy had set, and that this plan does not mention, are reset. Nothing else has to be undone: the dispatcher
//! reads the tables at every decision, and keeps nothing of a mode that a VM has left.
//!
//! Tables of VMs, pools and pCPUs are arrays: if one cannot be written, that is a fault. An entry for a thread takes
//! memory; if there is none at the moment, it is written in the next period.

use crate::by_id::ById;
use crate::discovery::{Vcpu, Vm};
use crate::helpers;
use crate::knobs::Parts;
use corun_dispatcher::{PcpuConf, PoolConf, TaskConf, VmConf};
use corun_model::{PcpuPlan, PcpuSet, Placement, Plan, Pool, TaskPlan, VmPlan, counted};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

/// What a plan adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// What the dispatcher's tables hold.
    AsTold,
    /// Nothing: whatever the plan does not mention is as if it had never been set.
    Nothing,
}

/// Where the dispatcher's settings are written.
pub(crate) trait Told {
    /// Sets what is wanted for the VM in a slot.
    fn set_vm_conf(&self, slot: u32, conf: VmConf) -> libbpf_rs::Result<()>;
    /// Sets what is wanted for a task; false if the task has gone.
    fn set_task_conf(&self, pidfd: BorrowedFd<'_>, conf: TaskConf) -> libbpf_rs::Result<bool>;
    /// Sets a pool.
    fn set_pool_conf(&self, pool: u32, conf: PoolConf) -> libbpf_rs::Result<()>;
    /// Sets what is wanted of a pCPU.
    fn set_pcpu_conf(&self, cpu: u32, conf: PcpuConf) -> libbpf_rs::Result<()>;
    /// Sets which parts of the dispatcher are needed.
    fn set_parts(&self, parts: Parts);
}

/// What was set in the dispatcher besides VMs and tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldHost {
    /// Of pools, by their number.
    pools: BTreeMap<u32, PoolConf>,
    /// Of pCPUs.
    pcpus: BTreeMap<u32, PcpuConf>,
    /// Of parts of the dispatcher.
    parts: Parts,
    /// Why nothing could be set for some thread in this period.
    refused: Option<String>,
}

impl ToldHost {
    /// Are VMs with different cookies kept off each other's cores?
    pub(crate) fn keeps_cookies(&self) -> bool {
        self.pcpus.values().any(|conf| conf.cookies != 0)
    }

    /// A thread's settings were written, or could not be.
    fn remember(&mut self, told: libbpf_rs::Result<()>) {
        self.refused = self
            .refused
            .take()
            .or(told.err().map(|why| format!("{why:#}")));
    }

    /// What could not be set for these VMs, for people.
    pub(crate) fn note(&self, list: &[Vm]) -> Option<String> {
        let why = self.refused.as_ref()?;
        let vcpus = list.iter().flat_map(|vm| &vm.vcpus);
        let owed = vcpus.filter(|vcpu| vcpu.owed.is_some()).count();
        Some(format!(
            "the policy's settings for {}, and perhaps for threads that serve VMs, did not reach the dispatcher; each \
             period tries again: {why}",
            counted(owed, "vCPU")
        ))
    }

    /// What was set for pCPUs does not hold any more.
    pub(crate) fn pcpus_are_forgotten(&mut self) {
        for conf in self.pcpus.values_mut() {
            *conf = unlike_any(*conf);
        }
    }
}

/// For a pCPU whose settings are not known: no plan asks for this value, so whatever is wanted is written.
fn unlike_any(conf: PcpuConf) -> PcpuConf {
    PcpuConf {
        gives_way: u32::MAX,
        ..conf
    }
}

/// Tells the dispatcher what has changed. Pools and homes come first: a VM's mode may rely on them,
/// and a vCPU whose home is taken back under a mode that wants one may go anywhere. Parts of the dispatcher are
/// switched on before the plan that needs them, and stay on until no plan does. Those that gangs need stay on as long
/// as some VM has a gang: where a policy leaves all VMs alone (jupiter), the dispatcher decides as under one that never
/// had gangs.
pub(crate) fn apply(
    list: &mut [Vm],
    host: &mut ToldHost,
    plan: &Plan,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let tasks = ById::of(plan.tasks.iter().map(|plan| (plan.task, plan)).collect());
    let vms: BTreeMap<_, _> = plan.vms.iter().map(|vm| (vm.vm, vm)).collect();
    let parts = Parts::of(plan);
    let either = host.parts.or(parts);
    host.refused = None;
    tell_parts(&mut host.parts, either, to);
    for (at, pool) in (0..).zip(&plan.pools) {
        tell_pool(&mut host.pools, at, pool, to)?;
    }
    tell_pcpus(&mut host.pcpus, &plan.pcpus, base, to)?;
    let mut gangs = false;
    for vm in list {
        for vcpu in &mut vm.vcpus {
            let told = tell_task(vcpu, tasks.get(vcpu.task).copied(), base, to);
            host.remember(told);
        }
        tell_vm(vm, vms.get(&vm.vm).copied(), base, to)?;
        host.remember(tell_helpers(vm, to));
        gangs |= vm.told.is_some_and(|told| told.gang != 0);
    }
    let needed = match base {
        Base::Nothing => parts,
        Base::AsTold => Parts { gangs, ..either },
    };
    tell_parts(&mut host.parts, needed, to);
    Ok(())
}

fn tell_parts(told: &mut Parts, wanted: Parts, to: &impl Told) {
    if *told != wanted {
        to.set_parts(wanted);
        *told = wanted;
    }
}

fn tell_pool(
    told: &mut BTreeMap<u32, PoolConf>,
    at: u32,
    wanted: &Pool,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let conf = PoolConf::of(wanted);
    if told.get(&at) != Some(&conf) {
        told.remove(&at); // should it fail, nothing is known to hold
        to.set_pool_conf(at, conf)?;
        told.insert(at, conf);
    }
    Ok(())
}

/// pCPUs of which nothing is wanted any more are reset as well.
fn tell_pcpus(
    told: &mut BTreeMap<u32, PcpuConf>,
    wanted: &[PcpuPlan],
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let mut all: BTreeMap<u32, PcpuConf> = match base {
        Base::AsTold => BTreeMap::new(),
        Base::Nothing => told.keys().map(|&cpu| (cpu, Default::default())).collect(),
    };
    all.extend(wanted.iter().map(|plan| (plan.cpu.0, PcpuConf::of(plan))));
    for (cpu, conf) in all {
        if told.get(&cpu) != Some(&conf) {
            told.insert(cpu, unlike_any(conf)); // should it fail, nothing is known to hold
            to.set_pcpu_conf(cpu, conf)?;
            told.insert(cpu, conf);
        }
    }
    Ok(())
}

/// Does what is `wanted` of a task differ so little from what was set that it is not worth a system call? Allotments
/// (jupiter) are estimates, and change with what any VM leaves to others: on a host of many VMs that sleep, all of them
/// change in each period.
fn is_no_news(told: TaskConf, wanted: TaskConf) -> bool {
    let alike = TaskConf {
        allotment: told.allotment,
        ..wanted
    };
    alike == told && wanted.allotment.abs_diff(told.allotment) <= told.allotment / 8
}

fn tell_task(
    vcpu: &mut Vcpu,
    wanted: Option<&TaskPlan>,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let told = vcpu.told.unwrap_or_default();
    let owed = vcpu.owed.take();
    let conf = match (wanted, base) {
        (Some(plan), _) => TaskConf::of(plan),
        (None, Base::AsTold) => owed.unwrap_or(told),
        (None, Base::Nothing) => TaskConf::default(),
    };
    if conf == told || (base == Base::AsTold && is_no_news(told, conf)) {
        return Ok(());
    }
    match to.set_task_conf(vcpu.pidfd.as_fd(), conf) {
        Ok(true) => vcpu.told = Some(conf),
        Ok(false) => {}
        Err(why) => {
            vcpu.owed = Some(conf);
            return Err(why);
        }
    }
    Ok(())
}

/// What is wanted of a VM's other threads follows from what was set for the VM itself, so a thread for which that
/// failed needs no mark. An error is the first one; all threads were tried.
fn tell_helpers(vm: &mut Vm, to: &impl Told) -> libbpf_rs::Result<()> {
    let wanted = helpers::wanted(vm);
    let mut told = Ok(());
    for helper in vm.helpers.iter_mut().filter(|helper| helper.told != wanted) {
        match to.set_task_conf(helper.pidfd.as_fd(), wanted) {
            Ok(true) => helper.told = wanted,
            Ok(false) => {}
            Err(why) => told = told.and(Err(why)),
        }
    }
    told
}

/// The administrator decides the weight and where its vCPUs may run, the policy everything else.
fn tell_vm(
    vm: &mut Vm,
    wanted: Option<&VmPlan>,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let (id, weight) = (vm.key.tgid, vm.weight);
    let allowed = (vm.vcpus.iter()).fold(PcpuSet::default(), |all, vcpu| all.or(&vcpu.allowed));
    let conf = match (wanted, vm.told) {
        (Some(plan), _) => VmConf::of(id, plan, weight, &allowed),
        (None, Some(told)) if base == Base::AsTold => told.with(weight, &allowed),
        _ => VmConf::of(
            id,
            &VmPlan::placed(vm.vm, Placement::Free),
            weight,
            &allowed,
        ),
    };
    if vm.told != Some(conf) {
        // It is written in two steps: should the second fail, nothing is known to hold.
        vm.told = None;
        to.set_vm_conf(vm.slot, conf)?;
        vm.told = Some(conf);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
