// SPDX-License-Identifier: GPL-2.0-only
//! The runs of a scenario: what the command line says about them, which there are, and doing them
//! on all cores. Shared by every command that simulates scenarios.

use super::events::Ran;
use super::progress::Progress;
use super::spans::Part;
use super::watch::{self, Watch};
use super::{input, jobs, measure, network, rtapp, schedulers, setup};
use crate::failure::Invalid;
use crate::interrupt::{self, Pending};
use crate::numbers;
use crate::outputs::Outputs;
use anyhow::Context;
use corun_model::Nanos;
use corun_report::Run;
use corun_scenario::{Case, Override, Problems, Scenario, or_nearest};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;

/// What the command line says about runs.
#[derive(clap::Args, Default)]
pub struct RunArgs {
    /// Policies to compare, the reference first [default: the scenario's, else
    /// cfs,affinity,balance]; `corun policies` lists them. cfs is that of Linux 2.6.33 (in replays the recorded
    /// kernel's, else 4.x) unless the scenario or `--set scheduler.cfs.preset=…` says otherwise; eevdf is today's
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub policies: Vec<String>,

    /// Run only this case of the scenario; may be repeated
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,

    /// Seed of everything random [default: the scenario's, else 1]
    #[arg(long, value_name = "N", conflicts_with = "seeds", allow_negative_numbers = true, value_parser = numbers::within::<u64>(0..=MOST_SEED))]
    pub seed: Option<u64>,

    /// Several seeds, such as 1,2,3 or 1..30: results are medians with their spread
    #[arg(long, value_delimiter = ',', value_name = "N,N,…", allow_negative_numbers = true, value_parser = seeds)]
    pub seeds: Vec<Seeds>,

    /// Length of the measured part: seconds, or a number with a unit such as 500ms
    // With a unit a negative one is no number to clap; it is refused with a reason where it is read.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<String>,

    /// Set any key of the scenario, such as vm.web.count=3; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,

    /// Runs at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = jobs::at_least_one)]
    pub jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// A name in a list, which may have blanks around it.
pub fn name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("expected names with commas between them, such as cfs,balance".to_string()),
        name => Ok(name.to_string()),
    }
}

/// A seed, or all from one to another.
pub type Seeds = RangeInclusive<u64>;

/// The largest seed, as in scenarios: TOML allows no larger numbers.
const MOST_SEED: u64 = i64::MAX as u64;

/// The most seeds that one range may have; more would take days.
const MOST_SEEDS: u64 = 1000;

/// Reads a seed, or a range such as 1..30, both ends included as in `--range`.
fn seeds(text: &str) -> Result<Seeds, String> {
    let expected = || format!("found {text:?}, expected a whole number or a range such as 1..30");
    let seed = |text: &str| text.trim().parse::<u64>().map_err(|_| expected());
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (seed(from)?, seed(to)?),
        None => (seed(text)?, seed(text)?),
    };
    match to.checked_sub(from) {
        None => Err(format!("{from} is above {to}: the smaller end comes first")),
        Some(more) if more >= MOST_SEEDS => Err(format!("more than {MOST_SEEDS} seeds")),
        Some(_) => Ok(from..=to),
    }
}

impl RunArgs {
    /// The seeds that `--seeds` names, in order; none if it is not given.
    pub fn several(&self) -> Vec<u64> {
        self.seeds.iter().cloned().flatten().collect()
    }
}

/// The policies compared if neither the command line nor the scenario names any.
const DEFAULT_POLICIES: [&str; 3] = ["cfs", "affinity", "balance"];

/// The policies to compare, each known and named once; `said` are those that the input names.
///
/// # Errors
/// [`Invalid`] if one is unknown or named twice.
pub fn policies(args: &RunArgs, said: Option<Vec<String>>) -> anyhow::Result<Vec<String>> {
    let chosen = match (args.policies.is_empty(), said) {
        (false, _) => args.policies.clone(),
        (true, Some(said)) => said,
        (true, None) => DEFAULT_POLICIES.map(String::from).to_vec(),
    };
    for (at, name) in chosen.iter().enumerate() {
        schedulers::known_policy(name)
            .map_err(|message| Invalid::error(format!("--policies: {message}")))?;
        if chosen[..at].contains(name) {
            return Err(Invalid::error(format!(
                "--policies: {name:?} is named twice"
            )));
        }
    }
    Ok(chosen)
}

