// SPDX-License-Identifier: GPL-2.0-only
//! Files that commands write: never those that they read, and reported at the beginning if they cannot be written.

use crate::common::{self, Place, failed, in_tree};
use std::io::{BufRead, BufReader};
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
fn what_corun_did_not_write_is_not_overwritten() {
    let place = Place::with("outputs-foreign", "in.toml", SCENARIO);
    place.write("dear", "dear\n");
    let short = "compare in.toml --policies cfs --seed 1 --quiet";
    for line in [
        "--report dear",
        "--csv dear",
        "--trace dear",
        "--events dear",
    ] {
        let line = format!("{short} {line}");
        let said = place.refused(&line.split(' ').collect::<Vec<_>>());
        assert!(
            said.contains("dear: this file is there and holds something else"),
            "{said}"
        );
    }
    for option in ["-o", "--svg"] {
        let said = place.refused(&["calibrate", "--quick", option, "dear"]);
        assert!(said.contains("holds something else"), "{said}");
    }
    assert_eq!(place.read("dear"), "dear\n");
    // It overwrites what it wrote itself.
    for option in ["--report", "--csv", "--trace", "--events"] {
        let line = format!("{short} {option} own{option}");
        for _ in 0..2 {
            place.prints(&line.split(' ').collect::<Vec<_>>());
        }
    }
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

/// The code and messages of a command that `signal` ended once it had reported `runs` and `begun` said so.
fn interrupted(
    place: &Place,
    line: &str,
    signal: libc::c_int,
    runs: &str,
    begun: impl Fn() -> bool,
) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
    command.args(line.split(' ')).current_dir(place.path("."));
    // The tests may run with signals ignored, as shells start what they run in the background.
    // SAFETY: between fork and exec nothing but this is done, and it may be done in a signal handler, too.
    unsafe {
        command.pre_exec(move || match libc::signal(signal, libc::SIG_DFL) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command.stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        said += &format!("{line}\n");
        if line.starts_with(runs) {
            break;
        }
    }
    let has_begun = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        begun()
    });
    // SAFETY: takes numbers; the child exists until it is waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    for line in lines {
        said += &format!("{}\n", line.unwrap());
    }
    let output = child.wait_with_output().unwrap();
    assert!(has_begun, "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), said)
}

#[test]
fn what_was_interrupted_leaves_no_half_of_a_file() {
    let trace = "\n\u{4}P\u{1}h\u{1}";
    let events = "# host: 2 pCPUs, kernel simulated, scheduler cfs\n";
    for (option, signal, old) in [
        ("--trace", libc::SIGINT, trace),
        ("--events", libc::SIGTERM, events),
    ] {
        let place = Place::with("outputs-interrupted", "in.toml", SCENARIO);
        place.write("out", old);
        let files = || std::fs::read_dir(place.path(".")).unwrap().count();
        let before = files();
        // A day: however slow the machine is, the run is not over before the signal comes.
        let line = format!("compare in.toml --policies cfs --duration 86400 {option} out");
        let (code, said) = interrupted(&place, &line, signal, "1 run,", || files() > before);
        assert_eq!(code, Some(128 + signal), "{said}");
        assert!(said.contains("interrupted: out is not written"), "{said}");
        assert!(said.contains("interrupted: the run was not over"), "{said}");
        assert_eq!(place.read("out"), old);
        assert_eq!(files(), before, "nothing is left over");
    }
}

#[test]
fn who_interrupts_runs_is_told_how_many_were_done() {
    let place = Place::with("outputs-runs", "in.toml", SCENARIO);
    place.write("in.gz", recording());
    for (line, runs, told) in [
        (
            "compare in.toml --policies cfs --seeds 1..1000 --duration 600 --report out",
            "1000 runs,",
            " of 1000 runs were done; no results",
        ),
        (
            "compare in.gz --policies eevdf --seeds 1..1000",
            "1000 runs,",
            " of 1000 replays were done; no results",
        ),
        (
            "sensitivity in.toml --param vm.a.vcpus --values 1,2 --policies cfs --seeds 1..250 --duration 600",
            "500 runs,",
            " of 500 runs were done; no results",
        ),
        (
            "advise in.gz --policies balance --starts 1000 --most 0",
            "4000 runs,",
            " of 4000 replays were done; no results",
        ),
    ] {
        // For some of them to be done.
        let soon = || {
            std::thread::sleep(Duration::from_millis(500));
            true
        };
        let (code, said) = interrupted(
            &place,
            &format!("{line} --jobs 1"),
            libc::SIGINT,
            runs,
            soon,
        );
        assert_eq!(code, Some(130), "{line}: {said}");
        assert!(said.contains(told), "{line}: {said}");
        assert!(!place.path("out").exists(), "{line}");
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

/// Where nobody can get results, the command does not pretend to have shown them; `/dev/null` is somebody's wish.
#[test]
fn a_standard_output_that_is_closed_is_a_failure() {
    let run = |how: &str, args: &[&str]| {
        let script = format!("exec \"$@\" {how}");
        let program = env!("CARGO_BIN_EXE_corun");
        let args = [&["-c", &script, "sh", program], args].concat();
        Command::new("sh").args(args).output().unwrap()
    };
    for args in [["policies", "--json"], ["policies", "--help"]] {
        let said = common::failed(run(">&-", &args), 1);
        assert_eq!(
            said,
            "corun: cannot write to the standard output: it is closed\n"
        );
        assert!(run(">/dev/null", &args).status.success());
        assert!(run("<>/dev/null >&0", &args).status.success());
    }
}
