// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare` and `corun policies` as users meet them.

mod clients;
mod events;
mod refusals;

use crate::common::{Place, fits_schema};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

const HOST: &str = r#"
title = "Two VMs on two pCPUs"
[host]
pcpus = 2
[run]
duration = "200ms"
warm_up = "50ms"
policies = ["cfs", "eevdf"]
[vm.a]
vcpus = 2
[[vm.a.thread]]
count = 2
program = "loop { compute 100us ±50%; lock l { compute 20us }; count 1 rounds }"
[vm.b]
vcpus = 2
workload = "cpu"
[case.one]
vm.b.count = 1
[case.two]
vm.b.count = 2
"#;

fn place(test: &str) -> Place {
    Place::with(test, "host.toml", HOST)
}

#[test]
fn json_is_one_object_as_the_schema_says() {
    let place = place("schema");
    let json = place.json(&["compare", "host.toml", "--seeds", "1,2", "--json"]);
    fits_schema("compare", &json);
    assert_eq!(json["scenario"], "host");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 2, "cases, policies, seeds");
    for vm in runs.iter().flat_map(|run| run["vms"].as_array().unwrap()) {
        let share = |name: &str| vm[name].as_f64().unwrap();
        let sum = share("run_share") + share("ready_share") + share("wait_share");
        assert!((sum - 1.0).abs() < 1e-5, "{vm}");
        assert_eq!(share("utilisation"), share("run_share"));
    }
    let lock_waits = |vm: usize| {
        runs.iter()
            .filter(move |run| run["vms"][vm]["lock_wait_p99_us"].is_number())
    };
    assert!(lock_waits(0).count() > 0, "VM a waits for its lock");
    assert_eq!(lock_waits(1).count(), 0, "VM b has none");
}

/// What a VM counts besides its throughput is in the table, in JSON and in CSV.
#[test]
fn all_that_is_counted_is_shown() {
    let program = "loop { compute 1ms; count 2 pages; count 1 images }";
    let text = format!(
        "[host]\npcpus = 1\n[run]\nduration = \"1s\"\npolicies = [\"cfs\"]\n[vm.web]\nvcpus = 1\n\
         [[vm.web.thread]]\nprogram = \"{program}\"\n"
    );
    let place = Place::with("counts", "counts.toml", &text);
    let json = place.json(&["compare", "counts.toml", "--json"]);
    fits_schema("compare", &json);
    let vm = &json["runs"][0]["vms"][0];
    let images = vm["other_throughputs"]["images/s"].as_f64().unwrap();
    assert_eq!(vm["throughput_unit"], "pages/s");
    assert!(
        (vm["throughput"].as_f64().unwrap() - 2.0 * images).abs() <= 2.0,
        "{vm}"
    );
    let shown = place.prints(&["compare", "counts.toml", "--csv", "counts.csv"]);
    assert!(shown.contains("throughput, images/s"), "{shown}");
    let csv = place.read("counts.csv");
    assert!(csv.contains("web,other_throughputs.images/s,"), "{csv}");
}

/// Three vCPUs that compute: two bound to pCPU 0, one to pCPU 1.
#[test]
fn vcpus_may_be_bound_one_by_one() {
    let text = "[host]\npcpus = 2\n[run]\nduration = \"1s\"\n[vm.web]\nvcpus = 3\nvcpu_allowed = [0, 0, 1]\n\
        [[vm.web.thread]]\ncount = 3\nprogram = \"loop { compute 1ms; count 1 rounds }\"\n";
    let place = Place::with("bound", "bound.toml", text);
    for policy in ["cfs", "eevdf", "credit", "balance", "jupiter"] {
        let line = ["compare", "bound.toml", "--policies", policy, "--json"];
        let vm = place.json(&line)["runs"][0]["vms"][0].clone();
        let of = |key: &str| vm[key].as_f64().unwrap();
        assert!((of("run_share") - 2.0 / 3.0).abs() < 0.01, "{policy}: {vm}");
        assert!(of("ready_wait_max_us") >= of("ready_wait_mean_us"), "{vm}");
    }
}

