// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario becomes, and that nothing makes the reader panic.

use corun_scenario::{Override, looks_like_scenario, read};
use proptest::prelude::*;

const FULL: &str = r#"
title = "Everything at once"
source = "nowhere"
[host]
topology = "1n1l4c2t"
hz = 1000
tick_skew = true
l2 = "256KB"
llc = "8MB"
smt = { switching = 40, yield = 120 }
[host.costs]
switch = "3us"
memory = "90ns"
[run]
duration = "2s"
warm_up = "0s"
seeds = [1, 2]
policies = ["cfs", "balance"]
[scheduler.cfs]
preset = "2.6.33"
latency = "5ms"
[scheduler.eevdf]
base_slice = "3ms"
[scheduler.credit]
slice = "5ms"
ratelimit = "0us"
boost = false
[scheduler.corun]
slice = "4ms"
slice_timer = true
[vm.web]
vcpus = 4
count = 3
weight = 200
vcpu_weight = 50
cookie = 7
cap = 150
slice = "1ms"
allowed = "0-3"
workload = "cpu"
threads = 8
[vm.web.guest]
hz = 250
lock = "ticket"
[vm.db]
vcpus = 2
[[vm.db.thread]]
count = 2
vcpu = 1
program = "loop { compute 1ms }"
[task.qemu]
count = 2
program = "loop { sleep 1ms }"
[case.small]
vm.web.count = 1
[case.big]
host.pcpus = 16
"#;

#[test]
fn a_full_scenario() {
    let scenario = read("full.toml", FULL, &[]).unwrap();
    let names: Vec<_> = scenario
        .cases
        .iter()
        .map(|case| case.name.as_str())
        .collect();
    assert_eq!(names, ["small", "big"]);
    assert_eq!(scenario.cases[1].host.topology.to_string(), "1n1l16c1t");
    let case = &scenario.cases[1];
    assert_eq!(case.host.hardware.llc, Some(8 << 20));
    assert_eq!(case.host.hardware.smt.yields, Some(120));
    assert_eq!(case.host.costs.memory, Some(90));
    let vms: Vec<_> = case.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(vms, ["web1", "web2", "web3", "db"]);
    assert_eq!(case.vms[0].weight, Some(200));
    assert_eq!((case.vms[0].cookie, case.vms[3].cookie), (7, 0));
    assert_eq!(case.vms[0].demand.workloads[0].threads, Some(8));
    assert!(case.vms[0].demand.threads.is_empty());
    let threads = &case.vms[3].demand.threads;
    assert_eq!(threads[0].program.place.line, 50);
    assert_eq!(
        (case.tasks.len(), case.tasks[1].name.as_str()),
        (2, "qemu2")
    );
    assert_eq!(
        (case.run.seeds.as_slice(), case.run.warm_up),
        (&[1, 2][..], 0)
    );
}

