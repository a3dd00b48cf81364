// SPDX-License-Identifier: GPL-2.0-only
//! Hosts whose pCPUs are left to themselves stay in step for ever; no real one is (docs/scenario.md, `[run]`).

use crate::common::Place;
use serde_json::Value;

/// Two VMs that compute, on as many pCPUs as either has vCPUs.
const HOST: &str = r#"
[host]
pcpus = 4
[run]
duration = "5s"
policies = ["cfs", "eevdf", "balance"]
[vm.a]
vcpus = 4
workload = "cpu"
[vm.b]
vcpus = 4
workload = "cpu"
"#;

fn runs(place: &Place, sets: &[&str]) -> Vec<Value> {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = ["compare", "host.toml", "--json", "-q"]
        .into_iter()
        .chain(sets)
        .collect();
    place.json(&args)["runs"].as_array().unwrap().clone()
}

/// In how much of the time in which a vCPU of the first VM ran, all ran.
fn together(run: &Value) -> f64 {
    run["vms"][0]["siblings"]["co_run_share"].as_f64().unwrap()
}

#[test]
fn vcpus_that_compute_run_together_by_chance() {
    let place = Place::with("in-step", "host.toml", HOST);
    let by_chance = runs(&place, &["run.seeds=[1,2,3,4,5,6]"]);
    for policy in ["cfs", "eevdf", "balance"] {
        let seeds = by_chance.iter().filter(|run| run["policy"] == policy);
        let mean = seeds.map(together).sum::<f64>() / 6.0;
        // All of four that each run half of the time: a sixteenth of the time, a fifteenth of that in which one runs.
        // In 5 s little more than one phase is seen, so seeds differ much.
        assert!(mean < 0.25, "{policy}: {mean}");
    }
    for run in &by_chance {
        assert_eq!(
            run["tasks"],
            serde_json::json!([]),
            "nobody asked for the host's own"
        );
    }
    let silent = ["host.housekeeping=0", "run.stagger=\"0us\""];
    for run in runs(&place, &silent) {
        assert!(together(&run) > 0.99, "{run}");
    }
}

/// Twice a second on each of four pCPUs, 50 us each: in the timeline.
#[test]
fn housekeeping_is_in_timelines() {
    let place = Place::with("housekeeping", "host.toml", HOST);
    let events = [
        "compare",
        "host.toml",
        "-q",
        "--policies",
        "cfs",
        "--events",
        "run.ftrace",
    ];
    place.prints(&events);
    let events = place.read("run.ftrace");
    let began = |pcpu: usize| {
        let name = format!("next_comm=housekeeping/{pcpu}");
        events
            .lines()
            .filter(|line| line.contains("sched_switch") && line.contains(&name))
            .count()
    };
    for pcpu in 0..4 {
        // In 6 s 12 times on average; beyond 3 and 27 once in 20,000 seeds.
        assert!((3..=27).contains(&began(pcpu)), "{}", began(pcpu));
    }
}
