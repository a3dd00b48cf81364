// SPDX-License-Identifier: GPL-2.0-only
//! `corun advise`: which policy a recorded host should have, and how many more VMs it could take.

mod next;
mod overcommit;
mod replays;

use crate::compare::input::{self, Input, Unread};
use crate::compare::recorded_host::{
    RecordedUnder, assumed, basis, calibrated, case, facts, own_scheduler, refuse_scenario_options,
    spinning_share,
};
use crate::compare::runs::{self, RunArgs};
use crate::compare::schedulers::{blind, sets_unheeded};
use crate::compare::{jobs, progress::Progress, provenance, reading};
use crate::failure::Invalid;
use crate::interrupt::{self, Pending};
use crate::numbers;
use crate::output;
use crate::outputs::{self, Outputs};
use corun_model::{Nanos, counted};
use corun_recording::Recording;
use corun_report::advice::{self, Advice, LeftOut, Spun, Tried};
use corun_report::{ReplayCheck, html};
use corun_scenario::Case;
use corun_sim::replay::{Beyond, Options, SuggestedHost, suggested_host};
use overcommit::{Copied, Growth};
use replays::{Job, variants};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

/// Advise which policy a recorded host should have
///
/// Replays a recording under the host's own scheduler and under corun's policies, and ranks these by how
/// long vCPUs wait for pCPUs, with the figures of each VM. Then it adds copies of the recorded VMs, one
/// after the other, until one waits more than the target. Each figure is a median over replays that differ
/// in what a recording cannot tell: when VMs began relative to each other, and what they would have done
/// after their recorded demand. A difference smaller than the spread of these replays, or than the error
/// of replaying the host's own scheduler, counts as none.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A recording of a host, by `corun record`, ftrace, trace-cmd report, perf script or Perfetto;
    /// gzip'ed or not; - reads the standard input
    #[arg(value_name = "RECORDING")]
    input: PathBuf,

    /// Policies to try beside the host's own scheduler [default: all of corun's]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = runs::name)]
    policies: Vec<String>,

    /// The largest share of its vCPUs' time for which any VM may lack a pCPU, in percent, such as 10 or 2.5
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, allow_negative_numbers = true, value_parser = numbers::percent)]
    target: f64,

    /// The most VMs to add, 0 to 64
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true, value_parser = numbers::within::<u32>(0..=MOST_VMS))]
    most: u32,

    /// VMs to add copies of, in turn and as often as they are named, such as web,web,db [default: all recorded ones, in
    /// their order]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = runs::name)]
    add: Vec<String>,

    /// How many different times of beginning to try for the VMs, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, allow_negative_numbers = true, value_parser = numbers::within::<u32>(1..=1000))]
    starts: u32,

    #[command(flatten)]
    recorded: RecordedUnder,

    /// Set a key of the host, its scheduler or a policy, such as host.costs.switch=3us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Replays at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = jobs::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    /// Print one JSON object instead of tables (docs/schema/advise.schema.json)
    #[arg(long)]
    json: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Each step replays a host with one more VM: what the steps take together grows as the square of their number.
const MOST_VMS: u64 = 64;

const EXAMPLES: &str = "\
Examples:
  corun advise host.ftrace.gz
      which policy would help this host, and how many more VMs would it bear?
  corun advise host.ftrace.gz --policies balance,jupiter --target 5
      only these two; no VM may wait more than 5 % of its time
  corun advise host.ftrace.gz --add web --most 16
      how many more VMs like the one called web would fit?
  corun advise host.ftrace.gz --report advice.html
      the answer as a page, with charts and everything it rests on
  corun advise host.ftrace.gz --most 0 --json
      the ranking alone, for other programs

Exit codes: 0 done; 1 a replay failed or a file could not be written; 2 wrong usage or invalid input;
130 interrupted: results are shown once all runs are done, so none are.";

