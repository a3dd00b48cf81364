// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a recorded host: its demand is replayed under each of them.
//!
//! First of all it is replayed under the scheduler that the host had, and set beside the recording:
//! what a what-if is worth is said before it.

use super::progress::Progress;
use super::runs::policies;
use super::setup::host_params;
use super::watch::Watch;
use super::{Args, measure, provenance, schedulers};
use crate::failure::Invalid;
use crate::output;
use anyhow::Context;
use corun_model::time;
use corun_recording::Recording;
use corun_report::{Beside, Comparison, ReplayCheck, Run, VcpuCheck, html, round};
use corun_scenario::{Case, Override};
use corun_sim::Outcome;
use corun_sim::host::{HardwareParams, HostParams, Observer};
use corun_sim::replay::{
    Compared, Fidelity, Options, Replay, ReplayReport, Source, SuggestedHost, fidelity,
    suggested_host,
};
use std::path::Path;

/// Reads the recording and replays its demand under each policy.
///
/// # Errors
/// [`Invalid`] if the file is no usable recording, or options do not fit one.
pub fn compare(args: &Args, path: &Path) -> anyhow::Result<(Comparison, html::About)> {
    refuse_scenario_options(args)?;
    let import = corun_recording::read(path).map_err(Invalid::error)?;
    let notes: Vec<String> = import.notes.iter().map(ToString::to_string).collect();
    if !args.runs.quiet {
        notes.iter().for_each(|note| output::note(note));
    }
    let recording = &import.recording;
    let suggested = suggested_host(recording).map_err(Invalid::error)?;
    let own = own_scheduler(recording);
    let case = case(args, recording, &suggested)?;
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
    let runs = chosen
        .iter()
        .map(|policy| one(args, recording, &case, policy, &progress));
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

/// Keys of a host whose effects are in recorded times already, or that concern guests.
const IN_THE_TIMES: [&str; 7] = [
    "host.smt",
    "host.l2",
    "host.llc",
    "host.llc_adaptive",
    "host.costs.llc",
    "host.costs.memory",
    "host.costs.exit",
];

/// What only a scenario has.
fn refuse_scenario_options(args: &Args) -> anyhow::Result<()> {
    let refuse = |option: &str, why: &str| {
        Err(Invalid::error(format!(
            "{option} does not go with a recording: {why}"
        )))
    };
    if !args.runs.cases.is_empty() {
        return refuse("--case", "a recording has no cases");
    }
    if args.runs.seed.is_some() || !args.runs.seeds.is_empty() {
        return refuse("--seed", "nothing in a replay is random");
    }
    if args.runs.duration.is_some() {
        return refuse("--duration", "a replay is as long as its recording");
    }
    let fits = |set: &&String| set.starts_with("host.") || set.starts_with("scheduler.");
    let in_the_times = |set: &&String| IN_THE_TIMES.iter().any(|key| set.starts_with(key));
    if let Some(set) = args.runs.sets.iter().find(in_the_times) {
        return refuse(
            &format!("--set {set}"),
            "what tasks did to each other is in the recorded times",
        );
    }
    match args.runs.sets.iter().find(|set| !fits(set)) {
        Some(set) => refuse(
            &format!("--set {set}"),
            "only host.… and scheduler.… can be set",
        ),
        None => Ok(()),
    }
}

/// The recorded host as a scenario, so that `--set` can change it like any other.
fn case(args: &Args, recording: &Recording, suggested: &SuggestedHost) -> anyhow::Result<Case> {
    let (params, costs) = (&suggested.params, suggested.params.costs);
    let text = format!(
        "[host]\ntopology = \"{}\"\nhz = {}\ncosts = {{ switch = \"{}ns\", ipi = \"{}ns\", \
         idle_wake = \"{}ns\", migration = \"{}ns\" }}\n[scheduler]\neevdf.preset = \"{}\"\ncfs.preset = \"4.x\"\n\
         [task.recorded]\nprogram = \"sleep 1s\"\n",
        params.topology,
        params.hz,
        costs.switch,
        costs.ipi,
        costs.idle_wake,
        costs.migration,
        eevdf_preset(kernel(recording)),
    );
    let sets = args
        .runs
        .sets
        .iter()
        .map(|set| Override::parse("--set", set));
    let sets = sets
        .collect::<Result<Vec<_>, _>>()
        .map_err(Invalid::error)?;
    let scenario = corun_scenario::read("--set", &text, &sets).map_err(Invalid::error)?;
    let case = scenario
        .cases
        .into_iter()
        .next()
        .context("the recorded host is no case")?;
    schedulers::check(&case.schedulers, &host_params(&case)).map_err(Invalid::error)?;
    Ok(case)
}

/// The recorded kernel's version, if it is known: 7.2.13-… is (7, 2).
fn kernel(recording: &Recording) -> Option<(u32, u32)> {
    let text = &recording.host.kernel.as_ref()?.value;
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn eevdf_preset(kernel: Option<(u32, u32)>) -> &'static str {
    match kernel {
        Some(version) if version < (6, 12) => "6.6",
        Some(version) if version < (7, 0) => "6.12",
        _ => "7.x",
    }
}

/// The model of the scheduler that the recorded host ran under.
struct OwnScheduler {
    name: &'static str,
    recorded: bool,
}

fn own_scheduler(recording: &Recording) -> OwnScheduler {
    let said = recording
        .host
        .scheduler
        .as_ref()
        .map(|fact| fact.value.to_lowercase());
    let named = match said.as_deref() {
        Some("eevdf") => Some("eevdf"),
        Some("cfs") => Some("cfs"),
        Some("corun" | "fair") => Some("fair"),
        Some(_) => None,
        // Linux changed over with 6.6.
        None => kernel(recording).map(|version| if version < (6, 6) { "cfs" } else { "eevdf" }),
    };
    OwnScheduler {
        name: named.unwrap_or("eevdf"),
        recorded: named.is_some(),
    }
}

/// The replay under the host's own scheduler beside the recording, and the case as it fits best.
///
/// Whether EEVDF ends slices by a timer (the kernel's `HRTICK`) or at ticks is not recorded and
/// shows in the number of switches. Unless the user has said, the better fit is taken, and told.
fn calibrated(
    recording: &Recording,
    case: Case,
    own: &OwnScheduler,
    progress: &Progress,
) -> anyhow::Result<(Case, ReplayCheck)> {
    let matched = |case: &Case| -> anyhow::Result<Fidelity> {
        let (outcome, _) = replay(recording, case, own.name, None, progress)?;
        Ok(fidelity(recording, &outcome))
    };
    let as_said = matched(&case)?;
    if own.name != "eevdf" || case.schedulers.eevdf.hrtick.is_some() {
        let check = check(own, &as_said);
        return Ok((case, check));
    }
    let mut at_ticks = case.clone();
    at_ticks.schedulers.eevdf.hrtick = Some(false);
    let other = matched(&at_ticks)?;
    let switches = |fidelity: &Fidelity| fidelity.overall.switches.unwrap_or(0.0) * 100.0;
    let (case, best, how, rest) = match error(&other) < error(&as_said) {
        true => (at_ticks, &other, "at ticks", switches(&as_said)),
        false => (
            case,
            &as_said,
            "as the kernel's version does",
            switches(&other),
        ),
    };
    let mut check = check(own, best);
    let note = format!(
        "the model ends slices {how}, which fits this recording better (switches off by {:.0} % \
         instead of {rest:.0} %); set scheduler.eevdf.hrtick to decide",
        switches(best)
    );
    check.notes.insert(0, note);
    Ok((case, check))
}

/// All errors together: how bad a fit is.
fn error(fidelity: &Fidelity) -> f64 {
    let overall = &fidelity.overall;
    let all = [overall.run, overall.ready, overall.switches];
    all.into_iter().flatten().sum()
}

/// Replays once.
fn replay(
    recording: &Recording,
    case: &Case,
    policy: &str,
    observer: Option<Box<dyn Observer>>,
    progress: &Progress,
) -> anyhow::Result<(Outcome, ReplayReport)> {
    let replay = Replay::new(recording, Options::default());
    let load = Box::new(replay.clone());
    let params = HostParams {
        // What tasks did to each other then is in the recorded times.
        hardware: HardwareParams::UNSHARED,
        ..host_params(case)
    };
    let simulation = schedulers::put_together(params, policy, &case.schedulers, load, observer)
        .map_err(Invalid::error)?;
    let outcome = simulation.run(0, recording.duration(), progress.of_run());
    Ok((outcome, replay.report()))
}

fn one(
    args: &Args,
    recording: &Recording,
    case: &Case,
    policy: &str,
    progress: &Progress,
) -> anyhow::Result<Run> {
    let pcpus = case.host.topology.pcpus();
    let watch = Watch::create(&args.watch, pcpus, policy, recording.duration())?;
    let (outcome, report) = replay(recording, case, policy, watch.observer(), progress)?;
    watch.close()?;
    let mut run = Run {
        policy: policy.to_string(),
        ..measure::run(&outcome, pcpus)
    };
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

fn check(own: &OwnScheduler, fidelity: &Fidelity) -> ReplayCheck {
    let plain = |figures: &Compared| Beside {
        recorded: round(figures.recorded),
        replayed: round(figures.replayed),
    };
    let seconds = |figures: &Compared| Beside {
        recorded: round(figures.recorded / time::SEC as f64),
        replayed: round(figures.replayed / time::SEC as f64),
    };
    ReplayCheck {
        scheduler: own.name.to_string(),
        scheduler_is_recorded: own.recorded,
        run_error: fidelity.overall.run.map(round),
        ready_error: fidelity.overall.ready.map(round),
        switches_error: fidelity.overall.switches.map(round),
        stacking_probability: plain(&fidelity.stacking),
        switches: plain(&fidelity.host.switches),
        vcpus: fidelity
            .vcpus
            .iter()
            .map(|vcpu| VcpuCheck {
                name: vcpu.name.clone(),
                run_s: seconds(&vcpu.run),
                ready_s: seconds(&vcpu.ready),
                switches: plain(&vcpu.switches),
            })
            .collect(),
        notes: fidelity.notes.iter().map(ToString::to_string).collect(),
    }
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
