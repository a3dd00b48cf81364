// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare` and `corun policies` as users meet them.

use crate::common::{Place, failed, fits_schema};
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

/// Two vCPUs that want one lock all the time: one of them spins, but for what pause-loop exits take.
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

/// A simulated run, written as a recording, is read as what it was: two pCPUs, busy all the time,
/// and as many switches.
#[test]
fn events_are_a_recording() {
    let place = place("events");
    let run = "compare host.toml --policies eevdf --case one --seed 7 --set run.warm_up=\"0s\" \
               --events run.ftrace --json";
    let said = place.json(&run.split_whitespace().collect::<Vec<_>>());
    let again = place.json(&["compare", "run.ftrace", "--policies", "eevdf", "--json"]);
    let vcpus = again["replay"]["vcpus"].as_array().unwrap();
    let sum = |what: &str| -> f64 {
        let recorded = |vcpu: &serde_json::Value| vcpu[what]["recorded"].as_f64().unwrap();
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
        place.prints(&run.split(' ').collect::<Vec<_>>());
        let again = place.json(&["compare", "run.ftrace", "--policies", "cfs", "--json"]);
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
    place.prints(&run.split(' ').collect::<Vec<_>>());
    let again = place.json(&["compare", "run.ftrace", "--policies", "cfs", "--json"]);
    for vcpu in again["replay"]["vcpus"].as_array().unwrap() {
        let recorded = vcpu["run_s"]["recorded"].as_f64().unwrap();
        assert!((recorded - 0.1).abs() < 0.001, "{again}");
    }
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

/// Who watches for the report changes nothing, and a timeline can be written beside.
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
fn what_is_wrong_with_the_command_line() {
    let place = place("usage");
    for (args, expected) in [
        (
            vec!["--policies", "cfss"],
            "corun: --policies: unknown policy \"cfss\", did you mean \"cfs\"? ",
        ),
        (
            vec!["--policies", "cfs,cfs"],
            "corun: --policies: \"cfs\" is named twice\n",
        ),
        (
            vec!["--case", "tow"],
            "corun: --case \"tow\": unknown case, did you mean \"two\"? Accepted are one, two\n",
        ),
        (
            vec!["--trace", "t"],
            "corun: --trace: a timeline is of one run, but there are 4: select one with \
             --policies cfs --case=one --seed 1\n",
        ),
        (
            vec!["--trace", "t", "--trace-from", "soon"],
            "corun: --trace-from: \"soon\" is no time; accepted: seconds, or a number with ns, us, \
             ms, s or min\n",
        ),
        (
            vec!["--trace", "t", "--trace-from", "10min"],
            "corun: --trace-from: it is 600 s, but the run ends at ",
        ),
        (
            vec!["--trace", "t", "--trace-for", "0ms"],
            "corun: --trace-for: it is 0; accepted: more\n",
        ),
        (
            vec!["--events", "e"],
            "corun: --events: events are of one run, but there are 4: select one with \
             --policies cfs --case=one --seed 1\n",
        ),
        (
            vec!["--set", "vm.a.vcpu=3"],
            "corun: --set vm.a.vcpu=3: vm.a.vcpu: unknown key, did you mean \"vcpus\"? ",
        ),
        (
            vec!["--duration", "0"],
            "corun: --duration \"0s\": run.duration: found \"0s\", expected a duration",
        ),
        (vec!["--duration", "\"\\"], "corun: --duration \"\"\\\": "),
        (
            vec!["--seeds", "1,1"],
            "corun: --seeds [1, 1]: run.seeds: found [1, 1], expected each seed once\n",
        ),
    ] {
        let args = [&["compare", "host.toml", "--quiet"], &args[..]].concat();
        let error = place.refused(&args);
        assert!(error.starts_with(expected), "{error}");
    }
    let window = [
        "compare",
        "host.toml",
        "--events",
        "e",
        "--trace-from",
        "1s",
    ];
    assert!(place.refused(&window).contains("cannot be used with"));
    place.refused(&["compare"]);
    place.refused(&["compare", "host.toml", "--jobs", "0"]);
}

#[test]
fn what_is_wrong_with_the_scenario() {
    let place = place("scenario");
    for (from, to, expected) in [
        (
            "\"cpu\"",
            "\"cpo\"",
            "host.toml:16: vm.b.workload: found \"cpo\", did you mean \"cpu\"? ",
        ),
        (
            "compute 100us ±50%",
            "comput 1ms",
            "host.toml:13: vm.a.thread.program: ",
        ),
        (
            "\"eevdf\"]",
            "\"evdf\"]",
            "host.toml:8: run.policies: unknown policy \"evdf\", did you mean",
        ),
        (
            "vcpus = 2\nw",
            "weight = 0\nvcpus = 2\nw",
            "host.toml:15: vm.b.weight: found 0, expected",
        ),
        (
            "[vm.a]",
            "[scheduler.cfs]\npreset = \"3.x\"\n[vm.a]",
            "host.toml:10: scheduler.cfs.preset: found \"3.x\", did you mean \"4.x\"? ",
        ),
        (
            "[vm.a]",
            "[scheduler.cfs]\nsearch_cost = \"1us\"\n[vm.a]",
            "host.toml:10: scheduler.cfs.search_cost: found it with preset \"2.6.33\", ",
        ),
    ] {
        place.write("host.toml", HOST.replace(from, to));
        let error = place.refused(&["compare", "host.toml", "--quiet"]);
        assert!(error.starts_with(&format!("corun: {expected}")), "{error}");
    }
}

#[test]
fn what_is_wrong_by_itself_is_told_at_once() {
    let place = Place::new("at-once");
    let text = "[host]\npcpus = 2\nhzz = 250\n[run]\npolicies = [\"evdf\"]\n[scheduler.cfs]\npreset = \"3.x\"\n\
        [vm.a]\nvcpus = 2\nworkload = \"cpuu\"\nguest.lock = \"foo\"\n[vm.b]\nvcpus = 0\n\
        [vm.c]\nvcpus = 1\n[[vm.c.thread]]\nprogram = \"comput 1ms\"\n[task.t]\nprogram = \"lock a { }\"\n";
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    let lines: Vec<&str> = error.lines().collect();
    for told in [
        ":3: host.hzz: ",
        ":5: run.policies: ",
        ":7: scheduler.cfs.preset: ",
        ":10: vm.a.workload: ",
        ":11: vm.a.guest.lock: ",
        ":12: vm.b.workload: is missing",
        ":13: vm.b.vcpus: found 0",
        ":17: vm.c.thread.program: ",
    ] {
        let count = lines.iter().filter(|line| line.contains(told)).count();
        assert_eq!(count, 1, "{told}: {error}");
    }
    // What would follow from the rest is not told.
    let text = "[host]\npcpus = 2\nhzz = 250\n[vm.a]\nvcpus = 2\n[[vm.a.thread]]\nprogram = \"request web\"\n\
        [client.users]\nvm = \"a\"\nkind = \"closd\"\nport = \"web\"\n";
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    assert_eq!(error.lines().count(), 2, "{error}");
    let text = "[host]\npcpus = 2\n[vm.a]\nvcpus = 2\nworkload = \"cpu\"\n\
        [case.\" a\"]\nvm.a.count = 2\n[case.\" b\"]\nvm.a.count = 3\n";
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    assert!(error.contains(":6: ") && error.contains(":8: "), "{error}");
    let text = "[host]\npcpus = 2\n[vm.a]\nvcpus = 2\nworkload = \"cpu\"\n\
        [case.a]\nvm.a.workload = \"x\"\n[case.b]\nvm.a.workload = \"y\"\n";
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    assert!(error.contains(":7: ") && error.contains(":9: "), "{error}");
    let error = place.refused(&["compare", "host.toml", "--set", "x", "--set", "y"]);
    assert!(
        error.contains("--set x: ") && error.contains("--set y: "),
        "{error}"
    );
}

#[test]
fn threads_do_not_eat_all_memory() {
    let place = Place::new("threads-too-many");
    let text = "[host]\npcpus = 2\n[run]\nduration = \"1ms\"\nwarm_up = \"0s\"\npolicies = [\"cfs\"]\n\
        [vm.a]\ncount = 4096\nvcpus = 1\n[[vm.a.thread]]\ncount = 65536\nprogram = \"compute 1ms; count x\"\n";
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    let told = "corun: host.toml:12: vm.a.thread.program: 65536 threads in VM a3 and 131072 in those before it, \
        expected at most 131072 of all VMs together\n";
    assert_eq!(error, told);
    // The workload's own number counts, too.
    let workloads = vec!["\"cpu\""; 65_537].join(",");
    let text = format!("[host]\npcpus = 2\n[vm.a]\nvcpus = 2\nworkload = [{workloads}]\n");
    place.write("host.toml", text);
    let error = place.refused(&["compare", "host.toml"]);
    assert!(
        error.contains(":5: vm.a.workload: 131074 threads"),
        "{error}"
    );
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
    // What is wrong with one is told.
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
fn files_that_cannot_be_used() {
    let place = place("files");
    let error = place.refused(&["compare", "missing.toml"]);
    assert!(error.starts_with("corun: missing.toml: "), "{error}");
    place.refused(&["compare", "."]);
    for bytes in [&b""[..], b"\x1f\x8b", b"\xff\xfe\x00", b"<html></html>"] {
        place.write("strange", bytes);
        place.refused(&["compare", "strange"]);
    }
    place.write("bad.toml", b"[host]\nx = \"\xff\"");
    let error = place.refused(&["compare", "bad.toml"]);
    assert!(
        error.contains("bad.toml:2: byte 12 of the file is not UTF-8"),
        "{error}"
    );
    let nowhere = ["--json", "-q", "--report", "no/where.html"];
    let output = place.corun(&[&["compare", "host.toml"], &nowhere[..]].concat());
    let error = failed(output, 1);
    assert!(
        error.starts_with("corun: --report: cannot write no/where.html: "),
        "{error}"
    );
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

const SHOP: &str = r#"
[host]
pcpus = 2
[run]
duration = "300ms"
warm_up = "50ms"
policies = ["cfs", "balance"]
[vm.web]
count = 2
vcpus = 1
[[vm.web.thread]]
count = 4
program = "loop { request http; transmit db 1KB; request db; compute 100us; reply http 16KB }"
[vm.db]
vcpus = 1
[[vm.db.thread]]
program = "loop { request sql; compute 50us exp; reply sql 4KB; count calls }"
[client.users]
vm = "web"
kind = "closed"
port = "http"
connections = 8
think = "2ms exp"
[client.ping]
vm = "db"
kind = "ping"
interval = "1ms"
[channel.calls]
from = "web:db"
to = "db:sql"
"#;

#[test]
fn clients_and_channels() {
    let place = place("clients");
    place.write("shop.toml", SHOP);
    let json = place.json(&["compare", "shop.toml", "--json"]);
    fits_schema("compare", &json);
    for run in json["runs"].as_array().unwrap() {
        let clients = run["clients"].as_array().unwrap();
        let names: Vec<&str> = clients
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "users web1",
                "users web2",
                "ping",
                "calls web1",
                "calls web2"
            ]
        );
        for client in clients {
            let of = |key: &str| client[key].as_f64().unwrap();
            assert!(of("replies_per_s") > 500.0, "{client}");
            assert!(of("response_p50_us") <= of("response_p95_us"), "{client}");
            assert!(of("response_p99_us") <= of("response_max_us"), "{client}");
        }
    }
    let text = place.prints(&["compare", "shop.toml"]);
    assert!(text.contains("users web1 (closed loop)"), "{text}");
    for (from, to, expected) in [
        (
            "[client.ping]",
            "[client.more]\nvm = \"db\"\nkind = \"sink\"\nport = \"out\"\n[client.ping]",
            "corun: shop.toml:27: client.more.port: client more: no program of VM db uses the port out",
        ),
        (
            "\"http\"",
            "\"htpp\"",
            "corun: shop.toml:21: client.users.port: client users web1: no program of VM web1 uses the \
             port htpp; used are: http, db",
        ),
        (
            "\"db:sql\"",
            "\"db:sqk\"",
            "corun: shop.toml:30: channel.calls.to: channel calls web1: no program of VM db uses the port \
             sqk; used are: sql",
        ),
        (
            "\"2ms exp\"",
            "\"2 exp\"",
            "corun: shop.toml:23: client.users.think: line 1, column 1: saw `2`",
        ),
        (
            "request sql;",
            "request sql; request more;",
            "corun: shop.toml:17: vm.db.thread.program: VM db: the port more is used, but no client or \
             channel connects to it",
        ),
        (
            "[client.ping]",
            "[network]\ntcp_window = \"1GB\"\n[client.ping]",
            "corun: shop.toml:25: network.tcp_window: found \"1GB\", expected a size from 64KB to 6MB",
        ),
    ] {
        place.write("shop.toml", SHOP.replace(from, to));
        let error = place.refused(&["compare", "shop.toml", "--quiet"]);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn images_that_do_not_fit_are_told_by_the_key_that_says_so() {
    let place = place("images");
    let host = "[host]\npcpus = 1\n[device.d]\nkind = \"ssd\"\n";
    let vm = "[vm.a]\nvcpus = 1\nthread = [{ program = \"loop { read 4KB }\" }]\n";
    let large = vm.replace("[vm.a]\n", "[vm.a]\ndisk_size = \"1000GB\"\n");
    place.write("s.toml", format!("{host}{large}"));
    let error = place.refused(&["compare", "s.toml", "--quiet"]);
    let expected = "corun: s.toml:6: vm.a.disk_size: VM a: its image of";
    assert!(error.starts_with(expected), "{error}");
    place.write("s.toml", format!("{host}capacity = \"10MB\"\n{vm}"));
    let error = place.refused(&["compare", "s.toml", "--quiet"]);
    assert!(
        error.starts_with("corun: s.toml:5: device.d.capacity: VM a: its image of"),
        "{error}"
    );
}

#[test]
fn seeks_of_longer_ways_take_no_less_time() {
    let place = place("seeks");
    let vm = "[vm.a]\nvcpus = 1\nthread = [{ program = \"loop { read 4KB }\" }]\n";
    for (seek, expected) in [
        (
            "seek_average = \"20ms\"",
            "corun: s.toml:5: device.d.seek_average: seek_average is 20.0 ms and seek_full 17.0 ms",
        ),
        (
            "seek_track = \"9ms\"",
            "corun: s.toml:5: device.d.seek_track: seek_track is 9.00 ms and seek_average 8.50 ms",
        ),
    ] {
        place.write(
            "s.toml",
            format!("[host]\npcpus = 1\n[device.d]\nkind = \"hdd\"\n{seek}\n{vm}"),
        );
        let error = place.refused(&["compare", "s.toml", "--quiet"]);
        assert!(error.starts_with(expected), "{error}");
    }
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

/// A timer of 1 ns makes up for what a quota kept its VM from: millions of times in one moment.
#[test]
fn a_run_whose_time_stands_still_fails_and_says_where() {
    let scenario = r#"
[host]
pcpus = 1
[run]
duration = "1s"
warm_up = "0s"
[vm.a]
vcpus = 1
cpu_max = "1ms/100ms"
[[vm.a.thread]]
program = "compute 1100us; loop { timer t 1ns absolute }"
"#;
    let place = Place::with("standstill", "still.toml", scenario);
    let args = ["compare", "still.toml", "--policies", "fair", "--quiet"];
    let said = failed(place.corun(&args), 1);
    for expected in [
        "policy fair, seed 1",
        "virtual time stands still 0.1",
        "a/0 goes on with its programs",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// What is said of cgroups holds under corun's policies, CFS and EEVDF, and as far as they know of such under others,
/// which say what they leave out.
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
            "rr: no VM is `realtime`, so it does what cfs does",
            "vm.a: rr knows no group, cpu_max or cpu_idle (corun's own policies do)",
            "vm.b: rr knows no group, cpu_max or cpu_idle (corun's own policies do)",
        ]
    );
    for run in report["runs"].as_array().unwrap() {
        let shares = [0, 1].map(|vm| run["vms"][vm]["run_share"].as_f64().unwrap());
        let quotas = if run["policy"] == "rr" {
            [0.5, 0.5]
        } else {
            [0.05, 0.25]
        };
        // Credit's accounting has periods of 30 ms.
        let off = if run["policy"] == "credit" { 0.25 } else { 0.1 };
        for (share, quota) in shares.iter().zip(quotas) {
            assert!((share - quota).abs() < off * quota, "{run}");
        }
    }
}
