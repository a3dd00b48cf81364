// SPDX-License-Identifier: GPL-2.0-only
//! Demand-based co-scheduling: a vCPU that spins until siblings have flushed their TLBs gets them to run. Dynamic
//! time-slice co-scheduling: a vCPU that wakes siblings keeps its share.

use crate::common::{corun, json};
use serde_json::Value;

/// The third VM makes the vCPUs of the first be on pCPUs at the same time only rarely.
const CALLS: &str = r#"
title = "Flushing TLBs beside VMs that compute"
[host]
topology = "1n1l2c1t"
[run]
duration = "2s"
warm_up = "500ms"
seeds = [1]
policies = ["cosched-demand", "cfs-cosched-demand"]
[vm.calls]
vcpus = 2
guest.tlb_flush = "ipi"
[[vm.calls.thread]]
count = 2
program = "loop { compute 500us ±10%; shootdown; count 1 rounds }"
[vm.computes]
vcpus = 2
[[vm.computes.thread]]
count = 2
program = "loop { compute 1ms; count 1 rounds }"
[vm.sleeps]
vcpus = 2
[[vm.sleeps.thread]]
count = 2
program = "loop { compute 2ms ±50%; sleep 5ms; count 1 rounds }"
"#;

/// Two pairs of vCPUs that wake each other. One of each runs when a pCPU of the other VM is free again, which then calls
/// its siblings.
const PAIRS: &str = r#"
title = "Pairs that wake each other beside a VM that computes"
[host]
pcpus = 4
[run]
duration = "2s"
seeds = [1]
policies = ["balance", "cosched-dt", "cfs-cosched-dt"]
[vm.pairs]
vcpus = 4
[[vm.pairs.thread]]
count = 2
program = "loop { recv q{i}; compute 200us; send p{i} }"
[[vm.pairs.thread]]
count = 2
program = "loop { send q{i}; recv p{i}; compute 100us; count 1 rounds }"
[vm.computes]
vcpus = 4
[[vm.computes.thread]]
count = 4
program = "loop { compute 1ms; count 1 rounds }"
"#;

/// Three vCPUs that may use 0.2 pCPUs, in 2 of each 10 ms.
const QUOTA: &str = r#"
title = "A short quota beside a VM that computes"
[host]
pcpus = 4
[run]
duration = "4s"
seeds = [1]
policies = ["balance", "cosched-dt"]
[scheduler.corun]
slice = "30ms"
[vm.limited]
vcpus = 3
weight = 200
cpu_max = "2ms/10ms"
workload = "cpu"
[vm.computes]
vcpus = 4
weight = 200
workload = "cpu"
"#;

/// What the VMs of a scenario do per second under each of its policies.
fn throughput(scenario: &str, options: &[&str]) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, scenario).unwrap();
    let command = ["compare", file.to_str().unwrap(), "--json"];
    let of = json(corun(&[&command, options].concat()));
    let vms = |run: &Value| {
        let vms = run["vms"].as_array().unwrap().iter();
        vms.map(|vm| vm["throughput"].as_f64().unwrap()).collect()
    };
    of["runs"].as_array().unwrap().iter().map(vms).collect()
}

#[test]
fn a_vcpu_that_is_waited_for_runs_and_the_others_keep_their_share() {
    let sees = |flushes: &str| {
        let set = format!("policy.cosched-demand.sees_flushes={flushes}");
        throughput(CALLS, &["--set", &set])
    };
    let (seen, unseen) = (sees("true"), sees("false"));
    assert_eq!((seen.len(), unseen.len()), (2, 2));
    for (seen, unseen) in seen.iter().zip(&unseen) {
        assert!(seen[0] > 1.7 * unseen[0], "{seen:?} {unseen:?}");
        let others = seen[1..].iter().zip(&unseen[1..]);
        others.for_each(|(seen, unseen)| assert!(*seen > 0.95 * unseen, "{seen} {unseen}"));
    }
}

#[test]
fn a_vm_that_calls_siblings_leaves_those_that_wake_each_other_their_share() {
    let of = throughput(PAIRS, &[]);
    for called in &of[1..] {
        let kept = called.iter().zip(&of[0]).all(|(a, b)| *a > 0.9 * b);
        assert!(kept, "{of:?}");
    }
}

/// A VM with a short quota of 0.2 pCPUs beside one that computes, with slices of 30 ms. Under balance it has that, as it interrupts
/// the other when its period begins; it waits for longer where turns begin together on all pCPUs (docs/limits.md). But it is not
/// interrupted by the other's calls whenever it begins its own turn, which left it less than 0.01.
#[test]
fn a_vm_that_calls_siblings_leaves_those_with_quotas_their_share() {
    let of = throughput(QUOTA, &[]);
    assert!(of[0][0] > 0.18 && of[1][0] > 0.025, "{of:?}");
}
