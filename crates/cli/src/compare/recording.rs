// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a recorded host: its demand is replayed under each of them.
//!
//! First of all it is replayed under the scheduler that the host had, and set beside the recording:
//! what a what-if is worth is said before it.

use super::progress::Progress;
use super::recorded_host::{calibrated, case, own_scheduler, refuse_scenario_options, replay};
use super::runs::policies;
use super::setup::host_params;
use super::spans::Part;
use super::watch::Watch;
use super::{Args, measure, provenance};
use crate::failure::Invalid;
use crate::output;
use corun_model::time;
use corun_recording::Recording;
use corun_report::{Comparison, Run, html, round};
use corun_scenario::Case;
use corun_sim::replay::{Options, Source, SuggestedHost, suggested_host};
use std::path::Path;

/// Reads the recording and replays its demand under each policy.
///
/// # Errors
/// [`Invalid`] if the file is no usable recording, or options do not fit one.
pub fn compare(args: &Args, path: &Path) -> anyhow::Result<(Comparison, html::About)> {
    refuse_scenario_options(&args.runs)?;
    let import = corun_recording::read(path).map_err(Invalid::error)?;
    let notes: Vec<String> = import.notes.iter().map(ToString::to_string).collect();
    if !args.runs.quiet {
        notes.iter().for_each(|note| output::note(note));
    }
    let recording = &import.recording;
    let suggested = suggested_host(recording).map_err(Invalid::error)?;
    let own = own_scheduler(recording);
    let case = case(&args.runs, recording, &suggested)?;
    let default = vec![
        own.name.to_string(),
        "affinity".to_string(),
        "balance".to_string(),
    ];
    let chosen = policies(&args.runs, Some(default))?;
    args.watch
        .check(chosen.len(), &format!("--policies {}", chosen[0]))?;
    args.watch.window(recording.duration())?;
    let progress = Progress::new(
        chosen.len() + 2,
        recording.duration().saturating_mul(chosen.len() as u64 + 2),
        1,
        args.runs.quiet,
    );
    let (case, check) = calibrated(recording, case, &own, &progress)?;
    let part = args.watch.part(0, chosen.len());
    let runs = chosen
        .iter()
        .map(|policy| one(args, recording, &case, policy, part, &progress));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    progress.finish();
    let comparison = Comparison {
        version: env!("CARGO_PKG_VERSION").to_string(),
        scenario: stem(path),
        title: None,
        source: None,
        replay: Some(check),
        runs,
    };
    let about = html::About {
        command: provenance::command(std::env::args()),
        next: provenance::next(path, &args.runs, &format!("--policies {}", chosen[0])),
        facts: facts(recording, &case, &suggested),
        notes,
        input: None,
    };
    Ok((comparison, about))
}

/// The file's name without `.gz` and one more extension.
fn stem(path: &Path) -> String {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    Path::new(name)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn one(
    args: &Args,
    recording: &Recording,
    case: &Case,
    policy: &str,
    part: Option<Part>,
    progress: &Progress,
) -> anyhow::Result<Run> {
    let pcpus = case.host.topology.pcpus();
    let watch = Watch::create(&args.watch, pcpus, policy, recording.duration(), part)?;
    let (outcome, report) = replay(
        recording,
        case,
        policy,
        Options::default(),
        watch.observer(),
        progress,
    )?;
    let mut run = Run {
        policy: policy.to_string(),
        ..measure::run(&outcome, pcpus)
    };
    run.detail.timeline = watch.close()?;
    for (vm, replayed) in run.vms.iter_mut().zip(&report.vms) {
        let whole = outcome.measured as f64 * f64::from(vm.vcpus);
        let share = if whole > 0.0 {
            replayed.exhausted as f64 / whole
        } else {
            0.0
        };
        vm.beyond_recording_share = Some(round(share));
    }
    Ok(run)
}

/// What the report says of the recording and of what was made of it.
fn facts(recording: &Recording, case: &Case, host: &SuggestedHost) -> Vec<(String, String)> {
    let origin = |source: Source| match source {
        Source::Seen(wakeups) => format!("seen in {wakeups} wake-ups"),
        Source::Assumed => "assumed".to_string(),
    };
    let costs = host_params(case).costs;
    let fact = |name: &str, value: String| (name.to_string(), value);
    let mut facts = vec![
        fact("recorded", time::show(recording.duration())),
        fact("format", recording.format.to_string()),
        fact(
            "host",
            format!(
                "{}, {} Hz ({})",
                case.host.topology,
                case.host.hz,
                origin(host.hz)
            ),
        ),
        fact(
            "waking an idle pCPU",
            format!(
                "{} ({})",
                time::show(costs.ipi + costs.idle_wake),
                origin(host.costs)
            ),
        ),
    ];
    if let Some(kernel) = &recording.host.kernel {
        facts.push(fact("kernel", kernel.value.clone()));
    }
    facts
}
