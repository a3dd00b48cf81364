// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a modelled host: every case, policy and seed is a run.

use super::runs::{self, Job};
use super::{Args, network, provenance, rtapp, schedulers};
use crate::failure::Invalid;
use crate::output;
use crate::outputs::Outputs;
use corun_report::{Comparison, html};

/// Runs the scenario `text` of the file `name` as the command line says.
///
/// # Errors
/// [`Invalid`] if the scenario or the selection is not valid; anything else if a run fails.
pub fn compare(
    args: &Args,
    outputs: &Outputs,
    name: &str,
    text: String,
) -> anyhow::Result<(Comparison, html::About)> {
    let overrides = runs::overrides(&args.runs).map_err(Invalid::error)?;
    let scenario = runs::read(&args.runs, name, &text, &overrides, outputs)?;
    let jobs = runs::plan(&args.runs, &scenario)?;
    for job in &jobs {
        args.watch.window(job.end())?;
    }
    args.watch.check(jobs.len(), &selection(&jobs))?;
    outputs.try_out()?;
    let mut notes = unheeded(&args.runs.sets, &jobs);
    notes.iter().for_each(|note| output::note(note));
    let done = runs::carry_out(&args.runs, &jobs, &args.watch)?;
    for note in network::overloaded(&done) {
        output::note(&note);
        notes.push(note);
    }
    let comparison = Comparison {
        version: env!("CARGO_PKG_VERSION").to_string(),
        scenario: runs::stem(name),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        replay: None,
        confidence: None,
        notes: notes.clone(),
        runs: done,
    };
    let about = html::About {
        command: provenance::this(),
        next: provenance::next(&args.input, &args.runs, &selection(&jobs)),
        facts: provenance::facts(&scenario.cases),
        notes,
        input: Some(text),
    };
    Ok((comparison, about))
}

/// What some policy, or the guests, cannot do of what the scenario asks for, and no policy of what the command line
/// sets; each reported once.
fn unheeded(sets: &[String], jobs: &[Job<'_>]) -> Vec<String> {
    let mut policies: Vec<&str> = Vec::new();
    for job in jobs {
        if !policies.contains(&job.policy.as_str()) {
            policies.push(&job.policy);
        }
    }
    let mut notes = schedulers::sets_unheeded(sets, &policies);
    let mut of_policies = schedulers::Unheeded::default();
    for job in jobs {
        schedulers::unheeded(&job.policy, job.case, &mut of_policies);
    }
    notes.extend(of_policies.told());
    for job in jobs {
        let never_there = network::never_there(job.case);
        for note in rtapp::unheeded(job.case).into_iter().chain(never_there) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// How to select the first of several runs.
fn selection(jobs: &[Job<'_>]) -> String {
    let Some(job) = jobs.first() else {
        return "--policies, --case and --seed".to_string();
    };
    let case = match job.case.name.as_str() {
        "" => String::new(),
        // A name may look like an option.
        name => format!(" --case={}", provenance::quoted(name)),
    };
    format!("--policies {}{case} --seed {}", job.policy, job.seed)
}