/// Three vCPUs that compute on two pCPUs are one and a half for each; one that a quota keeps waiting does not count.
#[test]
fn runqueues_are_as_long_as_what_wants_to_run() {
    let vm = "vcpus = 3\n[[vm.web.thread]]\ncount = 3\nprogram = \"loop { compute 1ms; count 1 rounds }\"\n";
    for (quota, least, most) in [("", 1.49, 1.6), ("cpu_max = \"30ms/100ms\"\n", 0.14, 0.3)] {
        let text = format!(
            "[host]\npcpus = 2\nhousekeeping = 0\n[run]\nduration = \"2s\"\n[vm.web]\n{quota}{vm}"
        );
        let place = Place::with("runqueues", "queued.toml", &text);
        for policy in ["cfs", "eevdf", "fair", "balance"] {
            let line = ["compare", "queued.toml", "--policies", policy, "--json"];
            let mean = place.json(&line)["runs"][0]["host"]["runqueue_mean"].as_f64();
            let mean = mean.unwrap();
            assert!((least..most).contains(&mean), "{policy} {quota}: {mean}");
        }
    }
}

/// Two vCPUs that want one lock all the time: one of them spins, except for the time that pause-loop exits take.
#[test]
fn what_a_guests_kernel_does_is_told() {
    let text = "[host]\npcpus = 2\n[run]\nduration = \"1s\"\npolicies = [\"fair\"]\n[vm.web]\nvcpus = 2\n\
        guest.lock = \"ticket\"\nguest.ple_window = \"2us\"\n\
        [[vm.web.thread]]\ncount = 2\nprogram = \"loop { lock l { compute 10us }; count 1 rounds }\"\n";
    let place = Place::with("kernel", "kernel.toml", text);
    let vm = place.json(&["compare", "kernel.toml", "--json"])["runs"][0]["vms"][0].clone();
    let of = |key: &str| vm["kernel"][key].as_f64().unwrap();
    assert!((0.35..=0.5).contains(&of("spin_share")), "{vm}");
    assert!(of("pause_exits_per_s") > 10_000.0, "{vm}");
    assert_eq!(
        (of("flushes_per_s"), &vm["kernel"]["flush_wait_mean_us"]),
        (0.0, &Value::Null)
    );
    let shown = place.prints(&["compare", "kernel.toml"]);
    assert!(shown.contains("spun"), "{shown}");
}

#[test]
fn the_same_bytes_whatever_the_number_of_threads() {
    let place = place("threads");
    let args = |jobs| {
        [
            "compare",
            "host.toml",
            "--seeds",
            "1,2,3",
            "--json",
            "--jobs",
            jobs,
        ]
    };
    assert_eq!(place.prints(&args("1")), place.prints(&args("8")));
    let trace = |name, jobs| {
        let run = [
            "compare",
            "host.toml",
            "--policies",
            "cfs",
            "--case",
            "two",
            "--seed",
            "7",
        ];
        place.prints(&[&run[..], &["--jobs", jobs, "--trace", name]].concat());
        std::fs::read(place.path(name)).unwrap()
    };
    let first = trace("1.perfetto-trace", "1");
    assert!(first.len() > 1000);
    assert_eq!(first, trace("8.perfetto-trace", "8"));
}

#[test]
fn tables_and_report() {
    let place = place("tables");
    let text = place.prints(&[
        "compare",
        "host.toml",
        "--case",
        "two",
        "--report",
        "r.html",
    ]);
    assert!(
        text.starts_with("two\n") && text.contains("rounds/s"),
        "{text}"
    );
    assert!(!text.contains("one\n"));
    let page = place.read("r.html");
    assert!(page.contains("corun compare host.toml --case two --report r.html"));
    assert!(!page.contains(env!("CARGO_TARGET_TMPDIR")));
}

