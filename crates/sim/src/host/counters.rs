// SPDX-License-Identifier: GPL-2.0-only
//! What the performance counters of a modelled machine tell about a task: instructions, references to the last-level
//! cache and misses there, as a hypervisor counts them for each vCPU (AQL_Sched, EuroSys
//! 2016, §3.3.2).
//!
//! An instruction takes one of the cycles, at 2.6 GHz, in which a task executes, according to its
//! [`Mix`]; references and misses are the lines that its walk brings into its L2 and its last-level
//! cache. Reading the counters changes nothing.
//!
//! Counters belong to a vCPU's thread and count in the guest and in the host (`perf_event_open()` of a thread that
//! excludes neither, as `corun host` opens them). So instructions of loops that poll or spin count like any others,
//! KVM's halt polling included; a hardware thread in MWAIT executes none.

use super::{Activity, Host};
use crate::workload::Mix;
use corun_model::{CyclesSeen, LlcSeen, Nanos, TaskId};

/// In a loop around PAUSE, as spinning and `idle=poll` do, a round of five instructions (load, test, branch,
/// PAUSE, jump) takes some 12 cycles before Skylake, as `vm.*.guest.pv_spin` has it. Percent of the cycles.
const OF_PAUSE_LOOPS: u8 = 41;

/// In how many percent of its cycles a task doing `activity`, whose work divides up like `mix`, executes instructions.
fn share(activity: Activity, mix: Mix) -> u8 {
    match activity {
        Activity::Work | Activity::Rescheduling => mix.base,
        Activity::Spinning | Activity::IdlePolling => OF_PAUSE_LOOPS,
        // Kernel code like any other: kvm_vcpu_check_block() and ktime_get() in each round, and one PAUSE.
        Activity::HaltPolling => Mix::TYPICAL.base,
        Activity::Retention => 0,
    }
}

/// Instructions of so much undisturbed work: 2.6 cycles per ns, `share` percent of which execute
/// one.
fn instructions(work: Nanos, share: u8) -> u64 {
    // In 64 bits, which hold the cycles of two years in percent: this is computed at every switch,
    // and dividing 128 bits costs many times as much.
    let cycles = work.saturating_mul(26) / 10;
    cycles.saturating_mul(u64::from(share)) / 100
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

    /// How the cycles of `task` divided up since the run began, while its SMT sibling was idle or retained a context;
    /// `None` if cores have only one hardware thread.
    pub fn cycles_seen(&self, task: TaskId) -> Option<CyclesSeen> {
        self.smt.as_ref()?;
        Some(self.tasks[task.index()].cycles)
    }

    fn since_counted(&self, task: TaskId, progress: Nanos) -> u64 {
        let slot = &self.tasks[task.index()];
        let mix = slot.profile.and_then(|profile| profile.mix);
        let work = progress.saturating_sub(slot.counted);
        instructions(work, share(slot.activity, mix.unwrap_or(Mix::TYPICAL)))
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
    use crate::host::{HardwareParams, HostParams};
    use crate::load::Load;
    use crate::testing::{Job, Jobs, host};
    use corun_model::{PcpuId, time::MS};

    #[test]
    fn instructions_by_hand() {
        assert_eq!(instructions(1000, Mix::TYPICAL.base), 1300);
        assert_eq!(instructions(1_000_000, 5), 130_000);
    }

    /// Instructions that a task's counters show for a ms of each of these activities, one after the other.
    fn counted(activities: &[Activity]) -> Vec<u64> {
        let mut host = Host::new(
            HostParams {
                hardware: HardwareParams::default(),
                ..host("1n1l1c1t", 250)
            },
            None,
        );
        let spec = Jobs::new(vec![Job::hog()], 1).tasks().remove(0);
        let task = host.add_task(spec);
        host.make_ready(task);
        host.put_on(task, PcpuId(0));
        let mut count = |(n, activity): (usize, &Activity)| {
            host.set_activity(task, *activity);
            let before = host.llc_seen(task).unwrap().instructions;
            host.advance((n as Nanos + 1) * MS);
            host.llc_seen(task).unwrap().instructions - before
        };
        activities.iter().enumerate().map(&mut count).collect()
    }

    #[test]
    fn a_context_that_is_retained_executes_nothing() {
        use Activity::{HaltPolling, IdlePolling, Retention, Spinning, Work};
        let shown = counted(&[
            Work,
            Retention,
            Work,
            HaltPolling,
            IdlePolling,
            Spinning,
            Retention,
        ]);
        let work = 1_300_000;
        let pauses = 2_600_000 * 41 / 100;
        assert_eq!(shown, [work, 0, work, work, pauses, pauses, 0]);
    }
}
