// SPDX-License-Identifier: GPL-2.0-only
//! Strict co-scheduling: Ousterhout 1982, as in Sukwong & Kim, EuroSys 2011, §3 and Algorithm 1.
//!
//! Time is cut into slots; a VM runs in the first slot that has a pCPU for each of its ready vCPUs,
//! and owns these pCPUs for the slot; other VMs whose ready vCPUs all fit beside it run in that
//! slot, too. The drawbacks that the paper names show: pCPUs idle while vCPUs wait (fragmentation),
//! a vCPU that wakes up waits for the next slot (priority inversion), and vCPUs that need no
//! siblings wait for them (execution delay). With `fill`, other VMs use pCPUs that would idle.

use super::gang_all;
use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Gang, Nanos, Parameter, Placement, Plan, Slots, Snapshot, Value};

/// All ready siblings start together, or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedStrict {
    /// The time slots.
    pub slots: Slots,
}

impl CoschedStrict {
    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        let slots = Self::default().slots;
        vec![
            Parameter::new(
                "policy.cosched-strict.slot",
                "length of a time slot",
                Value::Time(slots.length),
                "assumed: the paper leaves it open; time slices of its day are some to some tens \
                 of ms; accepted: 1 ms to 1 s",
                "10 ms, the default, only",
            ),
            Parameter::new(
                "policy.cosched-strict.fill",
                "may others run where a slot's owner leaves pCPUs idle?",
                Value::Switch(slots.fill),
                "Sukwong & Kim, EuroSys 2011, Algorithm 1: a slot belongs to those assigned to it",
                "both",
            ),
        ]
    }
}

impl Policy for CoschedStrict {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::Strict(self.slots));
    }
}
