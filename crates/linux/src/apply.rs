// SPDX-License-Identifier: GPL-2.0-only
//! Carries out a plan: plan → the dispatcher's tables.
//!
//! A policy's plan adds to what it said before; only what has changed is written. The first plan of
//! a policy that takes over from another adds to nothing: homes, slices and modes that the other
//! had given and this one does not mention are taken back. The dispatcher reads the tables at every
//! decision and keeps nothing of a mode that a VM is no longer in, so there is nothing else to undo.

use crate::discovery::{Vcpu, Vm};
use crate::knobs;
use crate::skel::types;
use crate::tables::{Tables, bytes_of};
use corun_model::{Demand, PcpuPlan, Placement, Plan, Pool, TaskPlan, VmPlan};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

/// What a plan adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// What the dispatcher was told until now.
    AsTold,
    /// Nothing: whatever the plan does not mention is as if it had never been said.
    Nothing,
}

/// Where the dispatcher is told.
pub(crate) trait Told {
    /// Tells what is wanted for the VM in a slot.
    fn set_vm_conf(&self, slot: u32, conf: types::vm_conf) -> libbpf_rs::Result<()>;
    /// Tells what is wanted for a task; false if the task has gone.
    fn set_task_conf(
        &self,
        pidfd: BorrowedFd<'_>,
        conf: types::task_conf,
    ) -> libbpf_rs::Result<bool>;
    /// Tells what a pool is.
    fn set_pool_conf(&self, pool: u32, conf: types::pool_conf) -> libbpf_rs::Result<()>;
    /// Tells what is wanted of a pCPU.
    fn set_pcpu_conf(&self, cpu: u32, conf: types::pcpu_conf) -> libbpf_rs::Result<()>;
}

/// What the dispatcher has been told beside VMs and tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldHost {
    /// Of pools, by their number.
    pools: BTreeMap<u32, types::pool_conf>,
    /// Of pCPUs.
    pcpus: BTreeMap<u32, types::pcpu_conf>,
}

impl Told for Tables<'_, '_> {
    fn set_vm_conf(&self, slot: u32, conf: types::vm_conf) -> libbpf_rs::Result<()> {
        Tables::set_vm_conf(self, slot, conf)
    }

    fn set_task_conf(
        &self,
        pidfd: BorrowedFd<'_>,
        conf: types::task_conf,
    ) -> libbpf_rs::Result<bool> {
        Tables::set_task_conf(self, pidfd, conf)
    }

    fn set_pool_conf(&self, pool: u32, conf: types::pool_conf) -> libbpf_rs::Result<()> {
        Tables::set_pool_conf(self, pool, conf)
    }

    fn set_pcpu_conf(&self, cpu: u32, conf: types::pcpu_conf) -> libbpf_rs::Result<()> {
        Tables::set_pcpu_conf(self, cpu, conf)
    }
}

/// Tells the dispatcher what has changed. Pools and homes come first: a VM's mode may rely on them,
/// and a vCPU whose home is taken back under a mode that wants one may go anywhere.
pub(crate) fn apply(
    list: &mut [Vm],
    host: &mut ToldHost,
    plan: &Plan,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let tasks: BTreeMap<_, _> = plan.tasks.iter().map(|task| (task.task, task)).collect();
    let vms: BTreeMap<_, _> = plan.vms.iter().map(|vm| (vm.vm, vm)).collect();
    for (at, pool) in (0..).zip(&plan.pools) {
        tell_pool(&mut host.pools, at, pool, to)?;
    }
    tell_pcpus(&mut host.pcpus, &plan.pcpus, base, to)?;
    for vm in list {
        for vcpu in &mut vm.vcpus {
            tell_task(vcpu, tasks.get(&vcpu.task).copied(), base, to)?;
        }
        tell_vm(vm, vms.get(&vm.vm).copied(), base, to)?;
    }
    Ok(())
}

fn tell_pool(
    told: &mut BTreeMap<u32, types::pool_conf>,
    at: u32,
    wanted: &Pool,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let conf = types::pool_conf {
        slice: wanted.slice,
        pcpus: knobs::mask(&wanted.pcpus),
    };
    let same = |told: &types::pool_conf| bytes_of(told) == bytes_of(&conf);
    if !told.get(&at).is_some_and(same) {
        told.remove(&at); // should it fail, nothing is known to hold
        to.set_pool_conf(at, conf)?;
        told.insert(at, conf);
    }
    Ok(())
}