/// Watching for the report changes nothing, and a timeline can be written at the same time.
#[test]
fn a_report_changes_nothing() {
    let place = place("watched");
    let run = |more: &[&str], trace: &str| {
        let one = [
            "--case",
            "two",
            "--policies",
            "cfs",
            "--seed",
            "1",
            "--json",
            "--trace",
        ];
        let json = place.prints(&[&["compare", "host.toml"], &one[..], &[trace], more].concat());
        (json, std::fs::read(place.path(trace)).unwrap())
    };
    let alone = run(&[], "alone.trace");
    assert_eq!(alone, run(&["--report", "r.html"], "beside.trace"));
    let page = place.read("r.html");
    let (_, drawn) = page.split_once(r#"id="drawn">"#).unwrap();
    let (drawn, _) = drawn.split_once("</script>").unwrap();
    let drawn: serde_json::Value = serde_json::from_str(drawn).unwrap();
    let lanes = drawn["timelines"][0][0]["lanes"].as_array().unwrap();
    let spans: usize = lanes
        .iter()
        .map(|lane| lane["spans"].as_array().unwrap().len() / 3)
        .sum();
    assert!(spans > 100 && spans <= 20_000 + lanes.len(), "{spans}");
}

#[test]
fn the_command_line_and_the_scenario_say_the_same() {
    let place = place("same");
    let first = place.prints(&[
        "compare",
        "host.toml",
        "--json",
        "--seed",
        "5",
        "--duration",
        "300ms",
    ]);
    let sets = ["--set", "run.seed=5", "--set", "run.duration=300ms"];
    let second = place.prints(&[&["compare", "host.toml", "--json"], &sets[..]].concat());
    assert_eq!(first, second);
    let lone = place.prints(&[
        "compare",
        "host.toml",
        "--json",
        "--case",
        "one",
        "--duration",
        "1",
    ]);
    assert!(lone.contains("\"duration_s\": 1.0"));
}

#[test]
fn the_modelled_kernel_is_named() {
    let place = Place::new("kernel-named");
    let text = "[host]\npcpus = 2\n[run]\nduration = \"10ms\"\nwarm_up = \"0s\"\n\
        policies = [\"cfs\", \"cfs-balance\", \"eevdf\", \"balance\"]\n[vm.a]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("host.toml", text);
    let args = ["compare", "host.toml", "--quiet"];
    let said = |more: &[&str]| {
        let text = place.prints(&[&args[..], more].concat());
        let (_, said) = text
            .split_once("Models: ")
            .unwrap_or_else(|| panic!("{text}"));
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = "cfs, cfs-balance as in Linux 2.6.33; eevdf as in Linux 6.12; others: scheduler.cfs.preset, \
        scheduler.eevdf.preset.";
    assert_eq!(said(&[]), told);
    let set = ["--policies", "cfs", "--set", "scheduler.cfs.preset=5.x"];
    assert_eq!(
        said(&set),
        "cfs as in Linux 5.x; others: scheduler.cfs.preset."
    );
    let ours = place.prints(&[&args[..], &["--policies", "balance"]].concat());
    assert!(!ours.contains("Models"), "{ours}");
    let json = place.json(&[&args[..], &["--json", "--report", "r.html"]].concat());
    fits_schema("compare", &json);
    let kernel = |at: usize| json["runs"][at]["kernel"].as_str();
    assert_eq!(
        [0, 1, 2, 3].map(kernel),
        [
            Some("Linux 2.6.33"),
            Some("Linux 2.6.33"),
            Some("Linux 6.12"),
            None
        ]
    );
    assert!(
        place
            .read("r.html")
            .contains("cfs, cfs-balance as in Linux 2.6.33")
    );
    let vary = [
        "sensitivity",
        "host.toml",
        "--quiet",
        "--param",
        "run.duration",
        "--values",
        "10ms,20ms",
    ];
    let text = place.prints(&vary);
    assert!(text.contains("Models: cfs, cfs-balance"), "{text}");
}

#[test]
fn names_of_files_need_not_be_utf_8() {
    let dir = tempfile::tempdir().unwrap();
    let name = |end: &str| OsString::from_vec([b"h\xff".as_slice(), end.as_bytes()].concat());
    std::fs::write(dir.path().join(name(".toml")), HOST).unwrap();
    let run = |args: &[&OsStr]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_corun"));
        command.current_dir(dir.path()).args(args).output().unwrap()
    };
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let with = |text: &str, more: &[OsString]| {
        let all = [words(text), more.to_vec()].concat();
        run(&all.iter().map(OsString::as_os_str).collect::<Vec<_>>())
    };
    let one = "compare --quiet --policies cfs --seed 1 --duration 10ms --case one";
    for option in ["--report", "--csv", "--trace", "--events"] {
        let output = with(one, &[name(".toml"), option.into(), name(option)]);
        assert!(output.status.success(), "{output:?}");
        assert!(dir.path().join(name(option)).exists(), "{option}");
    }
    let vary = "sensitivity --quiet --param run.duration --values 10ms,20ms";
    let output = with(vary, &[name(".toml"), "--report".into(), name("r")]);
    assert!(output.status.success(), "{output:?}");
    let events = name("--events");
    for command in [
        "compare --quiet --seed 0",
        "advise --quiet --starts 1 --most 0",
    ] {
        let output = with(command, &["--report".into(), name("r"), events.clone()]);
        assert!(output.status.success(), "{command}: {output:?}");
    }
    // What is wrong with one is reported.
    std::fs::write(dir.path().join(name(".toml")), "[host]\npcpus = 0\n").unwrap();
    for args in [vec![name(".toml")], vec![name("missing")]] {
        for command in [
            "compare",
            "advise",
            "sensitivity --param run.duration --values 1s,2s",
            "calibrate --host",
        ] {
            let output = with(command, &args);
            assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("h\u{fffd}"), "{said}");
        }
    }
}

