// SPDX-License-Identifier: GPL-2.0-only
//! What `--set` says when something is wrong: where it was given, what was found, and what is accepted.

// Test helpers, too, panic when an expectation fails.
#![allow(clippy::unwrap_used)]

use corun_scenario::{Override, read};

const GOOD: &str = "[host]\npcpus = 4\n[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";

#[test]
fn the_command_line_is_named_as_the_place() {
    let over = Override::parse("--set", "vm.web.weight=0").unwrap();
    let problems = read("host.toml", GOOD, &[over]).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "--set vm.web.weight=0: vm.web.weight: found 0, expected a whole number from 1 to 10000"
    );
    let refused = Override::parse("--set", "nonsense").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "--set nonsense: expected KEY=VALUE, such as vm.web.count=3"
    );
    let unquoted = Override::parse("--set", "run.policies=[cfs, eevdf]").unwrap_err();
    assert_eq!(
        unquoted.to_string(),
        "--set run.policies=[cfs, eevdf]: the value is no TOML value; texts within a list or a table are in \
         quotes, such as run.policies=[\"cfs\", \"balance\"]"
    );
    let nothing = Override::parse("--set", "vm={}").unwrap_err();
    assert_eq!(
        nothing.to_string(),
        "--set vm={}: an empty table changes nothing here, expected a key within it, such as vm.web.count=3"
    );
}

/// Sections whose presence means something may be empty.
#[test]
fn empty_tables_that_mean_something() {
    let read_with = |assignment: &str, text: &str| {
        let over = Override::parse("--set", assignment).unwrap();
        read("host.toml", text, &[over]).unwrap()
    };
    assert!(
        read("host.toml", GOOD, &[]).unwrap().cases[0].vms[0]
            .emulator
            .is_none()
    );
    let scenario = read_with("vm.web.emulator={}", GOOD);
    assert!(scenario.cases[0].vms[0].emulator.is_some());
    let scenario = read_with("group.of = { }", GOOD);
    assert_eq!(scenario.cases[0].groups[0].name, "of");
    let cases = format!("{GOOD}[case.one]\n[case.two]\n");
    let scenario = read_with("case.two.vm.web.emulator={}", &cases);
    let there = scenario
        .cases
        .iter()
        .map(|case| case.vms[0].emulator.is_some());
    assert_eq!(there.collect::<Vec<_>>(), [false, true]);
    for nothing in ["vm={}", "case.two.vm={}", "vm.web.limits={}", "emulator={}"] {
        let refused = Override::parse("--set", nothing).unwrap_err().to_string();
        assert!(
            refused.contains("an empty table changes nothing here"),
            "{refused}"
        );
    }
}

/// What only some cases have cannot be set for the others.
#[test]
fn the_command_line_on_what_only_cases_have() {
    let text = format!("{GOOD}[case.one]\n[case.two.vm.b]\nvcpus = 2\nworkload = \"cpu\"\n");
    let told = |assignment: &str| {
        let over = Override::parse("--set", assignment).unwrap();
        read("host.toml", &text, &[over])
            .map(|_| ())
            .map_err(|wrong| wrong.to_string())
    };
    assert_eq!(
        told("vm.b.vcpus=1").unwrap_err(),
        "--set vm.b.vcpus=1: vm.b: only \"two\" has it, expected case.\"two\".vm.b in its place"
    );
    assert_eq!(told("case.two.vm.b.vcpus=1"), Ok(()));
    assert_eq!(told("vm.web.vcpus=1"), Ok(()));
    let both = "[case.one.vm.b]\nvcpus = 1\nworkload = \"cpu\"\n[case.two.vm.b]\nvcpus = 2\nworkload = \"cpu\"\n";
    let over = Override::parse("--set", "vm.b.weight=50").unwrap();
    let all_have_it = read("host.toml", &format!("{GOOD}{both}"), &[over]);
    assert!(all_have_it.is_ok(), "{all_have_it:?}");
    let overs = ["vm.b.vcpus=1", "vm.b.weight=50"].map(|of| Override::parse("--set", of).unwrap());
    let wrong = read("host.toml", &text, &overs).unwrap_err().to_string();
    assert_eq!(wrong.lines().count(), 2, "{wrong}");
    // A new one for all cases.
    assert_eq!(told("vm.c={vcpus=1,workload=\"cpu\"}"), Ok(()));
}

/// Sets something in the scenario `text`, and returns what is wrong then.
#[track_caller]
fn set_in(text: &str, set: &str) -> String {
    let over = Override::parse("--set", set).unwrap();
    let found = read("host.toml", text, &[over]).map(|_| "nothing".to_string());
    found.unwrap_or_else(|problems| problems.to_string())
}

