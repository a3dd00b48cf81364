// SPDX-License-Identifier: GPL-2.0-only
//! `corun lockstep`: does the simulator run what the kernel ran?

use crate::failure::Invalid;
use crate::output;
use corun_dispatcher::lockstep::{Divergence, Entry, Outcome, Recording, replay};
use corun_model::counted;
use serde_json::json;
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Replay decisions recorded in a kernel through the native build
///
/// A recording made by `corun host --record FILE` holds every callback of the dispatcher in the kernel: its
/// inputs and its decisions. The native build, which the simulator runs, gets the same inputs, and must make
/// the same decisions.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The recording, plain or gzip'ed
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun host --policy balance --for 10s --record decisions.lockstep
  corun lockstep decisions.lockstep

Exit codes: 0 every decision was equal; 1 some differed, or records are missing; 2 no recording.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the file is no recording; anything else if the builds differ.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = args.file.display();
    let invalid = |error: &dyn std::fmt::Display| Invalid::error(format!("{name}: {error}"));
    let file = File::open(&args.file).map_err(|error| invalid(&error))?;
    let recording = Recording::read(BufReader::new(file)).map_err(|error| invalid(&error))?;
    let outcome = replay(&recording);
    match args.json {
        true => output::print(&format!("{:#}\n", in_json(&recording, &outcome)))?,
        false => output::print(&in_words(&recording, &outcome))?,
    }
    judge(&recording, &outcome)
}

/// Lockstep holds if something was compared, nothing differed and nothing is missing.
fn judge(recording: &Recording, outcome: &Outcome) -> anyhow::Result<()> {
    if outcome.diverged > 0 {
        anyhow::bail!(
            "{} of {} differ",
            outcome.diverged,
            counted(outcome.callbacks, "callback")
        );
    }
    if outcome.decisions == 0 {
        anyhow::bail!("the recording holds no decision to compare");
    }
    let Some(lost) = recording.lost else {
        anyhow::bail!("the file was cut short: records are missing at its end");
    };
    if outcome.skipped > 0 || lost > 0 {
        anyhow::bail!(
            "{} could not be replayed, {} lost when recording",
            counted(outcome.skipped, "callback"),
            lost
        );
    }
    Ok(())
}

fn in_words(recording: &Recording, outcome: &Outcome) -> String {
    let mut text = format!(
        "{} for {} on {}: {} compared, {} handed over.\n",
        counted(outcome.callbacks, "callback"),
        counted(outcome.tasks, "task"),
        counted(recording.knobs.pcpus, "pCPU"),
        counted(outcome.decisions, "decision"),
        counted(outcome.inputs, "input")
    );
    let by_op: Vec<String> = outcome
        .by_op
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", by_op.join(", "));
    for under in &outcome.by_policy {
        let _ = writeln!(
            text,
            "under {}: {}, {}, {} different",
            under.policy,
            counted(under.callbacks, "callback"),
            counted(under.decisions, "decision"),
            counted(under.diverged, "callback")
        );
    }
    if recording.lost.is_none() {
        let _ = writeln!(text, "The file was cut short; what is whole was replayed.");
    }
    for found in &outcome.divergences {
        let _ = writeln!(text, "{}", difference(found));
    }
    if outcome.diverged == 0 && outcome.decisions > 0 {
        text += "Every decision of the kernel build was made by the native build, too.\n";
    }
    text
}

fn difference(found: &Divergence) -> String {
    let shown = |entry: Option<Entry>| match entry {
        Some(entry) => format!("kind {} value {}", entry.kind, entry.value),
        None => "nothing more".to_string(),
    };
    format!(
        "record {}, {} of task {}, entry {}: kernel {}, native {}",
        found.record,
        found.op,
        found.task,
        found.entry,
        shown(found.kernel),
        shown(found.native)
    )
}

fn in_json(recording: &Recording, outcome: &Outcome) -> serde_json::Value {
    let by_op: serde_json::Map<String, serde_json::Value> = outcome
        .by_op
        .iter()
        .map(|&(name, count)| (name.to_string(), count.into()))
        .collect();
    let by_policy = outcome.by_policy.iter().map(|under| {
        json!({
            "policy": under.policy, "callbacks": under.callbacks, "decisions": under.decisions,
            "diverged": under.diverged,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "callbacks": outcome.callbacks,
        "tasks": outcome.tasks,
        "decisions": outcome.decisions,
        "inputs": outcome.inputs,
        "by_callback": by_op,
        "by_policy": by_policy.collect::<Vec<_>>(),
        "diverged": outcome.diverged,
        "skipped": outcome.skipped,
        "lost": recording.lost,
        "divergences": outcome.divergences.iter().map(difference).collect::<Vec<_>>(),
    })
}
