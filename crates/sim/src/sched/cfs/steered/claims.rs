// SPDX-License-Identifier: GPL-2.0-only
//! What a vCPU may claim under the plan in force.

use crate::event_queue::EventId;
use corun_model::{Claim, Gang, Nanos, PcpuId, Plan, TaskId, VmId, VmPlan};

/// A task's claims. Without a plan they are what CFS gives to any task.
#[derive(Debug)]
pub(super) struct Claims {
    pub vm: Option<VmId>,
    /// Its weight without a plan, in the kernel's unit.
    base: u64,
    share: u32,
    latency: Option<Nanos>,
    /// The latency of those vCPUs of its VM that need no special one.
    neutral: Nanos,
    /// How long it may run in a period under the promise of its latency, and how long it had run
    /// when the period began.
    allotment: Nanos,
    ran_before: Nanos,
    /// The pCPU that the plan wants it on.
    pub home: Option<PcpuId>,
    /// It is to go there as soon as its pCPU picks.
    pub leaves: bool,
    /// By when it is to run, if it is ready and has a promise.
    pub due: Option<Nanos>,
    timer: EventId,
}

/// What a VM of this weight has under its plan, loans included.
pub(super) fn of_vm(wanted: &VmPlan, weight: u64) -> u64 {
    match wanted.gang {
        Gang::Asymmetric(allotments) => part(weight, allotments.has),
        _ => weight,
    }
}

/// `share` of `weight`, in fixed point.
fn part(weight: u64, share: u32) -> u64 {
    let part = u128::from(weight) * u128::from(share) / u128::from(Claim::NEUTRAL);
    u64::try_from(part).unwrap_or(u64::MAX)
}

impl Claims {
    pub fn new(base: u64, vm: Option<VmId>) -> Self {
        Self {
            vm,
            base,
            share: Claim::NEUTRAL,
            latency: None,
            neutral: 0,
            allotment: 0,
            ran_before: 0,
            home: None,
            leaves: false,
            due: None,
            timer: EventId::NONE,
        }
    }

    /// Takes over what the plan says about `task`, which has run for `ran` so far: a period begins. True if the plan
    /// leaves its VM alone.
    pub fn hear(&mut self, plan: &Plan, task: TaskId, ran: Nanos) -> bool {
        if let Some(vm) = plan.vms.iter().find(|vm| Some(vm.vm) == self.vm) {
            let Gang::Asymmetric(allotments) = vm.gang else {
                // Left alone: treated as any other task.
                (self.share, self.latency, self.home) = (Claim::NEUTRAL, None, None);
                self.leaves = false;
                return true;
            };
            self.neutral = allotments.neutral;
        }
        let Some(wanted) = plan.tasks.iter().find(|wanted| wanted.task == task) else {
            return false;
        };
        self.home = wanted.home;
        if let Some(claim) = wanted.claim {
            self.share = claim.share;
            self.latency = Some(claim.latency).filter(|latency| *latency > 0);
            (self.allotment, self.ran_before) = (claim.allotment, ran);
        }
        false
    }

    /// What it weighs among its siblings, in the kernel's unit.
    pub fn weight(&self) -> u64 {
        part(self.base, self.share)
    }

    /// Its private latency when it has run for `ran` in all.
    pub fn latency_after(&self, ran: Nanos) -> Option<Nanos> {
        let left = ran.saturating_sub(self.ran_before) < self.allotment;
        self.latency.filter(|_| left)
    }

    /// How soon after it wakes it is to run, given this latency: a latency that is no lower than what vCPUs have anyway
    /// is no promise, as in corun's dispatcher.
    pub fn promise(&self, latency: Option<Nanos>) -> Option<Nanos> {
        latency.filter(|&latency| latency < self.neutral)
    }

    /// Keeps this timer, or none; returns the previous one.
    pub fn set_timer(&mut self, timer: Option<EventId>) -> EventId {
        std::mem::replace(&mut self.timer, timer.unwrap_or(EventId::NONE))
    }

    pub fn timer_fired(&mut self) {
        self.timer = EventId::NONE;
    }
}
