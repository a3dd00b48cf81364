// SPDX-License-Identifier: GPL-2.0-only
//! `corun reproduce`: the claims scoreboard.
//!
//! [`claims`] are what the papers say, [`checks`] how that is read off experiments, with [`formula`]s
//! over [`measure`]d values; [`work`] does the runs, [`judge`] comes to verdicts by the rules of
//! `corun_report::claims`.

mod checks;
mod claims;
mod formula;
mod judge;
mod library;
mod measure;
mod work;

use crate::compare::provenance;
use crate::failure::Invalid;
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;
use crate::outputs::{self, Outputs};
use checks::Check;
use claims::Said;
use corun_model::counted;
use corun_report::claims::Scoreboard;
use corun_report::html::About;
use library::Library;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Check the papers' claims: theirs, ours, verdict
///
/// Runs the experiments behind the claims and sets the results beside the papers' values, by fixed
/// rules (docs/reproduce.md): exact, close, direction, holds, missed; out-of-scope with the reason.
/// The same version gives the same numbers on every machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Claims, by name or pattern such as 'balance.*' [default: all]
    #[arg(value_name = "CLAIM")]
    claims: Vec<String>,

    /// Seeds 1 to N [default: those of each experiment]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,

    /// Shorter runs and fewer seeds, as the checks say; else a quarter of the time and two seeds
    #[arg(long)]
    quick: bool,

    /// List claims that are out of scope, too, with the reasons
    #[arg(long)]
    all: bool,

    /// Print one JSON object instead of tables (docs/schema/reproduce.schema.json)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the page docs/claims.md instead
    #[arg(long)]
    markdown: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Claims, experiments and checks from this directory instead of those built in
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,

    /// Runs at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N", value_parser = crate::compare::jobs::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun reproduce --quick
      everything that can be checked, in a few minutes
  corun reproduce 'balance.table1.*'
      some claims, as the experiments have it
  corun reproduce jupiter.fig4_14.overhead --all
      one that is not checked, and why
  corun reproduce --report claims.html --json > claims.json
      for people and for programs

Ctrl-C ends it after the runs under way, and shows the claims whose runs were all done; a second one
ends it at once.

Exit codes: 0 done, whatever the verdicts; 1 a run failed or a file could not be written; 2 wrong
usage, or claims, checks or experiments that are not valid (stderr says where and why); 130
interrupted.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if a claim is unknown or a file is not valid, [`Interrupted`] after Ctrl-C; anything else if
/// a run or writing fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let outputs = Outputs::of([("--report", args.report.as_ref())])?;
    let library = match &args.experiments {
        Some(directory) => {
            let library = Library::of(directory)?;
            for file in library.files() {
                outputs.spare(Path::new(&file.name))?;
            }
            library
        }
        None => Library::built_in(),
    };
    let all = claims::read(&library)?;
    let checks = checks::read(&library, &all)?;
    let wanted = claims::select(&all, &args.claims)?;
    let check = |claim: &Said| {
        let check = checks.checks.get(&claim.id);
        check.filter(|check| judge::lacking(check, &checks).is_empty())
    };
    let possible: Vec<&Check> = wanted.iter().filter_map(|claim| check(claim)).collect();
    outputs.try_out()?;
    let interrupt = Interrupt::heeded()?;
    let measured = work::carry_out(args, &library, &checks, &possible, || !interrupt.came())?;
    let judged = wanted
        .iter()
        .filter(|claim| check(claim).is_none_or(|check| measured.is_complete(check)))
        .map(|claim| judge::judge(claim, &checks, &measured));
    let board = Scoreboard {
        version: env!("CARGO_PKG_VERSION").to_string(),
        quick: args.quick,
        claims: judged.collect::<Result<_, _>>().map_err(Invalid::error)?,
    };
    show(args, &board)?;
    if measured.is_all() {
        return Ok(());
    }
    let (left, all) = (wanted.len() - board.claims.len(), wanted.len());
    let all = counted(all, "claim");
    let told = format!("interrupted: {left} of {all} left out, whose runs were not all done");
    Err(anyhow::Error::new(Interrupted(told)))
}

fn show(args: &Args, board: &Scoreboard) -> anyhow::Result<()> {
    let page = || {
        let about = About {
            command: provenance::this(),
            ..About::default()
        };
        Ok(corun_report::claims::page(board, &about)?)
    };
    let written = outputs::report(args.report.as_ref(), args.quiet, page);
    // Who names a claim wants to hear of it.
    let all = args.all || args.claims.iter().any(|name| !name.contains('*'));
    let text = match (args.json, args.markdown) {
        (true, _) => corun_report::claims::json(board)?,
        (_, true) => corun_report::claims::markdown(board),
        _ => corun_report::claims::text(board, output::width(), all),
    };
    // Results are shown whether or not the page could be written.
    written.and(output::print(&text))
}
