// SPDX-License-Identifier: GPL-2.0-only
//! vSlicer: latency-sensitive VMs get micro slices, and turns more often (Xu et al., "vSlicer: latency-aware virtual
//! machine scheduling via differentiated-frequency CPU slicing", HPDC 2012). The shares stay as they are.
//!
//! That is what the abstract says: each such VM is scheduled "more frequently but with a smaller micro time
//! slice", "without violating the CPU share fairness". To run more often than others with the same share, such a
//! vCPU has to run within the others' slices, by interrupting them. How the prototype in Xen orders its queue is
//! not known here; micro slices are spread evenly instead ([`TaskPlan::micro`], `dispatcher/micro.h`).
//!
//! In vSlicer administrators say which VMs are latency-sensitive, and in AQL_Sched's comparison with it
//! (EuroSys 2016, §4.2) its authors did; here AQL's recognition decides, for each vCPU.

use crate::aql::recognise::Recogniser;
use crate::aql::vtrs::PERIOD;
use crate::aql::{Kind, Limits};
use crate::{Policy, place_all};
use corun_model::time::MS;
use corun_model::{Nanos, Parameter, Placement, Plan, Snapshot, Status, TaskId, TaskPlan, Value};

/// Its slices.
#[derive(Clone, Copy, Debug)]
pub struct VSlicerSlices {
    /// Of vCPUs that do I/O, ns.
    pub slice: Nanos,
    /// Of the others, ns.
    pub default: Nanos,
}

impl Default for VSlicerSlices {
    fn default() -> Self {
        Self {
            slice: 5 * MS,
            default: 30 * MS,
        }
    }
}

/// Short slices for vCPUs that do I/O.
#[derive(Clone, Debug, Default)]
pub struct VSlicer {
    slices: VSlicerSlices,
    limits: Limits,
    recogniser: Recogniser,
}

impl VSlicer {
    /// With these slices and these limits between AQL's types.
    pub fn new(slices: VSlicerSlices, limits: Limits) -> Self {
        Self {
            slices,
            limits,
            ..Self::default()
        }
    }

    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        let default = VSlicerSlices::default();
        vec![
            Parameter::new(
                "policy.vslicer.slice",
                "slice of vCPUs that do I/O",
                Value::Time(default.slice),
                "assumed: the order of a sixth of Xen's slice; AQL_Sched's §4.2 gives no value",
                "the default only; accepted: 100 µs to 1 s",
            ),
            Parameter::new(
                "policy.vslicer.default",
                "slice of the others",
                Value::Time(default.default),
                "Xen's Credit scheduler: 30 ms",
                "the default only; accepted: 100 µs to 1 s",
            ),
        ]
    }
}

impl VSlicer {
    fn told(&self, task: TaskId) -> TaskPlan {
        let sensitive = self.recogniser.of(task).kind == Kind::IoInt;
        TaskPlan {
            slice: Some(match sensitive {
                true => self.slices.slice,
                false => self.slices.default,
            }),
            micro: sensitive && self.slices.slice < self.slices.default,
            ..TaskPlan::of(task)
        }
    }
}

impl Policy for VSlicer {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.recogniser.look(seen, &self.limits);
        place_all(seen, plan, Placement::Free);
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        plan.tasks.extend(vcpus.map(|vcpu| self.told(vcpu.task)));
    }

    fn wants_signals(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        self.recogniser.status()
    }

    fn recognised(&self, task: TaskId) -> Option<&'static str> {
        Some(self.recogniser.name(task))
    }
}