#[test]
fn policies_say_where_they_are_from() {
    let place = place("policies");
    let list = place.json(&["policies", "--json"]);
    for policy in list.as_array().unwrap() {
        for key in ["name", "summary", "source"] {
            assert!(!policy[key].as_str().unwrap().is_empty(), "{policy}");
        }
    }
    assert!(place.prints(&["policies"]).starts_with("cfs "));
}

#[test]
fn csv_may_be_printed_instead_of_tables() {
    let place = place("csv-printed");
    place.write(
        "s.toml",
        "[host]\npcpus = 1\n[run]\nduration = \"50ms\"\npolicies = [\"cfs\"]\n[vm.a]\nvcpus = 1\nworkload = \"cpu\"\n",
    );
    let printed = place.prints(&["compare", "s.toml", "--quiet", "--csv", "-"]);
    assert!(printed.starts_with("case,policy,seed"), "{printed}");
    assert!(!printed.contains("utilisation (run)"), "{printed}");
    let error = place.refused(&["compare", "s.toml", "--csv", "-", "--json"]);
    assert!(error.starts_with("corun: --csv -: --json has"), "{error}");
    let error = place.refused(&["compare", "s.toml", "--report", "-"]);
    assert!(error.starts_with("corun: --report -: expected"), "{error}");
}

