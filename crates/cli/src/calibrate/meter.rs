// SPDX-License-Identifier: GPL-2.0-only
//! What the counters of calibration's subject show, period by period: a policy that only looks.

use corun_model::{Nanos, Placement, Plan, Snapshot, VmPlan};
use corun_policies::Policy;
use corun_policies::aql::vtrs::PERIOD;
use std::sync::{Arc, Mutex, PoisonError};

/// A period of a vCPU: I/O events, pause-loop exits of its VM, LLC references per million
/// instructions, misses per million references.
pub type Level = [u64; 4];

/// Where levels are collected.
pub type Seen = Arc<Mutex<Vec<Level>>>;

struct Meter {
    from: Nanos,
    seen: Seen,
}

/// Looks at the first VM from `from` on.
pub fn meter(from: Nanos) -> (Box<dyn Policy>, Seen) {
    let seen = Seen::default();
    let meter = Meter {
        from,
        seen: Arc::clone(&seen),
    };
    (Box::new(meter), seen)
}

/// What was collected.
pub fn taken(seen: &Seen) -> Vec<Level> {
    std::mem::take(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Policy for Meter {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let free = |vm: &corun_model::VmSeen| VmPlan::placed(vm.vm, Placement::Free);
        plan.vms.extend(seen.vms.iter().map(free));
        let Some(subject) = seen.vms.first().filter(|_| seen.now > self.from) else {
            return;
        };
        let exits = subject
            .vcpus
            .iter()
            .filter_map(|vcpu| vcpu.signals.pause_exits)
            .sum();
        let rate = |part: u64, whole: u64| part.saturating_mul(1_000_000) / whole.max(1);
        let level = |vcpu: &corun_model::TaskSeen| {
            let llc = vcpu.signals.llc.unwrap_or_default();
            [
                vcpu.signals.io_events.unwrap_or(0),
                exits,
                rate(llc.references, llc.instructions),
                rate(llc.misses, llc.references),
            ]
        };
        let ran = subject.vcpus.iter().filter(|vcpu| vcpu.run > 0);
        let mut levels = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        levels.extend(ran.map(level));
    }
}

/// The levels of a program.
#[derive(Clone, Debug, Default)]
pub struct Levels(Vec<Level>);

impl Levels {
    /// Some more.
    pub fn extend(&mut self, more: Vec<Level>) {
        self.0.extend(more);
    }

    /// Was nothing seen?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The median of each; 0 if nothing was seen.
    pub fn medians(&self) -> Level {
        std::array::from_fn(|of| {
            let mut values: Vec<u64> = self.0.iter().map(|level| level[of]).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        })
    }
}
