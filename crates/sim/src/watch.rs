// SPDX-License-Identifier: GPL-2.0-only
//! What policies with types and pools did with vCPUs: which types they recognised, and how often they put a vCPU
//! elsewhere.

use crate::host::Host;
use corun_model::{Nanos, PcpuSet, Plan, TaskId};
use std::collections::BTreeMap;

/// Counts for one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recognition {
    /// As what the policy recognised its vCPUs: how many of each type, summed over its decisions.
    pub kinds: BTreeMap<&'static str, u64>,
    /// How often one of them got a pool with another slice or other pCPUs.
    pub pool_changes: u64,
}

/// Counts for all VMs.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    vms: BTreeMap<usize, Recognition>,
    /// The pools of vCPUs that have one.
    pools: BTreeMap<TaskId, (Nanos, PcpuSet)>,
}

impl Watch {
    /// A decision was made.
    pub fn decided(
        &mut self,
        host: &Host,
        plan: &Plan,
        kind: impl Fn(TaskId) -> Option<&'static str>,
    ) {
        let pools: BTreeMap<TaskId, (Nanos, PcpuSet)> = plan
            .tasks
            .iter()
            .filter_map(|task| {
                let pool = plan.pools.get(task.pool?)?;
                Some((task.task, (pool.slice, pool.pcpus)))
            })
            .collect();
        for (id, task) in host.tasks() {
            let Some(vm) = task.vm() else { continue };
            if let Some(kind) = kind(id) {
                *self.of(vm.index()).kinds.entry(kind).or_default() += 1;
            }
            if let (Some(before), Some(now)) = (self.pools.get(&id), pools.get(&id))
                && before != now
            {
                self.of(vm.index()).pool_changes += 1;
            }
        }
        self.pools = pools;
    }

    fn of(&mut self, vm: usize) -> &mut Recognition {
        self.vms.entry(vm).or_default()
    }

    /// The warm-up is over: counts begin anew.
    pub fn begin(&mut self) {
        self.vms.clear();
    }

    /// Returns what was counted for a VM.
    pub fn take(&mut self, vm: usize) -> Recognition {
        self.vms.remove(&vm).unwrap_or_default()
    }
}
