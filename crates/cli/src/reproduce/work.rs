// SPDX-License-Identifier: GPL-2.0-only
//! The runs that checks and tables need: every run once, whoever needs it, all of them on all cores.

use super::Args;
use super::checks::{Checks, Terms};
use super::library::Library;
use super::measure::Reference;
use crate::compare::runs::{self, Job, RunArgs};
use crate::failure::Invalid;
use crate::outputs::Outputs;
use anyhow::Context;
use corun_model::time::SEC;
use corun_scenario::{Override, Problem, Scenario, or_nearest};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Seeds of a quick run, if the experiment's `quick` says nothing.
const QUICK_SEEDS: usize = 2;
/// By what a quick run's times are divided then, and the lower limit of that.
const QUICK_PART: u64 = 4;
const QUICK_LEAST: u64 = SEC;

/// What is run of an experiment: cases, each under some policies.
type Selection<'a> = BTreeMap<&'a str, BTreeSet<(Option<&'a str>, &'a str)>>;

/// Results of runs, as in `corun compare --json`.
#[derive(Default)]
pub struct Measured {
    /// By experiment, case and policy; one per seed.
    runs: BTreeMap<(String, String, String), BTreeMap<u64, Value>>,
    /// The only case of an experiment, or the empty name.
    only: BTreeMap<String, String>,
    /// Those with a run that never began, since somebody interrupted.
    undone: BTreeSet<(String, String, String)>,
}

impl Measured {
    /// The runs of what is referred to, by seed; `None` if there are none.
    pub fn of(&self, reference: &Reference) -> Option<&BTreeMap<u64, Value>> {
        self.runs.get(&self.key(reference)?)
    }

    /// Were all runs done that these formulas refer to?
    pub fn is_complete(&self, terms: &Terms) -> bool {
        let mut keys = terms.references.values().filter_map(|of| self.key(of));
        keys.all(|key| !self.undone.contains(&key))
    }

    /// Were all runs done?
    pub fn is_all(&self) -> bool {
        self.undone.is_empty()
    }

    fn key(&self, reference: &Reference) -> Option<(String, String, String)> {
        let experiment = &reference.experiment;
        let case = reference.case.as_ref().or(self.only.get(experiment))?;
        Some((experiment.clone(), case.clone(), reference.policy.clone()))
    }
}

/// Runs everything that these formulas refer to, as long as `go_on` says so.
///
/// # Errors
/// [`Invalid`] if an experiment is not valid, or has no such case; anything else if a run fails.
pub fn carry_out(
    args: &Args,
    library: &Library,
    checks: &Checks,
    wanted: &[&Terms],
    go_on: impl Fn() -> bool + Sync,
) -> anyhow::Result<Measured> {
    let selection = select(wanted);
    let mut scenarios = Vec::new();
    for (name, pairs) in &selection {
        let scenario = scenario(args, library, checks, name)?;
        known_cases(wanted, name, &scenario)?;
        scenarios.push((*name, scenario, pairs));
    }
    let run_args = run_args(args, Vec::new());
    let (mut jobs, mut names) = (Vec::new(), Vec::new());
    let mut measured = Measured::default();
    for (name, scenario, pairs) in &scenarios {
        let policies: BTreeSet<&str> = pairs.iter().map(|(_, policy)| *policy).collect();
        let policies = policies.into_iter().map(String::from).collect();
        let planned = runs::plan(&self::run_args(args, policies), scenario)
            .with_context(|| format!("experiment {name}"))?;
        let is_needed = |job: &Job<'_>| {
            let case = Some(job.case.name.as_str());
            pairs.contains(&(case, job.policy.as_str()))
                || pairs.contains(&(None, job.policy.as_str()))
        };
        let needed: Vec<Job<'_>> = planned.into_iter().filter(is_needed).collect();
        names.extend(needed.iter().map(|_| (*name).to_string()));
        jobs.extend(needed);
        if let [case] = &scenario.cases[..] {
            measured.only.insert((*name).to_string(), case.name.clone());
        }
    }
    let done = match jobs.is_empty() {
        true => Vec::new(),
        false => runs::carry_out_while(&run_args, &jobs, &Default::default(), go_on)?,
    };
    let undone = names.iter().zip(&jobs).skip(done.len());
    let key = |(name, job): (&String, &Job<'_>)| {
        (name.clone(), job.case.name.clone(), job.policy.clone())
    };
    measured.undone.extend(undone.map(key));
    for (name, run) in names.into_iter().zip(done) {
        let key = (name, run.case.clone(), run.policy.clone());
        let value = serde_json::to_value(&run)?;
        measured
            .runs
            .entry(key)
            .or_default()
            .insert(run.seed, value);
    }
    Ok(measured)
}

