// SPDX-License-Identifier: GPL-2.0-only
//! `corun status`: what the daemon reports about itself and its VMs.

use crate::output;
use corun_linux::socket;
use corun_linux::socket::protocol::Command;
use corun_linux::status::{HostStatus, VcpuNow, VmNow};
use corun_model::counted;
use std::path::PathBuf;

/// Show the state of the `corun host` that runs here, and of its VMs
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
        false => output::print(&(output::wrapped(in_words(&status)) + &table(&status, width()))),
    }
}

fn in_words(status: &HostStatus) -> String {
    let mut text = format!(
        "corun {} in charge for {:.0} s, policy {} for {:.0} s\n",
        status.version, status.for_s, status.policy, status.policy_for_s
    );
    let promises = promises(status);
    if !promises.is_empty() {
        text += &format!("promised: {}\n", promises.join("; "));
    }
    if !status.forced.is_empty() {
        text += &format!("forced: {}\n", status.forced.join(", "));
    }
    if status.lapses > 0 {
        text += &format!("the daemon hung {}\n", counted(status.lapses, "time"));
    }
    if status.cgroups.crowded > 0 {
        text += &format!("{}\n", status.cgroups);
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
    text
}

/// What the host was promised, in words.
fn promises(status: &HostStatus) -> Vec<String> {
    let promises = [
        status
            .max_wait_s
            .map(|time| format!("no vCPU waits for {time} s")),
        status
            .max_ready_percent
            .map(|share| format!("no VM is ready for {share} % of its time")),
        status
            .max_pressure_percent
            .map(|share| format!("CPU pressure below {share} %")),
    ];
    promises.into_iter().flatten().collect()
}

/// Columns for the table; if it does not go to a terminal, each VM has one line.
fn width() -> u16 {
    output::known_width().unwrap_or(250)
}

/// The table of VMs.
fn table(status: &HostStatus, width: u16) -> String {
    let mut heads = vec![
        "VM",
        "PID",
        "vCPUs",
        "weight",
        "placement",
        "run s",
        "ready s",
        "costop s",
        "helpers s",
    ];
    let throttles = status.vms.iter().any(|vm| throttled(vm) > 0.0);
    if throttles {
        heads.push("throttled s");
    }
    let thinks = status.vms.iter().any(|vm| vm.enforced.is_some());
    if thinks {
        heads.extend(["policy", "loan %", "woken by"]);
    }
    let row = |vm: &VmNow| {
        let mut row = of_vm(vm);
        if throttles {
            row.push(time(throttled(vm)));
        }
        if thinks {
            row.extend(of_thought(vm));
        }
        row
    };
    let rows: Vec<Vec<String>> = status.vms.iter().map(row).collect();
    corun_report::grid(&heads, &rows, &[0, 4], width)
}

fn of_vm(vm: &VmNow) -> Vec<String> {
    let weight = vm
        .weight
        .map_or("-".to_string(), |weight| weight.to_string());
    let placement = match vm.under_policy {
        true => vm.placement.as_str(),
        false => "(fair order)",
    };
    vec![
        vm.name.clone(),
        vm.pid.to_string(),
        vm.vcpus.len().to_string(),
        weight,
        placement.to_string(),
        time(sum(vm, |vcpu| vcpu.run_s)),
        time(sum(vm, |vcpu| vcpu.ready_s)),
        time(sum(vm, |vcpu| vcpu.costop_s)),
        time(vm.helpers.iter().map(|helpers| helpers.run_s).sum()),
    ]
}

/// Sums over all its vCPUs.
fn sum(vm: &VmNow, of: fn(&VcpuNow) -> f64) -> f64 {
    vm.vcpus.iter().map(of).sum()
}

/// For how long quotas kept its vCPUs from their pCPUs, s.
fn throttled(vm: &VmNow) -> f64 {
    sum(vm, |vcpu| vcpu.throttled_s)
}

fn time(seconds: f64) -> String {
    // A sum of nothing is -0 to Rust.
    format!("{:.1}", seconds + 0.0)
}

/// What only some policies think of VMs.
fn of_thought(vm: &VmNow) -> [String; 3] {
    let state = match vm.enforced {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    };
    let loan = vm.loan_percent.map(|percent| format!("{percent:+.1}"));
    let wakers = vm.wakers.map(|wakers| wakers.name().to_string());
    let or_nothing = |told: Option<String>| told.unwrap_or_else(|| "-".to_string());
    [state.to_string(), or_nothing(loan), or_nothing(wakers)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(more: &Value) -> HostStatus {
        let mut vm = json!({"name": "web", "uuid": null, "manager": "none", "id": null, "pid": 5,
            "slot": 7, "weight": null, "under_policy": true, "placement": "balance", "vcpus": []});
        let known = vm.as_object_mut().unwrap();
        known.extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "version": "1", "policy": "jupiter", "policy_for_s": 1.0, "for_s": 1.0,
            "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
            "forced": [], "lapses": 0, "notes": [], "vms": [vm]
        }))
        .unwrap()
    }

    /// Words of the table's two lines, between rules.
    fn table(more: &Value) -> [Vec<String>; 2] {
        let narrow = super::table(&status(more), 80);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        let text = super::table(&status(more), 250);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        [1, 3].map(|at| lines[at].split_whitespace().map(str::to_string).collect())
    }

    #[test]
    fn a_vm_that_jupiter_leaves_alone_says_so() {
        let [heads, vm] =
            table(&json!({"enforced": false, "loan_percent": -12.5, "wakers": "hidden"}));
        assert_eq!(heads[heads.len() - 2..], ["woken", "by"]);
        assert_eq!(vm[vm.len() - 3..], ["off", "-12.5", "hidden"]);
        let [_, vm] = table(&json!({"enforced": true, "loan_percent": 0.0, "wakers": "siblings"}));
        assert_eq!(vm[vm.len() - 3..], ["on", "+0.0", "siblings"]);
    }

    #[test]
    fn throttled_time_is_shown_where_there_is_any() {
        let vcpu = |throttled_s: f64| {
            json!({"number": 0, "tid": 6, "run_s": 1.0, "ready_s": 0.0, "wait_s": 1.0,
                "throttled_s": throttled_s, "costop_s": 0.0, "switches": 1, "class": null,
                "slice_ms": null, "latency_ms": null, "home": null, "pool": null})
        };
        let [heads, vm] = table(&json!({"vcpus": [vcpu(1.5), vcpu(0.25)]}));
        assert_eq!(heads[heads.len() - 2..], ["throttled", "s"]);
        assert_eq!(vm.last().unwrap(), "1.8");
        let [heads, _] = table(&json!({"vcpus": [vcpu(0.0)]}));
        assert!(!heads.contains(&"throttled".to_string()), "{heads:?}");
    }

    #[test]
    fn a_table_of_cgroups_that_is_crowded_says_so() {
        let mut told = status(&json!({}));
        assert!(!in_words(&told).contains("cgroups"));
        told.cgroups.taken = 4080;
        told.cgroups.places = 4096;
        told.cgroups.crowded = 1;
        let line = "cgroups: 4080 of 4096 places are taken; 1 time there was none for a cgroup, whose tasks count in \
                    the one around it\n";
        assert!(in_words(&told).contains(line), "{}", in_words(&told));
    }

    #[test]
    fn policies_that_think_nothing_of_vms_have_no_columns_for_it() {
        let [heads, vm] = table(&json!({}));
        assert_eq!(heads.last().unwrap(), "s");
        assert_eq!(vm.last().unwrap(), "0.0");
    }
}
