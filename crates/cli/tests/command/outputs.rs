// SPDX-License-Identifier: GPL-2.0-only
//! Files that commands write: never what they read, and told at the beginning if they cannot be.

use crate::common::{Place, failed, in_tree};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const SCENARIO: &str = "[host]\npcpus = 2\n[run]\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
    [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n";

fn recording() -> Vec<u8> {
    std::fs::read(in_tree(
        "experiments/recordings/kvm-2pcpu-bursty-io-compute.ftrace.gz",
    ))
    .unwrap()
}

#[test]
fn what_is_read_is_not_overwritten() {
    let place = Place::with("outputs-input", "in.toml", SCENARIO);
    place.write("in.gz", recording());
    let rt_app = "[host]\npcpus = 1\n[vm.a]\nvcpus = 1\nrt_app = \"a.json\"\n";
    place.write("rt.toml", rt_app);
    place.write("a.json", r#"{"tasks": {"t": {"loop": 1, "run": 100}}}"#);
    let compare = ["compare", "in.toml", "--policies", "cfs"];
    let replay = ["compare", "in.gz", "--policies", "eevdf", "--seed", "0"];
    let vary = "sensitivity in.toml --param run.duration --values 10ms,20ms";
    let vary: Vec<&str> = vary.split(' ').collect();
    for (command, output) in [
        (&compare[..], ["--report", "in.toml"]),
        (&compare[..], ["--trace", "./in.toml"]),
        (&compare[..], ["--events", "in.toml"]),
        (&replay[..], ["--report", "in.gz"]),
        (&replay[..], ["--events", "in.gz"]),
        (&["advise", "in.gz"], ["--report", "in.gz"]),
        (&vary[..], ["--report", "in.toml"]),
        (&["calibrate", "--host", "in.toml"], ["-o", "in.toml"]),
        (&["calibrate", "--host", "in.toml"], ["--svg", "in.toml"]),
        (
            &["compare", "rt.toml", "--policies", "cfs"],
            ["--report", "a.json"],
        ),
    ] {
        let said = place.refused(&[command, &output].concat());
        assert!(said.contains("would overwrite"), "{command:?}: {said}");
    }
    assert_eq!(place.read("in.toml"), SCENARIO);
    assert_eq!(std::fs::read(place.path("in.gz")).unwrap(), recording());
}

#[test]
fn two_outputs_are_two_files() {
    let place = Place::with("outputs-twice", "in.toml", SCENARIO);
    let both = ["--report", "out", "--events", "./out"];
    let said = place.refused(&[&["compare", "in.toml", "--policies", "cfs"], &both[..]].concat());
    assert!(
        said.contains("--events ./out: --report out is the same file"),
        "{said}"
    );
    let said = place.refused(&["calibrate", "-o", "out", "--svg", "out"]);
    assert!(said.contains("same file"), "{said}");
}

#[test]
fn what_cannot_be_written_is_told_before_the_runs() {
    let place = Place::with("outputs-nowhere", "in.toml", SCENARIO);
    place.write("in.gz", recording());
    for line in [
        "compare in.toml --report no/such.html",
        "compare in.toml --policies cfs --trace no/such",
        "compare in.gz --report no/such.html",
        "advise in.gz --report no/such.html",
        "sensitivity in.toml --param run.duration --values 10ms,20ms --report no/such.html",
        "reproduce --report no/such.html",
        "calibrate -o no/such.toml",
        "calibrate --svg no/such.svg",
    ] {
        let line: Vec<&str> = line.split(' ').collect();
        let said = failed(place.corun(&line), 1);
        assert!(said.contains("cannot write no/such"), "{line:?}: {said}");
        assert!(!said.contains("virtual time"), "{line:?}: {said}");
    }
}

#[test]
fn results_are_printed_though_a_file_could_not_be_written() {
    let place = Place::with("outputs-full", "in.toml", SCENARIO);
    for option in ["--report", "--trace", "--events"] {
        let args = [
            "compare",
            "in.toml",
            "--policies",
            "cfs",
            option,
            "/dev/full",
        ];
        let output = place.corun(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let (out, said) = (output.stdout, output.stderr);
        assert!(String::from_utf8_lossy(&out).contains("throughput"));
        let told = format!("corun: {option}: cannot write /dev/full: No space left");
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(&told), "{said}");
    }
}

#[test]
fn what_was_interrupted_leaves_no_half_of_a_file() {
    for (option, signal) in [("--trace", libc::SIGINT), ("--events", libc::SIGTERM)] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("in.toml"), SCENARIO).unwrap();
        std::fs::write(at("out"), "dear").unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
        command.args("compare in.toml --policies cfs --duration 3600".split(' '));
        command.args([option, "out"]).current_dir(dir.path());
        // Whoever runs the tests may ignore signals, as shells have it for what they run in the background.
        // SAFETY: between fork and exec nothing but this is done, and it may be done in a signal handler, too.
        unsafe {
            command.pre_exec(move || match libc::signal(signal, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let begun = (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            files() == 3
        });
        // SAFETY: takes numbers; the child is there until it is waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(begun, "{said}");
        assert_eq!(output.status.code(), Some(128 + signal), "{said}");
        assert!(said.contains("interrupted: out is not written"), "{said}");
        assert_eq!(std::fs::read_to_string(at("out")).unwrap(), "dear");
        assert_eq!(files(), 2, "nothing is left over");
    }
}

#[test]
fn endless_files_are_not_read_to_their_end() {
    let place = Place::with("outputs-endless", "in.toml", SCENARIO);
    for line in [
        "compare in.toml --set policy.aql.calibration=/dev/zero",
        "calibrate --host /dev/zero",
        "host --policy aql --calibration /dev/zero --observe --for 1s",
    ] {
        let said = place.refused(&line.split(' ').collect::<Vec<_>>());
        assert!(said.contains("/dev/zero"), "{line}: {said}");
    }
}
