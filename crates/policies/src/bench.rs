// SPDX-License-Identifier: GPL-2.0-only
//! A host of 512 vCPUs to measure control loops with: `corun bench` and `cargo bench` share it.
//!
//! It is made to give a policy something to do, not to resemble anybody's host: a third of its VMs computes,
//! a third synchronises, a third waits for requests, and no period is quite like the one before.

use crate::{Policy, PolicyInfo, Settings};
use corun_model::time::MS;
use corun_model::{
    Doing, HostSeen, Nanos, PcpuId, PcpuSet, Plan, Signals, Snapshot, TaskId, TaskSeen, Topology,
    TopologyError, Turns, VmId, VmSeen,
};

/// pCPUs of the host.
pub const PCPUS: u32 = 128;
/// vCPUs of each VM.
pub const SIBLINGS: u32 = 16;
/// VMs of the host: four vCPUs for each pCPU.
pub const VMS: u32 = 32;
/// Periods that differ; then they come again.
const DIFFERENT: u64 = 16;

/// A policy on that host.
pub struct ControlLoop {
    policy: Box<dyn Policy>,
    seen: Vec<Snapshot>,
    asked: u64,
}

impl ControlLoop {
    /// The policy as by default, with `vms` VMs to look after.
    ///
    /// # Errors
    /// None: there are hosts with 128 pCPUs.
    pub fn new(info: &PolicyInfo, vms: u32) -> Result<Self, TopologyError> {
        let host = HostSeen::of(topology()?);
        let policy = (info.make)(&Settings::default());
        let period = policy.period();
        let seen = (0..DIFFERENT).map(|number| snapshot(&host, vms, number, period));
        Ok(Self {
            policy,
            seen: seen.collect(),
            asked: 0,
        })
    }

    /// How often it is asked, ns.
    pub fn period(&self) -> Nanos {
        self.policy.period()
    }

    /// A period is over: what the policy wants.
    pub fn decide(&mut self) -> Plan {
        let period = self.period();
        let at = (self.asked % DIFFERENT) as usize;
        let mut plan = Plan::default();
        if let Some(seen) = self.seen.get_mut(at) {
            seen.now = self.asked * period;
            self.policy.decide(seen, &mut plan);
        }
        self.asked += 1;
        plan
    }
}

/// Cores of two hardware threads, without which there is nothing to decide for some policies.
fn topology() -> Result<Topology, TopologyError> {
    format!("1n1l{}c2t", PCPUS / 2).parse()
}

fn snapshot(host: &HostSeen, vms: u32, number: u64, period: Nanos) -> Snapshot {
    let vm = |vm| VmSeen {
        vm: VmId(vm),
        weight: None,
        effective: None,
        quotas: Vec::new(),
        cookie: 0,
        vcpus: (0..SIBLINGS)
            .map(|vcpu| did(vm, vcpu, number, period))
            .collect(),
    };
    Snapshot {
        now: 0,
        host: host.clone(),
        vms: (0..vms).map(vm).collect(),
        others: Vec::new(),
    }
}

/// What a vCPU of a VM did that computes, that synchronises, or that waits for requests.
fn did(vm: u32, number: u32, at: u64, period: Nanos) -> TaskSeen {
    let task = vm * SIBLINGS + number;
    // Never the same twice, so that every part of a policy has something to do.
    let varies = u64::from((task * 7919 + at as u32 * 104_729) % 10);
    let percent = period / 100;
    let (used, doing) = match vm % 3 {
        0 => (25, Doing::Ready),
        1 => (10 + varies, Doing::Running),
        _ => (5 + varies / 2, Doing::Waiting),
    };
    let sibling = vm * SIBLINGS + (number + 1) % SIBLINGS;
    TaskSeen {
        task: TaskId(task),
        allowed: PcpuSet::first(PCPUS),
        weight: 100,
        quota: None,
        run: used * percent,
        ready: 40 * percent,
        wait: (60 - used) * percent,
        turns: Turns {
            doing,
            cpu: Some(PcpuId(task % PCPUS)),
            depleted: if vm.is_multiple_of(3) { 8 } else { 0 },
            preempted: varies,
            late: varies / 3,
            wakeups: period / (2 * MS),
            wakers: vec![TaskId(sibling)],
            ..Turns::default()
        },
        signals: Signals::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All parts of Jupiter have something to do there: the bench does not measure an idle policy.
    #[test]
    fn every_part_of_jupiter_is_at_work() {
        let jupiter = crate::find("jupiter").unwrap();
        let mut host = ControlLoop::new(jupiter, VMS).unwrap();
        let mut plan = Plan::default();
        (0..40).for_each(|_| plan = host.decide());
        assert_eq!(plan.vms.len(), VMS as usize);
        let claims = || plan.tasks.iter().filter_map(|task| task.claim);
        let differ = |of: fn(&corun_model::Claim) -> u64| {
            let mut all: Vec<u64> = claims().map(|claim| of(&claim)).collect();
            all.sort_unstable();
            all.dedup();
            all.len() > 1
        };
        assert!(differ(|claim| claim.share.into()) && differ(|claim| claim.latency));
        assert!(plan.tasks.iter().any(|task| task.home.is_some()));
        assert!(host.policy.status().vms.iter().any(|vm| vm.loan != 0));
    }
}
