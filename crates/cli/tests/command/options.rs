// SPDX-License-Identifier: GPL-2.0-only
//! Options that have no effect, say too much, or are not heeded: none is ignored in silence.

use crate::common::{Place, corun, fits_schema, left, refused};
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

const SCENARIO: &str = "[host]\npcpus = 2\n[run]\nduration = \"20ms\"\nwarm_up = \"0s\"\n\
    [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n";

fn place(test: &str) -> Place {
    Place::with(&format!("options-{test}"), "in.toml", SCENARIO)
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn notes_are_no_progress() {
    let place = place("notes");
    let line = "compare in.toml --policies cfs,rr --set vm.a.realtime=true --quiet --json";
    let (code, out, err) = left(place.corun(&words(line)));
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(err, "vm.a.realtime: cfs has no SCHED_RR\n");
    let result: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["notes"][0], "vm.a.realtime: cfs has no SCHED_RR");
    fits_schema("compare", &result);
}

#[test]
fn a_policy_that_has_nothing_to_do_says_so() {
    let place = place("nothing-to-do");
    let said = |more: &str| {
        let line = format!("compare in.toml --policies fair,vsmtio --quiet{more}");
        let (code, _, err) = left(place.corun(&words(&line)));
        assert_eq!(code, Some(0), "{err}");
        err
    };
    let single = "vsmtio: needs cores with 2 hardware threads, those of 1n1l2c1t have 1: it does what fair does\n";
    assert_eq!(said(""), single);
    let smt = " --set host.topology=1n1l1c2t";
    assert_eq!(said(smt), "");
    let guests = format!("{smt} --set policy.vsmtio.guests=true");
    assert!(said(&guests).starts_with("policy.vsmtio.guests: "));
    assert_eq!(said(&format!("{guests} --set vm.a.guest.idle=told")), "");
}

#[test]
fn seconds_may_have_decimals() {
    let place = place("decimals");
    let run = |duration: &str| {
        place.json(&[
            "compare",
            "in.toml",
            "--policies",
            "cfs",
            "--json",
            "--duration",
            duration,
        ])
    };
    assert_eq!(run("0.05"), run("50ms"));
    let said = place.refused(&["compare", "in.toml", "--duration", "."]);
    assert!(said.contains("--duration"), "{said}");
    let said = place.refused(&["compare", "in.toml", "--duration", "-1s"]);
    assert!(
        said.contains("--duration") && said.contains("-1s"),
        "{said}"
    );
    let window = "compare in.toml --policies cfs --trace t --trace-from 0.005 --trace-for 0.01";
    place.prints(&words(window));
}

#[test]
fn what_sets_nothing_is_refused() {
    let place = place("nothing");
    for (set, hint) in [
        ("host={}", "an empty table"),
        ("vm={ }", "an empty table"),
        ("title=", "no value after the ="),
    ] {
        let said = place.refused(&["compare", "in.toml", "--set", set]);
        assert!(said.contains(hint), "{set}: {said}");
    }
}

#[test]
fn parameters_that_change_nothing_are_refused() {
    let place = place("sensitivity");
    for (options, hint) in [
        (
            "--param vm.a.vcpus --values 1,2 --set vm.a.vcpus=3",
            "--set vm.a.vcpus says",
        ),
        (
            "--param run.duration --values 10ms,20ms --duration 1",
            "--duration says",
        ),
        ("--param vm.a.vcpus --values 1,2 --log", "--log"),
        (
            "--param scheduler.eevdf.base_slice --values 1ms,2ms --policies cfs,balance",
            "none of the policies heeds it: cfs, balance; choose",
        ),
        (
            "--param policy.aql.IOInt --values 1ms,30ms --policies cfs",
            "none of the policies heeds it: cfs",
        ),
    ] {
        let said = place.refused(&words(&format!("sensitivity in.toml {options}")));
        assert!(said.contains(hint), "{options}: {said}");
    }
    let line = "sensitivity in.toml --param vm.a.vcpus --range 1..2:8 --policies cfs";
    let (code, _, said) = left(place.corun(&words(line)));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("only 2 different values in it, not 8"),
        "{said}"
    );
}

/// What is set for schedulers that do not run changes nothing, and this is reported.
#[test]
fn what_no_policy_heeds_of_what_is_set_is_said() {
    let place = place("unheeded");
    for (set, policies, told) in [
        ("scheduler.eevdf.base_slice=1ms", "cfs", true),
        ("scheduler.cfs.latency=24ms", "fair,eevdf", true),
        ("scheduler.cfs.latency=24ms", "fair,cfs-balance", false),
        ("policy.aql.IOInt=1ms", "balance", true),
        ("policy.aql.IOInt=1ms", "credit-aql", false),
        ("host.hz=250", "balance", false),
    ] {
        let line =
            format!("compare in.toml --duration 10ms --set {set} --policies {policies} --json");
        let (code, out, said) = left(place.corun(&words(&line)));
        assert_eq!(code, Some(0), "{said}");
        let wanted = format!("--set {set}: none of the policies heeds it: ");
        assert_eq!(said.contains(&wanted), told, "{set}: {said}");
        assert_eq!(out.contains(&wanted), told, "{set}: {out}");
    }
}

