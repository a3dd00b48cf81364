// SPDX-License-Identifier: GPL-2.0-only
//! What the counters of calibration's subject show: a policy that only looks.
//!
//! Like recognition, it takes the mean over a window of periods: a cache is filled again in the first period of a turn,
//! and not in the others.

use corun_model::{LlcSeen, Nanos, Placement, Plan, Signals, Snapshot, VmPlan};
use corun_policies::Policy;
use corun_policies::aql::vtrs::{PERIOD, WINDOW};
use std::sync::{Arc, Mutex, PoisonError};

/// A vCPU over a window of periods in which it ran; per period: I/O events, pause-loop exits of its VM; LLC
/// references per million instructions, misses per million references.
pub type Level = [u64; 4];

/// Where levels are collected.
pub type Seen = Arc<Mutex<Vec<Level>>>;

struct Meter {
    from: Nanos,
    seen: Seen,
    windows: Vec<Window>,
}

/// What a vCPU did in the window that is not full yet.
#[derive(Clone, Copy, Default)]
struct Window {
    periods: u64,
    io_events: u64,
    pause_exits: u64,
    llc: LlcSeen,
}

impl Window {
    /// Adds a period, in which its VM made this many exits. Returns what a full window shows.
    fn add(&mut self, seen: &Signals, exits: u64) -> Option<Level> {
        let llc = seen.llc.unwrap_or_default();
        self.periods += 1;
        self.io_events += seen.io_events.unwrap_or(0);
        self.pause_exits += exits;
        self.llc.instructions += llc.instructions;
        self.llc.references += llc.references;
        self.llc.misses += llc.misses;
        if self.periods < WINDOW as u64 {
            return None;
        }
        let full = std::mem::take(self);
        let rate = |part: u64, whole: u64| part.saturating_mul(1_000_000) / whole.max(1);
        Some([
            (full.io_events + full.periods / 2) / full.periods,
            (full.pause_exits + full.periods / 2) / full.periods,
            rate(full.llc.references, full.llc.instructions),
            rate(full.llc.misses, full.llc.references),
        ])
    }
}

/// The levels of a vCPU for which this was seen in each period in which it ran; pause-loop exits are its VM's.
pub fn levels(periods: &[Signals]) -> Vec<Level> {
    let mut window = Window::default();
    let add = |seen: &Signals| window.add(seen, seen.pause_exits.unwrap_or(0));
    periods.iter().filter_map(add).collect()
}

/// Looks at the first VM from `from` on.
pub fn meter(from: Nanos) -> (Box<dyn Policy>, Seen) {
    let seen = Seen::default();
    let meter = Meter {
        from,
        seen: Arc::clone(&seen),
        windows: Vec::new(),
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
        self.windows.resize(subject.vcpus.len(), Window::default());
        let vcpus = subject.vcpus.iter().zip(&mut self.windows);
        let ran = vcpus.filter(|(vcpu, _)| vcpu.run > 0);
        let mut levels = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        levels.extend(ran.filter_map(|(vcpu, window)| window.add(&vcpu.signals, exits)));
    }
}

/// The levels of a program.
#[derive(Clone, Debug, Default)]
pub struct Levels(Vec<Level>);

impl Levels {
    /// Adds more levels.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_the_mean_of_four_periods() {
        let period = |io_events, pause_exits| Signals {
            io_events: Some(io_events),
            pause_exits: Some(pause_exits),
            llc: Some(LlcSeen {
                instructions: 1000,
                references: 10,
                misses: 5,
            }),
            ..Signals::default()
        };
        let periods = [(1, 0), (3, 100), (2, 60), (2, 40), (9, 9)];
        let periods = periods.map(|(io, pause)| period(io, pause));
        assert_eq!(
            levels(&periods),
            [[2, 50, 10_000, 500_000]],
            "one is not full"
        );
        assert_eq!(
            levels(&[Signals::default(); 4]),
            [[0; 4]],
            "nothing counted"
        );
    }
}
