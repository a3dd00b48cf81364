// SPDX-License-Identifier: GPL-2.0-only
//! A recorded host for replays: its hardware and scheduler as a scenario's, and how well a replay under that scheduler
//! matches the recording. What a what-if is worth depends on that match, so every command that replays reports it
//! first.

use super::calibration;
use super::progress::Progress;
use super::runs::RunArgs;
use super::schedulers;
use super::setup::host_params;
use crate::failure::Invalid;
use anyhow::Context;
use corun_model::{Topology, VmId, counted, time};
use corun_recording::{Import, Note, Recording, Role, scheduler};
use corun_report::{Beside, ReplayCheck, VcpuCheck, advice, round};
use corun_scenario::{Case, Override};
use corun_sim::Outcome;
use corun_sim::host::{HardwareParams, HostParams, Observer};
use corun_sim::replay::{
    Compared, Fidelity, Options, Replay, ReplayReport, Source, SuggestedHost, can_meet, fidelity,
    seem_to_meet,
};
use std::collections::BTreeSet;

/// Keys of a host whose effects are in recorded times already, or that concern guests.
const IN_THE_TIMES: [&str; 10] = [
    "host.halt_poll",
    "host.housekeeping",
    "host.idle_states",
    "host.smt",
    "host.l2",
    "host.llc",
    "host.llc_adaptive",
    "host.costs.llc",
    "host.costs.memory",
    "host.costs.exit",
];

/// Refuses what only a scenario has.
///
/// # Errors
/// [`Invalid`]: the first option that does not fit a recording.
pub fn refuse_scenario_options(args: &RunArgs) -> anyhow::Result<()> {
    let refuse = |option: &str, why: &str| {
        Err(Invalid::error(format!(
            "{option} does not go with a recording: {why}"
        )))
    };
    if !args.cases.is_empty() {
        return refuse("--case", "a recording has no cases");
    }
    if args.duration.is_some() {
        return refuse("--duration", "a replay is as long as its recording");
    }
    let fits = |set: &&String| {
        let sections = ["host.", "scheduler.", "policy."];
        sections.iter().any(|section| set.starts_with(section))
    };
    let in_the_times = |set: &&String| IN_THE_TIMES.iter().any(|key| set.starts_with(key));
    if let Some(set) = args.sets.iter().find(in_the_times) {
        return refuse(
            &format!("--set {set}"),
            "what tasks did to each other, and the host for them, is in the recorded times",
        );
    }
    match args.sets.iter().find(|set| !fits(set)) {
        Some(set) => refuse(
            &format!("--set {set}"),
            "only host.…, scheduler.… and policy.… can be set",
        ),
        None => Ok(()),
    }
}

/// The recorded host as a scenario, so that `--set` can change it like any other.
///
/// # Errors
/// [`Invalid`] if what is set is not valid.
pub fn case(
    args: &RunArgs,
    recording: &Recording,
    suggested: &SuggestedHost,
) -> anyhow::Result<Case> {
    let (params, costs) = (&suggested.params, suggested.params.costs);
    let text = format!(
        "[host]\ntopology = \"{}\"\nhz = {}\ncosts = {{ switch = \"{}ns\", ipi = \"{}ns\", \
         idle_wake = \"{}ns\", migration = \"{}ns\" }}\n[scheduler]\neevdf.preset = \"{}\"\ncfs.preset = \"{}\"\n\
         [task.recorded]\nprogram = \"sleep 1s\"\n",
        params.topology,
        params.hz,
        costs.switch,
        costs.ipi,
        costs.idle_wake,
        costs.migration,
        eevdf_preset(kernel(recording)),
        cfs_preset(kernel(recording)),
    );
    let sets = args.sets.iter().map(|set| Override::parse("--set", set));
    let sets = sets
        .collect::<Result<Vec<_>, _>>()
        .map_err(Invalid::error)?;
    let mut scenario = corun_scenario::read("--set", &text, &sets).map_err(Invalid::error)?;
    calibration::load(&mut scenario)?;
    let case = scenario
        .cases
        .into_iter()
        .next()
        .context("the recorded host is no case")?;
    schedulers::check(&case.schedulers, &host_params(&case)).map_err(Invalid::error)?;
    Ok(case)
}

