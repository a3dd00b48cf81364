// SPDX-License-Identifier: GPL-2.0-only
//! `corun calibrate`: which slice suits which type of application on a machine, and which limits separate the types.
//!
//! As AQL_Sched's authors do (EuroSys 2016, §3.4): programs of one type each run beside others, 2 to 4
//! vCPUs per pCPU, at slices of 1 to 90 ms; what counts is time per work relative to Xen's 30 ms. The
//! limits between types lie half-way, on a logarithmic scale, between what the programs of both sides
//! show at 30 ms.
//!
//! With `--symbiosis` it answers another question, for another policy: [`symbiosis`].

mod draw;
pub mod guest;
mod here;
mod meter;
mod programs;
mod simulated;
mod symbiosis;
mod table;
mod verdict;

use crate::compare::{input, jobs, runs, setup};
use crate::failure::Invalid;
use crate::output;
use crate::outputs::{self, Outputs};
use anyhow::Context;
use corun_policies::aql::{Calibration, Machine, calibration};
use corun_scenario::{Case, Override, Scenario};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use verdict::Curve;

/// Measure what policies need to know about a machine: the best slice for each type of application, for aql, or how
/// much hardware threads of a core slow each other down, for vsmtio
///
/// Simulates programs of each type alongside others, and writes a file for `[policy.aql] calibration`. The machine is
/// that of AQL_Sched's paper, or with `--host` that of a scenario. A file is valid for machines with the same
/// caches, cores per cache and SMT.
///
/// With `--here` nothing is simulated. The programs run on this machine, in KVM guests that are made for this, or as
/// threads where there can be no guests (`--with`), and ask its kernel for slices (Linux 6.12 and newer). This takes 9
/// minutes (3 with --quick); anything else that runs at the same time distorts it. Guests need access to
/// /dev/kvm; with access to KVM's tracepoints (root) limits for I/O and spinning are found as well. Kernels accept
/// slices up to 100 ms; whether they really last as long as was asked for is measured, too. The guests end with
/// the command, however it ends; nothing else on the machine is changed.
///
/// With `--symbiosis` it runs programs that spend their cycles in different ways, alone and in pairs on the hardware
/// threads of a core, finds the coefficients that best describe how much slower they are in pairs, and writes a file
/// for `[policy.vsmtio] calibration`. The machine is that of the paper on vSMT-IO by default. With `--here` it takes half
/// a minute, and needs cores with two hardware threads and counters of cycles and stalls that corun knows (Intel
/// from Sandy Bridge on, AMD from Zen 4 on).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to write the calibration [default: only the table is shown]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Find the coefficients of symbiosis, for vsmtio
    #[arg(long, conflicts_with_all = ["with", "scheduler", "quick", "svg"])]
    symbiosis: bool,

    /// Run the programs on this machine instead of simulating one
    #[arg(long, conflicts_with_all = ["host", "sets", "scheduler", "jobs"])]
    here: bool,

    /// With --here: what the programs run in
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "auto",
        requires = "here",
        conflicts_with_all = ["host", "sets", "scheduler", "jobs"]
    )]
    with: here::With,

    /// A scenario whose [host] is the machine
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,

    /// Set a key of the machine, such as host.llc=20MB; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Whose slices: corun's dispatcher, which aql uses, or Xen's Credit, as in the paper
    #[arg(long, value_name = "NAME", default_value = "corun", value_parser = ["corun", "credit"])]
    scheduler: String,

    /// Four seeds instead of 24: for a quick look, not precise enough to use
    #[arg(long)]
    quick: bool,

    /// Runs at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = jobs::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    /// Draw the curves to this file, as in Figure 2 of the paper
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print the curves and what follows from them as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun calibrate -o i7-3770.toml
      the machine of AQL_Sched's paper
  corun calibrate --host experiments/example.toml -o mine.toml
      that of a scenario
  sudo corun calibrate --here -o mine.toml && sudo corun host --policy aql --calibration mine.toml
      this machine, and the policy with what was found
  corun compare host.toml --policies credit,aql --set policy.aql.calibration=mine.toml
      what it changes
  corun calibrate --symbiosis --host experiments/vsmtio/pairs.toml -o core.toml
      how the hardware threads of a scenario's cores slow each other down
  sudo corun calibrate --symbiosis --here -o core.toml && sudo corun host --policy vsmtio --calibration core.toml
      those of this machine, and the policy with what was found

