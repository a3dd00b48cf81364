// SPDX-License-Identifier: GPL-2.0-only
//! The control loop in virtual time: a policy sees the modelled host as the daemon would show it a
//! real one.

use crate::host::{Host, Totals};
use crate::load::{Load, VmInfo};
use corun_model::{HostSeen, Nanos, Plan, Signals, Snapshot, TaskId, TaskSeen, VmId, VmSeen};
use corun_policies::Policy;

/// A policy and what it was shown last.
pub(crate) struct Control {
    policy: Box<dyn Policy>,
    /// Each task's accounts at the end of the last period.
    before: Vec<(Totals, Signals)>,
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
    pub fn decide(&mut self, host: &Host, load: &dyn Load) -> Plan {
        let snapshot = self.snapshot(host, load);
        let mut plan = Plan::default();
        self.policy.decide(&snapshot, &mut plan);
        plan
    }

    /// What it takes a vCPU to be.
    pub fn recognised(&self, task: TaskId) -> Option<&'static str> {
        self.policy.recognised(task)
    }

    fn snapshot(&mut self, host: &Host, load: &dyn Load) -> Snapshot {
        let infos = load.vms();
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
            let (now, (before, signals)) = (host.totals(id), self.before(id));
            // Accounts start again when the warm-up ends: then all of them is new.
            let since = |now: Nanos, before: Nanos| now.checked_sub(before).unwrap_or(now);
            vm.vcpus.push(TaskSeen {
                task: id,
                allowed: task.spec.allowed,
                run: since(now.run, before.run),
                ready: since(now.ready, before.ready),
                wait: since(now.wait, before.wait),
                signals: signals_of(host, load, id).since(&signals),
            });
        }
        let now = |(id, _)| (host.totals(id), signals_of(host, load, id));
        self.before = host.tasks().map(now).collect();
        let topology = host.params().topology;
        Snapshot {
            now: host.now(),
            host: HostSeen { topology },
            vms,
        }
    }

    fn before(&self, task: TaskId) -> (Totals, Signals) {
        self.before.get(task.index()).copied().unwrap_or_default()
    }
}

/// What the host can tell of a task since the run began.
fn signals_of(host: &Host, load: &dyn Load, task: TaskId) -> Signals {
    Signals {
        llc: host.llc_seen(task),
        ..load.signals(task)
    }
}
