// SPDX-License-Identifier: GPL-2.0-only
//! `corun reproduce`: the claims scoreboard.
//!
//! [`claims`] are what the papers say, [`checks`] how to read that off experiments, with [`formula`]s over [`measure`]d
//! values; [`work`] does the runs, [`judge`] comes to verdicts by the rules of `corun_report::claims`. [`tables`] of
//! the documents are filled likewise, in their [`places`].

mod checks;
mod claims;
mod formula;
mod judge;
mod library;
mod measure;
mod places;
mod seen;
mod tables;
mod work;

use crate::compare::provenance;
use crate::failure::Invalid;
use crate::interrupt::{Interrupt, Interrupted};
use crate::numbers;
use crate::output;
use crate::outputs::{self, Outputs};
use checks::{Checks, Table, Terms};
use claims::Said;
use corun_model::counted;
use corun_report::claims::Scoreboard;
use corun_report::html::About;
use corun_report::tables::Tables;
use library::Library;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use work::Measured;

/// Check the papers' claims: their value, ours, and a verdict
///
/// Runs the experiments behind the claims, compares the results with the papers' values, and gives a verdict by
/// fixed rules (docs/reproduce.md): exact, close, direction, holds or missed; or out-of-scope, with the reason.
/// The same version gives the same numbers on every machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Claims, by name or pattern such as 'balance.*' [default: all]; with --tables, tables
    #[arg(value_name = "CLAIM")]
    names: Vec<String>,

    /// Seeds 1 to N [default: those of each experiment]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::within::<u32>(1..=1000))]
    seeds: Option<u32>,

    /// Shorter runs and fewer seeds: those that a check names, else a quarter of the time and two seeds
    #[arg(long)]
    quick: bool,

    /// Also list claims that are out of scope, with the reasons
    #[arg(long)]
    all: bool,

    /// Show the tables of the documents instead: those of the papers beside ours, and others
    #[arg(long, conflicts_with_all = ["all", "report"])]
    tables: bool,

    /// Also update the tables in the pages of this directory, each between the comments
    /// `<!-- table NAME -->` and `<!-- end of table -->`
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    pages: Option<PathBuf>,

    /// Print one JSON object instead of tables (docs/schema/reproduce.schema.json, tables.schema.json)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the page docs/claims.md instead; with --tables, the tables as Markdown
    #[arg(long)]
    markdown: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Claims, experiments and checks from this directory instead of those built in
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,

    /// Runs at the same time [default: one per CPU]; does not change results
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::compare::jobs::at_least_one)]
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
  corun reproduce --tables 'balance.*'
      tables of the papers with ours beside them, and others of the documents

Ctrl-C ends it after the runs under way, and shows the claims (or tables) whose runs were all
done; a second one ends it at once.

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
    let wanted = Wanted::of(args, &all, &checks)?;
    let pages = match &args.pages {
        Some(directory) => places::pages(directory, &checks.names_of_tables())?,
        None => Vec::new(),
    };
    outputs.try_out()?;
    let interrupt = Interrupt::heeded()?;
    let measured = work::carry_out(args, &library, &checks, &wanted.terms(&checks), || {
        !interrupt.came()
    })?;
    let board = wanted.board(args, &checks, &measured)?;
    let tables = wanted.tables(args, &measured)?;
    let shown = match args.tables {
        true => show_tables(args, &tables),
        false => show(args, &board),
    };
    let changed = places::write(&pages, &tables.tables)?;
    if let Some(directory) = args.pages.as_ref().filter(|_| pages.is_empty()) {
        output::note(&format!(
            "--pages {}: no page has a place for a table, written `<!-- table NAME -->` and `<!-- end of table -->`",
            directory.display()
        ));
    } else if args.pages.is_some() && !args.quiet {
        output::note(&format!("{} changed", counted(changed, "page")));
    }
    shown?;
    if measured.is_all() {
        return Ok(());
    }
    let told = format!(
        "interrupted: {} left out, whose runs were not all done",
        wanted.left(&board, &tables)
    );
    Err(anyhow::Error::new(Interrupted(told)))
}

