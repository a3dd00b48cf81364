// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare` on recordings of a real KVM host, whole and broken.

use crate::common::{self, Place, corun, in_tree};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

fn recording(name: &str) -> PathBuf {
    in_tree("experiments/recordings").join(name)
}

const BOTH: [&str; 2] = [
    "kvm-2pcpu-bursty-io-compute.ftrace.gz",
    "kvm-2pcpu-compute-sync-io.ftrace.gz",
];

fn compare(input: &Path, args: &[&str]) -> Output {
    corun(&[&["compare", input.to_str().unwrap()], args].concat())
}

fn json(input: &Path, args: &[&str]) -> Value {
    common::json(compare(input, &[args, &["--json", "--quiet"]].concat()))
}

fn refused(input: &Path, args: &[&str]) -> String {
    common::refused(compare(input, args))
}

/// A file of this test's own.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let place = Place::new("recordings");
    place.write(name, content);
    place.path(name)
}

#[test]
fn replays_come_close_and_balance_never_stacks() {
    for name in BOTH {
        let args = ["--policies", "eevdf,cfs,balance", "--seed", "0"];
        let result = json(&recording(name), &args);
        let replay = &result["replay"];
        assert_eq!(replay["scheduler"], "eevdf");
        assert_eq!(replay["scheduler_is_recorded"], true);
        // Bounds well above what docs/results.md reports (the next test), well below a useless replay.
        for (error, bound) in [
            ("run_error", 0.1),
            ("ready_error", 0.12),
            ("switches_error", 0.25),
        ] {
            let found = replay[error].as_f64().unwrap();
            assert!(found < bound, "{name}: {error} is {found}");
        }
        let stacked = |at: usize| result["runs"][at]["host"]["stacking_probability"].as_f64();
        assert!(
            stacked(0).unwrap() > 0.1,
            "{name}: two pCPUs, six vCPUs: EEVDF stacks"
        );
        assert_eq!(stacked(2), Some(0.0), "{name}");
        assert_eq!(result["runs"][0]["vms"].as_array().unwrap().len(), 3);
    }
}

/// The text that `trace-cmd report` prints has a head that could be a scenario's.
#[test]
fn what_trace_cmd_prints_is_a_recording() {
    let switch = |at: &str| {
        format!(
            "[kthread]-12 [000] {at}: sched_switch: prev_comm=[kthread] prev_pid=12 prev_prio=120 prev_state=S \
             ==> next_comm=b next_pid=2 next_prio=120\n"
        )
    };
    let events = switch("10.000001") + &switch("10.000005");
    for (at, head) in ["cpus=2\n", "version = 7\ncpus=2\n", ""].iter().enumerate() {
        let name = format!("report{at}.txt");
        let input = file(&name, format!("{head}{events}").as_bytes());
        let said = refused(&input, &["-q"]);
        assert!(
            said.contains(&format!("{name}: there is no vCPU thread")),
            "{said}"
        );
    }
}