/// Settings of cgroups hold under corun's policies, CFS and EEVDF, and under others as far as these know cgroups; they
/// report what they leave out.
#[test]
fn quotas_hold_under_every_scheduler_that_has_any() {
    let scenario = r#"
[host]
pcpus = 2
[run]
duration = "2s"
[group.slice]
cpu_max = "100ms/100ms"
[vm.a]
vcpus = 2
cpu_max = "10ms/100ms"
workload = "cpu"
[vm.b]
vcpus = 2
group = "slice"
cpu_max = "50ms/100ms"
cpu_burst = "10ms"
cpu_idle = true
workload = "cpu"
[vm.c]
vcpus = 2
vcpu_max = "20ms/100ms"
workload = "cpu"
"#;
    let place = Place::with("quotas", "quotas.toml", scenario);
    let policies = "fair,cfs,eevdf,credit,rr";
    let args = ["compare", "quotas.toml", "--policies", policies, "--json"];
    let report = place.json(&args);
    let notes = report["notes"].as_array().unwrap();
    let notes: Vec<&str> = notes.iter().filter_map(Value::as_str).collect();
    assert_eq!(
        notes,
        [
            "vm.b: credit knows no group or cpu_burst or cpu_idle, only cpu_max, as a cap",
            "vm.c: credit knows no vcpu_max, only cpu_max, as a cap",
            "rr: no VM is `realtime`, so it does what cfs does",
            "vm.a, vm.b, vm.c: rr knows no group, cpu_max, vcpu_max or cpu_idle (corun's own policies do)",
        ]
    );
    for run in report["runs"].as_array().unwrap() {
        let shares = [0, 1, 2].map(|vm| run["vms"][vm]["run_share"].as_f64().unwrap());
        let quotas = match run["policy"].as_str().unwrap() {
            "rr" => [1.0 / 3.0; 3],
            "credit" => [0.05, 0.25, 0.7],
            _ => [0.05, 0.25, 0.2],
        };
        // Credit's accounting has periods of 30 ms.
        let off = if run["policy"] == "credit" { 0.25 } else { 0.1 };
        for (share, quota) in shares.iter().zip(quotas) {
            assert!((share - quota).abs() < off * quota, "{run}");
        }
    }
}

/// vCPUs that wait for each other get their VM's quota, though each takes a part of it that it does not need: those
/// that are kept from a pCPU get what is returned.
#[test]
fn a_quota_is_used_by_vcpus_that_wait_for_each_other() {
    let scenario = r#"
[host]
pcpus = 16
[device.disk]
kind = "ssd"
[run]
duration = "2s"
[vm.web]
vcpus = 16
cpu_max = "100ms/100ms"
workload = "nginx"
"#;
    let place = Place::with("slack", "slack.toml", scenario);
    let report = place.json(&["compare", "slack.toml", "--policies", "fair,cfs", "--json"]);
    let [ours, kernels] = [0, 1].map(|run| {
        let vm = &report["runs"][run]["vms"][0];
        let of = |key: &str| vm[key].as_f64().unwrap();
        (16.0 * of("run_share"), of("throughput"))
    });
    assert!(ours.0 > 0.97 && ours.0 < 1.03, "{ours:?}");
    assert!(ours.1 > 0.9 * kernels.1, "{ours:?} {kernels:?}");
}

/// To kernels' schedulers, a whole VM with a weight counts no more than a vCPU of one without: that is reported, with
/// the schedulers concerned.
#[test]
fn a_vm_without_a_weight_beside_one_with_is_told() {
    let scenario = r#"
[host]
pcpus = 2
[run]
duration = "200ms"
[vm.a]
vcpus = 2
weight = 100
workload = "cpu"
[vm.b]
vcpus = 2
workload = "cpu"
"#;
    let place = Place::with("weighted", "weighted.toml", scenario);
    let notes = |policies: &str, set: &str| {
        let args = [
            "compare",
            "weighted.toml",
            "--policies",
            policies,
            "--set",
            set,
            "--json",
        ];
        place.json(&args)["notes"].clone()
    };
    let told = "vm.b: cfs, eevdf count its vCPUs one by one against other VMs' weights, since it has none (each counts \
                less under corun's own policies: docs/contract.md)";
    assert_eq!(
        notes("fair,cfs,eevdf,credit", "vm.b.vcpus=2"),
        serde_json::json!([told])
    );
    assert_eq!(
        notes("fair,cfs,eevdf,credit", "vm.b.weight=100"),
        Value::Null
    );
}