/// The recorded kernel's version, if known.
fn kernel(recording: &Recording) -> Option<(u32, u32)> {
    version_of(kernel_name(recording)?)
}

fn kernel_name(recording: &Recording) -> Option<&str> {
    let kernel = recording.host.kernel.as_ref();
    kernel.map(|kernel| kernel.value.as_str())
}

/// A kernel's version: 7.2.13-… is (7, 2). A simulated one may stand for the last of a series: 4.x is above all of 4.
fn version_of(kernel: &str) -> Option<(u32, u32)> {
    let simulated = kernel.strip_prefix("simulated ");
    let (major, rest) = simulated.unwrap_or(kernel).split_once('.')?;
    let minor = match rest {
        "x" if simulated.is_some() => u32::MAX,
        _ => rest
            .split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()?,
    };
    Some((major.parse().ok()?, minor))
}

fn eevdf_preset(kernel: Option<(u32, u32)>) -> &'static str {
    match kernel {
        Some(version) if version < (6, 12) => "6.6",
        Some(version) if version < (7, 0) => "6.12",
        _ => "7.x",
    }
}

/// The preset of CFS: where the kernel is not one of CFS, that of a kernel that the host could run.
fn cfs_preset(kernel: Option<(u32, u32)>) -> &'static str {
    match kernel {
        Some((..4, _)) => "2.6.33",
        Some(version) if ((5, 5)..(6, 6)).contains(&version) => "5.x",
        _ => "4.x",
    }
}

/// Of commands that replay recordings.
#[derive(clap::Args, Debug, Default)]
pub struct RecordedUnder {
    /// The scheduler or policy that the recorded host had, if the recording does not say (where it says otherwise, this
    /// counts, and a note tells): a name of `corun policies`
    /// [default: what the recording says, else eevdf, or fair for a host under corun]
    #[arg(long = "recorded-under", value_name = "NAME", value_parser = known)]
    name: Option<&'static str>,
}

impl RecordedUnder {
    /// Refuses the option for a `scenario`.
    ///
    /// # Errors
    /// [`Invalid`] if it is given.
    pub fn refuse(&self, scenario: &str) -> anyhow::Result<()> {
        match self.name {
            None => Ok(()),
            Some(_) => Err(Invalid::error(format!(
                "--recorded-under does not go with a scenario: {scenario} is no recording"
            ))),
        }
    }
}

fn known(name: &str) -> Result<&'static str, String> {
    let expected = "expected a scheduler or policy that `corun policies` lists";
    replayed_as(&name.trim().to_lowercase()).ok_or_else(|| expected.to_string())
}

/// The stand-in for the scheduler that the recorded host ran under.
pub struct OwnScheduler {
    /// The model or policy that a replay takes for it.
    pub name: &'static str,
    /// Does the recording, or the user, say so?
    pub recorded: bool,
    /// What the recording calls it, if it names one.
    pub said: Option<String>,
    /// The note that the recording says something other than the user, if it does.
    pub overruled: Option<String>,
}

/// Which scheduler that was.
pub fn own_scheduler(recording: &Recording, told: &RecordedUnder) -> OwnScheduler {
    let said = recording.host.scheduler.as_ref();
    let said = said.map(|fact| fact.value.clone());
    let recorded = match &said {
        Some(name) => replayed_as(&name.to_lowercase()),
        // Linux switched to EEVDF in 6.6.
        None => kernel(recording).map(|version| if version < (6, 6) { "cfs" } else { "eevdf" }),
    };
    let known = told.name.or(recorded);
    let overruled = || {
        let (told, recorded) = (told.name?, recorded?);
        let by = match (&said, kernel_name(recording)) {
            (None, Some(kernel)) => format!("kernel {kernel}, and so {recorded}"),
            _ => said.clone().unwrap_or_else(|| recorded.to_string()),
        };
        (told != recorded).then(|| {
            format!(
                "--recorded-under {told}: the recording says otherwise ({by}), so this is ignored"
            )
        })
    };
    let overruled = overruled();
    let assumed = match said.as_deref() {
        Some(said) if scheduler::is_corun(said) => "fair",
        _ => "eevdf",
    };
    OwnScheduler {
        name: known.unwrap_or(assumed),
        recorded: known.is_some(),
        said,
        overruled,
    }
}