#[test]
fn real_time_vms() {
    let said = |rr: &str| {
        let text = format!(
            "host.pcpus = 1\n[scheduler.rr]\n{rr}\n[vm.a]\nvcpus = 1\nrealtime = true\n\
             workload = \"cpu\"\n"
        );
        read("rr.toml", &text, &[])
    };
    let scenario = said("runtime = \"15ms\"\nperiod = \"30ms\"\nslice = \"50ms\"").unwrap();
    let case = &scenario.cases[0];
    assert!(case.vms[0].realtime);
    let keys = &case.schedulers.rr;
    assert_eq!(
        (keys.runtime, keys.period),
        (Some(15_000_000), Some(30_000_000))
    );
    assert_eq!(keys.slice, Some(50_000_000));
    for (keys, expected) in [
        (
            "period = \"30ms\"",
            "scheduler.rr.period: expected runtime and period, both",
        ),
        (
            "runtime = \"30ms\"",
            "scheduler.rr.runtime: expected runtime and period, both",
        ),
        (
            "runtime = \"40ms\"\nperiod = \"30ms\"",
            "scheduler.rr.runtime: found more than the period",
        ),
        ("slice = \"0ms\"", "scheduler.rr.slice: found"),
    ] {
        let error = said(keys).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(!read("full.toml", FULL, &[]).unwrap().cases[0].vms[0].realtime);
}

#[test]
fn caps_slices_and_credit() {
    let scenario = read("full.toml", FULL, &[]).unwrap();
    let case = &scenario.cases[0];
    let (web, db) = (&case.vms[0], case.vms.last().unwrap());
    assert_eq!((web.cap, web.slice), (Some(150), Some(1_000_000)));
    assert_eq!((db.cap, db.slice), (None, None));
    let credit = &case.schedulers.credit;
    assert_eq!((credit.slice, credit.ratelimit), (Some(5_000_000), Some(0)));
    assert_eq!(credit.boost, Some(false));
    for (from, to, expected) in [
        (
            "ratelimit = \"0us\"",
            "ratelimit = \"50us\"",
            "scheduler.credit.ratelimit: found",
        ),
        (
            "slice = \"5ms\"",
            "slice = \"500us\"",
            "scheduler.credit.slice: found",
        ),
        ("cap = 150", "cap = 0", "vm.web.cap: found 0"),
        ("slice = \"1ms\"", "slice = \"1s\"", "vm.web.slice: found"),
    ] {
        let error = read("full.toml", &FULL.replace(from, to), &[]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn values_are_shown_as_they_were_said() {
    let scenario = |more: &str| {
        let text = format!("{more}\nhost.pcpus = 2\nvm.a = {{ vcpus = 1, workload = \"cpu\" }}");
        read("a.toml", &text, &[])
    };
    for (said, problem) in [
        (
            "run.seed = [1, 1]",
            "a.toml:1: run.seed: found [1, 1], expected each",
        ),
        (
            "run.seeds = [1, 1]",
            "a.toml:1: run.seeds: found [1, 1], expected each",
        ),
        (
            "title = \"a\\u001b\"",
            "a.toml:1: title: found a control character",
        ),
        (
            "task.t = { allowed = \"0-\", program = \"compute 1s\" }",
            "a.toml:1: task.t.allowed: found \"0-\", expected a list of pCPUs below 512",
        ),
    ] {
        let error = scenario(said).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert!(scenario("title = \"one line\"").is_ok());
}

#[test]
fn a_scenario_is_told_by_its_first_line() {
    for text in [
        FULL,
        "# c\n\n[host]",
        "title = 1",
        "a.b=2",
        "[\"x\"]",
        "[[vm.a.thread]]",
        "[case.\"2 VMs\"]",
        "\u{feff}[host]",
        "[host",
    ] {
        assert!(looks_like_scenario(text), "{text}");
    }
    for text in [
        "",
        "# tracer: nop\n#\n  CPU 0/KVM-1 [000] d... 1.0: sched_switch: prev_comm=x",
        "  CPU 0/KVM-1234 [001]   10.000001: sched_switch: prev_comm=swapper",
        "<html>",
        "{\"a\": 1}",
        "[\n{\"a\": 1}]",
        "[1",
        "[\"a\"",
    ] {
        assert!(!looks_like_scenario(text), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}", over in "\\PC{0,40}") {
        let overrides: Vec<_> = Override::parse("--set", &over).into_iter().collect();
        let _ = read("any.toml", &text, &overrides);
        let _ = looks_like_scenario(&text);
    }

    #[test]
    fn no_slip_of_the_hand_makes_it_panic(
        at in 0usize..FULL.len(), cut in 0usize..30, put in "[\\PC\n]{0,12}",
    ) {
        let mut text = FULL.to_string();
        text.replace_range(at..(at + cut).min(FULL.len()), &put);
        let _ = read("any.toml", &text, &[]);
    }

    #[test]
    fn no_value_makes_it_panic(
        line in 0usize..54,
        value in prop_oneof![
            Just("-1".to_string()), Just("0".into()), Just("9223372036854775807".into()),
            Just("99999999999999999999".into()), Just("nan".into()), Just("\"\"".into()),
            Just("[]".into()), Just("{}".into()), Just("[[]]".into()), Just("[{}]".into()),
            Just("1979-05-27".into()), Just("\"18446744073709551615ns\"".into()), "\\PC{0,20}",
        ],
    ) {
        let change = |(at, old): (usize, &str)| match old.split_once(" = ") {
            Some((key, _)) if at == line => format!("{key} = {value}\n"),
            _ => format!("{old}\n"),
        };
        let text: String = FULL.lines().enumerate().map(change).collect();
        let _ = read("any.toml", &text, &[]);
    }
}

#[test]
fn clients_are_called_after_vms_that_a_count_made() {
    let names = |count: &str| {
        let text = format!(
            "[host]\npcpus = 2\n[vm.web]\n{count}vcpus = 1\nworkload = \"cpu\"\n\
             [client.users]\nvm = \"web\"\nkind = \"ping\"\n"
        );
        let scenario = read("host.toml", &text, &[]).unwrap();
        let clients = scenario.cases[0].clients.iter();
        clients
            .map(|client| client.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["users"]);
    assert_eq!(names("count = 1\n"), ["users web1"], "as with more");
    assert_eq!(names("count = 2\n"), ["users web1", "users web2"]);
    // A VM with its own section is not one that the count made, whatever its name.
    let own = "count = 2\nvcpus = 1\nworkload = \"cpu\"\n[vm.web10]\n";
    assert_eq!(names(own), ["users web1", "users web2"]);
}
