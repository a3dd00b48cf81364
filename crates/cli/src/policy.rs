// SPDX-License-Identifier: GPL-2.0-only
//! `corun policy`: which policy the daemon carries out, and changing it.

use crate::calibration;
use crate::compare::schedulers::accepted;
use crate::failure::Invalid;
use crate::output;
use corun_linux::socket::protocol::{
    Command, ErrorKind, EventsSaid, InForce, SetPolicy, VmInForce,
};
use corun_linux::socket::{self, CallError};
use corun_model::Wakers;
use corun_scenario::{CALIBRATED, Calibrated};
use std::path::PathBuf;

/// Show the policy of this host, or change it while it runs
///
/// Asks the `corun host` that runs here. A change unloads nothing and stops no guest: the plan of the old policy
/// is replaced, and the command ends when that of the new one is in force. If the new one cannot be put in force,
/// the old one stays.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The policy to put in force; `corun policies` lists them [default: show the present one]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Set a parameter of the policy, see `corun policies`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "name", value_parser = assignment)]
    set: Vec<(String, String)>,

    /// The file that `corun calibrate` (for aql) or `corun calibrate --symbiosis` (for vsmtio) wrote for this
    /// machine; parameters given with --set win over it
    #[arg(long, value_name = "FILE", requires = "name")]
    calibration: Option<PathBuf>,

    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun policy
      which policy is in force, and for how long
  sudo corun policy affinity
      affinity from now on
  sudo corun policy cosched-strict --set slot=20ms --set fill=true
      with parameters other than the defaults

Exit codes: 0 done; 1 no daemon answers, or it could not change the policy; 2 wrong usage.";

/// Reads KEY=VALUE.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    let halves = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = halves.ok_or("expected KEY=VALUE, such as slot=20ms")?;
    Ok((key.to_string(), value.to_string()))
}

/// Runs the command.
///
/// # Errors
/// [`Invalid`] for what the daemon does not know; else why there is no answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let command = match &args.name {
        Some(name) => Command::SetPolicy(wanted(args, name)?),
        None => Command::Policy,
    };
    let in_force = socket::call::<InForce>(&args.socket, &command).map_err(explain(args))?;
    match args.json {
        true => output::json(&in_force),
        false => output::print(&in_words(&in_force)),
    }
}

/// What is to be put in force.
fn wanted(args: &Args, name: &str) -> anyhow::Result<SetPolicy> {
    let mut wanted = SetPolicy {
        name: name.to_string(),
        ..SetPolicy::default()
    };
    if let Some(file) = &args.calibration {
        if !CALIBRATED.contains(&name) {
            let known = CALIBRATED.join(" and ");
            let message = format!("--calibration: is for {known}, not for {name:?}");
            return Err(Invalid::error(message));
        }
        let found = calibration::read(file, name);
        let found = found.map_err(|why| Invalid::error(format!("--calibration: {why}")))?;
        wanted.set = found.values();
        if let Calibrated::VsmtIo(found) = found {
            wanted.events = found.events.map(EventsSaid::from);
        }
    }
    wanted.set.extend(args.set.iter().cloned());
    Ok(wanted)
}

/// The daemon knows what it accepts; what may have been meant is added here.
fn explain(args: &Args) -> impl Fn(CallError) -> anyhow::Error {
    |error| match error {
        CallError::Refused(refusal) if refusal.kind == ErrorKind::UnknownPolicy => {
            let known: Vec<&str> = refusal.accepted.iter().map(String::as_str).collect();
            let name = args.name.as_deref().unwrap_or_default();
            Invalid::error(format!("{}, {}", refusal.message, accepted(name, &known)))
        }
        CallError::Refused(refusal) if refusal.kind == ErrorKind::Parameter => {
            match refusal.accepted.as_slice() {
                [] => Invalid::error(refusal.message),
                known => Invalid::error(format!(
                    "{}; accepted are {}",
                    refusal.message,
                    known.join(", ")
                )),
            }
        }
        other => other.into(),
    }
}

fn in_words(in_force: &InForce) -> String {
    let changes = match in_force.changes {
        0 => "since the daemon began".to_string(),
        1 => "changed once".to_string(),
        times => format!("changed {times} times"),
    };
    let mut text = format!(
        "{}  {}\nin force for {:.1} s, {changes}\n{}\n",
        in_force.policy, in_force.summary, in_force.for_s, in_force.source
    );
    for (key, value) in &in_force.parameters {
        text += &format!("  {key} = {value}\n");
    }
    for note in &in_force.status {
        text += &format!("note: {note}\n");
    }
    text + &in_force.vms.iter().map(of_vm).collect::<String>()
}

/// What the policy thinks of a VM, in a line.
fn of_vm(vm: &VmInForce) -> String {
    let state = if vm.enforced {
        "on"
    } else {
        "off (not what was predicted)"
    };
    let range = |values: &[f64], unit: &str| {
        let values = || values.iter().copied();
        let ends = values().reduce(f64::min).zip(values().reduce(f64::max));
        let shown = |(least, most)| format!("{least:.1} to {most:.1} {unit}");
        ends.map_or("–".to_string(), shown)
    };
    let loan = match vm.loan_percent {
        loan if loan > 0.0 => format!(", borrows {loan:.1} %"),
        loan if loan < 0.0 => format!(", lends {:.1} %", -loan),
        _ => String::new(),
    };
    let wakers = match vm.wakers {
        Some(Wakers::Siblings) => ", its vCPUs wake each other",
        Some(Wakers::Others) => ", its vCPUs do not wake each other",
        Some(Wakers::Hidden) => ", who wakes its vCPUs is hidden",
        None => "",
    };
    format!(
        "VM {}: {state}, weights {}, latencies {}{loan}{wakers}\n",
        vm.name,
        range(&vm.weights_percent, "%"),
        range(&vm.latencies_ms, "ms")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(weights_percent: Vec<f64>, latencies_ms: Vec<f64>) -> VmInForce {
        VmInForce {
            name: "web".to_string(),
            enforced: true,
            loan_percent: 0.0,
            wakers_seen: true,
            wakers: None,
            weights_percent,
            latencies_ms,
        }
    }

    #[test]
    fn a_vm_without_vcpus_has_no_range_of_weights() {
        assert_eq!(
            of_vm(&vm(vec![80.0, 120.0], vec![6.0])),
            "VM web: on, weights 80.0 to 120.0 %, latencies 6.0 to 6.0 ms\n"
        );
        assert_eq!(
            of_vm(&vm(Vec::new(), Vec::new())),
            "VM web: on, weights –, latencies –\n"
        );
    }
}
