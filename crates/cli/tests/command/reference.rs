// SPDX-License-Identifier: GPL-2.0-only
//! `corun parameters` and `corun workloads`, and the pages of `docs/` that they write.

use crate::common::{Place, corun, is_fresh, json, printed, refused};
use corun_model::{Parameter, Value};
use corun_scenario::{Override, read};
use std::collections::BTreeSet;

fn prints(args: &[&str]) -> String {
    printed(corun(args))
}

/// The committed page is what the command prints.
#[track_caller]
fn fresh(page: &str, args: &[&str]) {
    is_fresh(&format!("docs/{page}"), &prints(args), "reference");
}

#[test]
fn the_page_of_parameters_is_fresh() {
    fresh("parameters.md", &["parameters", "--markdown"]);
}

#[test]
fn the_page_of_workloads_is_fresh() {
    fresh("workloads.md", &["workloads", "--markdown"]);
}

/// A parameter's default as a scenario would give it, on a host of two pCPUs; `None` for one that is absent unless it
/// is given, and for one that scenarios do not know.
fn said(parameter: &Parameter) -> Option<String> {
    let sections = ["host.", "vm.", "scheduler.", "policy.", "device."];
    let known = sections.iter().any(|it| parameter.key.starts_with(it));
    // The default is that of the presets that have it: the default preset has none.
    let presets = [
        "scheduler.cfs.search_cost",
        "scheduler.cfs.idle_min_granularity",
    ];
    let known = known && !presets.contains(&parameter.key);
    let value = match &parameter.value {
        Value::Time(time) => format!("{time}ns"),
        Value::Scaled(time) => format!("{}ns", 2 * time),
        Value::Bytes(bytes) => format!("{bytes}B"),
        Value::Number(number, "MB/s") => format!("{number}MB/s"),
        Value::Number(number, _) => number.to_string(),
        Value::Choice(name) => name.to_string(),
        Value::Switch(on) => on.to_string(),
        Value::None => return None,
    };
    known.then(|| format!("{}={value}", parameter.key.replace('*', "a")))
}

const SCENARIO: &str = r#"
host.pcpus = 2
run = { duration = "100ms", warm_up = "20ms" }
vm.b = { vcpus = 2, workload = "sync" }
[vm.a]
vcpus = 2
emulator = {}
[[vm.a.thread]]
count = 3
program = "loop { compute 100us ±50%; lock l { compute 20us }; sleep 50us exp; count 1 rounds }"
[[vm.a.thread]]
program = "loop { read 16KB random; write 4KB; compute 50us; count 1 rounds }"
[device.a]
"#;

/// What can be set depends on these.
const KINDS: [&str; 4] = [
    "kind = \"ssd\"",
    "kind = \"hdd\"",
    "kind = \"hdd\"\nscheduler = \"anticipatory\"\n[vm.a.guest]\nagent = \"vmigrater\"",
    "kind = \"ssd\"\n[vm.a.guest]\nagent = \"xballoon\"",
];

#[test]
fn the_defaults_listed_are_those_in_use() {
    let all = corun_sim::parameters();
    let said: Vec<String> = all.iter().filter_map(said).collect();
    assert!(said.len() > 100, "{said:?}");
    let mut left: BTreeSet<&str> = said.iter().map(String::as_str).collect();
    let place = Place::new("reference");
    let policies = "fair,balance,cosched-strict,cosched-demand,cosched-relaxed,cfs,eevdf,rr,credit";
    let compare = ["compare", "a.toml", "--json", "--policies", policies];
    for kind in KINDS {
        let scenario = format!("{SCENARIO}{kind}\n");
        place.write("a.toml", &scenario);
        let is_accepted = |set: &&String| {
            // For real-time vCPUs, runtime and period go together.
            let together = |key: &&String| {
                key == set || [key, set].iter().all(|it| it.starts_with("scheduler.rr."))
            };
            let sets = said.iter().filter(together);
            let sets: Vec<Override> = sets
                .map(|set| Override::parse("--set", set).unwrap())
                .collect();
            read("a.toml", &scenario, &sets).is_ok()
        };
        let accepted: Vec<&String> = said.iter().filter(is_accepted).collect();
        let sets: Vec<&str> = accepted.iter().flat_map(|set| ["--set", set]).collect();
        // Notes report what no policy heeds.
        let runs = |args: &[&str]| place.json(args)["runs"].clone();
        let same = runs(&compare) == runs(&[&compare, &sets[..]].concat());
        assert!(same, "with all defaults said: {kind}");
        left.retain(|set| !accepted.iter().any(|it| it == set));
    }
    assert!(left.is_empty(), "not accepted: {left:?}");
    let other = ["--set", "host.costs.switch=9us"];
    assert_ne!(
        place.prints(&compare),
        place.prints(&[&compare, &other[..]].concat())
    );
}

#[test]
fn a_yielding_vcpu_may_keep_the_rest_of_its_slice() {
    let spinning = "
        host.pcpus = 2
        run = { duration = \"100ms\", warm_up = \"20ms\", policies = [\"eevdf\"] }
        vm.b = { vcpus = 2, workload = \"cpu\" }
        [vm.a]
        vcpus = 3
        guest = { lock = \"ticket\", ple_window = \"10us\" }
        [[vm.a.thread]]
        count = 3
        program = \"loop { lock l { compute 300us }; compute 10us; count 1 rounds }\"
        ";
    let place = Place::with("yield", "a.toml", spinning);
    let run = |set: &str| place.prints(&["compare", "a.toml", "--json", "--set", set]);
    let [with, without] =
        ["true", "false"].map(|value| run(&format!("scheduler.eevdf.forfeits_on_yield={value}")));
    assert_ne!(with, without);
    assert_eq!(with, run("scheduler.eevdf.preset=6.12"), "the default");
}

#[test]
fn parameters_can_be_filtered_and_read_by_programs() {
    let list = json(corun(&["parameters", "--json", "costs"]));
    let first = &list.as_array().unwrap()[0];
    assert_eq!(first["key"], "host.costs.switch");
    assert_eq!(
        (&first["default"], &first["unit"]),
        (&2500.into(), &"ns".into())
    );
    let text = prints(&["parameters", "PAUSE-LOOP"]);
    assert!(
        text.contains("vm.*.guest.ple_window") && !text.contains("costs"),
        "{text}"
    );
    let widest = prints(&["parameters"])
        .lines()
        .map(|line| line.chars().count())
        .max();
    assert!(widest <= Some(80));
    let error = refused(corun(&["parameters", "no such thing"]));
    assert!(error.contains("no parameter has this"), "{error}");
    for (near, meant) in [("host.cots", "host.costs"), ("swich", "switch")] {
        let error = refused(corun(&["parameters", near]));
        assert!(
            error.contains(&format!("did you mean {meant:?}? ")),
            "{error}"
        );
    }
}

#[test]
fn a_workload_shows_its_programs() {
    let text = prints(&["workloads", "sync"]);
    assert!(
        text.contains("# worker1, worker2, worker3\n  loop { compute 65us ±20%"),
        "{text}"
    );
    let list = json(corun(&["workloads", "cpu", "--json"]));
    assert_eq!(list[0]["alone"]["cpu_share"], 1.0);
    let error = refused(corun(&["workloads", "snyc"]));
    assert!(error.contains("did you mean \"sync\"?"), "{error}");
}