fn select<'a>(wanted: &[&'a Terms]) -> Selection<'a> {
    let mut all = Selection::new();
    for reference in wanted.iter().flat_map(|terms| terms.references.values()) {
        let pair = (reference.case.as_deref(), reference.policy.as_str());
        all.entry(&reference.experiment).or_default().insert(pair);
    }
    all
}

fn run_args(args: &Args, policies: Vec<String>) -> RunArgs {
    RunArgs {
        policies,
        jobs: args.jobs,
        quiet: args.quiet,
        ..RunArgs::default()
    }
}

/// The experiment with as many seeds, and as long, as wanted.
fn scenario(
    args: &Args,
    library: &Library,
    checks: &Checks,
    name: &str,
) -> anyhow::Result<Scenario> {
    let file = library
        .experiment(name)
        .with_context(|| format!("there is no experiment {name:?}"))?;
    let quick = checks.quick.get(name).filter(|_| args.quick);
    let sets = quick.into_iter().flatten();
    let sets = sets.map(|set| Override::parse("quick", set));
    let sets: Vec<Override> = sets.collect::<Result<_, _>>().map_err(Invalid::error)?;
    let run_args = run_args(args, Vec::new());
    let mut scenario = runs::read(
        &run_args,
        &file.name,
        &file.text,
        &sets,
        &Outputs::default(),
    )?;
    for run in scenario.cases.iter_mut().map(|case| &mut case.run) {
        if args.quick && quick.is_none() {
            run.seeds.truncate(QUICK_SEEDS);
            let part = |time: u64| (time / QUICK_PART).max(QUICK_LEAST).min(time);
            (run.warm_up, run.duration) = (part(run.warm_up), part(run.duration));
            run.stagger = run.stagger.map(|most| most.min(run.warm_up));
        }
        if let Some(seeds) = args.seeds {
            run.seeds = (1..=u64::from(seeds)).collect();
        }
    }
    Ok(scenario)
}

/// Has the experiment every case that is referred to?
fn known_cases(wanted: &[&Terms], name: &str, scenario: &Scenario) -> anyhow::Result<()> {
    let cases: Vec<&str> = scenario
        .cases
        .iter()
        .map(|case| case.name.as_str())
        .collect();
    let wrong = |terms: &Terms, text: &str, message: String| -> Problem {
        terms.problem(format!("[{text}]: {message}"))
    };
    for terms in wanted {
        let references = terms.references.iter();
        for (text, reference) in references.filter(|(_, of)| of.experiment == name) {
            let message = match &reference.case {
                None if cases.len() > 1 => {
                    format!("{name} has several cases: say one of {}", cases.join(", "))
                }
                Some(case) if cases == [""] => {
                    format!("{name} has no cases: expected none, found {case:?}")
                }
                Some(case) if !cases.contains(&case.as_str()) => {
                    let hint = or_nearest(case, &cases);
                    format!("{name} has no case {case:?}, {hint}")
                }
                _ => continue,
            };
            return Err(Invalid::error(wrong(terms, text, message)));
        }
    }
    Ok(())
}