#[test]
fn a_packed_scenario_is_told_as_that() {
    let place = Place::new("packed");
    place.write("host.toml.gz", [0x1f, 0x8b, 8, 0]);
    for line in ["compare host.toml.gz", "compare host.toml.gz --duration 1s"] {
        let said = place.refused(&words(line));
        assert_eq!(
            said.trim_end(),
            "corun: host.toml.gz: scenarios are not read packed; unpack it first (gunzip)"
        );
    }
}

#[test]
fn outputs_are_files() {
    for line in [
        "calibrate -o -",
        "compare in.toml --report -",
        "advise x --report -",
    ] {
        let (code, _, said) = left(corun(&words(line)));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("-: expected a file"), "{said}");
    }
}

#[test]
fn calibrations_are_of_machines() {
    for set in ["run.seed=1", "vm.a.vcpus=1"] {
        let (code, _, said) = left(corun(&["calibrate", "--set", set]));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("expected host.…"), "{said}");
    }
}

#[test]
fn one_pcpu_is_a_list_of_pcpus() {
    let place = place("allowed");
    let line = "sensitivity in.toml --param vm.a.allowed --values 0,1 --policies cfs";
    place.prints(&words(line));
    let said = place.refused(&["compare", "in.toml", "--set", "vm.a.allowed=2"]);
    assert!(said.contains("pCPUs 0 to 1 only"), "{said}");
}

#[test]
fn no_jobs_are_too_few() {
    let (code, _, said) = left(corun(&["compare", "in.toml", "--jobs", "0"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("expected a whole number from 1 on"), "{said}");
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    for option in ["--help", "--version"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
        let ended = command.arg(option).stdout(full()).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{option}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
    let ended = command.arg("policies").stdout(full()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.starts_with("corun: cannot write to the standard output: "),
        "{said}"
    );
}

#[test]
fn numbers_that_are_none_are_told_what_is_accepted() {
    let place = place("numbers");
    for (line, accepted) in [
        ("advise in.toml --starts 0", "a whole number from 1 to 1000"),
        (
            "advise in.toml --starts three",
            "a whole number from 1 to 1000",
        ),
        (
            "advise in.toml --starts -1",
            "a whole number from 1 to 1000",
        ),
        ("advise in.toml --most 65", "a whole number from 0 to 64"),
        ("advise in.toml --most -1", "a whole number from 0 to 64"),
        ("advise in.toml --target -1", "a percentage from 0 to 100"),
        ("reproduce --seeds 0", "a whole number from 1 to 1000"),
        ("top -n none", "a whole number from 1 on"),
        (
            "guest run --own-permille 1001",
            "a whole number from 1 to 1000",
        ),
        ("compare in.toml --jobs -1", "a whole number from 1 on"),
        (
            "compare in.toml --seed -1",
            "a whole number from 0 to 9223372036854775807",
        ),
    ] {
        let (code, out, err) = left(place.corun(&words(line)));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}");
        let value = line.rsplit(' ').next().unwrap();
        let told = format!("invalid value '{value}' for");
        assert!(
            err.contains(&told) && err.contains(accepted),
            "{line}: {err}"
        );
    }
}

#[test]
fn files_that_are_none_are_told_what_is_expected() {
    let place = place("files");
    std::fs::create_dir_all(place.path("folder.toml")).unwrap();
    let utf16: Vec<u8> = SCENARIO.encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.write("utf16.toml", [&[0xff, 0xfe][..], &utf16].concat());
    place.write("latin1.toml", b"policy = \"balance\"\n# \xe9\n");
    for (line, expected) in [
        (
            "compare folder.toml",
            "folder.toml: this is a directory, expected a file",
        ),
        (
            "advise folder.toml",
            "folder.toml: this is a directory, expected a file",
        ),
        (
            "calibrate --host folder.toml",
            "folder.toml: this is a directory, expected a file",
        ),
        (
            "compare utf16.toml",
            "is not UTF-8 but UTF-16, which an editor saves as UTF-8: expected TOML",
        ),
        (
            "host --observe --config latin1.toml",
            "--config latin1.toml:2: byte 21 of the file is not UTF-8: expected TOML with options",
        ),
        (
            "reproduce --experiments in.toml",
            "--experiments in.toml: Not a directory (os error 20); expected a directory with claims.toml",
        ),
        (
            "reproduce --experiments folder.toml",
            "--experiments folder.toml: there is no claims.toml; expected a directory with claims.toml",
        ),
    ] {
        let (code, out, err) = left(place.corun(&words(line)));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}: {err}");
        assert!(err.contains(expected), "{line}: {err}");
    }
}

/// `corun policies` lists models, too.
#[test]
fn a_model_is_no_policy_for_a_host() {
    let said = refused(corun(&["host", "--policy", "cfs"]));
    assert!(
        said.contains("\"cfs\" is a model of another scheduler, for `corun compare` only; "),
        "{said}"
    );
}
