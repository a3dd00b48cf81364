// SPDX-License-Identifier: GPL-2.0-only
//! Demand-based co-scheduling: Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS
//! 2013.
//!
//! Siblings need to run together only while they communicate, and they communicate by interrupts: a
//! vCPU that gets one from a sibling is urgent and runs at once, for a short time. In space, vCPUs are placed
//! load-consciously. Of the interrupts that siblings send, a host sees those that wake a vCPU and, where KVM shows
//! them, those to a ready vCPU for whose answer the sender waits (`dispatcher/awaited.h`).
//!
//! Of the published code's switches, `sched_urgent_vcpu_first` off is `balance-load`; `sched_vm_preempt_mode`, a mask
//! of forbidden preemptions (between VMs, within one, by wake-ups), has no counterpart here: none is forbidden.

use crate::balance_load::light;
use crate::{NEW_VM_WAIT, Policy, Status};
use corun_model::{
    AwaitedHidden, Boost, Gang, Nanos, Parameter, Placement, Plan, Snapshot, Value, VmPlan, VmSeen,
};

/// What a status says if no vCPU can be urgent.
const HIDDEN: &str = "this host's hardware delivers IPIs between vCPUs (IPI virtualisation), so it is hidden who \
                      wakes whom: nobody is urgent, and vCPUs are only placed load-consciously";

/// A vCPU that a sibling wakes runs at once.
#[derive(Clone, Copy, Debug)]
pub struct CoschedDemand {
    /// The load up to which a pCPU is light, percent of the mean.
    pub light: u32,
    /// How long vCPUs are urgent.
    pub boost: Boost,
    /// Is it hidden which task wakes which, as far as was seen?
    wakers_hidden: bool,
    /// Why it is hidden for which vCPUs siblings wait, if it is, as far as was seen.
    awaited_hidden: Option<AwaitedHidden>,
}

impl Default for CoschedDemand {
    fn default() -> Self {
        Self {
            light: VmPlan::LIGHT,
            boost: Boost::default(),
            wakers_hidden: false,
            awaited_hidden: None,
        }
    }
}

impl CoschedDemand {
    /// Its parameters.
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
                "how long a vCPU that a sibling wakes is urgent (under `cfs-cosched-demand`: how long the one that \
                 wakes it is not preempted); 0: not at all",
                boost.wake,
                "published code of Kim et al., ASPLOS 2013: `sched_lock_resched_ns`, its time for the sender of \
                 reschedule IPIs; that the vCPU that is woken is given it is our own",
            ),
            Parameter::new(
                "policy.cosched-demand.sees_flushes",
                "is it noticed when a sibling waits for a ready vCPU, as to flush its TLB?",
                Value::Switch(boost.sees_flushes),
                "Kim et al., ASPLOS 2013, whose kernel saw these IPIs in KVM",
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
                "the most urgent time of a vCPU that may add up",
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
        self.awaited_hidden = seen.host.awaited_hidden;
        let wanted = |vm: &VmSeen| VmPlan {
            light: self.light,
            gang: Gang::Demand(self.boost),
            ..VmPlan::placed(vm.vm, Placement::LoadConscious)
        };
        plan.vms.extend(seen.vms.iter().map(wanted));
    }

    fn status(&self) -> Status {
        let wakers = self.wakers_hidden.then(|| HIDDEN.to_string());
        // Where hardware delivers IPIs, the other note says it all.
        let looked_for = self.boost.sees_flushes && !self.wakers_hidden;
        let awaited = self.awaited_hidden.filter(|_| looked_for).map(|hidden| {
            let why = hidden.why();
            format!("it is not seen when a vCPU waits for a sibling that is ready: {why}")
        });
        Status {
            notes: wakers.into_iter().chain(awaited).collect(),
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, snapshot};

    #[test]
    fn a_host_that_hides_wakers_is_told_of() {
        let mut policy = CoschedDemand::default();
        let mut seen = snapshot(2, &[2]);
        let mut notes = |hidden| {
            seen.host.wakers_hidden = hidden;
            ask(&mut policy, &seen);
            policy.status().notes.len()
        };
        assert_eq!([false, true, false].map(&mut notes), [0, 1, 0]);
    }

    #[test]
    fn a_host_that_does_not_tell_which_vcpu_siblings_wait_for_says_why() {
        let mut seen = snapshot(2, &[2]);
        seen.host.awaited_hidden = Some(AwaitedHidden::NoTypes);
        let notes = |sees_flushes, wakers_hidden| {
            let mut policy = CoschedDemand::default();
            policy.boost.sees_flushes = sees_flushes;
            let mut seen = seen.clone();
            seen.host.wakers_hidden = wakers_hidden;
            ask(&mut policy, &seen);
            policy.status().notes
        };
        assert!(
            notes(true, false)
                .iter()
                .all(|note| note.contains("type information"))
        );
        assert_eq!(notes(true, false).len(), 1);
        assert_eq!(notes(false, false).len(), 0, "nobody asked");
        assert_eq!(notes(true, true), [HIDDEN]);
    }
}
