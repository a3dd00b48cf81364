// SPDX-License-Identifier: GPL-2.0-only
//! Demand-based co-scheduling: Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS
//! 2013.
//!
//! Siblings need to run together only while they communicate, and they communicate by interrupts:
//! who gets one from a sibling is urgent and runs at once, for a short time. In space, vCPUs are
//! placed load-consciously. Of a sibling's interrupts, a host can see those that wake a vCPU; see
//! `dispatcher/gang_demand.h` for the others.

use crate::balance_load::light;
use crate::{NEW_VM_WAIT, Policy, Status};
use corun_model::{
    Boost, Gang, Nanos, Parameter, Placement, Plan, Snapshot, Value, VmPlan, VmSeen,
};

/// What a status says where nobody can be urgent.
const HIDDEN: &str = "this host's hardware delivers IPIs between vCPUs (IPI virtualisation), so it is hidden who \
                      wakes whom: nobody is urgent, and vCPUs are only placed load-consciously";

/// Who is woken by a sibling runs at once.
#[derive(Clone, Copy, Debug)]
pub struct CoschedDemand {
    /// Up to which load a pCPU is light, percent of the mean.
    pub light: u32,
    /// How long vCPUs are urgent.
    pub boost: Boost,
    /// Is it hidden who wakes whom, as far as was seen?
    wakers_hidden: bool,
}

impl Default for CoschedDemand {
    fn default() -> Self {
        Self {
            light: VmPlan::LIGHT,
            boost: Boost::default(),
            wakers_hidden: false,
        }
    }
}

impl CoschedDemand {
    /// What can be set of it.
    pub fn parameters() -> Vec<Parameter> {
        let Self {
            light: percent,
            boost,
            ..
        } = Self::default();
        let time = |key, meaning, value, source| {
            Parameter::new(key, meaning, Value::Time(value), source, "the default only")
        };
        vec![
            light("policy.cosched-demand.light", percent),
            time(
                "policy.cosched-demand.wake_boost",
                "how long a vCPU is urgent that a sibling wakes; 0: not at all",
                boost.wake,
                "published code of Kim et al., ASPLOS 2013: `sched_lock_resched_ns`, its time for \
                 reschedule IPIs; that a wake-up is given it is our reading",
            ),
            Parameter::new(
                "policy.cosched-demand.sees_flushes",
                "is it seen when a sibling waits for a ready vCPU to flush its TLB? (simulator only)",
                Value::Switch(boost.sees_flushes),
                "what Linux shows to a scheduler; the paper's kernel saw these IPIs in KVM",
                "both in tests",
            ),
            time(
                "policy.cosched-demand.flush_boost",
                "how long such a vCPU is urgent, if it is seen",
                boost.flush,
                "published code of Kim et al., ASPLOS 2013: `sched_tlb_shootdown_ns`",
            ),
            time(
                "policy.cosched-demand.boost_limit",
                "most urgent time of a vCPU that adds up",
                boost.limit,
                "published code of Kim et al., ASPLOS 2013: `sched_urgent_tslice_limit_ns`",
            ),
            time(
                "policy.cosched-demand.boost_lead",
                "how far ahead of its pCPU's clock an urgent vCPU may run",
                boost.lead,
                "published code of Kim et al., ASPLOS 2013: `sched_urgent_latency_ns`",
            ),
        ]
    }
}

impl Policy for CoschedDemand {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.wakers_hidden = seen.host.wakers_hidden;
        let wanted = |vm: &VmSeen| VmPlan {
            light: self.light,
            gang: Gang::Demand(self.boost),
            ..VmPlan::placed(vm.vm, Placement::LoadConscious)
        };
        plan.vms.extend(seen.vms.iter().map(wanted));
    }

    fn status(&self) -> Status {
        let hidden = self.wakers_hidden.then(|| HIDDEN.to_string());
        Status {
            notes: hidden.into_iter().collect(),
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, snapshot};

    #[test]
    fn a_host_that_hides_who_wakes_whom_is_told_of() {
        let mut policy = CoschedDemand::default();
        let mut seen = snapshot(2, &[2]);
        let mut notes = |hidden| {
            seen.host.wakers_hidden = hidden;
            ask(&mut policy, &seen);
            policy.status().notes.len()
        };
        assert_eq!([false, true, false].map(&mut notes), [0, 1, 0]);
    }
}
