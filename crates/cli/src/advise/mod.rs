// SPDX-License-Identifier: GPL-2.0-only
//! `corun advise`: which policy a recorded host should have, and how many more VMs it could take.

mod overcommit;
mod replays;

use crate::compare::input::{self, Input};
use crate::compare::recorded_host::{calibrated, case, own_scheduler, refuse_scenario_options};
use crate::compare::runs::{self, RunArgs};
use crate::compare::{jobs, progress::Progress};
use crate::failure::Invalid;
use crate::output;
use corun_model::Nanos;
use corun_recording::{Recording, Role};
use corun_report::ReplayCheck;
use corun_report::advice::{self, Spun, Tried};
use corun_scenario::Case;
use corun_sim::replay::suggested_host;
use overcommit::Growth;
use replays::{Job, variants};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

/// Advise which policy a recorded host should have
///
/// Replays a recording under its own scheduler and under corun's policies and ranks them by how long
/// vCPUs wait for pCPUs, with the evidence VM by VM; then adds copies of the recorded VMs, one after
/// the other, until one waits more than the target. Each figure is a median over replays that differ
/// in what a recording cannot tell: when VMs began beside each other, and what they would have done
/// after their recorded demand. Differences within these, or within the error of the replay beside
/// the recording, are called none.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A recording of a host, by `corun record`, ftrace, trace-cmd report, perf script or Perfetto;
    /// gzip'ed or not
    #[arg(value_name = "RECORDING")]
    input: PathBuf,

    /// Policies to try beside the host's own scheduler [default: all of corun's]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    policies: Vec<String>,

    /// The most of its vCPUs' time that any VM may want for a pCPU: percent, such as 10 or 2.5
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    target: f64,

    /// The most VMs to add
    #[arg(long, value_name = "N", default_value_t = 8)]
    most: u32,

    /// How many different beginnings to try
    #[arg(long, value_name = "N", default_value = "3")]
    starts: NonZeroUsize,

    /// Set a key of the host or its scheduler, such as host.costs.switch=3us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Replays at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    /// Print one JSON object instead of tables (docs/schema/advise.schema.json)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun advise host.ftrace.gz
      which policy would help this host, and how many more VMs would it bear?
  corun advise host.ftrace.gz --policies balance,jupiter --target 5
      only these two; no VM may wait more than 5 % of its time
  corun advise host.ftrace.gz --most 0 --json
      the ranking alone, for other programs

Exit codes: 0 done; 1 a replay failed; 2 wrong usage or invalid input.";

/// A share of 0 to 100 %.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>();
    match number {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("expected a percentage from 0 to 100, such as 10 or 2.5".to_string()),
    }
}

/// A recorded host, ready to be replayed.
struct Recorded<'a> {
    recording: &'a Recording,
    case: Case,
    own: &'static str,
    check: ReplayCheck,
    threads: usize,
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the recording or an option is not valid; anything else if a replay fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = match input::open(&args.input)? {
        Input::Recording { path } => path,
        Input::Scenario { name, .. } => {
            return Err(Invalid::error(format!(
                "{name}: this is a scenario: expected a recording of a host; `corun compare` runs \
                 scenarios"
            )));
        }
    };
    let import = corun_recording::read(&path).map_err(Invalid::error)?;
    if !args.quiet {
        let notes = import.notes.iter();
        notes.for_each(|note| output::note(&note.to_string()));
    }
    let recording = &import.recording;
    if recording.vms.is_empty() {
        return Err(Invalid::error(format!(
            "{}: no vCPUs in this recording: expected threads named \"CPU 0/KVM\" or KVM's events",
            path.display()
        )));
    }
    let recorded = recorded(args, recording)?;
    let (policies, best) = policies(args, &recorded)?;
    let spinning = spinning(&recorded, best.as_deref())?;
    let overcommit = overcommit(args, &recorded, best)?;
    let advice = advice::advice(Tried {
        recording: stem(&path),
        replay: recorded.check.clone(),
        policies,
        spinning,
        overcommit,
    });
    match args.json {
        true => output::print(&(serde_json::to_string_pretty(&advice)? + "\n")),
        false => output::print(&advice::text(&advice, output::width())),
    }
}

/// The file's name without its extensions.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_string()
}

