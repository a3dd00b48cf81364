// SPDX-License-Identifier: GPL-2.0-only
//! Calm: the worked example of the guide (docs/write-a-policy.md), not a published system.
//!
//! A vCPU that computes all the time gains nothing from frequent turns: each switch costs it time and
//! cache lines. One that sleeps in between is not harmed by others' long slices, as long as it is served
//! when it wakes, which fair order sees to. So a vCPU that was halted for less than a twentieth of the last
//! period gets long slices; all others keep the host's default.

use crate::{NEW_VM_WAIT, Policy, place_all};
use corun_model::time::MS;
use corun_model::{Nanos, Placement, Plan, Snapshot, TaskPlan, TaskSeen};

/// Slice of vCPUs that compute all the time: four times corun's own (assumed).
const SLICE: Nanos = 12 * MS;

/// A vCPU computes if it was halted for less than a period divided by this.
const HALTED_PART: u64 = 20;

/// Long slices for vCPUs that compute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm;

impl Calm {
    /// Did it want a pCPU (nearly) all the time?
    fn computes(vcpu: &TaskSeen) -> bool {
        let wanted = vcpu.run + vcpu.ready;
        wanted > 0 && vcpu.wait < (wanted + vcpu.wait) / HALTED_PART
    }
}

impl Policy for Calm {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        place_all(seen, plan, Placement::Free);
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        plan.tasks.extend(vcpus.map(|vcpu| TaskPlan {
            slice: Self::computes(vcpu).then_some(SLICE),
            ..TaskPlan::of(vcpu.task)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, snapshot};

    #[test]
    fn only_who_computes_has_long_slices() {
        let mut seen = snapshot(2, &[3]);
        let times = [(50, 150, 0), (20, 0, 180), (0, 0, 0)];
        for (vcpu, (run, ready, wait)) in seen.vms[0].vcpus.iter_mut().zip(times) {
            (vcpu.run, vcpu.ready, vcpu.wait) = (run * MS, ready * MS, wait * MS);
        }
        let plan = ask(&mut Calm, &seen);
        let slices: Vec<Option<Nanos>> = plan.tasks.iter().map(|task| task.slice).collect();
        assert_eq!(slices, [Some(SLICE), None, None]);
    }
}
