// SPDX-License-Identifier: GPL-2.0-only
//! `corun preflight`: what speaks against taking over this host.

use crate::output;
use anyhow::bail;
use clap::builder::PossibleValuesParser;
use corun_linux::preflight::{FORCIBLE, Finding, Verdict};
use corun_linux::{host, safety};
use std::path::PathBuf;

/// Check whether this host can be taken over, without touching it
///
/// Looks at the kernel (version, options, known bugs), at what the host is doing, and at what its VMs have been
/// promised. `corun host` does the same before it starts. A finding makes it impossible to take over, or is
/// dangerous: then `corun host` refuses unless it is forced.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ignore this finding, as `corun host` would with the same option; may be repeated
    #[arg(long, value_name = "FINDING", value_parser = PossibleValuesParser::new(FORCIBLE))]
    force: Vec<String>,

    /// Directory that remembers how runs ended
    #[arg(long, value_name = "DIR", default_value = safety::STATE_DIR)]
    state_dir: PathBuf,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun preflight
      what is in the way, why it matters, and what to do
  sudo corun preflight --json | jq .refused[].id
      for programs

Exit codes: 0 nothing stands in the way; 1 something does.";

/// Runs the command.
///
/// # Errors
/// If something stands in the way.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let verdict = host::verdict(&args.state_dir, &args.force);
    match args.json {
        true => output::json(&verdict)?,
        false => output::print(&output::wrapped(in_words(&verdict)))?,
    }
    match verdict.refused.len() {
        0 => Ok(()),
        1 => bail!("one finding stands in the way"),
        count => bail!("{count} findings stand in the way"),
    }
}

fn in_words(verdict: &Verdict) -> String {
    let list = |title: &str, findings: &[Finding]| {
        let lines = findings.iter().map(|finding| format!("- {finding}\n"));
        let lines: String = lines.collect();
        match lines.is_empty() {
            true => lines,
            false => format!("{title}\n{lines}"),
        }
    };
    let text = list("In the way:", &verdict.refused) + &list("Forced:", &verdict.forced);
    match verdict.refused.is_empty() {
        true => text + "Nothing stands in the way.\n",
        false => text,
    }
}