fn recorded<'a>(args: &Args, recording: &'a Recording) -> anyhow::Result<Recorded<'a>> {
    let runs = RunArgs {
        sets: args.sets.clone(),
        quiet: args.quiet,
        ..RunArgs::default()
    };
    refuse_scenario_options(&runs)?;
    let suggested = suggested_host(recording).map_err(Invalid::error)?;
    let own = own_scheduler(recording);
    let case = case(&runs, recording, &suggested)?;
    let progress = Progress::new(2, recording.duration().saturating_mul(2), 1, args.quiet);
    let (case, check) = calibrated(recording, case, &own, &progress)?;
    progress.finish();
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(Recorded {
        recording,
        case,
        own: own.name,
        check,
        threads: args.jobs.map_or_else(cpus, NonZeroUsize::get),
        quiet: args.quiet,
    })
}

/// Policies with their replays.
type Replayed = Vec<(String, Vec<corun_report::Run>)>;

/// Every policy with all its replays, the own scheduler first, and the policy that is recommended.
fn policies(args: &Args, recorded: &Recorded<'_>) -> anyhow::Result<(Replayed, Option<String>)> {
    let chosen = RunArgs {
        policies: args.policies.clone(),
        ..RunArgs::default()
    };
    let all = corun_policies::all().iter();
    let all = all.map(|policy| policy.name.to_string()).collect();
    let mut names = runs::policies(&chosen, Some(all))?;
    names.retain(|name| name != recorded.own);
    names.insert(0, recorded.own.to_string());
    let variants = variants(recorded.recording, args.starts);
    let jobs: Vec<Job<'_>> = names
        .iter()
        .flat_map(|policy| variants.iter().map(move |variant| Job { policy, variant }))
        .collect();
    let mut runs = carry_out(recorded, &jobs)?.into_iter();
    let mut replays = |name: String| (name, runs.by_ref().take(variants.len()).collect());
    let replayed: Replayed = names.into_iter().map(&mut replays).collect();
    let ranked = advice::advice(Tried {
        recording: String::new(),
        replay: recorded.check.clone(),
        policies: replayed.clone(),
        spinning: None,
        overcommit: Vec::new(),
    });
    Ok((replayed, ranked.recommended))
}

/// The own scheduler and the recommended policy, had all that can have been spinning been so. `None` if
/// nothing is recommended, or nothing can have been.
fn spinning(recorded: &Recorded<'_>, best: Option<&str>) -> anyhow::Result<Option<Spun>> {
    let (mut run, mut contested) = (0, 0);
    for task in &recorded.recording.tasks {
        if matches!(task.role, Role::Vcpu { .. }) {
            run += task.observed.run;
            contested += task.observed.contested;
        }
    }
    let Some(best) = best.filter(|_| contested > 0) else {
        return Ok(None);
    };
    let variant = replays::spinning(recorded.recording);
    let jobs = [recorded.own, best].map(|policy| Job {
        policy,
        variant: &variant,
    });
    let runs = carry_out(recorded, &jobs)?;
    let [own, best] =
        <[_; 2]>::try_from(runs).map_err(|_| anyhow::anyhow!("a replay is missing"))?;
    let share = contested as f64 / run.max(1) as f64;
    Ok(Some(Spun { share, own, best }))
}

/// The own scheduler and the recommended policy with more and more VMs.
fn overcommit(
    args: &Args,
    recorded: &Recorded<'_>,
    best: Option<String>,
) -> anyhow::Result<Vec<corun_report::advice::Overcommit>> {
    if args.most == 0 {
        return Ok(Vec::new());
    }
    let policies = std::iter::once(recorded.own.to_string()).chain(best);
    let grown = policies.map(|policy| {
        let growth = Growth {
            policy,
            target: args.target / 100.0,
            most: args.most,
            starts: args.starts,
        };
        growth.grow(recorded)
    });
    grown.collect()
}

/// All replays, in the order of the jobs.
fn carry_out(recorded: &Recorded<'_>, all: &[Job<'_>]) -> anyhow::Result<Vec<corun_report::Run>> {
    let lengths = all.iter().map(|job| job.variant.recording.duration());
    let total = lengths.fold(0, Nanos::saturating_add);
    let progress = Progress::new(all.len(), total, recorded.threads, recorded.quiet);
    let runs = jobs::run(all, recorded.threads, |job| {
        job.run(&recorded.case, &progress)
    });
    progress.finish();
    runs
}
