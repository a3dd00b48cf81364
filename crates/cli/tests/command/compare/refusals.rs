// SPDX-License-Identifier: GPL-2.0-only
//! What `corun compare` refuses, and its messages: where the fault is, what was found, and what is accepted.

use super::{HOST, place};
use crate::common::{Place, failed};

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
            "host.toml:16: vm.b.workload: found \"cpo\", did you mean \"cpu\"? `corun workloads` lists all\n",
        ),
        (
            "\"cpu\"",
            "\"zzz\"",
            "host.toml:16: vm.b.workload: found \"zzz\", accepted are cpu, independent, ",
        ),
        (
            "[vm.a]",
            "[policy.balance]\nslice = \"1ms\"\n[vm.a]",
            "host.toml:9: policy.balance: this policy has nothing to set\n",
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
        (
            "[vm.a]",
            "[scheduler.cfs]\nidle_min_granularity = \"1ms\"\n[vm.a]",
            "host.toml:10: scheduler.cfs.idle_min_granularity: found it with preset \"2.6.33\", ",
        ),
    ] {
        place.write("host.toml", HOST.replace(from, to));
        let error = place.refused(&["compare", "host.toml", "--quiet"]);
        assert!(error.starts_with(&format!("corun: {expected}")), "{error}");
    }
}

#[test]
fn names_of_policies_may_have_blanks_around_them() {
    let place = place("blanks");
    let args = ["compare", "host.toml", "--seed", "1", "-q", "--policies"];
    let text = place.prints(&[&args[..], &["cfs, eevdf "]].concat());
    assert!(text.contains("eevdf"), "{text}");
    let error = place.refused(&[&args[..], &["cfs,"]].concat());
    assert!(
        error.contains("expected names with commas between them"),
        "{error}"
    );
}

#[test]
fn what_is_neither_a_scenario_nor_a_recording() {
    let place = Place::with("neither", "diary", "Dear diary,\n");
    place.write("kernel.lockstep", b"CORUNLK1\x01\0\0\0");
    let diary = place.refused(&["compare", "diary"]);
    assert!(diary.contains("accepted are recordings by"), "{diary}");
    assert!(
        diary.ends_with("; and scenarios (TOML, see docs/scenario.md)\n"),
        "{diary}"
    );
    let lockstep = place.refused(&["compare", "kernel.lockstep"]);
    assert!(
        lockstep.contains("`corun lockstep FILE` replays it"),
        "{lockstep}"
    );
    let advised = place.refused(&["advise", "diary"]);
    assert!(!advised.contains("scenario"), "{advised}");
}

#[test]
fn the_example_of_a_policy_is_named_as_one() {
    let place = place("example-policy");
    let example = "microsliced, and calm, the example of docs/write-a-policy.md\n";
    for args in [
        &["compare", "host.toml", "--policies", "zzz"][..],
        &["compare", "host.toml", "--policies", "clam"],
        &["host", "--policy", "zzz"],
        &["policies", "zzz"],
    ] {
        let error = place.refused(args);
        assert!(error.ends_with(example), "{error}");
    }
    let shown = place.prints(&["policies", "calm"]);
    assert!(
        shown.contains("the worked example of docs/write-a-policy.md"),
        "{shown}"
    );
    assert!(place.prints(&["policies"]).contains("\ncalm  "));
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
    // Consequences for the rest are not reported.
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

/// A timer of 1 ns catches up on what a quota kept its VM from: millions of times in one moment.
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
