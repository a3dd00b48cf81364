// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare --events`: a simulated run, written as a recording, is read as what it was.

use super::place;
use crate::common::Place;
use serde_json::Value;

/// Runs `command`, which writes events to `run.ftrace`, and reads these as a recording. Returns what is replayed.
fn replayed(place: &Place, command: &str) -> Value {
    place.prints(&command.split(' ').collect::<Vec<_>>());
    place.json(&["compare", "run.ftrace", "--policies", "cfs", "--json"])
}

/// Two pCPUs that were busy all the time, and as many switches.
#[test]
fn events_are_a_recording() {
    let place = place("events");
    let run = "compare host.toml --policies eevdf --case one --seed 7 --set run.warm_up=\"0s\" \
               --events run.ftrace --json";
    let said = place.json(&run.split_whitespace().collect::<Vec<_>>());
    let again = place.json(&["compare", "run.ftrace", "--policies", "eevdf", "--json"]);
    let vcpus = again["replay"]["vcpus"].as_array().unwrap();
    let sum = |what: &str| -> f64 {
        let recorded = |vcpu: &Value| vcpu[what]["recorded"].as_f64().unwrap();
        vcpus.iter().map(recorded).sum()
    };
    assert_eq!(vcpus.len(), 4);
    assert!((sum("run_s") - 0.4).abs() < 0.004, "{again}");
    let switches = said["runs"][0]["host"]["vcpu_switches_per_s"]
        .as_f64()
        .unwrap()
        * 0.2;
    assert!(
        (sum("switches") - switches).abs() <= 4.0,
        "{switches}: {again}"
    );
}

/// VMs' threads begin in turns, by chance; in the recording each is its own VM's all the same.
#[test]
fn events_tell_whose_thread_each_is() {
    let place = place("events-interleaved");
    let pair = "[host]\npcpus = 4\n[run]\nduration = \"100ms\"\nwarm_up = \"100ms\"\n\
                [vm.a]\nvcpus = 4\nworkload = \"cpu\"\n[vm.b]\nvcpus = 4\nworkload = \"cpu\"\n";
    place.write("pair.toml", pair);
    for seed in ["1", "2", "3"] {
        let run = format!("compare pair.toml --policies cfs --seed {seed} --events run.ftrace");
        let again = replayed(&place, &run);
        let vcpus = again["replay"]["vcpus"].as_array().unwrap();
        let mut found: Vec<_> = vcpus.iter().map(|it| it["name"].to_string()).collect();
        found.sort();
        let named = ["a", "b"].map(|vm| [0, 1, 2, 3].map(|n| format!("\"{vm}/{n}\"")));
        assert_eq!(found, named.concat(), "seed {seed}");
    }
}

/// Nothing switches after the beginning; the recording is as long as the run all the same.
#[test]
fn events_go_on_to_the_end_of_the_run() {
    let place = place("events-end");
    let quiet = "[host]\npcpus = 2\n[run]\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
                 [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("quiet.toml", quiet);
    let run = "compare quiet.toml --policies cfs --events run.ftrace";
    let again = replayed(&place, run);
    for vcpu in again["replay"]["vcpus"].as_array().unwrap() {
        let recorded = vcpu["run_s"]["recorded"].as_f64().unwrap();
        assert!((recorded - 0.1).abs() < 0.001, "{again}");
    }
}
