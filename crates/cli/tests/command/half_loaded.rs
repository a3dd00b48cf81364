// SPDX-License-Identifier: GPL-2.0-only
//! On a host with room corun loses nothing against the kernel's own scheduler: each case of
//! `experiments/half-loaded.toml`.

use crate::common;
use serde_json::Value;
use std::collections::BTreeMap;

/// Throughput of all VMs and seeds, by case and policy.
fn throughput(runs: &[Value]) -> BTreeMap<(String, String), f64> {
    let mut sums = BTreeMap::new();
    for run in runs {
        let text = |key: &str| run[key].as_str().unwrap().to_string();
        let vms = run["vms"].as_array().unwrap().iter();
        let sum: f64 = vms.map(|vm| vm["throughput"].as_f64().unwrap()).sum();
        *sums.entry((text("case"), text("policy"))).or_default() += sum;
    }
    sums
}

#[test]
fn cores_go_before_hardware_threads_and_vms_have_caches_of_their_own() {
    let compare = ["compare", "half-loaded.toml", "--json", "-q"];
    let output = common::corun_in(&common::in_tree("experiments"), &compare);
    let json = common::json(output);
    let sums = throughput(json["runs"].as_array().unwrap());
    assert_eq!(sums.len(), 6 * 3, "cases, policies");
    for ((case, policy), sum) in &sums {
        let eevdf = sums[&(case.clone(), "eevdf".to_string())];
        let ratio = sum / eevdf;
        assert!(ratio > 0.99, "{case}: {policy} does {ratio:.3} of EEVDF");
    }
}
