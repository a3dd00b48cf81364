// SPDX-License-Identifier: GPL-2.0-only
//! The replays that one figure rests on: they differ in what a recording cannot show.
//!
//! *Beginnings.* Which VM was ahead of which when the recording began is one case of many. In each
//! further beginning every VM begins a random time later, up to a tenth of the recording and 100 ms.
//! *Beyond.* Where a VM gets ahead of its recorded demand, nobody knows what it would have done next.
//! The two extremes are replayed: it goes on as before, or has nothing more to do.
//! *Siblings.* Where a vCPU wakes a sibling, it goes on or [meets](corun_sim::replay::seem_to_meet) it, in all replays
//! alike.
//! *Spinning.* What vCPUs did while a sibling was kept from running may have been work, or waiting for it
//! in a loop. All figures take it for work; the other extreme, that all of it was spinning and is saved, is
//! replayed once under the host's own scheduler and under the policy compared with it.

use crate::compare::beginnings::beginning;
use crate::compare::measure;
use crate::compare::progress::Progress;
use crate::compare::recorded_host::replay;
use crate::compare::schedulers;
use corun_recording::Recording;
use corun_report::{Run, round};
use corun_scenario::Case;
use corun_sim::replay::{Beyond, Options, Spinning};

/// One way in which the recording might have turned out.
pub struct Variant {
    pub recording: Recording,
    pub options: Options,
    pub seed: u64,
}

/// A policy and a variant.
pub struct Job<'a> {
    pub policy: &'a str,
    pub variant: &'a Variant,
}

/// All variants of what remains open when `assumed` is given: every beginning with both extremes. The first beginning
/// is the recorded one.
pub fn variants(recording: &Recording, assumed: &Options, starts: u32) -> Vec<Variant> {
    let beginnings = (0..u64::from(starts)).map(|seed| (seed, beginning(recording, seed)));
    beginnings
        .flat_map(|(seed, recording)| {
            [Beyond::Repeat, Beyond::Wait].map(|beyond| Variant {
                recording: recording.clone(),
                options: Options {
                    beyond,
                    ..assumed.clone()
                },
                seed,
            })
        })
        .collect()
}

/// The recorded beginning, in the case that everything that can have been spinning was.
pub fn spinning(recording: &Recording, assumed: &Options) -> Variant {
    Variant {
        recording: recording.clone(),
        options: Options {
            spinning: Spinning::Waste,
            ..assumed.clone()
        },
        seed: 0,
    }
}

impl Job<'_> {
    /// Replays it.
    pub fn run(&self, case: &Case, progress: &Progress) -> anyhow::Result<Run> {
        let options = self.variant.options.clone();
        let recording = &self.variant.recording;
        let (outcome, report) = replay(recording, case, self.policy, options, None, progress)?;
        let mut run = Run {
            policy: self.policy.to_string(),
            kernel: schedulers::kernel(self.policy, &case.schedulers),
            seed: self.variant.seed,
            ..measure::run(&outcome, case.host.topology.pcpus())
        };
        for (vm, replayed) in run.vms.iter_mut().zip(&report.vms) {
            let whole = outcome.measured.max(1) as f64 * f64::from(vm.vcpus.max(1));
            vm.beyond_recording_share = Some(round(replayed.exhausted as f64 / whole));
        }
        Ok(run)
    }
}