/// The model or policy of this name in a recording. Live hosts name their kernel's scheduler, or that of sched_ext,
/// with corun's policy; `corun compare --events` writes the policy alone.
fn replayed_as(name: &str) -> Option<&'static str> {
    let name = scheduler::policy(name).unwrap_or(name);
    let mut known = schedulers::policies().into_iter();
    known.find_map(|policy| (policy.name == name).then_some(policy.name))
}

/// What is assumed about what the recording does not show.
pub fn assumed(recording: &Recording) -> Options {
    Options {
        meeting: seem_to_meet(recording),
        ..Options::default()
    }
}

/// The replay under the host's own scheduler compared with the recording, with what is `assumed`; and the case that
/// fits best.
///
/// Whether EEVDF ends slices by a timer (the kernel's `HRTICK`) or at ticks is not recorded and shows in the number of
/// switches. Unless the user has said which, the better fit is taken, and reported. With another number of pCPUs the
/// what-if is another host's: then a replay on as many as were recorded is compared with the recording.
///
/// # Errors
/// If the replay cannot be set up.
pub fn calibrated(
    recording: &Recording,
    case: Case,
    own: &OwnScheduler,
    suggested: &SuggestedHost,
    assumed: &Options,
    progress: &Progress,
) -> anyhow::Result<(Case, ReplayCheck)> {
    let resized = case.host.topology.pcpus() != recording.host.pcpus.value;
    let matched = |case: &Case| -> anyhow::Result<Fidelity> {
        let mut case = case.clone();
        if resized {
            case.host.topology = suggested.params.topology;
        }
        let (outcome, _) = replay(recording, &case, own.name, assumed.clone(), None, progress)?;
        Ok(fidelity(recording, &outcome))
    };
    let as_said = matched(&case)?;
    let check = |best: &Fidelity| {
        let mut check = check(own, best);
        check
            .notes
            .extend(meetings_note(recording, &assumed.meeting));
        if resized {
            check
                .notes
                .insert(0, resized_note(recording, &case.host.topology));
        }
        check
    };
    if own.name != "eevdf" || case.schedulers.eevdf.hrtick.is_some() {
        let check = check(&as_said);
        return Ok((case, check));
    }
    let mut at_ticks = case.clone();
    at_ticks.schedulers.eevdf.hrtick = Some(false);
    let other = matched(&at_ticks)?;
    let (best_case, best, rest, how) = match error(&other) < error(&as_said) {
        true => (at_ticks, &other, &as_said, "at ticks"),
        false => (
            case.clone(),
            &as_said,
            &other,
            "as the kernel's version does",
        ),
    };
    let mut check = check(best);
    let note = format!(
        "the model ends slices {how}, which fits this recording as well or better (errors of run, ready and switches \
         together {:.1} %, otherwise {:.1} %); set scheduler.eevdf.hrtick to decide",
        error(best) * 100.0,
        error(rest) * 100.0
    );
    check.notes.insert(0, note);
    Ok((best_case, check))
}

/// VMs that a note names; it gives only the number of the others.
const MOST_NAMES: usize = 4;

/// What is assumed about siblings that wake each other, if there are any.
fn meetings_note(recording: &Recording, meeting: &BTreeSet<VmId>) -> Option<String> {
    let can = can_meet(recording);
    let goes_on = "a vCPU that wakes a sibling goes on, whatever the sibling does";
    let waits = format!(
        "in {} a vCPU that wakes a sibling waits until the sibling is back where it waited, as at a barrier, since \
         between wake-ups each does as much as the other",
        names(recording, meeting)
    );
    let how = match (can.is_empty(), meeting.is_empty(), can.is_subset(meeting)) {
        (true, ..) => return None,
        (_, true, _) => goes_on.to_string(),
        (_, _, true) => waits,
        _ => format!("{waits}; elsewhere it goes on"),
    };
    Some(format!(
        "{how} (assumed: `corun compare --extremes` replays it otherwise, too)"
    ))
}

fn names(recording: &Recording, vms: &BTreeSet<VmId>) -> String {
    let name = |vm: &VmId| recording.vms[vm.index()].name.as_str();
    let shown: Vec<&str> = vms.iter().take(MOST_NAMES).map(name).collect();
    match vms.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {}", shown.join(", "), counted(more, "other VM")),
    }
}

