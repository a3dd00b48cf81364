// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files in scenarios, as users meet them.

use crate::common::{Place, corun, json, refused};
use std::process::Output;

const HOST: &str = r#"
[host]
pcpus = 2
[run]
duration = "1s"
warm_up = "100ms"
policies = ["cfs"]
[vm.a]
vcpus = 2
rt_app = "loads/periodic.json"
"#;

/// Two tasks of 20 % and 10 %, as people write such files.
const PERIODIC: &str = r#"{
    /* a comment, and a comma too many */
    "tasks" : {
        "control" : {
            "priority" : -10,
            "run" : 1000, "run" : 1000,
            "timer" : { "ref" : "unique", "period" : 10000 },
        },
        "log" : { "loop" : -1, "run" : 5000, "timer" : { "ref" : "unique", "period" : 50000 } }
    },
    "global" : { "duration" : 1, "calibration" : "CPU0", "logdir" : "./" }
}"#;

fn place(test: &str, host: &str, file: &str) -> Place {
    let place = Place::with(test, "host.toml", host);
    place.write("loads/periodic.json", file);
    place
}

/// Runs from elsewhere: paths are relative to the scenario.
fn run(place: &Place, command: &str, args: &[&str]) -> Output {
    let scenario = place.path("host.toml");
    corun(&[&[command, scenario.to_str().unwrap()], args].concat())
}

fn compare(place: &Place, args: &[&str]) -> Output {
    run(place, "compare", args)
}

#[test]
fn a_file_runs_and_what_it_does_not_get_is_said() {
    let place = place("rtapp-runs", HOST, PERIODIC);
    let report = place.path("report.html");
    let output = compare(&place, &["--json", "--report", report.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let vm = &json["runs"][0]["vms"][0];
    assert_eq!(vm["throughput_unit"], "loops/s", "{vm}");
    // 100 and 20 rounds a second, each thread perhaps one more or less.
    let rounds = vm["throughput"].as_f64().unwrap();
    assert!((118.0..=122.0).contains(&rounds), "{rounds}");
    let notes = String::from_utf8(output.stderr).unwrap();
    let page = std::fs::read_to_string(report).unwrap();
    for note in [
        "vm.a.rt_app: loads/periodic.json: line 5: tasks.control.priority: -10 is not modelled",
        "global.duration: rt-app would end after 1.00 s, the threads go on until the run ends at 1.10 s",
    ] {
        assert!(notes.contains(note), "{notes}");
        assert!(page.contains(note), "{note} is not in the report");
    }
}

#[test]
fn unsupported_events_are_all_listed_and_can_be_left_out() {
    let file = PERIODIC.replace("\"priority\" : -10,", "\"mem\" : 100,\n\"fork\" : \"log\",");
    let place = place("rtapp-unsupported", HOST, &file);
    let error = refused(compare(&place, &[]));
    for expected in [
        "host.toml:10: vm.a.rt_app: loads/periodic.json: line 5, column 13: tasks.control.mem: is not supported",
        "line 6, column 1: tasks.control.fork: is not supported",
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let output = compare(&place, &["--set", "vm.a.rt_app_ignore=[\"mem\", \"fork\"]"]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("line 6: tasks.control.fork: left out, as rt_app_ignore says"));
    let error = refused(compare(&place, &["--set", "vm.a.rt_app_ignore=[\"mam\"]"]));
    assert!(
        error.contains("vm.a.rt_app_ignore: unknown event \"mam\""),
        "{error}"
    );
}

#[test]
fn a_thread_whose_delay_outlasts_the_run_is_told_of() {
    let late = PERIODIC.replace(
        "\"priority\" : -10,",
        "\"instance\" : 2, \"delay\" : 1100000,",
    );
    let output = compare(&place("rtapp-late", HOST, &late), &[]);
    let notes = String::from_utf8(output.stderr).unwrap();
    let note = "thread control-0 does nothing: its delay is 1.10 s, the run ends at 1.10 s, and so 1 more thread";
    assert!(notes.contains(note), "{notes}");
    let output = compare(
        &place("rtapp-late", HOST, &late.replace("1100000", "1000000")),
        &[],
    );
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(!notes.contains("does nothing"), "{notes}");
}

#[test]
fn sensitivity_reads_files_and_says_the_same_once() {
    let place = place("rtapp-sensitivity", HOST, PERIODIC);
    let args = ["--param", "vm.a.vcpus", "--values", "1,2"];
    let output = run(&place, "sensitivity", &args);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(notes.matches("-10 is not modelled").count(), 1, "{notes}");
}

#[test]
fn a_file_goes_with_other_threads_but_not_alone_without_one() {
    let both =
        format!("{HOST}[[vm.a.thread]]\nprogram = \"loop {{ compute 1ms; count loops }}\"\n");
    let place = place("rtapp-both", &both, PERIODIC);
    let json = json(compare(&place, &["--json"]));
    let rounds = json["runs"][0]["vms"][0]["throughput"].as_f64().unwrap();
    assert!(rounds > 500.0, "{rounds}");
    let error = refused(compare(&place, &["--set", "vm.a.rt_app=\"none.json\""]));
    assert!(
        error.contains("vm.a.rt_app: ") && error.contains("none.json: No such file"),
        "{error}"
    );
    let error = refused(compare(&place, &["--set", "vm.a.rt_app=true"]));
    assert!(
        error.contains("vm.a.rt_app: found true, expected text in quotes"),
        "{error}"
    );
    let without = HOST.replace("rt_app =", "rt_app_ignore = [\"mem\"]\n# ");
    place.write("host.toml", without);
    let error = refused(compare(&place, &[]));
    assert!(
        error.contains("vm.a.rt_app_ignore: goes with rt_app only"),
        "{error}"
    );
    assert!(error.contains("or a file as rt_app"), "{error}");
}

#[test]
fn locks_in_a_circle_are_told_at_the_file() {
    let file = r#"{"tasks": {
        "a": {"lock": "m", "lock": "n", "run": 1, "unlock": "n", "unlock": "m"},
        "b": {"lock": "n", "lock": "m", "run": 1, "unlock": "m", "unlock": "n"}}}"#;
    let error = refused(compare(&place("rtapp-circle", HOST, file), &[]));
    assert!(
        error.contains("host.toml:10: vm.a.rt_app: VM a: mutex"),
        "{error}"
    );
    assert!(error.contains("the other way round"), "{error}");
}
