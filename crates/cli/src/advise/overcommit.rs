// SPDX-License-Identifier: GPL-2.0-only
//! How many more VMs a policy could serve: copies of the recorded ones are added in turn, until one
//! VM, recorded or copied, waits more than the target.
//!
//! Copies go on as before when their recorded demand is used up: a host that is filled up does not
//! empty itself.

use super::replays::{Job, Variant};
use super::{Recorded, carry_out};
use crate::compare::beginnings::{beginning, later};
use corun_model::VmId;
use corun_recording::Recording;
use corun_report::Run;
use corun_report::advice::{Overcommit, Range, Step};
use corun_sim::replay::Options;
use std::collections::BTreeSet;

/// Adding VMs under one policy.
pub struct Growth {
    pub policy: String,
    /// The most that any VM's ready share may be.
    pub target: f64,
    /// The most VMs to add.
    pub most: u32,
    /// How many beginnings each step is tried with.
    pub starts: u32,
}

impl Growth {
    /// Adds VMs until one waits too long or there are enough.
    ///
    /// # Errors
    /// If a replay fails.
    pub fn grow(self, recorded: &Recorded<'_>) -> anyhow::Result<Overcommit> {
        let mut steps = Vec::new();
        let mut holds_with = None;
        for more in 0..=self.most {
            let step = self.step(recorded, more)?;
            let holds = step.worst_ready_share.median <= self.target;
            steps.push(step);
            if !holds {
                break;
            }
            holds_with = Some(more);
        }
        Ok(Overcommit {
            more_may_fit: holds_with == Some(self.most),
            policy: self.policy,
            target: self.target,
            holds_with,
            steps,
        })
    }

    /// The host with so many VMs more.
    fn step(&self, recorded: &Recorded<'_>, more: u32) -> anyhow::Result<Step> {
        let variants: Vec<Variant> = (0..u64::from(self.starts))
            .map(|seed| Variant {
                recording: grown(recorded.recording, more, seed),
                options: Options {
                    meeting: with_copies(
                        &recorded.options.meeting,
                        recorded.recording.vms.len(),
                        more,
                    ),
                    ..recorded.options.clone()
                },
                seed,
            })
            .collect();
        let jobs: Vec<Job<'_>> = variants
            .iter()
            .map(|variant| Job {
                policy: &self.policy,
                variant,
            })
            .collect();
        let runs = carry_out(recorded, &jobs)?;
        let host = runs.first().map(|run| &run.host);
        let pcpus = host.map_or(1, |host| host.pcpus.max(1));
        let (worst_vm, worst_ready_share) = worst(&runs);
        Ok(Step {
            added: more
                .checked_sub(1)
                .map(|n| original(recorded.recording, n).1),
            vcpus_per_pcpu: host.map_or(0.0, |host| f64::from(host.vcpus)) / f64::from(pcpus),
            worst_vm,
            worst_ready_share,
        })
    }
}

/// The recorded VM that is copied as number `n`, and its name.
fn original(recording: &Recording, n: u32) -> (VmId, String) {
    let at = n as usize % recording.vms.len().max(1);
    let name = recording
        .vms
        .get(at)
        .map_or_else(String::new, |vm| vm.name.clone());
    (VmId::from(at), name)
}

/// The recorded host with `more` VMs, copies of the recorded ones in turn.
fn grown(recording: &Recording, more: u32, seed: u64) -> Recording {
    let mut grown = beginning(recording, seed);
    for n in 0..more {
        let (vm, name) = original(recording, n);
        let name = format!(
            "{name} (copy {})",
            1 + n as usize / recording.vms.len().max(1)
        );
        // Never in step with its original.
        let by = later(recording, seed + 1, recording.vms.len() + n as usize);
        grown = grown.with_copy(vm, &name, by);
    }
    grown
}

/// Of so many recorded VMs and `more` copies of them, those whose siblings meet: a copy's do if its original's do.
fn with_copies(meeting: &BTreeSet<VmId>, vms: usize, more: u32) -> BTreeSet<VmId> {
    let copies = (0..more as usize).filter(|n| meeting.contains(&VmId::from(n % vms.max(1))));
    let copies = copies.map(|n| VmId::from(vms + n));
    meeting.iter().copied().chain(copies).collect()
}

/// The VM with the highest median of ready shares, and these.
fn worst(runs: &[Run]) -> (String, Range) {
    let vms = runs.first().map_or(0, |run| run.vms.len());
    let of = |vm: usize| {
        let all = runs.iter().filter_map(move |run| run.vms.get(vm));
        let name = all
            .clone()
            .next()
            .map_or_else(String::new, |vm| vm.name.clone());
        (name, Range::of(all.map(|vm| vm.ready_share)))
    };
    let median = |(_, range): &(String, Range)| range.median;
    (0..vms)
        .map(of)
        .max_by(|a, b| median(a).total_cmp(&median(b)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn vms_are_copied_in_turn() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../experiments/recordings/kvm-2pcpu-bursty-io-compute.ftrace.gz");
        let recording = corun_recording::read(&path).unwrap().recording;
        let grown = grown(&recording, 4, 2);
        let names: Vec<&str> = grown.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(names.len(), 7);
        assert_eq!(names[3], format!("{} (copy 1)", names[0]));
        assert_eq!(names[6], format!("{} (copy 2)", names[0]));
        assert_eq!(grown.vms[6].vcpus.len(), recording.vms[0].vcpus.len());
    }
}
