// SPDX-License-Identifier: GPL-2.0-only
//! Load-conscious balance scheduling: sibling vCPUs on different pCPUs, unless those are crowded.
//!
//! Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS 2013, §3. Balance
//! scheduling keeps siblings apart at all costs: where loads are uneven, a vCPU may queue behind
//! many others only because a sibling is on the least loaded pCPU. Here pCPUs whose load exceeds a
//! given percentage of the mean are left out first, those with siblings second. The mechanism is
//! `dispatcher/placement.h`.

use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Nanos, Parameter, Placement, Plan, Snapshot, Value, VmPlan, VmSeen};

/// Siblings apart on pCPUs that are light; together rather than on one that is not.
#[derive(Clone, Copy, Debug)]
pub struct BalanceLoad {
    /// The load up to which a pCPU is light, percent of the mean.
    pub light: u32,
}

impl Default for BalanceLoad {
    fn default() -> Self {
        Self {
            light: VmPlan::LIGHT,
        }
    }
}

impl BalanceLoad {
    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        vec![light("policy.balance-load.light", Self::default().light)]
    }
}

/// The row of the table of parameters for [`VmPlan::light`].
pub(crate) fn light(key: &'static str, default: u32) -> Parameter {
    Parameter::new(
        key,
        "up to which load a pCPU is light, of the mean of those that the vCPU may use",
        Value::Number(f64::from(default), "%"),
        "published code of Kim et al., ASPLOS 2013: `balsched_load_imbalance_pct`; \
         accepted: 100 to 1000",
        "the default only",
    )
}

impl Policy for BalanceLoad {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let place = |vm: &VmSeen| VmPlan {
            light: self.light,
            ..VmPlan::placed(vm.vm, Placement::LoadConscious)
        };
        plan.vms.extend(seen.vms.iter().map(place));
    }
}
