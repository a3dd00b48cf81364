// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare`: one input under several policies.

mod events;
mod input;
mod jobs;
mod measure;
mod progress;
mod provenance;
mod recording;
mod scenario;
pub mod schedulers;
mod setup;
mod trace;
mod watch;

use crate::failure::Invalid;
use crate::output;
use anyhow::Context;
use corun_report::{Comparison, html, replay, table};
use input::Input;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Compare policies on a modelled or a recorded host
///
/// Runs the input under each policy and prints what every VM got out of it: one table, and on
/// request JSON, a report or a timeline. The first policy is the reference that the others are
/// compared with. The same input, seed and version give the same numbers on every machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A scenario (TOML, see docs/scenario.md) or a recording of a host (text of ftrace, trace-cmd
    /// report or perf script; gzip'ed or not)
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// Policies to compare, the reference first [default: the scenario's, else
    /// cfs,affinity,balance]; `corun policies` lists them
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    policies: Vec<String>,

    /// Run only this case of the scenario; may be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Seed of everything random [default: the scenario's, else 1]
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Several seeds: results are medians with their spread
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    seeds: Vec<u64>,

    /// Length of the measured part: seconds, or a number with a unit such as 500ms
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,

    /// Set any key of the scenario, such as vm.web.count=3; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Print one JSON object instead of tables (docs/schema/compare.schema.json)
    #[arg(long)]
    json: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write the timeline of the run, for ui.perfetto.dev; the run must be a single one
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Write the run's scheduling events as text of ftrace, which this command also reads as a
    /// recording; the run must be a single one
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    events: Option<PathBuf>,

    /// Runs at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun compare experiments/example.toml
      the scenario's own policies, as a table
  corun compare experiments/balance/table1.toml --policies cfs,balance --seeds 1,2,3 --json
      medians over three seeds, for other programs
  corun compare host.toml --set vm.web.count=8 --set scheduler.cfs.latency=24ms
      what if there were eight web VMs, and another CFS?
  corun compare host.ftrace.gz --policies eevdf,balance
      what would balance scheduling have done on the host of this recording?
  corun compare host.toml --policies balance --case \"2 VMs\" --seed 1 --trace out.perfetto-trace
      one run as a timeline

Exit codes: 0 done; 1 a run failed or a file could not be written; 2 wrong usage or invalid input.";

/// The policies compared if neither the command line nor the scenario names any.
const DEFAULT_POLICIES: [&str; 3] = ["cfs", "affinity", "balance"];

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the input is not valid; anything else if a run or writing fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (comparison, about) = match input::open(&args.input)? {
        Input::Scenario { name, text } => scenario::compare(args, &name, text)?,
        Input::Recording { path } => recording::compare(args, &path)?,
    };
    show(args, &comparison, &about)
}

fn show(args: &Args, comparison: &Comparison, about: &html::About) -> anyhow::Result<()> {
    if let Some(file) = &args.report {
        let page = html::page(comparison, about).context("the report")?;
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
        if !args.quiet {
            output::note(&format!("report: {}", file.display()));
        }
    }
    if args.json {
        return output::print(&corun_report::json(comparison)?);
    }
    if let Some(check) = &comparison.replay {
        output::print(&replay::text(check, output::width()))?;
    }
    output::print(&table::text(comparison, output::width()))
}

/// The policies to compare, each known and named once; `said` is what the input names.
fn policies(args: &Args, said: Option<Vec<String>>) -> anyhow::Result<Vec<String>> {
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
