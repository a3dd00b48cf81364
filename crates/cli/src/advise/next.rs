// SPDX-License-Identifier: GPL-2.0-only
//! What the operator of the recorded host would do next, as commands.

use crate::compare::provenance::quoted;
use corun_report::advice::{Advice, NextStep, PolicyAdvice, Verdict, VmAdvice};

/// The promise of `--max-ready` is rounded up to whole steps of this many percent.
const STEP: f64 = 5.0;

/// Checks whether the host can be taken over, and then tries the recommended policy on the VM that gains most from it.
/// If no policy is recommended, or one that only the simulator has, there is nothing to switch on.
pub fn steps(advice: &Advice, sets: &[String]) -> Vec<NextStep> {
    let step = |what: &str, command: String| NextStep {
        what: what.to_string(),
        command,
    };
    let recommended = advice.recommended.as_ref();
    let Some(policy) = recommended.and_then(|name| corun_policies::find(name)) else {
        return vec![step(
            "Nothing to switch on follows from this; to ask again, record another hour",
            "sudo corun record --for 30s -o host.corun".to_string(),
        )];
    };
    let (only, what) = match canary(advice).filter(|_| policy.name != "fair") {
        Some(vm) => (
            format!(" --only {}", quoted(vm)),
            "Try it on one VM for ten minutes; the host goes back if any VM waits more than the worst one does now",
        ),
        // All others are in fair order anyway.
        None => (
            String::new(),
            "Try it for ten minutes; the host goes back if any VM waits more than the worst one does now",
        ),
    };
    vec![
        step(
            "See whether the host can be taken over; this changes nothing",
            "sudo corun preflight".to_string(),
        ),
        step(
            what,
            format!(
                "sudo corun host --policy {}{}{only} --max-ready {} --for 10min",
                policy.name,
                options(policy.name, sets),
                promise(advice),
            ),
        ),
    ]
}

/// The VM that gains most.
fn canary(advice: &Advice) -> Option<&str> {
    let rival = advice.rival()?;
    let gain = |(vm, own): &(&VmAdvice, &VmAdvice)| own.ready_share.median - vm.ready_share.median;
    let vms = rival.vms.iter().zip(&advice.own()?.vms);
    let better = vms.filter(|(vm, _)| vm.verdict == Verdict::Better);
    let most = better.max_by(|a, b| gain(a).total_cmp(&gain(b)));
    most.map(|(vm, _)| vm.name.as_str())
}

/// No VM is ready for more than this now, in percent.
fn promise(advice: &Advice) -> u32 {
    let own: &[VmAdvice] = advice.own().map_or(&[], |own: &PolicyAdvice| &own.vms);
    let worst = own.iter().map(|vm| vm.ready_share.most).fold(0.0, f64::max);
    let steps = (worst * 100.0 / STEP).ceil().max(1.0);
    (steps * STEP).min(100.0) as u32
}

/// What was set for the policy and the dispatcher, as `corun host` takes it.
fn options(policy: &str, sets: &[String]) -> String {
    let section = format!("policy.{policy}.");
    let option = |set: &String| {
        let policys = set.strip_prefix(&section);
        let slice = || set.strip_prefix("scheduler.corun.slice=");
        let set = policys.map(|set| format!(" --set {}", quoted(set)));
        set.or_else(|| Some(format!(" --slice {}", quoted(slice()?))))
    };
    sets.iter().filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_set_on_the_host() {
        let sets = [
            "policy.balance-load.light=200",
            "policy.jupiter.period=1s",
            "host.hz=250",
            "scheduler.corun.slice=5ms",
        ];
        let sets = sets.map(String::from);
        assert_eq!(
            options("balance-load", &sets),
            " --set light=200 --slice 5ms"
        );
    }
}
