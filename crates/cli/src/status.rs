// SPDX-License-Identifier: GPL-2.0-only
//! `corun status`: what the daemon says of itself and its VMs.

use crate::output;
use corun_linux::socket;
use corun_linux::socket::protocol::Command;
use corun_linux::status::{HostStatus, VmNow};
use std::fmt::Write;
use std::path::PathBuf;

/// Show what the `corun host` that runs here knows of itself and its VMs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,

    /// Print all of it as JSON, vCPUs included
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun status
      policy, promises, VMs
  sudo corun status --json | jq '.vms[].vcpus[] | select(.ready_s > 10)'
      for programs; docs/socket.md has the fields

Exit codes: 0 done; 1 no daemon answers; 2 wrong usage.";

/// Runs the command.
///
/// # Errors
/// If no daemon answers.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = socket::call::<HostStatus>(&args.socket, &Command::Status)?;
    match args.json {
        true => output::json(&status),
        false => output::print(&in_words(&status)),
    }
}

fn in_words(status: &HostStatus) -> String {
    let mut text = format!(
        "corun {} in charge for {:.0} s, policy {} for {:.0} s\n",
        status.version, status.for_s, status.policy, status.policy_for_s
    );
    let promises = [
        status
            .longest_wait_s
            .map(|time| format!("no vCPU waits for {time} s")),
        status
            .most_ready_percent
            .map(|share| format!("no VM is ready for {share} % of its time")),
        status
            .most_pressure_percent
            .map(|share| format!("CPU pressure below {share} %")),
    ];
    let promises: Vec<String> = promises.into_iter().flatten().collect();
    if !promises.is_empty() {
        text += &format!("promised: {}\n", promises.join("; "));
    }
    if !status.forced.is_empty() {
        text += &format!("forced: {}\n", status.forced.join(", "));
    }
    if status.lapses > 0 {
        text += &format!("the daemon hung {} times\n", status.lapses);
    }
    if status.holds.begun > 0 {
        text += &format!("{}\n", status.holds);
    }
    if let Some(polling) = &status.halt_poll {
        text += &format!("{polling}\n");
    }
    for note in &status.notes {
        text += &format!("note: {note}\n");
    }
    text += &format!(
        "{:<24} {:>8} {:>6} {:>6} {:<15} {:>9} {:>9} {:>9} {:>9}\n",
        "VM", "PID", "vCPUs", "weight", "placement", "run s", "ready s", "costop s", "helpers s"
    );
    status.vms.iter().for_each(|vm| line(&mut text, vm));
    text
}

fn line(text: &mut String, vm: &VmNow) {
    let weight = vm
        .weight
        .map_or("-".to_string(), |weight| weight.to_string());
    let sum = |of: fn(&corun_linux::status::VcpuNow) -> f64| vm.vcpus.iter().map(of).sum::<f64>();
    let placement = match vm.under_policy {
        true => vm.placement.as_str(),
        false => "(fair order)",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<24} {:>8} {:>6} {:>6} {:<15} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
        vm.name,
        vm.pid,
        vm.vcpus.len(),
        weight,
        placement,
        sum(|vcpu| vcpu.run_s),
        sum(|vcpu| vcpu.ready_s),
        sum(|vcpu| vcpu.costop_s),
        vm.helpers.iter().map(|helpers| helpers.run_s).sum::<f64>()
    );
}