/// A recorded host, ready to be replayed.
struct Recorded<'a> {
    recording: &'a Recording,
    suggested: SuggestedHost,
    case: Case,
    /// What is assumed about what the recording does not show, except for what figures vary.
    options: Options,
    own: &'static str,
    check: ReplayCheck,
    threads: usize,
    quiet: bool,
    /// The replays, until all are done.
    pending: Pending,
}

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the recording or an option is not valid; anything else if a replay fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.most == 0 && !args.add.is_empty() {
        return Err(Invalid::error(
            "--add: with --most 0 no VM is added".to_string(),
        ));
    }
    let outputs = Outputs::of([("--report", args.report.as_ref())])?;
    let unread = unread(args, &outputs)?;
    // Before anything is read or replayed, which takes its time.
    runs::policies(&chosen(args), None)?;
    let name = unread.name.clone();
    let import = reading::read(unread, None, args.quiet)?;
    let mut notes: Vec<String> = import.notes.iter().map(ToString::to_string).collect();
    for note in &notes {
        output::note(&format!("{name}: {note}"));
    }
    let recording = &import.recording;
    let copied =
        Copied::of(recording, &args.add).map_err(|why| Invalid::error(format!("{name}: {why}")))?;
    outputs.try_out()?;
    let recorded = recorded(args, recording)?;
    let (names, left_out) = names(args, &recorded)?;
    let replayed: Vec<&str> = names.iter().map(String::as_str).collect();
    let own = blind(recorded.own, &recorded.case);
    let own = own.map(|why| format!("{}: {why}", recorded.own));
    let overruled = own_scheduler(recording, &args.recorded).overruled;
    for note in sets_unheeded(&args.sets, &replayed)
        .into_iter()
        .chain(own)
        .chain(overruled)
    {
        output::note(&note);
        notes.push(note);
    }
    let mut tried = Tried {
        recording: stem(&name),
        basis: basis(&import),
        replay: recorded.check.clone(),
        policies: policies(args, &recorded, names)?,
        left_out,
        reach,
        spinning: None,
        overcommit: Vec::new(),
    };
    let ranked = advice::advice(tried.clone());
    let rival = ranked.rival().map(|policy| policy.policy.as_str());
    tried.spinning = spinning(&recorded, rival)?;
    tried.overcommit = overcommit(args, &recorded, &copied, ranked.recommended.as_deref())?;
    recorded.pending.over();
    let replays = tried.policies.clone();
    let mut advice = advice::advice(tried);
    advice.notes.clone_from(&notes);
    advice.next = next::steps(&advice, &args.sets);
    if let Some(warning) = advice.recommended.as_deref().and_then(only_a_model) {
        // Right after the sentence that recommends it.
        advice.summary.insert(advice.summary.len().min(1), warning);
    }
    let about = about(args, &recorded, &advice, notes);
    show(args, &advice, &replays, &about)
}

/// The recording, open.
fn unread(args: &Args, outputs: &Outputs) -> anyhow::Result<Unread> {
    let input = input::open(&args.input)?;
    outputs.spare(input::place(&args.input))?;
    match input {
        Input::Recording(unread) => Ok(unread),
        Input::Scenario { name, .. } => Err(Invalid::error(format!(
            "{name}: this is a scenario: expected a recording of a host; `corun compare` runs \
             scenarios"
        ))),
    }
}

/// Shows the advice, and writes the page if one is wanted.
fn show(
    args: &Args,
    advice: &Advice,
    replays: &[(String, Vec<advice::Replayed>)],
    about: &html::About,
) -> anyhow::Result<()> {
    let page = || Ok(advice::page(advice, replays, about)?);
    let written = outputs::report(args.report.as_ref(), args.quiet, page);
    // Results are shown whether or not the page could be written.
    written.and(match args.json {
        true => output::json(advice),
        false => output::print(&advice::text(advice, output::width())),
    })
}

/// How far a policy goes beyond fair order; models count as further than all that `corun host` can run.
fn reach(policy: &str) -> u32 {
    corun_policies::find(policy).map_or(u32::MAX, |policy| policy.reach as u32)
}

/// A word of warning if the policy is one that only the simulator has.
fn only_a_model(policy: &str) -> Option<String> {
    corun_policies::find(policy).is_none().then(|| {
        format!(
            "{policy} is a model for the simulator, which `corun host` cannot run: without --policies, only those that \
             it can run are tried."
        )
    })
}

/// Where the page's numbers are from, and how to go on from them.
fn about(args: &Args, recorded: &Recorded<'_>, advice: &Advice, notes: Vec<String>) -> html::About {
    let own = recorded.own;
    let both = match advice.rival() {
        Some(rival) => format!("{own},{}", rival.policy),
        None => own.to_string(),
    };
    let mut facts = facts(recorded.recording, &recorded.case, &recorded.suggested);
    facts.push((
        "Replays".to_string(),
        format!(
            "{}, each going on as before or having nothing more to do",
            counted(args.starts as usize, "beginning")
        ),
    ));
    let both = format!(" --policies {both} --report compare.html");
    let steps = advice.next.iter();
    let mut next: Vec<_> = steps
        .map(|step| (step.what.clone(), step.command.clone()))
        .collect();
    next.push((
        "The two side by side, with timelines".to_string(),
        provenance::again("compare", &args.input, &args.sets, &both),
    ));
    next.push(provenance::same_numbers());
    html::About {
        command: provenance::this(),
        next,
        facts,
        notes,
        input: None,
    }
}

/// The file's name without its extensions.
fn stem(name: &str) -> String {
    let name = Path::new(name)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
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
    let own = own_scheduler(recording, &args.recorded);
    let case = case(&runs, recording, &suggested)?;
    let progress = Progress::new(2, recording.duration().saturating_mul(2), 1, args.quiet);
    let options = assumed(recording);
    let (case, check) = calibrated(recording, case, &own, &suggested, &options, &progress)?;
    progress.finish();
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(Recorded {
        recording,
        suggested,
        case,
        options,
        own: own.name,
        check,
        threads: args.jobs.map_or_else(cpus, NonZeroUsize::get),
        quiet: args.quiet,
        pending: Pending::of("replay", args.most > 0)?,
    })
}

