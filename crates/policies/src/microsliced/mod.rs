// SPDX-License-Identifier: GPL-2.0-only
//! Microsliced: short slices for everybody (Ahn, Park and Huh, "Micro-sliced virtual processors to
//! hide the effect of discontinuous CPU availability for consolidated systems", MICRO 2014).
//!
//! This is good for I/O and spin locks, bad for caches; against the latter the paper adds hardware
//! that brings a vCPU's cache lines back. No machine has that, and it is not modelled: what is here
//! is what AQL_Sched was compared with (EuroSys 2016, §4.2: slices of 1 ms).

use crate::{NEW_VM_WAIT, Policy, place_all};
use corun_model::time::MS;
use corun_model::{Nanos, Parameter, Placement, Plan, Snapshot, TaskPlan, Value};

/// One short slice for all.
#[derive(Clone, Copy, Debug)]
pub struct Microsliced {
    /// The slice, ns.
    pub slice: Nanos,
}

impl Default for Microsliced {
    fn default() -> Self {
        Self { slice: MS }
    }
}

impl Microsliced {
    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        vec![Parameter::new(
            "policy.microsliced.slice",
            "slice of all vCPUs",
            Value::Time(Self::default().slice),
            "AQL_Sched, EuroSys 2016, §4.2: 1 ms",
            "the default only; accepted: 100 µs to 1 s",
        )]
    }
}

impl Policy for Microsliced {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        place_all(seen, plan, Placement::Free);
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        plan.tasks.extend(vcpus.map(|vcpu| TaskPlan {
            slice: Some(self.slice),
            ..TaskPlan::of(vcpu.task)
        }));
    }
}
