// SPDX-License-Identifier: GPL-2.0-only
//! What vSMT-IO costs where it has nothing to do: the dissertation (§3.6.4) reports less than 2 % where nothing is
//! I/O-bound.

use crate::common::{Place, in_tree};
use serde_json::Value;

const COMPUTES: &str = r#"
title = "Nothing but computing, two vCPUs per hardware thread"
[host]
topology = "1n1l4c2t"
[run]
duration = "1s"
warm_up = "500ms"
seeds = [1, 2, 3]
policies = ["fair", "vsmtio"]
[vm.a]
count = 2
vcpus = 8
[[vm.a.thread]]
count = 8
program = "loop { compute 1ms ±10%; count 1 rounds }"
"#;

/// Per seed, what VMs do under vSMT-IO divided by what they do under `reference`: each VM's ratio.
fn ratios(of: &Value, reference: &str) -> Vec<Vec<f64>> {
    let runs = of["runs"].as_array().unwrap();
    let done = |run: &Value| -> Vec<f64> {
        let vms = run["vms"].as_array().unwrap().iter();
        vms.map(|vm| vm["throughput"].as_f64().unwrap()).collect()
    };
    let under = |policy: &str, seed: &Value| {
        let mut these = runs.iter();
        done(
            these
                .find(|run| run["policy"] == policy && run["seed"] == *seed)
                .unwrap(),
        )
    };
    let seeds = runs.iter().filter(|run| run["policy"] == reference);
    let ratio = |run: &Value| {
        let vsmtio = under("vsmtio", &run["seed"]);
        done(run)
            .iter()
            .zip(vsmtio)
            .map(|(before, now)| now / before)
            .collect()
    };
    seeds.map(ratio).collect()
}

/// The median over seeds of each VM's ratio.
fn medians(of: &[Vec<f64>]) -> Vec<f64> {
    let vm = |vm: usize| {
        let mut all: Vec<f64> = of.iter().map(|seed| seed[vm]).collect();
        all.sort_by(f64::total_cmp);
        (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0
    };
    (0..of[0].len()).map(vm).collect()
}

#[test]
fn where_nothing_waits_it_costs_each_vm_less_than_two_per_cent() {
    let place = Place::with("vsmtio-overhead", "computes.toml", COMPUTES);
    let told = ratios(&place.json(&["compare", "computes.toml", "--json"]), "fair");
    let least = told.concat().into_iter().fold(f64::MAX, f64::min);
    assert!(told.len() == 3 && least > 0.98, "{told:?}");
}

/// PageRank and Kmeans, whose threads wait for each other, in guests that retain (the paper's case of 96 vCPUs, a sixth
/// of it) and where the host holds. Together they lose less than 3 %, where the host holds less than 2. One of them may
/// lose more: on each core some vCPUs are I/O-bound, and they wait more often than the other's (docs/vsmtio.md). This
/// is what was measured, not a goal.
#[test]
fn where_threads_wait_for_each_other_no_vm_loses_more_than_is_said() {
    let place = Place::new("vsmtio-overhead-waits");
    for (file, case, least, together) in [
        ("fig3-8", "0:96", 0.93, 0.97),
        ("holds", "computing only", 0.95, 0.98),
    ] {
        let path = in_tree(&format!("experiments/vsmtio/{file}.toml"));
        let path = path.to_str().unwrap();
        let mut args = vec!["compare", path, "--case", case, "--json"];
        args.extend(["--policies", "fair,vsmtio", "--seeds", "1..6"]);
        let told = ratios(&place.json(&args), "fair");
        let of = medians(&told);
        assert_eq!(told.len(), 6);
        let each = of.iter().all(|&ratio| ratio > least);
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        assert!(each && mean > together, "{case}: {of:?} of {told:?}");
    }
}