/// What the command line asks for.
struct Wanted<'a> {
    claims: Vec<&'a Said>,
    tables: Vec<&'a Table>,
}

impl<'a> Wanted<'a> {
    fn of(args: &Args, claims: &'a [Said], checks: &'a Checks) -> anyhow::Result<Self> {
        let names = &args.names;
        let tables = match (args.tables, &args.pages) {
            (true, _) => tables::select(&checks.tables, names)?,
            (false, Some(_)) => checks.tables.iter().collect(),
            (false, None) => Vec::new(),
        };
        let claims = match args.tables {
            true => Vec::new(),
            false => claims::select(claims, names)?,
        };
        Ok(Self { claims, tables })
    }

    /// The formulas of everything that can be checked.
    fn terms(&self, checks: &'a Checks) -> Vec<&'a Terms> {
        let checks = self
            .claims
            .iter()
            .filter_map(|claim| judge::possible(claim, checks));
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let rows = rows.map(|row| &row.terms);
        checks.map(|check| &check.terms).chain(rows).collect()
    }

    fn board(
        &self,
        args: &Args,
        checks: &Checks,
        measured: &Measured,
    ) -> anyhow::Result<Scoreboard> {
        let is_complete = |claim: &&&Said| {
            let check = judge::possible(claim, checks);
            check.is_none_or(|check| measured.is_complete(&check.terms))
        };
        let judged = self.claims.iter().filter(is_complete);
        let judged = judged.map(|claim| judge::judge(claim, checks, measured));
        let claims: Vec<_> = judged.collect::<Result<_, _>>().map_err(Invalid::error)?;
        Ok(Scoreboard {
            version: env!("CARGO_PKG_VERSION").to_string(),
            quick: args.quick,
            left_out: self.claims.len() - claims.len(),
            claims,
        })
    }

    fn tables(&self, args: &Args, measured: &Measured) -> anyhow::Result<Tables> {
        let complete = self
            .tables
            .iter()
            .filter(|table| tables::is_complete(table, measured));
        let filled = complete.map(|table| tables::fill(table, measured));
        Ok(Tables {
            version: env!("CARGO_PKG_VERSION").to_string(),
            quick: args.quick,
            tables: filled.collect::<Result<_, _>>().map_err(Invalid::error)?,
        })
    }

    /// What is not shown since its runs were not all done, in words.
    fn left(&self, board: &Scoreboard, tables: &Tables) -> String {
        let told = |all: usize, shown: usize, what: &str| {
            (all > 0).then(|| format!("{} of {}", all - shown, counted(all, what)))
        };
        let claims = told(self.claims.len(), board.claims.len(), "claim");
        let tables = told(self.tables.len(), tables.tables.len(), "table");
        let all: Vec<String> = claims.into_iter().chain(tables).collect();
        all.join(" and ")
    }
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
    // Claims that were named are told of, whatever their verdict.
    let all = args.all || args.names.iter().any(|name| !name.contains('*'));
    let text = match (args.json, args.markdown) {
        (true, _) => corun_report::claims::json(board)?,
        (_, true) => corun_report::claims::markdown(board),
        _ => corun_report::claims::text(board, output::width(), all),
    };
    // Results are shown whether or not the page could be written.
    written.and(output::print(&text))
}

fn show_tables(args: &Args, tables: &Tables) -> anyhow::Result<()> {
    use corun_report::tables::{json, markdown, text};
    let text = match (args.json, args.markdown) {
        (true, _) => json(tables)?,
        (_, true) => tables
            .tables
            .iter()
            .map(markdown)
            .collect::<Vec<_>>()
            .join("\n"),
        _ => text(tables, output::width()),
    };
    output::print(&text)
}