#[test]
fn numbers_of_tables_that_are_not_there() {
    let thread = "[[vm.web.thread]]\nprogram = \"compute 1ms\"\n";
    let one = format!("{}{thread}", GOOD.replace("workload = \"cpu\"\n", ""));
    let two = format!("{one}{thread}");
    let says = |text: &str, set: &str, expected: &str| {
        assert_eq!(
            set_in(text, set),
            format!("--set {set}: vm.web.thread: {expected}")
        );
    };
    let numbers =
        "expected the number of a [[vm.web.thread]], 1 or 2, as they stand in the scenario";
    says(
        &two,
        "vm.web.thread.3.count=3",
        &format!("found number 3, {numbers}"),
    );
    says(
        &two,
        "vm.web.thread.0.count=3",
        &format!("found number 0, {numbers}"),
    );
    says(
        &two,
        "vm.web.thread.99999999999999999999.count=3",
        &format!("found number 99999999999999999999, {numbers}"),
    );
    says(
        &two,
        "vm.web.thread.-1.count=3",
        &format!("found number -1, {numbers}"),
    );
    says(
        &two,
        "vm.web.thread.count=3",
        &format!("found \"count\", {numbers}: vm.web.thread.1.count"),
    );
    assert_eq!(
        set_in(&two, "vm.web.thread.2=3"),
        "--set vm.web.thread.2=3: vm.web.thread.2: found 3, expected a table, or one of its keys: \
         vm.web.thread.2.KEY"
    );
    let only = "expected 1, the number of the only [[vm.web.thread]]";
    says(
        &one,
        "vm.web.thread.2.count=3",
        &format!("found number 2, {only}"),
    );
    says(
        &one,
        "vm.web.thread.0.count=3",
        &format!("found number 0, {only}"),
    );
    let none = "found a table, but no [[vm.web.thread]] that it could belong to, expected a list of tables, \
                such as vm.web.thread=[{ KEY = VALUE }]";
    says(GOOD, "vm.web.thread.1.count=3", none);
    says(GOOD, "vm.web.thread.count=3", none);
    let three = format!("{two}{thread}");
    let found = set_in(&three, "vm.web.thread.4.count=3");
    assert!(
        found.contains("of a [[vm.web.thread]], 1 to 3, as they stand"),
        "{found}"
    );
    // A faulty assignment does not take the other words back.
    assert_eq!(set_in(&two, "vm.web.thread.2.count=3"), "nothing");
}

/// A case may have more such tables, or fewer, than the scenario.
#[test]
fn numbers_of_tables_in_cases() {
    let thread = "{ program = \"compute 1ms\" }";
    let text = format!(
        "{}thread = [{thread}]\n[case.one]\n[case.two]\nvm.web.thread = [{thread}, {thread}]\n",
        GOOD.replace("workload = \"cpu\"\n", "")
    );
    assert_eq!(set_in(&text, "vm.web.thread.1.count=3"), "nothing");
    assert_eq!(set_in(&text, "case.two.vm.web.thread.2.count=3"), "nothing");
    assert_eq!(
        set_in(&text, "vm.web.thread.2.count=3"),
        "--set vm.web.thread.2.count=3: vm.web.thread: found number 2, expected 1, the number of the only \
         [[vm.web.thread]]"
    );
    let both = text.replace(
        "[case.one]\n",
        &format!("[case.one]\nvm.web.thread = [{thread}, {thread}]\n"),
    );
    assert_eq!(set_in(&both, "vm.web.thread.2.count=3"), "nothing");
    let case = format!("{text}[case.three]\nvm.web.thread.2.count = 3\n");
    let problems = read("host.toml", &case, &[]).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "host.toml:10: vm.web.thread: found number 2, expected 1, the number of the only [[vm.web.thread]]"
    );
}

/// A slip in a case's name would otherwise make an additional case.
#[test]
fn cases_that_are_not_there() {
    let cases = format!("{GOOD}[case.one]\n[case.\"2 VMs\"]\nvm.web.count = 2\n");
    assert_eq!(
        set_in(&cases, "case.two.vm.web.weight=3"),
        "--set case.two.vm.web.weight=3: case.two: there is no case \"two\", accepted are one, 2 VMs"
    );
    assert_eq!(
        set_in(GOOD, "case.1.vm.web.weight=3"),
        "--set case.1.vm.web.weight=3: case.1: the scenario has no cases, expected the key alone: vm.web.weight"
    );
    assert_eq!(
        set_in(GOOD, "case.one={vm={web={weight=3}}}"),
        "--set case.one={vm={web={weight=3}}}: case.one: the scenario has no cases, expected the key alone: \
         vm.web.weight"
    );
    assert_eq!(set_in(&cases, "case.\"2 VMs\".vm.web.weight=3"), "nothing");
}

/// Other lists are set as a whole.
#[test]
fn numbers_in_lists_of_values() {
    let text = format!("{GOOD}vcpu_allowed = [\"0\", \"1\"]\n[run]\nseeds = [1, 2]\n");
    assert_eq!(
        set_in(&text, "run.seeds.1=4"),
        "--set run.seeds.1=4: run.seeds: found a table, expected a whole number from 0 to 9223372036854775807, \
         or a list of such"
    );
    assert_eq!(
        set_in(&text, "vm.web.vcpu_allowed.1=2"),
        "--set vm.web.vcpu_allowed.1=2: vm.web.vcpu_allowed: found a table, expected a list of them, such as \
         [\"0\", \"1\", \"2-3\"]"
    );
}

#[test]
fn the_command_line_reaches_into_lists_of_tables() {
    let text = format!(
        "{}[[vm.web.thread]]\nprogram = \"compute 1ms\"\n",
        GOOD.replace("workload = \"cpu\"\n", "")
    );
    let with = |set: &str| {
        let over = Override::parse("--set", set).unwrap();
        read("host.toml", &text, &[over]).map(|_| ())
    };
    with("vm.web.thread.1.count=3").unwrap();
    let found = with("vm.web.thread.count=3").unwrap_err().to_string();
    assert!(
        found.ends_with("the only [[vm.web.thread]]: vm.web.thread.1.count"),
        "{found}"
    );
    assert!(with("vm.web.thread.2.count=3").is_err());
    let found = with("vm.web.thread.1.count=x").unwrap_err().to_string();
    assert!(
        found.contains("--set vm.web.thread.1.count=x: vm.web.thread.count: found"),
        "{found}"
    );
}