/// A user who contradicts the recording is told so.
#[test]
fn what_the_recording_says_is_not_overruled_unsaid() {
    let args = [
        "-q",
        "--policies",
        "affinity",
        "--seed",
        "0",
        "--recorded-under",
    ];
    let said = |under: &str| {
        let output = compare(&recording(BOTH[0]), &[&args[..], &[under]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let note = "--recorded-under cfs: the recording says otherwise (EEVDF)";
    assert!(said("cfs").contains(note));
    assert!(!said("eevdf").contains("says otherwise"));
}

/// Damage is reported as what it is.
#[test]
fn what_was_skipped_is_told_where_nothing_is_left() {
    let lines = "  a-1 [000] 1.5: sched_switch: prev_comm=a prev_pid=99999999999999999999 prev_prio=120 prev_state=S \
        ==> next_comm=b next_pid=2 next_prio=120\n  a-1 [000] 1.6: tlb_flush: pages:-1\n";
    let said = refused(&file("large.txt", lines.as_bytes()), &[]);
    let expected =
        "there are no sched_switch events that can be read (1 line was skipped: line 1, ";
    assert!(
        said.contains(expected) && said.contains("thread id out of range"),
        "{said}"
    );
    let said = refused(&file("short.corun", b"CORUNREC"), &[]);
    assert!(
        said.contains("it ends within its header, after 8 of 12 bytes"),
        "{said}"
    );
}

/// The beginning of the table of `docs/results.md` that says how far replays are off.
const HEAD: &str = "\
| recording | run | ready | switches | stacking, recorded → replayed |
|---|---|---|---|---|
";

/// The row of a recording.
fn row(name: &str) -> String {
    let result = json(&recording(name), &["--policies", "eevdf", "--seed", "0"]);
    let replay = &result["replay"];
    let percent = |of: &Value| format!("{:.1}", 100.0 * of.as_f64().unwrap());
    let errors = ["run_error", "ready_error", "switches_error"];
    let errors = errors.map(|error| percent(&replay[error]) + " %");
    let stacked = &replay["stacking_probability"];
    format!(
        "| `{name}` | {} | {} → {} % |\n",
        errors.join(" | "),
        percent(&stacked["recorded"]),
        percent(&stacked["replayed"])
    )
}

#[test]
fn the_page_says_how_far_replays_are_off() {
    let rows = BOTH.map(row).concat();
    common::table_is_fresh("docs/results.md", HEAD, &rows, "recordings");
}

/// A run written down names its policy, which is that of the first replay; a scheduler without a model is named.
#[test]
fn recordings_are_replayed_under_what_they_name() {
    let place = Place::new("recorded-scheduler");
    let host = "[host]\npcpus = 2\n[run]\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
                [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n[vm.b]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("host.toml", host);
    for policy in ["balance", "credit"] {
        let run = format!("compare host.toml --policies {policy} --events events.txt");
        place.prints(&run.split(' ').collect::<Vec<_>>());
        let again = place.json(&["compare", "events.txt", "--seed", "0", "--json"]);
        assert_eq!(again["replay"]["scheduler"], policy);
        assert_eq!(again["replay"]["scheduler_is_recorded"], true);
        assert_eq!(again["runs"][0]["policy"], policy);
    }
    let events = place.read("events.txt");
    let under = |scheduler: &str| {
        place.write("events.txt", events.replace("scheduler credit", scheduler));
        place.prints(&["compare", "events.txt", "--seed", "0"])
    };
    let text = under("scheduler scx_other");
    let told = "under eevdf (assumed: recorded under \"scx_other\"";
    assert!(text.contains(told), "{text}");
    assert!(!text.contains("does not name"), "{text}");
    // Live hosts name corun and, where its daemon was asked, the policy.
    let text = under("scheduler corun aql");
    assert!(text.contains("under aql (the recorded"), "{text}");
    let text = under("scheduler corun");
    let told = "under fair (assumed: recorded under corun, with a policy";
    assert!(text.contains(told), "{text}");
}

/// A recording does not show whether a vCPU that woke a sibling would have waited for it. The replay recognises that
/// for a barrier, and predicts what the same VM does under another policy; for a mutex it does not assume it.
#[test]
fn siblings_that_meet_at_barriers_do_so_in_replays() {
    let place = Place::new("recorded-barrier");
    let replays = |program: &str| {
        let host = format!(
            "[host]\npcpus = 2\n[run]\nduration = \"2s\"\nwarm_up = \"0s\"\nseed = 1\n\
             [[vm.meets.thread]]\ncount = 2\nprogram = \"loop {{ {program}; count 1 rounds }}\"\n\
             [vm.meets]\nvcpus = 2\n[vm.a]\nvcpus = 2\nworkload = \"cpu\"\n[vm.b]\nvcpus = 2\nworkload = \"cpu\"\n"
        );
        place.write("host.toml", host);
        place.prints(&[
            "compare",
            "host.toml",
            "--policies",
            "eevdf",
            "--events",
            "events.txt",
        ]);
        let ready = |input: &[&str]| -> Vec<(String, f64)> {
            let common = ["--policies", "balance", "--json", "--quiet"];
            let result = place.json(&[&["compare"], input, &common].concat());
            let runs = result["runs"].as_array().unwrap().iter();
            let ready = |run: &Value| run["vms"][0]["ready_share"].as_f64().unwrap();
            runs.map(|run| (run["case"].as_str().unwrap().to_string(), ready(run)))
                .collect()
        };
        let is = ready(&["host.toml"])[0].1;
        let foretold = ready(&["events.txt", "--extremes"]);
        let otherwise = foretold.last().unwrap().clone();
        (is, foretold[0].1, otherwise)
    };
    let (is, foretold, otherwise) = replays("compute 1500us ±20%; barrier there");
    assert_eq!(otherwise.0, "who wakes a sibling goes on");
    assert!((foretold - is).abs() < 0.04, "{foretold} for {is}");
    assert!(otherwise.1 - is > 0.07, "{} for {is}", otherwise.1);
    let (is, foretold, otherwise) = replays("compute 700us ±50%; mutex m { compute 500us ±50% }");
    assert_eq!(otherwise.0, "siblings meet where one wakes the other");
    assert!(
        (foretold - is).abs() < (otherwise.1 - is).abs(),
        "{foretold}, {} for {is}",
        otherwise.1
    );
}

/// People who know what a recording was made under can say it; a scenario is no recording.
#[test]
fn the_user_can_say_under_what_a_host_was_recorded() {
    let place = Place::new("recorded-under");
    let host = "[host]\npcpus = 2\n[run]\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
                [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n[vm.b]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("host.toml", host);
    place.prints(&[
        "compare",
        "host.toml",
        "--policies",
        "balance",
        "--events",
        "events.txt",
    ]);
    let events = place.read("events.txt");
    place.write(
        "events.txt",
        events.replace("scheduler balance", "scheduler corun"),
    );
    let said = ["events.txt", "--recorded-under", "Balance", "--json"];
    let result = place.json(&[&["compare", "--seed", "0"][..], &said].concat());
    assert_eq!(result["replay"]["scheduler"], "balance");
    assert_eq!(result["replay"]["scheduler_is_recorded"], true);
    assert_eq!(result["replay"]["recorded_scheduler"], "corun");
    let advice = place.json(&[&["advise", "--most", "0", "--starts", "1"][..], &said].concat());
    assert_eq!(advice["replay"]["scheduler"], "balance");
    let text = place.refused(&["compare", "host.toml", "--recorded-under", "cfs"]);
    assert!(text.contains("host.toml is no recording"), "{text}");
    let text = place.refused(&["compare", "events.txt", "--recorded-under", "nosuch"]);
    assert!(
        text.contains("'nosuch'") && text.contains("corun policies"),
        "{text}"
    );
}

#[test]
fn the_check_comes_before_the_what_if() {
    let output = compare(
        &recording(BOTH[0]),
        &["--policies", "eevdf,balance", "--quiet"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let place = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("{what} in:\n{text}"))
    };
    assert!(place("Error over all vCPUs") < place("throughput"));
    assert!(place("Confidence: ") < place("throughput"));
    assert!(
        text.contains("errors of run, ready"),
        "what decided is shown:\n{text}"
    );
    assert!(place("Median over 3 seeds") > place("throughput"));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn what_does_not_go_with_recordings_is_said() {
    let input = recording(BOTH[0]);
    assert!(refused(&input, &["--seeds", "3,0,3"]).contains("each seed once"));
    let two = ["--policies", "eevdf,balance", "--trace", "x"];
    assert!(refused(&input, &two).contains("--policies eevdf --seed 0"));
    let extremes = ["--policies", "eevdf", "--extremes", "--trace", "x"];
    assert!(refused(&input, &extremes).contains("--policies eevdf --seed 0, without --extremes"));
    assert!(refused(&input, &["--case", "x"]).contains("no cases"));
    assert!(refused(&input, &["--duration", "1s"]).contains("as long as its recording"));
    assert!(
        refused(&input, &["--set", "vm.a.count=2"]).contains("host.…, scheduler.… and policy.…")
    );
    for set in [
        "host.smt.yield=130",
        "host.halt_poll.most=0us",
        "host.housekeeping=1000",
    ] {
        assert!(refused(&input, &["--set", set]).contains("in the recorded times"));
    }
    assert!(refused(&input, &["--set", "scheduler.cfs.latenc=2"]).contains("latency"));
    let unheeded = [
        "--set",
        "scheduler.cfs.latency=24ms",
        "--policies",
        "balance",
    ];
    let notes = json(&input, &unheeded)["notes"].to_string();
    assert!(notes.contains("heeds it: eevdf, balance"), "{notes}");
    assert!(refused(&input, &["--policies", "balanced"]).contains("did you mean \"balance\""));
}

#[test]
fn what_a_recording_cannot_tell_is_replayed_both_ways() {
    let args = [
        "--policies",
        "eevdf,balance",
        "--seeds",
        "0,4",
        "--extremes",
    ];
    let result = json(&recording(BOTH[0]), &args);
    assert!(result["confidence"]["level"].is_string());
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4 * 2 * 2);
    let ready = |case: usize, policy: usize, seed: usize| {
        let vms = runs[case * 4 + policy * 2 + seed]["vms"]
            .as_array()
            .unwrap();
        vms.iter()
            .map(|vm| vm["ready_share"].as_f64().unwrap())
            .sum::<f64>()
    };
    for policy in 0..2 {
        assert_ne!(
            ready(0, policy, 0),
            ready(0, policy, 1),
            "another beginning"
        );
        // Less work is never more waiting here: three VMs for two pCPUs.
        assert!(
            ready(2, policy, 0) < ready(0, policy, 0),
            "without spinning"
        );
    }
    let beyond = |at: usize| {
        runs[at]["vms"][0]["beyond_recording_share"]
            .as_f64()
            .unwrap()
    };
    assert!((0..16).all(|at| (0.0..=1.0).contains(&beyond(at))));
    let named: Vec<&str> = runs
        .iter()
        .map(|run| run["case"].as_str().unwrap())
        .collect();
    assert_eq!(named[0], "VMs go on as before");
    assert!(
        named[8].ends_with("was spinning, and is saved"),
        "{}",
        named[8]
    );
    assert_eq!(named[12], "siblings meet where one wakes the other");
    let said = common::refused(corun(&[
        "replay",
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/example.toml"
        ),
        "--extremes",
    ]));
    assert!(said.contains("example.toml"), "{said}");
}

#[test]
fn what_the_recording_says_can_be_changed() {
    let more = json(
        &recording(BOTH[0]),
        &["--policies", "balance", "--set", "host.pcpus=8"],
    );
    assert_eq!(more["runs"][0]["host"]["pcpus"], 8);
    assert!(more["runs"][0]["host"]["idle_share"].as_f64().unwrap() > 0.1);
}

#[test]
fn a_recording_is_replayed_on_as_many_pcpus_as_are_asked_for() {
    let few = json(
        &recording(BOTH[0]),
        &["--seed", "0", "--set", "host.pcpus=1"],
    );
    for run in few["runs"].as_array().unwrap() {
        assert_eq!(run["host"]["pcpus"], 1);
        assert!(run["host"]["idle_share"].as_f64().unwrap() < 0.1, "{run}");
    }
    let many = ["--policies", "eevdf,balance", "--seed", "0"];
    let many = json(
        &recording(BOTH[0]),
        &[&many[..], &["--set", "host.topology=1n1l64c1t"]].concat(),
    );
    for run in many["runs"].as_array().unwrap() {
        let ready = |vm: &Value| vm["ready_share"].as_f64().unwrap();
        let waits: Vec<f64> = run["vms"].as_array().unwrap().iter().map(ready).collect();
        assert!(waits.iter().all(|&share| share < 0.01), "{waits:?}");
    }
    // The replay that is compared with the recording had as many pCPUs as that.
    assert!(many["replay"]["run_error"].as_f64().unwrap() < 0.1);
    let note = many["replay"]["notes"].to_string();
    assert!(note.contains("on the recorded 2 pCPUs"), "{note}");
}

#[test]
fn broken_files_are_refused_or_their_damage_is_told() {
    let whole = std::fs::read(recording(BOTH[1])).unwrap();
    let cut = compare(
        &file("cut.gz", &whole[..whole.len() / 2]),
        &["--policies", "balance"],
    );
    assert!(cut.status.success());
    assert!(
        String::from_utf8_lossy(&cut.stderr).contains("cut.gz: the packed file breaks off"),
        "{cut:?}"
    );
    assert!(refused(&file("empty", b""), &[]).contains("empty"));
    assert!(refused(&file("json", b"{\"traceEvents\": []}\n"), &[]).contains("JSON"));
    assert!(refused(&file("perf.data", b"PERFILE2\0\0\0\0"), &[]).contains("perf script"));
    assert!(refused(&file("words", b"once upon a time\n"), &[]).contains("words"));
    let missing = refused(Path::new("no-such-file"), &[]);
    assert!(missing.contains("no-such-file"), "{missing}");
}

/// `corun compare` on what comes through a pipe, named `name`.
fn piped(name: &str, content: &[u8], args: &[&str]) -> Output {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_corun"))
        .args(["compare", name, "-q"])
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn what_comes_through_a_pipe_is_whole() {
    let scenario = "host.pcpus = 2\nrun = { duration = \"10ms\", warm_up = \"0us\", policies = [\"fair\"] }\n\
        vm.a = { vcpus = 2, workload = \"cpu\" }\n";
    // More than it takes to tell what it is.
    let scenario = scenario.to_string() + &"# nothing\n".repeat(10_000);
    let recording = std::fs::read(recording(BOTH[1])).unwrap();
    for name in ["-", "/dev/stdin"] {
        let printed = common::printed(piped(name, scenario.as_bytes(), &[]));
        assert!(printed.contains("work s/s"), "{printed}");
        let args = ["--policies", "eevdf", "--seed", "0"];
        let printed = common::printed(piped(name, &recording, &args));
        assert!(printed.contains("vm1-compute"), "{printed}");
    }
    let wrong = format!("{scenario}[case.\" \"]\n");
    let said = common::refused(piped("-", wrong.as_bytes(), &[]));
    assert!(
        said.contains("standard input:10004: case.\" \": expected a name"),
        "{said}"
    );
    let said = common::refused(piped("-", b"", &[]));
    assert!(said.contains("standard input: the file is empty"), "{said}");
}