/// The policies that are named, if any.
fn chosen(args: &Args) -> RunArgs {
    RunArgs {
        policies: args.policies.clone(),
        ..RunArgs::default()
    }
}

/// The policies to try, the own scheduler first, and those about which replays would say nothing.
fn names(args: &Args, recorded: &Recorded<'_>) -> anyhow::Result<(Vec<String>, Vec<LeftOut>)> {
    let own = recorded.own;
    let all = corun_policies::all().iter();
    let all = all.map(|policy| policy.name.to_string()).collect();
    let mut names = runs::policies(&chosen(args), Some(all))?;
    names.retain(|name| name != own);
    let mut left_out = Vec::new();
    names.retain(|name| {
        let why = blind(name, &recorded.case);
        left_out.extend(why.iter().map(|why| LeftOut {
            policy: name.clone(),
            why: why.clone(),
        }));
        why.is_none()
    });
    names.insert(0, own.to_string());
    Ok((names, left_out))
}

/// Every policy with all its replays.
fn policies(
    args: &Args,
    recorded: &Recorded<'_>,
    names: Vec<String>,
) -> anyhow::Result<Vec<(String, Vec<advice::Replayed>)>> {
    let variants = variants(recorded.recording, &recorded.options, args.starts);
    let jobs: Vec<Job<'_>> = names
        .iter()
        .flat_map(|policy| variants.iter().map(move |variant| Job { policy, variant }))
        .collect();
    let total = virtual_time(&jobs);
    let progress = Progress::new(jobs.len(), total, recorded.threads, recorded.quiet);
    let mut runs = carry_out_with(recorded, &jobs, &progress)?.into_iter();
    let replays = |name: String| {
        let replays = variants.iter().zip(runs.by_ref());
        let replays = replays.map(|(variant, run)| advice::Replayed {
            goes_on: variant.options.beyond == Beyond::Repeat,
            run,
        });
        (name, replays.collect())
    };
    Ok(names.into_iter().map(replays).collect())
}

/// The own scheduler and the policy compared with it, if everything that can have been spinning was spinning. `None` if
/// there is no other policy, or nothing can have been spinning.
fn spinning(recorded: &Recorded<'_>, rival: Option<&str>) -> anyhow::Result<Option<Spun>> {
    let share = spinning_share(recorded.recording);
    let Some(rival) = rival.filter(|_| share > 0.0) else {
        return Ok(None);
    };
    let variant = replays::spinning(recorded.recording, &recorded.options);
    let jobs = [recorded.own, rival].map(|policy| Job {
        policy,
        variant: &variant,
    });
    let runs = carry_out(recorded, &jobs)?;
    let [own, best] =
        <[_; 2]>::try_from(runs).map_err(|_| anyhow::anyhow!("a replay is missing"))?;
    Ok(Some(Spun { share, own, best }))
}

/// The own scheduler and the recommended policy with more and more VMs.
fn overcommit(
    args: &Args,
    recorded: &Recorded<'_>,
    copied: &Copied,
    best: Option<&str>,
) -> anyhow::Result<Vec<advice::Overcommit>> {
    if args.most == 0 {
        return Ok(Vec::new());
    }
    let policies = std::iter::once(recorded.own).chain(best);
    let grown = policies.map(|policy| {
        let growth = Growth {
            policy: policy.to_string(),
            copied,
            target: args.target / 100.0,
            most: args.most,
            starts: args.starts,
        };
        growth.grow(recorded)
    });
    grown.collect()
}

fn virtual_time(all: &[Job<'_>]) -> Nanos {
    let lengths = all.iter().map(|job| job.variant.recording.duration());
    lengths.fold(0, Nanos::saturating_add)
}

/// All replays of a step that depends on those before, in the order of the jobs.
fn carry_out(recorded: &Recorded<'_>, all: &[Job<'_>]) -> anyhow::Result<Vec<corun_report::Run>> {
    // There are many steps, and nobody knows how many: with a line for each, nothing else would be visible.
    let progress = Progress::further(virtual_time(all), recorded.quiet);
    carry_out_with(recorded, all, &progress)
}

fn carry_out_with(
    recorded: &Recorded<'_>,
    all: &[Job<'_>],
    progress: &Progress,
) -> anyhow::Result<Vec<corun_report::Run>> {
    recorded.pending.more(all.len());
    let runs = jobs::run(all, recorded.threads, |job| {
        let run = job.run(&recorded.case, progress)?;
        interrupt::run_done();
        Ok(run)
    });
    progress.finish();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_told_from_what_hosts_can_run() {
        for model in ["credit", "cfs", "credit-aql"] {
            let said = only_a_model(model).unwrap();
            assert!(said.starts_with(model) && said.contains("cannot run"));
        }
        for policy in corun_policies::all() {
            assert_eq!(only_a_model(policy.name), None);
        }
    }
}