Exit codes: 0 done; 1 a run failed or the file could not be written; 2 wrong usage or invalid input.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the machine is not valid; anything else if a run fails or writing does.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let outputs = outputs(args)?;
    if let Some(host) = &args.host {
        outputs.spare(host)?;
    }
    outputs.try_out()?;
    if args.symbiosis {
        return symbiosis::run(args);
    }
    if args.here {
        return on_this_machine(args);
    }
    let simulated::Found {
        machine,
        curves,
        levels,
    } = simulated::run(args)?;
    let found = verdict::calibration(&curves, &levels);
    // Results are shown whether or not the files could be written.
    let saved = save(args, &curves, &found, &machine);
    saved.and(match args.json {
        true => output::json(&verdict::json(&curves, &found, None)),
        false => output::print(&table::text(&curves, &levels, &machine.to_string())),
    })
}

/// The files to write.
fn outputs(args: &Args) -> anyhow::Result<Outputs> {
    Outputs::of([
        ("--output", args.output.as_ref()),
        ("--svg", args.svg.as_ref()),
    ])
}

/// Does the same without a simulator.
fn on_this_machine(args: &Args) -> anyhow::Result<()> {
    let here::Found {
        with,
        machine,
        curves,
        levels,
        turns,
        ..
    } = here::run(args.quick, args.with, args.quiet)?;
    let found = verdict::calibration(&curves, &levels);
    let saved = save(args, &curves, &found, &machine);
    saved.and(match args.json {
        true => output::json(&verdict::json(&curves, &found, Some((with, &turns)))),
        false => {
            let curves = table::text(&curves, &levels, &machine.to_string());
            output::print(&(curves + &here::turns_table(&turns)))
        }
    })
}

fn save(
    args: &Args,
    curves: &[Curve],
    found: &Calibration,
    machine: &Machine,
) -> anyhow::Result<()> {
    if let Some(path) = &args.svg {
        outputs::write(path, &draw::svg(curves, &machine.to_string())).context("--svg")?;
    }
    if let Some(path) = &args.output {
        outputs::write(path, &calibration::write(found, machine)).context("--output")?;
        if !args.quiet {
            output::note(&format!("calibration: {}", path.display()));
        }
    }
    Ok(())
}

fn read(name: &str, text: &str, sets: &[Override], outputs: &Outputs) -> anyhow::Result<Scenario> {
    runs::read(&runs::RunArgs::default(), name, text, sets, outputs)
}

/// A case on the requested machine, or on `paper`'s if none is requested.
fn machine_case(args: &Args, paper: &str) -> anyhow::Result<Case> {
    if let Some(set) = args.sets.iter().find(|set| !set.starts_with("host.")) {
        return Err(Invalid::error(format!(
            "--set {set}: what is calibrated is a machine, expected host.…, such as host.llc=20MB"
        )));
    }
    let sets = args.sets.iter().map(|set| Override::parse("--set", set));
    let sets: Vec<Override> = sets.collect::<Result<_, _>>().map_err(Invalid::error)?;
    let (name, text) = match &args.host {
        Some(path) => {
            let text = input::text(path).map_err(Invalid::error)?;
            (path.display().to_string(), text)
        }
        None => ("the paper's machine".to_string(), paper.to_string()),
    };
    let scenario = read(&name, &text, &sets, &outputs(args)?)?;
    let case = scenario.cases.into_iter().next().context("no case")?;
    setup::check(&case).map_err(Invalid::error)?;
    Ok(case)
}
