// SPDX-License-Identifier: GPL-2.0-only
//! What the performance counters of a modelled machine tell of a task: instructions, references to
//! the last-level cache and its misses, as a hypervisor counts them for each vCPU (AQL_Sched, EuroSys
//! 2016, §3.3.2).
//!
//! An instruction takes a cycle of 2.6 GHz of those in which a task is at work, as its
//! [`Mix`](crate::workload::Mix) says; references and misses are the lines that its walk brings into
//! its L2 and its last-level cache. Looking changes nothing.

use super::Host;
use crate::workload::Mix;
use corun_model::{CyclesSeen, LlcSeen, Nanos, TaskId};

/// Instructions of so much undisturbed work: 2.6 per ns, of `mix.base` percent.
fn instructions(work: Nanos, mix: Mix) -> u64 {
    // In 64 bits, which hold the cycles of two years in percent: this is asked at every switch, and
    // dividing 128 bits costs many times as much.
    let cycles = work.saturating_mul(26) / 10;
    cycles.saturating_mul(u64::from(mix.base)) / 100
}

impl Host {
    /// What `task` did since the run began; `None` if this machine counts nothing.
    pub fn llc_seen(&self, task: TaskId) -> Option<LlcSeen> {
        let caches = self.caches.as_ref()?;
        let slot = &self.tasks[task.index()];
        let mut seen = slot.llc;
        if let Some(cpu) = slot.running_on() {
            let progress = slot.progress.at(self.now);
            seen.instructions += self.since_counted(task, progress);
            if slot.profile.is_some() {
                let [references, misses] = caches.touched(cpu, progress);
                seen.references += references;
                seen.misses += misses;
            }
        }
        Some(seen)
    }

    /// How the cycles of `task` divided since the run began while its SMT sibling was idle or retained a
    /// context; `None` if cores have but one hardware thread.
    pub fn cycles_seen(&self, task: TaskId) -> Option<CyclesSeen> {
        self.smt.as_ref()?;
        Some(self.tasks[task.index()].cycles)
    }

    fn since_counted(&self, task: TaskId, progress: Nanos) -> u64 {
        let slot = &self.tasks[task.index()];
        let mix = slot.profile.and_then(|profile| profile.mix);
        let work = progress.saturating_sub(slot.counted);
        instructions(work, mix.unwrap_or(Mix::TYPICAL))
    }

    /// Counts the instructions of `task`, if it is running, up to now.
    pub(super) fn count_instructions(&mut self, task: TaskId) {
        if self.tasks[task.index()].running_on().is_none() {
            return;
        }
        let progress = self.tasks[task.index()].progress.at(self.now);
        let done = self.since_counted(task, progress);
        let slot = &mut self.tasks[task.index()];
        slot.llc.instructions += done;
        slot.counted = slot.counted.max(progress);
    }

    /// The work of `task` ends: counts the lines that it brought in.
    pub(super) fn count_lines(&mut self, task: TaskId, [references, misses]: [u64; 2]) {
        let slot = &mut self.tasks[task.index()];
        slot.llc.references += references;
        slot.llc.misses += misses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_by_hand() {
        assert_eq!(instructions(1000, Mix::TYPICAL), 1300);
        let stalled = Mix {
            base: 5,
            ..Mix::TYPICAL
        };
        assert_eq!(instructions(1_000_000, stalled), 130_000);
    }
}