/// What the command line says about the scenario's keys; later settings win.
///
/// # Errors
/// If something is no assignment or no value.
pub fn overrides(args: &RunArgs) -> Result<Vec<Override>, Problems> {
    let (mut all, mut problems) = (Vec::new(), Problems::default());
    for set in &args.sets {
        all.extend(problems.take(Override::parse("--set", set)));
    }
    problems.or_ok(())?;
    if let Some(duration) = &args.duration {
        // Text, whatever it looks like.
        let value = format!("\"{}\"", with_unit(duration));
        all.push(Override::of("--duration", "run.duration", &value)?);
    }
    if let Some(seed) = args.seed {
        all.push(Override::of("--seed", "run.seed", &seed.to_string())?);
    }
    let seeds = args.several();
    if !seeds.is_empty() {
        all.push(Override::of("--seeds", "run.seeds", &format!("{seeds:?}"))?);
    }
    Ok(all)
}

/// A time on the command line with its unit: a bare number means seconds.
pub fn with_unit(text: &str) -> String {
    let bare = text.contains(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    format!("{text}{}", if bare { "s" } else { "" })
}

/// Reads the scenario with the overrides on top and keeps the cases that the command line names. The files that it
/// names are read, too: `outputs` must not be among them.
///
/// # Errors
/// [`Invalid`]: everything that is wrong with it, or a case that does not exist.
pub fn read(
    args: &RunArgs,
    file: &str,
    text: &str,
    overrides: &[Override],
    outputs: &Outputs,
) -> anyhow::Result<Scenario> {
    let mut scenario = read_all(file, text, overrides).map_err(Invalid::error)?;
    select(&mut scenario, &args.cases)?;
    for file in files(&scenario) {
        outputs.spare(&file)?;
    }
    rtapp::load(&mut scenario)?;
    super::calibration::load(&mut scenario)?;
    Ok(scenario)
}

/// Reads the scenario. If something is wrong with it, names and programs are checked nevertheless, so that fixing them
/// does not take a second round.
fn read_all(file: &str, text: &str, overrides: &[Override]) -> Result<Scenario, Problems> {
    let (found, mut problems) = corun_scenario::read_as_far(file, text, overrides);
    if problems.iter().next().is_none() {
        return Ok(found);
    }
    for case in &found.cases {
        problems.take(setup::check_each(case));
    }
    problems.or_ok(found)
}

/// The files that the cases name.
fn files(scenario: &Scenario) -> Vec<PathBuf> {
    let of_case = |case: &Case| {
        let programs = case.vms.iter().filter_map(|vm| vm.rt_app.as_ref());
        let programs = programs.map(|rt_app| input::named(&rt_app.file));
        let calibrations = case.schedulers.policies.calibrations.iter();
        let calibrations = calibrations.map(|said| input::named(&said.file));
        programs.chain(calibrations).collect::<Vec<_>>()
    };
    scenario.cases.iter().flat_map(of_case).collect()
}

fn select(scenario: &mut Scenario, wanted: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = scenario
        .cases
        .iter()
        .map(|case| case.name.as_str())
        .collect();
    for name in wanted {
        if names == [""] {
            return Err(Invalid::error(format!(
                "--case {name:?}: {} has no cases",
                scenario.file
            )));
        }
        if !names.contains(&name.as_str()) {
            let hint = or_nearest(name, &names);
            return Err(Invalid::error(format!(
                "--case {name:?}: unknown case, {hint}"
            )));
        }
    }
    if !wanted.is_empty() {
        scenario.cases.retain(|case| wanted.contains(&case.name));
    }
    Ok(())
}

/// The scenario's name: its file's without directories and extension.
pub fn stem(name: &str) -> String {
    let stem = Path::new(name).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A run to do.
pub struct Job<'a> {
    /// Everything but policy and seed.
    pub case: &'a Case,
    /// Under this policy.
    pub policy: String,
    /// With this seed.
    pub seed: u64,
    /// Is it the first of those that differ only by seed? Reports show its timeline.
    pub first: bool,
}

impl Job<'_> {
    /// How long it runs, warm-up included.
    pub fn end(&self) -> Nanos {
        let run = &self.case.run;
        run.warm_up.saturating_add(run.duration)
    }
}

