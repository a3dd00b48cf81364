// SPDX-License-Identifier: GPL-2.0-only
//! What a VM did, counted.

use crate::load::{Achieved, AgentAchieved};
use crate::waits::Waits;
use corun_model::Nanos;

/// What a VM did since the last reset; times in ns of progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    /// Threads' `compute`.
    pub work: Nanos,
    pub spin: Nanos,
    /// Interrupts and thread switches.
    pub kernel: Nanos,
    /// Finished work, unit by unit.
    pub counted: Vec<u64>,
    /// vCPUs without a thread, as their kernels see it.
    pub idle: Nanos,
    /// On a pCPU without work: polling, or keeping the context.
    pub idling: Nanos,
    pub lock_acquisitions: u64,
    pub lock_waits: Waits,
    /// Times a vCPU halted for a paravirtual lock.
    pub lock_halts: u64,
    pub pause_loop_exits: u64,
    pub thread_switches: u64,
    pub shootdowns: u64,
    pub shootdown_waits: Waits,
    /// Polls of the host for a halted vCPU that are over, and how many of them caught the wake-up.
    pub halt_polls: u64,
    pub halt_poll_hits: u64,
    /// What its agent did.
    pub agent: AgentAchieved,
}

impl Stats {
    pub fn count(&mut self, unit: u32, units: u32) {
        let unit = unit as usize;
        if self.counted.len() <= unit {
            self.counted.resize(unit + 1, 0);
        }
        self.counted[unit] += u64::from(units);
    }

    /// The same, as rates over the time `passed`, ns; `units`: the names of what is counted, the main one
    /// first. What devices and agents record themselves is left empty.
    pub fn achieved(&self, units: &[String], passed: Nanos) -> Achieved {
        let seconds = passed as f64 / 1e9;
        let rate = |done: f64| if seconds > 0.0 { done / seconds } else { 0.0 };
        let counted = |unit: usize| self.counted.get(unit).copied().unwrap_or(0) as f64;
        let mut rates = units
            .iter()
            .enumerate()
            .map(|(unit, name)| (format!("{name}/s"), rate(counted(unit))));
        let main = rates.next();
        let (throughput_unit, throughput) =
            main.unwrap_or_else(|| ("work s/s".to_owned(), rate(self.work as f64 / 1e9)));
        Achieved {
            throughput,
            throughput_unit,
            other_throughputs: rates.collect(),
            lock_waits: self.lock_waits.clone(),
            lock_acquisitions: self.lock_acquisitions,
            work: self.work,
            spin: self.spin,
            kernel: self.kernel,
            idling: self.idling,
            idle: Some(self.idle),
            lock_halts: self.lock_halts,
            pause_loop_exits: self.pause_loop_exits,
            thread_switches: self.thread_switches,
            shootdowns: self.shootdowns,
            shootdown_waits: self.shootdown_waits.clone(),
            halt_polls: self.halt_polls,
            halt_poll_hits: self.halt_poll_hits,
            io: None,
            agent: None,
        }
    }
}