/// Says that the check and the what-if are of hosts of different sizes.
fn resized_note(recording: &Recording, to: &Topology) -> String {
    format!(
        "the match is of a replay on the recorded {}; what follows is on {}",
        counted(recording.host.pcpus.value, "pCPU"),
        to.pcpus()
    )
}

/// All errors together: how bad a fit is.
fn error(fidelity: &Fidelity) -> f64 {
    let overall = &fidelity.overall;
    let all = [overall.run, overall.ready, overall.switches];
    all.into_iter().flatten().sum()
}

/// Replays once.
///
/// # Errors
/// [`Invalid`] if the policy cannot be put together for this host.
pub fn replay(
    recording: &Recording,
    case: &Case,
    policy: &str,
    options: Options,
    observer: Option<Box<dyn Observer>>,
    progress: &Progress,
) -> anyhow::Result<(Outcome, ReplayReport)> {
    let params = HostParams {
        // What tasks did to each other then is in the recorded times.
        hardware: HardwareParams::UNSHARED,
        ..host_params(case)
    };
    let replay = Replay::new(recording, params.topology.pcpus(), options);
    let load = Box::new(replay.clone());
    let simulation = schedulers::put_together(params, policy, &case.schedulers, 0, load, observer)
        .map_err(Invalid::error)?;
    let called = || format!("policy {policy}");
    let outcome = simulation
        .try_run(
            0,
            recording.duration(),
            progress.of_run(called(), recording.duration()),
        )
        .with_context(called)?;
    Ok((outcome, replay.report()))
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
        recorded_scheduler: own.said.clone(),
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

/// What the report says about the recording and about what was made of it.
pub fn facts(recording: &Recording, case: &Case, host: &SuggestedHost) -> Vec<(String, String)> {
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

/// The share of vCPUs' CPU time, 0–1, that can have been spinning for a sibling that was kept from running.
pub fn spinning_share(recording: &Recording) -> f64 {
    let (mut run, mut contested) = (0, 0);
    for task in &recording.tasks {
        if matches!(task.role, Role::Vcpu { .. }) {
            run += task.observed.run;
            contested += task.observed.contested;
        }
    }
    contested as f64 / run.max(1) as f64
}

/// How far the recording can be trusted. Less than a hundredth of its switches may be missing or contradictory: on live
/// hosts a few always are, where events of several pCPUs meet (a choice).
pub fn basis(import: &Import) -> advice::Basis {
    let few = import.recording.observed.switches / 100;
    let gaps = import.notes.iter().filter(|note| note.gaps() > few);
    // The first line; what follows are examples.
    let line = |note: &Note| {
        note.to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_string()
    };
    advice::Basis {
        seconds: import.recording.duration() as f64 / time::SEC as f64,
        gaps: gaps.map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_known_by_their_versions() {
        for (said, version, eevdf, cfs) in [
            ("7.2.13+deb14-cloud-amd64", Some((7, 2)), "7.x", "4.x"),
            ("6.8.0-31-generic", Some((6, 8)), "6.6", "4.x"),
            ("5.15.0-91-generic", Some((5, 15)), "6.6", "5.x"),
            ("5.4.0", Some((5, 4)), "6.6", "4.x"),
            ("6.12rc3", Some((6, 12)), "6.12", "4.x"),
            ("2.6.32-754.el6.x86_64", Some((2, 6)), "6.6", "2.6.33"),
            ("simulated", None, "7.x", "4.x"),
            ("simulated 2.6.33", Some((2, 6)), "6.6", "2.6.33"),
            ("simulated 4.x", Some((4, u32::MAX)), "6.6", "4.x"),
            ("simulated 5.x", Some((5, u32::MAX)), "6.6", "5.x"),
            ("simulated 6.6", Some((6, 6)), "6.6", "4.x"),
            ("simulated 6.12", Some((6, 12)), "6.12", "4.x"),
            ("simulated 7.x", Some((7, u32::MAX)), "7.x", "4.x"),
            ("custom", None, "7.x", "4.x"),
            ("", None, "7.x", "4.x"),
        ] {
            let found = version_of(said);
            assert_eq!(found, version, "{said}");
            let presets = (eevdf_preset(found), cfs_preset(found));
            assert_eq!(presets, (eevdf, cfs), "{said}");
        }
    }
}
