// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare`: one input under several policies.

pub mod beginnings;
pub mod calibration;
mod cgroups;
pub mod demand;
mod disks;
mod events;
pub mod input;
pub mod jobs;
pub mod measure;
pub mod network;
pub mod progress;
pub mod provenance;
pub mod reading;
pub mod recorded_host;
mod recording;
pub mod rtapp;
pub mod runs;
mod scenario;
pub mod schedulers;
pub mod setup;
mod spans;
mod tee;
mod trace;
mod watch;
mod watched;

use crate::failure::Invalid;
use crate::output;
use crate::outputs::{self, Outputs};
use corun_report::{Comparison, csv, html, replay, table};
use input::Input;
use recorded_host::RecordedUnder;
use runs::RunArgs;
use std::path::PathBuf;

/// Compare policies on a modelled or a recorded host
///
/// Runs the input under each policy and prints what every VM got out of it: one table, and on
/// request JSON, a report or a timeline. The first policy is the reference that the others are
/// compared with. A recording is replayed: with seed 0 all VMs begin as recorded, with other seeds they begin at
/// other times (default: seeds 0, 1 and 2). The same input, seed and version give the same numbers on every machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A scenario (TOML, see docs/scenario.md) or a recording of a host (by `corun record`, ftrace,
    /// trace-cmd report, perf script or Perfetto; gzip'ed or not); - reads the standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    #[command(flatten)]
    runs: RunArgs,

    #[command(flatten)]
    recorded: RecordedUnder,

    /// Replay a recording several times: what it cannot tell is assumed in different ways, up to both extremes
    #[arg(long)]
    extremes: bool,

    /// Print one JSON object instead of tables (docs/schema/compare.schema.json)
    #[arg(long)]
    json: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write every number of every run as comma-separated values, a line for each; - prints them
    /// instead of tables
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    #[command(flatten)]
    watch: watch::WatchArgs,
}

/// Spans on all timelines of a report: some 12 bytes each in the file.
const SPANS_OF_A_REPORT: usize = 60_000;

const EXAMPLES: &str = "\
Examples:
  corun compare experiments/example.toml
      the scenario's own policies, as a table
  corun compare experiments/balance/table1.toml --policies cfs,balance --seeds 1..8 --json
      medians over eight seeds, for other programs
  corun compare host.toml --set vm.web.count=8 --set scheduler.cfs.latency=24ms
      what if there were eight web VMs, and another CFS?
  corun compare host.ftrace.gz --policies eevdf,balance
      what would balance scheduling have done on the host of this recording?
  corun compare host.ftrace.gz --policies eevdf,balance --extremes --report replay.html
      the same, bounded by the extremes of what a recording cannot tell
  ssh host cat recording.corun | corun compare - --policies eevdf,balance
      the same for another host, without a file in between; a scenario that a program writes is read likewise
  corun compare host.toml --policies balance --case \"2 VMs\" --seed 1 --trace out.perfetto-trace
      one run as a timeline
  corun compare host.toml --policies cfs --trace out.perfetto-trace --trace-from 2s --trace-for 50ms
      only 50 ms of it, from the third second on: a small file

Exit codes: 0 done; 1 a run failed or a file could not be written; 2 wrong usage or invalid input;
130 interrupted: results are shown once all runs are done, so none are.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the input is not valid; anything else if a run or writing fails.
pub fn run(args: &mut Args) -> anyhow::Result<()> {
    if args.report.is_some() {
        args.watch.spans = SPANS_OF_A_REPORT;
    }
    let [trace, events] = args.watch.files();
    let outputs = Outputs::of([
        ("--report", args.report.as_ref()),
        ("--csv", args.csv.as_ref()),
        trace,
        events,
    ])?;
    outputs::csv_is_printed(args.csv.as_ref(), args.json)?;
    let input = input::open(&args.input)?;
    outputs.spare(input::place(&args.input))?;
    let (comparison, about) = match input {
        Input::Scenario { name, .. } if args.extremes => {
            return Err(Invalid::error(format!(
                "--extremes does not go with a scenario: {name} tells everything"
            )));
        }
        Input::Scenario { name, text } => {
            args.recorded.refuse(&name)?;
            scenario::compare(args, &outputs, &name, text)?
        }
        Input::Recording(unread) => recording::compare(args, &outputs, unread)?,
    };
    show(args, &comparison, &about)
}

fn show(args: &Args, comparison: &Comparison, about: &html::About) -> anyhow::Result<()> {
    let page = || Ok(html::page(comparison, about)?);
    let written = outputs::report(args.report.as_ref(), args.runs.quiet, page);
    // Results are shown whether or not the files could be written.
    let table = || Ok(csv::runs(&comparison.runs)?);
    let written = written.and(outputs::csv(args.csv.as_ref(), args.runs.quiet, table));
    let written = written.and(args.watch.written());
    match outputs::csv_is_printed(args.csv.as_ref(), args.json)? {
        true => written,
        false => written.and(print(args, comparison)),
    }
}

fn print(args: &Args, comparison: &Comparison) -> anyhow::Result<()> {
    if args.json {
        return output::print(&corun_report::json(comparison)?);
    }
    if let Some(check) = &comparison.replay {
        output::print(&replay::text(
            check,
            comparison.confidence.as_ref(),
            output::width(),
        ))?;
    }
    output::print(&table::text(comparison, output::width()))
}