/// All runs of a scenario in the order of the results, after making sure that each can be done.
///
/// # Errors
/// [`Invalid`]: everything that keeps one from being done.
pub fn plan<'a>(args: &RunArgs, scenario: &'a Scenario) -> anyhow::Result<Vec<Job<'a>>> {
    let (mut jobs, mut problems) = (Vec::new(), Problems::default());
    for case in &scenario.cases {
        problems.take(setup::check(case));
    }
    problems.or_ok(()).map_err(Invalid::error)?;
    for case in &scenario.cases {
        let said = case.run.policies.clone();
        let said = said.map(|said| said.into_iter().map(|name| name.value).collect());
        for policy in policies(args, said)? {
            let job = |(at, &seed)| Job {
                case,
                policy: policy.clone(),
                seed,
                first: at == 0,
            };
            jobs.extend(case.run.seeds.iter().enumerate().map(job));
        }
    }
    Ok(jobs)
}

/// Does all runs, with their results in the order of the jobs; writes down what happens in a run if that is wanted (and
/// there is one job).
///
/// # Errors
/// The first run that failed. Interrupted, it ends the process and says how many were done.
pub fn carry_out(
    args: &RunArgs,
    all: &[Job<'_>],
    watch: &watch::WatchArgs,
) -> anyhow::Result<Vec<Run>> {
    let pending = Pending::of("run", false)?;
    pending.more(all.len());
    carry_out_while(args, all, watch, || true)
}

/// The same as long as `go_on` says so: after that no run begins, and those of the last jobs are missing.
///
/// # Errors
/// As [`carry_out`].
pub fn carry_out_while(
    args: &RunArgs,
    all: &[Job<'_>],
    watch: &watch::WatchArgs,
    go_on: impl Fn() -> bool + Sync,
) -> anyhow::Result<Vec<Run>> {
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.jobs.map_or_else(cpus, NonZeroUsize::get);
    let total = all.iter().map(Job::end).fold(0, u64::saturating_add);
    let progress = Progress::new(all.len(), total, threads, args.quiet);
    let shown = all.iter().filter(|job| job.first).count();
    let runs = jobs::run_while(all, threads, go_on, |job| {
        let part = watch.part(job.case.run.warm_up, shown);
        one(job, watch, part.filter(|_| job.first), &progress)
    });
    progress.finish();
    runs
}

/// The name of a run.
fn called(job: &Job<'_>) -> String {
    let case = match job.case.name.as_str() {
        "" => String::new(),
        name => format!(", case {name:?}"),
    };
    format!("policy {}{case}, seed {}", job.policy, job.seed)
}

fn one(
    job: &Job<'_>,
    watch: &watch::WatchArgs,
    part: Option<Part>,
    progress: &Progress,
) -> anyhow::Result<Run> {
    let run = &job.case.run;
    let pcpus = job.case.host.topology.pcpus();
    let ran = Ran {
        pcpus,
        policy: &job.policy,
        kernel: schedulers::kernel_version(&job.policy, &job.case.schedulers),
        replay: false,
    };
    let watch = Watch::create(watch, ran, job.end(), part)?;
    let simulation = setup::simulation(job.case, &job.policy, job.seed, watch.observer())
        .map_err(Invalid::error)
        .with_context(|| format!("{} under {}", job.case.name, job.policy))?;
    let outcome = simulation
        .try_run(
            run.warm_up,
            job.end(),
            progress.of_run(called(job), job.end()),
        )
        .with_context(|| called(job))?;
    for note in network::turned_away(&outcome.clients, &job.case.name) {
        progress.note_once(note);
    }
    let mut run = measure::run(&outcome, pcpus);
    run.detail.timeline = watch.close();
    interrupt::run_done();
    Ok(Run {
        policy: job.policy.clone(),
        case: job.case.name.clone(),
        seed: job.seed,
        kernel: schedulers::kernel(&job.policy, &job.case.schedulers),
        ..run
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_numbers_and_ranges() {
        let args = RunArgs {
            seeds: vec![seeds("7").unwrap(), seeds("1..3").unwrap()],
            ..RunArgs::default()
        };
        assert_eq!(args.several(), [7, 1, 2, 3]);
        assert_eq!(seeds("1..1000").unwrap().count(), 1000);
        for (text, hint) in [
            ("", "expected a whole number or a range"),
            ("1..", "expected a whole number or a range"),
            ("-1..2", "expected a whole number or a range"),
            ("1..x", "found \"1..x\""),
            ("3..1", "3 is above 1"),
            ("0..18446744073709551615", "more than 1000"),
        ] {
            let error = seeds(text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
