// SPDX-License-Identifier: GPL-2.0-only
//! `corun workloads`: what scenarios can name, and what each does when it is alone.

use crate::compare::demand::of_workloads;
use crate::failure::Invalid;
use crate::output;
use anyhow::Context;
use corun_report::{round, workloads};
use corun_sim::alone::{Alone, VCPUS};
use corun_sim::workload::{Family, Preset, preset, preset_names};

/// List the workloads that scenarios can name, with their sources and their figures on an empty host
///
/// The figures are simulated on the spot: one VM of four vCPUs alone on four pCPUs.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this one, with its programs
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print one JSON array instead
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the page docs/workloads.md instead
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun workloads
      all of them, as a table
  corun workloads hackbench
      one with its sources and programs

Exit codes: 0 done; 1 a workload cannot be run; 2 wrong usage, or no workload of this name.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if there is no workload of this name; anything else if one cannot be run or written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let wanted: Vec<&str> = match &args.name {
        Some(name) => vec![name],
        None => preset_names().collect(),
    };
    let find = |name: &str| {
        let hint = || format!("NAME {name:?}: unknown workload, {}", of_workloads(name));
        let found = preset(name).ok_or_else(|| Invalid::error(hint()))?;
        shown(&found).with_context(|| format!("workload {name}"))
    };
    let shown = wanted
        .into_iter()
        .map(find)
        .collect::<Result<Vec<_>, _>>()?;
    if args.json {
        return output::json(&shown);
    }
    output::print(&match (args.markdown, &args.name, shown.first()) {
        (true, ..) => workloads::markdown(&shown, &families()),
        (false, Some(_), Some(one)) => workloads::text(one, output::width()),
        _ => workloads::table(&shown, output::width()),
    })
}

/// What the members of each family have in common.
fn families() -> Vec<(String, String)> {
    let family = |family: Family| (family.title().to_string(), family.about().to_string());
    Family::ALL.map(family).to_vec()
}

fn shown(preset: &Preset) -> anyhow::Result<workloads::Workload> {
    let threads = preset.threads(preset.default_threads(VCPUS))?;
    let alone = Alone::of(preset)?;
    let family = preset.family();
    Ok(workloads::Workload {
        name: preset.name.to_string(),
        family: family.title().to_string(),
        about: preset.about.to_string(),
        threads: threads
            .into_iter()
            .map(|thread| (thread.name, thread.program.to_string()))
            .collect(),
        clients: preset.clients().iter().map(ToString::to_string).collect(),
        alone: workloads::Alone {
            measured_ns: alone.measured,
            throughput: round(alone.throughput),
            throughput_unit: alone.unit,
            cpu_share: round(alone.cpu_use),
            kernel_share: round(alone.kernel_share),
            spin_share: round(alone.spin_share),
            thread_switches_per_s: round(alone.thread_switches),
            vcpu_wakeups_per_s: round(alone.vcpu_wakeups),
            lock_waits_per_s: round(alone.lock_waits),
            responses_per_s: alone.responses.as_ref().map(|seen| round(seen.rate)),
            response_mean_ns: alone.responses.as_ref().map(|seen| seen.mean as u64),
        },
    })
}
