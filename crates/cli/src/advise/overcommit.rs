// SPDX-License-Identifier: GPL-2.0-only
//! How many more VMs a policy could serve: copies of the recorded ones are added in turn, until one
//! VM, recorded or copied, waits more than the target.
//!
//! Copies go on as before when their recorded demand is used up: a host that fills up does not empty itself.

use super::replays::{Job, Variant};
use super::{Recorded, carry_out};
use crate::compare::beginnings::{beginning, later};
use corun_model::VmId;
use corun_recording::Recording;
use corun_report::Run;
use corun_report::advice::{Overcommit, Range, Step};
use corun_scenario::or_nearest;
use corun_sim::replay::Options;
use std::collections::BTreeSet;

/// Adding VMs under one policy.
pub struct Growth<'a> {
    pub policy: String,
    /// Which VMs are copied.
    pub copied: &'a Copied,
    /// The most that any VM's ready share may be.
    pub target: f64,
    /// The most VMs to add.
    pub most: u32,
    /// How many beginnings each step is tried with.
    pub starts: u32,
}

impl Growth<'_> {
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
            copied: self.copied.chosen.clone(),
            target: self.target,
            holds_with,
            steps,
        })
    }

    /// The host with this many more VMs.
    fn step(&self, recorded: &Recorded<'_>, more: u32) -> anyhow::Result<Step> {
        let variants: Vec<Variant> = (0..u64::from(self.starts))
            .map(|seed| Variant {
                recording: self.copied.grown(recorded.recording, more, seed),
                options: Options {
                    meeting: self.copied.with_copies(
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
                .and_then(|n| name(recorded.recording, self.copied.nth(n)?)),
            vcpus_per_pcpu: host.map_or(0.0, |host| f64::from(host.vcpus)) / f64::from(pcpus),
            worst_vm,
            worst_ready_share,
        })
    }
}

/// Which VMs are copied, in turn.
pub struct Copied {
    /// One after the other, then the first again.
    vms: Vec<VmId>,
    /// Their names, if somebody has chosen VMs.
    chosen: Vec<String>,
}

impl Copied {
    /// The VMs of these names, or all if there are none.
    ///
    /// # Errors
    /// If a recording has no VM of a name.
    pub fn of(recording: &Recording, names: &[String]) -> Result<Self, String> {
        let known: Vec<&str> = recording.vms.iter().map(|vm| vm.name.as_str()).collect();
        let number = |name: &String| {
            let at = known.iter().position(|known| known == name);
            at.map(VmId::from).ok_or_else(|| {
                let hint = or_nearest(name, &known);
                format!("--add {name}: no VM of this name in the recording, {hint}")
            })
        };
        let vms = match names {
            [] => (0..known.len()).map(VmId::from).collect(),
            _ => names.iter().map(number).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            vms,
            chosen: names.to_vec(),
        })
    }

    /// The VM that is copied as number `n`, from 0.
    fn nth(&self, n: u32) -> Option<VmId> {
        self.vms.iter().cycle().nth(n as usize).copied()
    }

    /// The recorded host with `more` VMs.
    fn grown(&self, recording: &Recording, more: u32, seed: u64) -> Recording {
        let mut grown = beginning(recording, seed);
        let mut copies = vec![0; recording.vms.len()];
        for (n, vm) in (0..more).filter_map(|n| Some((n, self.nth(n)?))) {
            let (Some(copies), Some(name)) = (copies.get_mut(vm.index()), name(recording, vm))
            else {
                continue;
            };
            *copies += 1;
            // Never in step with its original.
            let by = later(recording, seed + 1, recording.vms.len() + n as usize);
            grown = grown.with_copy(vm, &format!("{name} (copy {copies})"), by);
        }
        grown
    }

    /// Given `vms` recorded VMs and `more` copies, those whose siblings meet: a copy's do if its original's do.
    fn with_copies(&self, meeting: &BTreeSet<VmId>, vms: usize, more: u32) -> BTreeSet<VmId> {
        let meets = |n: &u32| self.nth(*n).is_some_and(|vm| meeting.contains(&vm));
        let copies = (0..more).filter(meets);
        let copies = copies.map(|n| VmId::from(vms + n as usize));
        meeting.iter().copied().chain(copies).collect()
    }
}

fn name(recording: &Recording, vm: VmId) -> Option<String> {
    recording.vms.get(vm.index()).map(|vm| vm.name.clone())
}

/// The VM with the highest median of ready shares, and the range of these shares.
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

    fn recording() -> Recording {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../experiments/recordings/kvm-2pcpu-bursty-io-compute.ftrace.gz");
        corun_recording::read(&path).unwrap().recording
    }

    fn names(recording: &Recording) -> Vec<&str> {
        recording.vms.iter().map(|vm| vm.name.as_str()).collect()
    }

    #[test]
    fn vms_are_copied_in_turn() {
        let recording = recording();
        let grown = Copied::of(&recording, &[]).unwrap();
        let grown = grown.grown(&recording, 4, 2);
        let names = names(&grown);
        assert_eq!(names.len(), 7);
        assert_eq!(names[3], format!("{} (copy 1)", names[0]));
        assert_eq!(names[6], format!("{} (copy 2)", names[0]));
        assert_eq!(grown.vms[6].vcpus.len(), recording.vms[0].vcpus.len());
    }

    #[test]
    fn those_that_were_chosen_are_copied_as_often_as_they_are_named() {
        let recording = recording();
        let [bursty, io, compute] = [0, 1, 2].map(|at| recording.vms[at].name.clone());
        let copied = [&compute, &compute, &bursty].map(Clone::clone);
        let copied = Copied::of(&recording, &copied).unwrap();
        let grown = copied.grown(&recording, 4, 0);
        let copy = |name: &str, number| format!("{name} (copy {number})");
        let expected = [
            copy(&compute, 1),
            copy(&compute, 2),
            copy(&bursty, 1),
            copy(&compute, 3),
        ];
        assert_eq!(names(&grown)[3..], expected);
        let meeting = copied.with_copies(&BTreeSet::from([VmId(2)]), 3, 4);
        assert_eq!(meeting, [2, 3, 4, 6].map(VmId).into());
        let refused = Copied::of(&recording, &[format!("{io}x")]).err().unwrap();
        assert!(
            refused.contains(&format!("did you mean {io:?}? Accepted are ")),
            "{refused}"
        );
    }
}
