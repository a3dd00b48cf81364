// SPDX-License-Identifier: GPL-2.0-only
//! The control loop in virtual time: a policy sees the modelled host as the daemon would show it a
//! real one.

use crate::host::{Host, Totals};
use crate::load::VmInfo;
use corun_model::{HostSeen, Nanos, Plan, Snapshot, TaskId, TaskSeen, VmId, VmSeen};
use corun_policies::Policy;

/// A policy and what it was shown last.
pub(crate) struct Control {
    policy: Box<dyn Policy>,
    /// Each task's accounts at the end of the last period.
    before: Vec<Totals>,
}

impl Control {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            before: Vec::new(),
        }
    }

    /// Time between two decisions, at least 1 ms: the daemon could not do better either.
    pub fn period(&self) -> Nanos {
        self.policy.period().max(corun_model::time::MS)
    }

    /// What the policy wants, from what happened since it was asked last.
    pub fn decide(&mut self, host: &Host, vms: &[VmInfo]) -> Plan {
        let snapshot = self.snapshot(host, vms);
        let mut plan = Plan::default();
        self.policy.decide(&snapshot, &mut plan);
        plan
    }

    fn snapshot(&mut self, host: &Host, infos: &[VmInfo]) -> Snapshot {
        let seen = |(index, info): (usize, &VmInfo)| VmSeen {
            vm: VmId::from(index),
            weight: info.weight,
            vcpus: Vec::new(),
        };
        let mut vms: Vec<VmSeen> = infos.iter().enumerate().map(seen).collect();
        for (id, task) in host.tasks() {
            let Some(vm) = task.vm().and_then(|vm| vms.get_mut(vm.index())) else {
                continue;
            };
            let (now, before) = (host.totals(id), self.before(id));
            // Accounts start again when the warm-up ends: then all of them is new.
            let since = |now: Nanos, before: Nanos| now.checked_sub(before).unwrap_or(now);
            vm.vcpus.push(TaskSeen {
                task: id,
                allowed: task.spec.allowed,
                run: since(now.run, before.run),
                ready: since(now.ready, before.ready),
                wait: since(now.wait, before.wait),
            });
        }
        self.before = host.tasks().map(|(id, _)| host.totals(id)).collect();
        let topology = host.params().topology;
        Snapshot {
            now: host.now(),
            host: HostSeen { topology },
            vms,
        }
    }

    fn before(&self, task: TaskId) -> Totals {
        self.before.get(task.index()).copied().unwrap_or_default()
    }
}