/// Of which pCPUs nothing is wanted any more is told as well.
fn tell_pcpus(
    told: &mut BTreeMap<u32, types::pcpu_conf>,
    wanted: &[PcpuPlan],
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let mut all: BTreeMap<u32, types::pcpu_conf> = match base {
        Base::AsTold => BTreeMap::new(),
        Base::Nothing => told.keys().map(|&cpu| (cpu, Default::default())).collect(),
    };
    all.extend(wanted.iter().map(|plan| {
        let conf = types::pcpu_conf {
            hold: plan.hold,
            partner: plan.partner.0 + 1,
            wait_wait: plan.wait_wait,
            miss_miss: plan.miss_miss,
            ..Default::default()
        };
        (plan.cpu.0, conf)
    }));
    for (cpu, conf) in all {
        let same = |told: &types::pcpu_conf| bytes_of(told) == bytes_of(&conf);
        if !told.get(&cpu).is_some_and(same) {
            // Should it fail, whatever holds is not what is wanted.
            let unknown = types::pcpu_conf { unused: 1, ..conf };
            told.insert(cpu, unknown);
            to.set_pcpu_conf(cpu, conf)?;
            told.insert(cpu, conf);
        }
    }
    Ok(())
}

fn tell_task(
    vcpu: &mut Vcpu,
    wanted: Option<&TaskPlan>,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let told = vcpu.told.unwrap_or_default();
    let old = match base {
        Base::AsTold => told,
        Base::Nothing => types::task_conf::default(),
    };
    let slice = wanted.and_then(|plan| plan.slice);
    let home = wanted.and_then(|plan| plan.home);
    let home = home.and_then(|home| i32::try_from(home.0 + 1).ok());
    let claim = wanted.and_then(|plan| plan.claim);
    let pool = wanted.and_then(|plan| plan.pool);
    let pool = pool.and_then(|pool| u32::try_from(pool + 1).ok());
    let demand = wanted.and_then(|plan| plan.demand).map(demand_of);
    let conf = types::task_conf {
        slice: slice.unwrap_or(old.slice),
        home: home.unwrap_or(old.home),
        share: claim.map_or(old.share, |claim| claim.share),
        latency: claim.map_or(old.latency, |claim| claim.latency),
        allotment: claim.map_or(old.allotment, |claim| claim.allotment),
        pool: pool.unwrap_or(old.pool),
        demand: demand.unwrap_or(old.demand),
    };
    if bytes_of(&conf) != bytes_of(&told) && to.set_task_conf(vcpu.pidfd.as_fd(), conf)? {
        vcpu.told = Some(conf);
    }
    Ok(())
}

/// A vCPU's demand in one word, as `dispatcher/core.h` takes it apart; what is known is not 0.
fn demand_of(of: Demand) -> u32 {
    of.alone.clamp(1, 0xffff) | of.wait.min(100) << 16 | of.miss.min(100) << 24
}

/// The weight is the administrator's, the placement the policy's.
fn tell_vm(
    vm: &mut Vm,
    wanted: Option<&VmPlan>,
    base: Base,
    to: &impl Told,
) -> libbpf_rs::Result<()> {
    let conf = types::vm_conf {
        id: vm.key.tgid,
        weight: vm.weight.unwrap_or(0),
        ..match (wanted, vm.told) {
            (Some(plan), _) => conf_of(plan),
            (None, Some(told)) if base == Base::AsTold => told,
            _ => conf_of(&VmPlan::placed(vm.vm, Placement::Free)),
        }
    };
    let same = |told: types::vm_conf| bytes_of(&told) == bytes_of(&conf);
    if !vm.told.is_some_and(same) {
        // It is written in two steps: should the second fail, nothing is known to hold.
        vm.told = None;
        to.set_vm_conf(vm.slot, conf)?;
        vm.told = Some(conf);
    }
    Ok(())
}

/// What a policy asks for a VM, as the dispatcher reads it; id and weight are not the policy's.
fn conf_of(plan: &VmPlan) -> types::vm_conf {
    let gang = plan.gang.fields();
    types::vm_conf {
        placement: plan.placement.number(),
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
        ..types::vm_conf::default()
    }
}

#[cfg(test)]
mod tests;
