// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a modelled host: every case, policy and seed is a run.

use super::progress::Progress;
use super::watch::Watch;
use super::{Args, jobs, measure, policies, provenance, setup};
use crate::failure::Invalid;
use anyhow::Context;
use corun_report::{Comparison, Run, html};
use corun_scenario::{Case, Override, Problems, Scenario, or_nearest};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

/// A run to do.
struct Job<'a> {
    case: &'a Case,
    policy: String,
    seed: u64,
}

/// Runs the scenario `text` of the file `name` as the command line says.
///
/// # Errors
/// [`Invalid`] if the scenario or the selection is not valid; anything else if a run fails.
pub fn compare(args: &Args, name: &str, text: String) -> anyhow::Result<(Comparison, html::About)> {
    let overrides = overrides(args).map_err(Invalid::error)?;
    let mut scenario = corun_scenario::read(name, &text, &overrides).map_err(Invalid::error)?;
    select(&mut scenario, &args.cases)?;
    let jobs = plan(args, &scenario)?;
    let runs = carry_out(args, &jobs)?;
    let comparison = Comparison {
        version: env!("CARGO_PKG_VERSION").to_string(),
        scenario: stem(name),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        replay: None,
        runs,
    };
    let about = html::About {
        command: provenance::command(std::env::args()),
        facts: provenance::facts(&scenario.cases),
        notes: Vec::new(),
        input: Some(text),
    };
    Ok((comparison, about))
}

fn stem(name: &str) -> String {
    let stem = Path::new(name).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// What the command line says about the scenario's keys, the later the stronger.
fn overrides(args: &Args) -> Result<Vec<Override>, Problems> {
    let sets = args.sets.iter().map(|set| Override::parse("--set", set));
    let mut all = sets.collect::<Result<Vec<_>, _>>()?;
    if let Some(duration) = &args.duration {
        // A bare number means seconds; text says so whatever it looks like.
        let seconds = !duration.is_empty() && duration.bytes().all(|b| b.is_ascii_digit());
        let unit = if seconds { "s" } else { "" };
        let value = format!("\"{duration}{unit}\"");
        all.push(Override::of("--duration", "run.duration", &value)?);
    }
    if let Some(seed) = args.seed {
        all.push(Override::of("--seed", "run.seed", &seed.to_string())?);
    }
    if !args.seeds.is_empty() {
        all.push(Override::of(
            "--seeds",
            "run.seeds",
            &format!("{:?}", args.seeds),
        )?);
    }
    Ok(all)
}

/// Keeps the cases that the command line names.
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

/// All runs in the order of the results, after making sure that each can be done.
fn plan<'a>(args: &Args, scenario: &'a Scenario) -> anyhow::Result<Vec<Job<'a>>> {
    let mut jobs = Vec::new();
    for case in &scenario.cases {
        setup::check(case).map_err(Invalid::error)?;
        let said = case.run.policies.clone();
        let said = said.map(|said| said.into_iter().map(|name| name.value).collect());
        for policy in policies(args, said)? {
            let job = |&seed| Job {
                case,
                policy: policy.clone(),
                seed,
            };
            jobs.extend(case.run.seeds.iter().map(job));
        }
    }
    Watch::check(args, jobs.len(), &selection(&jobs))?;
    Ok(jobs)
}

/// How to select the first of several runs.
fn selection(jobs: &[Job<'_>]) -> String {
    let Some(job) = jobs.first() else {
        return "--policies, --case and --seed".to_string();
    };
    let case = match job.case.name.as_str() {
        "" => String::new(),
        name => format!(" --case {name:?}"),
    };
    format!("--policies {}{case} --seed {}", job.policy, job.seed)
}

fn carry_out(args: &Args, all: &[Job<'_>]) -> anyhow::Result<Vec<Run>> {
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.jobs.map_or_else(cpus, NonZeroUsize::get);
    let length = |job: &Job<'_>| job.case.run.warm_up + job.case.run.duration;
    let total = all.iter().map(length).fold(0, u64::saturating_add);
    let progress = Progress::new(all.len(), total, threads, args.quiet);
    let runs = jobs::run(all, threads, |job| one(job, args, &progress));
    progress.finish();
    runs
}

fn one(job: &Job<'_>, args: &Args, progress: &Progress) -> anyhow::Result<Run> {
    let run = &job.case.run;
    let pcpus = job.case.host.topology.pcpus();
    let watch = Watch::create(args, pcpus, &job.policy)?;
    let simulation = setup::simulation(job.case, &job.policy, job.seed, watch.observer())
        .map_err(Invalid::error)
        .with_context(|| format!("{} under {}", job.case.name, job.policy))?;
    let end = run.warm_up.saturating_add(run.duration);
    let outcome = simulation.run(run.warm_up, end, progress.of_run());
    watch.close()?;
    let host = &job.case.host;
    Ok(Run {
        policy: job.policy.clone(),
        case: job.case.name.clone(),
        seed: job.seed,
        ..measure::run(&outcome, host.topology.pcpus())
    })
}
