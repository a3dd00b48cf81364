// SPDX-License-Identifier: GPL-2.0-only
//! The programs in a simulation of the machine.

use super::meter::{self, Levels};
use super::programs::{self, CONSOLIDATION, DEFAULT, SEEDS, SLICES, SUBJECTS};
use super::verdict::{Curve, Point};
use super::{Args, machine_case, read};
use crate::compare::calibration::machine;
use crate::compare::progress::Progress;
use crate::compare::{jobs, setup};
use crate::failure::Invalid;
use crate::outputs::Outputs;
use anyhow::Context;
use corun_model::Nanos;
use corun_policies::aql::Machine;
use corun_scenario::Case;
use std::num::NonZeroUsize;
use std::thread;

/// What was found.
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// Time per work, of each subject.
    pub curves: Vec<Curve>,
    /// What the counters of each showed.
    pub levels: Vec<Levels>,
}

/// A run to do.
struct Job {
    /// Its place among the subjects.
    subject: usize,
    /// Its slice's place among the slices.
    slice: usize,
    case: Case,
    seed: u64,
}

/// Runs the programs.
///
/// # Errors
/// [`Invalid`] if the machine is not valid; anything else if a run fails.
pub fn run(args: &Args) -> anyhow::Result<Found> {
    let all = plan(args)?;
    let here = all.first().map(|job| machine(&job.case));
    let here = here.context("nothing to do")?;
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.jobs.map_or_else(cpus, NonZeroUsize::get);
    let policy = match args.scheduler.as_str() {
        "credit" => "credit",
        _ => "fair",
    };
    let total = all.iter().map(|job| end(&job.case)).sum();
    let progress = Progress::new(all.len(), total, threads, args.quiet);
    let done = jobs::run(&all, threads, |job| one(job, policy, &progress));
    progress.finish();
    let done = done?;
    let mut curves: Vec<Curve> = SUBJECTS.iter().map(|of| Curve::new(of.kind)).collect();
    let mut levels: Vec<Levels> = SUBJECTS.iter().map(|_| Levels::default()).collect();
    for (job, (time, seen)) in all.iter().zip(done) {
        curves[job.subject].points.push(Point {
            slice: job.slice,
            case: job.case.name.clone(),
            time,
        });
        if job.slice == DEFAULT {
            levels[job.subject].extend(seen);
        }
    }
    Ok(Found {
        machine: here,
        curves,
        levels,
    })
}

/// Every combination of subject, slice, consolidation and seed.
fn plan(args: &Args) -> anyhow::Result<Vec<Job>> {
    let host = host(args)?;
    let seeds = 1..=if args.quick { 4 } else { SEEDS };
    let mut all = Vec::new();
    for (subject, of) in SUBJECTS.iter().enumerate() {
        for (slice, ms) in SLICES.iter().enumerate() {
            for consolidation in CONSOLIDATION {
                let text = programs::scenario(of, &host, consolidation, *ms);
                let scenario = read("calibration", &text, &[], &Outputs::default())?;
                let case = scenario.cases.into_iter().next().context("no case")?;
                let case = Case {
                    name: format!("{consolidation} per pCPU"),
                    ..case
                };
                all.extend(seeds.clone().map(|seed| Job {
                    subject,
                    slice,
                    case: case.clone(),
                    seed,
                }));
            }
        }
    }
    Ok(all)
}

/// The machine, reduced to one last-level cache: what calibration looks at goes on within one.
fn host(args: &Args) -> anyhow::Result<programs::Host> {
    let case = machine_case(args, programs::PAPER)?;
    let costs = setup::host_params(&case);
    Ok(programs::Host::of(&machine(&case), &costs))
}

/// When a run ends.
fn end(case: &Case) -> Nanos {
    case.run.warm_up + case.run.duration
}

/// Time per work of the subject, and what its counters show.
fn one(job: &Job, policy: &str, progress: &Progress) -> anyhow::Result<(f64, Vec<meter::Level>)> {
    let run = &job.case.run;
    let simulation =
        setup::simulation(&job.case, policy, job.seed, None).map_err(Invalid::error)?;
    let (meter, seen) = meter::meter(run.warm_up);
    let metered = job.slice == DEFAULT && policy == "fair";
    let simulation = if metered {
        simulation.with_policy(meter)
    } else {
        simulation
    };
    let end = end(&job.case);
    let name = format!("{}, {}", SUBJECTS[job.subject].kind, job.case.name);
    let outcome = simulation.try_run(run.warm_up, end, progress.of_run(name, end))?;
    let time = match outcome
        .clients
        .iter()
        .find(|client| client.name == "visitors")
    {
        Some(client) => client.responses.mean(),
        None => outcome
            .vms
            .first()
            .map_or(f64::NAN, |vm| 1.0 / vm.achieved.throughput),
    };
    Ok((time, meter::taken(&seen)))
}
