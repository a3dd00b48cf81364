// SPDX-License-Identifier: GPL-2.0-only
//! Demand-based co-scheduling: Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS
//! 2013.
//!
//! Siblings need to run together only while they communicate, and they communicate by interrupts:
//! who gets one from a sibling is urgent and runs at once, for a short time. In space, vCPUs are
//! placed load-consciously. Of a sibling's interrupts, a host can see those that wake a vCPU; see
//! `dispatcher/gang_demand.h` for the others.

use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Boost, Gang, Nanos, Placement, Plan, Snapshot, VmPlan, VmSeen};

/// Who is woken by a sibling runs at once.
#[derive(Clone, Copy, Debug)]
pub struct CoschedDemand {
    /// Up to which load a pCPU is light, percent of the mean.
    pub light: u32,
    /// How long vCPUs are urgent.
    pub boost: Boost,
}

impl Default for CoschedDemand {
    fn default() -> Self {
        Self {
            light: VmPlan::LIGHT,
            boost: Boost::default(),
        }
    }
}

impl Policy for CoschedDemand {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let wanted = |vm: &VmSeen| VmPlan {
            light: self.light,
            gang: Gang::Demand(self.boost),
            ..VmPlan::placed(vm.vm, Placement::LoadConscious)
        };
        plan.vms.extend(seen.vms.iter().map(wanted));
    }
}
