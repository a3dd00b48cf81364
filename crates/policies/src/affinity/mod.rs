// SPDX-License-Identifier: GPL-2.0-only
//! Affinity: each vCPU has a home pCPU and is queued nowhere else.
//!
//! This is what administrators do with `virsh vcpupin`, and what Sukwong & Kim (EuroSys 2011, §2.2)
//! compare balance scheduling with: an equal number of vCPUs on every pCPU, siblings apart as long
//! as there are enough pCPUs. Homes are given once; when VMs come and go, or affinities change, as
//! few vCPUs move as these two aims require.

mod homes;

use crate::{NEW_VM_WAIT, Policy, place_all};
use corun_model::{Nanos, Placement, Plan, Snapshot, TaskPlan};
use homes::Homes;

/// Every vCPU at home.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    homes: Homes,
}

impl Policy for Affinity {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.homes.settle(seen);
        place_all(seen, plan, Placement::Fixed);
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        plan.tasks.extend(vcpus.map(|vcpu| TaskPlan {
            home: self.homes.of(vcpu.task),
            ..TaskPlan::of(vcpu.task)
        }));
    }
}

#[cfg(test)]
mod tests;
