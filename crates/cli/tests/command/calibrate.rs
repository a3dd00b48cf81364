// SPDX-License-Identifier: GPL-2.0-only
//! `corun calibrate`: what it finds and writes, and what becomes of its files.

use crate::common::{self, corun, refused};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Two VMs on a machine with this last-level cache.
fn scenario(folder: &Path, llc: &str) -> String {
    let file = folder.join(format!("{llc}.toml"));
    let text = format!(
        "[host]\npcpus = 4\nl2 = \"256KB\"\nllc = \"{llc}\"\n\
         [run]\nduration = \"1s\"\npolicies = [\"aql\"]\n\
         [policy.aql]\ncalibration = \"found.toml\"\n\
         [vm.list]\nvcpus = 4\nworkload = \"list-llcf\"\nthreads = 4\n\
         [vm.web]\nvcpus = 1\nworkload = \"specweb\"\n"
    );
    fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

#[test]
fn what_is_found_is_written_read_and_refused_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let found = folder.path().join("found.toml");
    let found = found.to_string_lossy();
    let said = common::json(corun(&["calibrate", "--quick", "--json", "-o", &found]));
    let best = |kind: &str| {
        let types = said["types"].as_array().unwrap();
        let of = types.iter().find(|of| of["type"] == kind).unwrap();
        of["best_slice_ms"].clone()
    };
    assert_eq!(best("IOInt"), 1.0, "{said}");
    assert!(best("LLCF").as_f64().unwrap() >= 30.0, "{said}");
    assert_eq!(best("LLCO"), Value::Null, "{said}");
    let limits = &said["limits"];
    assert!(limits["llc_references"].as_u64().unwrap() > 1000, "{said}");

    let here = corun(&["compare", "-q", &scenario(folder.path(), "8MB")]);
    assert!(here.status.success(), "{here:?}");
    let elsewhere = corun(&["compare", "-q", &scenario(folder.path(), "20MB")]);
    let message = refused(elsewhere);
    assert!(message.contains("policy.aql.calibration: "), "{message}");
    assert!(message.contains("made on another machine"), "{message}");

    let broken = fs::read_to_string(&*found).unwrap().replace("LLCF", "LLFC");
    fs::write(&*found, broken).unwrap();
    let message = refused(corun(&["compare", "-q", &scenario(folder.path(), "8MB")]));
    assert!(message.contains("slice.LLFC: unknown key"), "{message}");
}

/// A file named on the command line is relative to where the command runs, and is used for recordings, too.
#[test]
fn a_file_on_the_command_line_is_read_where_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("hosts")).unwrap();
    scenario(&folder.path().join("hosts"), "8MB");
    fs::write(folder.path().join("mine.toml"), "junk").unwrap();
    let recording = "../../experiments/recordings/kvm-2pcpu-bursty-io-compute.ftrace.gz";
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join(recording);
    for input in ["hosts/8MB.toml", &recording.to_string_lossy()] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_corun"));
        command.args(["compare", "-q", input, "--policies", "aql"]);
        command.args(["--set", "policy.aql.calibration=mine.toml"]);
        let message = refused(command.current_dir(folder.path()).output().unwrap());
        assert!(message.contains("mine.toml:1: "), "{message}");
    }
}

#[test]
fn who_slows_whom_down_fits_the_width_of_the_terminal() {
    for width in [40, 80, 200] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_corun"));
        command.args(["calibrate", "--symbiosis"]);
        let done = command.env("COLUMNS", width.to_string()).output().unwrap();
        let text = common::printed(done);
        let (_, pairs) = text.split_once("in brackets the model's\n").unwrap();
        let (pairs, _) = pairs.split_once("\nCoefficients").unwrap();
        let widest = pairs.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{width}:\n{text}");
        assert_eq!(pairs.matches('(').count(), 64, "{width}:\n{text}");
    }
}

#[test]
fn a_machine_that_is_none_is_refused() {
    let refused = |args: &[&str]| refused(corun(&[&["calibrate"], args].concat()));
    assert!(refused(&["--set", "host.llc=1KB"]).contains("host.llc"));
    assert!(refused(&["--host", "/none.toml"]).contains("/none.toml"));
}

/// A real host takes only files of its own machine; what is wrong is reported before anything is done to the host.
#[test]
fn a_host_refuses_files_that_are_broken_or_of_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.toml");
    let whole = "format = \"corun-calibration-1\"\n\
        [machine]\ntopology = \"1n1l3c1t\"\nl2 = \"4KB\"\nllc = \"8KB\"\n\
        [slice]\ndefault = \"30ms\"\nIOInt = \"1ms\"\nConSpin = \"1ms\"\nLLCF = \"90ms\"\n\
        LLCO = \"agnostic\"\nLoLCF = \"agnostic\"\n\
        [limit]\nio_events = 3\npause_exits = 30\nllc_references = 3000\nllc_misses = 500000\n";
    let path = file.to_string_lossy().into_owned();
    let refused = |text: &str, args: &[&str]| {
        fs::write(&file, text).unwrap();
        common::refused(corun(&[args, &["--calibration", &path]].concat()))
    };
    let state = folder.path().join("state.json");
    let state = state.to_string_lossy();
    let stock = [
        "host",
        "--backend",
        "fair",
        "--policy",
        "aql",
        "--state",
        &state,
        "--for",
        "0s",
    ];
    for args in [
        &["host", "--policy", "aql"][..],
        &stock[..],
        &["policy", "aql"][..],
    ] {
        let foreign = refused(whole, args);
        // On a machine whose kernel reports no caches, no file can be recognised as its own.
        let nameless = foreign.contains("cannot be told apart here");
        assert!(
            nameless || foreign.contains("made on another machine: 1n1l3c1t"),
            "{foreign}"
        );
        let broken = refused(&whole.replace("LLCF", "LLFC"), args);
        assert!(
            nameless || broken.contains("slice.LLFC: unknown key"),
            "{broken}"
        );
        let absent = refused("", args);
        assert!(
            nameless || absent.contains("format: is missing"),
            "{absent}"
        );
    }
    assert!(!Path::new(&*state).exists());
    let other = refused(whole, &["policy", "affinity"]);
    assert!(
        other.contains("--calibration: is for aql and vsmtio, not for \"affinity\""),
        "{other}"
    );
}

/// A file of symbiosis, for a machine that does not exist.
const SYMBIOSIS: &str = "format = \"corun-symbiosis-1\"\nsource = \"a test\"\n\
    [machine]\ntopology = \"1n1l4c2t\"\nl2 = \"256KB\"\nllc = \"8MB\"\n\
    [coefficient]\nbase = 1500\nwait = 900\nwait_wait = 300\nmiss = 1400\nmiss_miss = 0\n\
    [event.cycles]\ntype = \"software\"\nconfig = \"cpu-clock\"\n\
    [event.stalls]\ntype = \"raw\"\nconfig = 0x040004a3\n";

#[test]
fn a_host_refuses_what_is_no_file_of_symbiosis() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("symbiosis.toml");
    let path = file.to_string_lossy().into_owned();
    let refused = |text: &str, args: &[&str]| {
        fs::write(&file, text).unwrap();
        refused(corun(&[args, &["--calibration", &path]].concat()))
    };
    for args in [&["host", "--policy", "vsmtio"][..], &["policy", "vsmtio"]] {
        let foreign = refused(SYMBIOSIS, args);
        let nameless = foreign.contains("cannot be told apart here");
        assert!(
            nameless
                || foreign.contains("symbiosis.toml: it was made on another machine: 1n1l4c2t"),
            "{foreign}"
        );
        let broken = refused(&SYMBIOSIS.replace("miss = 1400", "miss = -1"), args);
        let said = "symbiosis.toml:11: coefficient.miss: found -1, expected a whole number from 0 to 10000";
        assert!(nameless || broken.contains(said), "{broken}");
        let no_event = refused(&SYMBIOSIS.replace("cpu-clock", "cpu-clack"), args);
        let said = "symbiosis.toml:15: event.cycles.config: found \"cpu-clack\", expected one of \"cpu-clock\" (0)";
        assert!(nameless || no_event.contains(said), "{no_event}");
    }
    let other = refused(SYMBIOSIS, &["host", "--policy", "aql"]);
    assert!(
        other.contains("cannot be told apart here")
            || other.contains(
                "found a calibration for vsmtio, written by `corun calibrate --symbiosis`"
            ),
        "{other}"
    );
}

#[test]
fn a_scenario_takes_symbiosis_from_a_file_and_what_it_says_itself_is_stronger() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("host.toml");
    let a_core = SYMBIOSIS.replace("1n1l4c2t", "1n1l1c2t");
    fs::write(folder.path().join("mine.toml"), &a_core).unwrap();
    // The vCPUs that do I/O leave their hardware thread to four that compute, of which two miss.
    let vm = |name: &str, count: u32, weight: u32, program: &str| {
        format!(
            "[vm.{name}]\ncount = {count}\nvcpus = 1\nweight = {weight}\n[[vm.{name}.thread]]\n\
             program = \"{program}; count 1 rounds }}\"\n"
        )
    };
    let computing = "loop { sleep 300us; compute 9ms ±20%";
    let vms = [
        vm("io", 1, 400, "loop { sleep 4ms; compute 100us"),
        vm("miss", 2, 100, &format!("mix 10/80/10; {computing}")),
        vm("base", 2, 100, &format!("mix 90/5/5; {computing}")),
    ];
    let text = |more: &str| {
        format!(
            "[host]\ntopology = \"1n1l1c2t\"\nl2 = \"256KB\"\nllc = \"8MB\"\n\
             [run]\nduration = \"1s\"\npolicies = [\"vsmtio\"]\n\
             [policy.vsmtio]\n{more}\n{}",
            vms.concat()
        )
    };
    let run = |more: &str| {
        fs::write(&scenario, text(more)).unwrap();
        corun(&["compare", "-q", "--json", &scenario.to_string_lossy()])
    };
    let results = |more: &str| {
        let mut all = common::json(run(more));
        // What was asked for is in it, too.
        all["runs"].take()
    };
    let by_file = results("calibration = \"mine.toml\"");
    let by_hand = "base = 1500\nwait = 900\nwait_wait = 300\nmiss = 1400\nmiss_miss = 0";
    assert_eq!(by_file, results(by_hand));
    let published = results("");
    assert_ne!(by_file, published, "coefficients decide which vCPUs run");
    let both = results(
        "calibration = \"mine.toml\"\nmiss = 1436\nmiss_miss = 910\nbase = 1396\nwait = 861\nwait_wait = 277",
    );
    assert_eq!(both, published);

    let foreign = a_core.replace("8MB", "20MB");
    fs::write(folder.path().join("mine.toml"), foreign).unwrap();
    let message = refused(run("calibration = \"mine.toml\""));
    assert!(message.contains("policy.vsmtio.calibration: "), "{message}");
    assert!(message.contains("made on another machine"), "{message}");
    let of_types = "format = \"corun-calibration-1\"\n\
        [machine]\ntopology = \"1n1l1c2t\"\nl2 = \"256KB\"\nllc = \"8MB\"\n\
        [slice]\ndefault = \"30ms\"\nIOInt = \"1ms\"\nConSpin = \"1ms\"\nLLCF = \"90ms\"\n\
        LLCO = \"agnostic\"\nLoLCF = \"agnostic\"\n\
        [limit]\nio_events = 3\npause_exits = 30\nllc_references = 3000\nllc_misses = 500000\n";
    fs::write(folder.path().join("mine.toml"), of_types).unwrap();
    let message = refused(run("calibration = \"mine.toml\""));
    assert!(message.contains("found a calibration for aql"), "{message}");
}

/// The simulated hardware slows threads down by the published coefficients, scaled so that two typical threads do
/// what is stated of hyper-threading (host.smt.yield, 125 %): 1.152 times as much.
#[test]
fn symbiosis_is_found_as_the_simulated_hardware_has_it_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core.toml");
    let path = file.to_string_lossy();
    let args = ["calibrate", "--symbiosis", "--json", "-o", &path];
    let said = common::json(corun(&args));
    let published = [
        ("base", 1.396),
        ("wait", 0.861),
        ("wait_wait", 0.277),
        ("miss", 1.436),
        ("miss_miss", 0.910),
    ];
    for (name, published) in published {
        let found = said["coefficients"][name].as_f64().unwrap() / 1000.0;
        assert!(
            (found / published / 1.152 - 1.0).abs() < 0.01,
            "{name}: {found}"
        );
    }
    assert!(said["residual"].as_f64().unwrap() < 0.005, "{said}");
    let scenario = folder.path().join("host.toml");
    fs::write(
        &scenario,
        "[host]\ntopology = \"2n1l12c2t\"\n[run]\nduration = \"50ms\"\npolicies = [\"vsmtio\"]\n\
         [policy.vsmtio]\ncalibration = \"core.toml\"\n[vm.a]\nvcpus = 4\nworkload = \"list-llcf\"\n",
    )
    .unwrap();
    let used = corun(&["compare", "-q", &scenario.to_string_lossy()]);
    assert!(used.status.success(), "{used:?}");
}

/// Nobody is sped up there, which is not in the model: the more two threads do together, the larger the model's error.
#[test]
fn how_far_the_model_is_off_is_said() {
    let off = |yields: &str| {
        let set = format!("host.smt.yield={yields}");
        let said = common::json(corun(&[
            "calibrate",
            "--symbiosis",
            "--json",
            "--set",
            &set,
        ]));
        said["residual"].as_f64().unwrap()
    };
    let (little, more) = (off("125"), off("200"));
    assert!(little < 0.005 && more > 0.01, "{little} and {more}");
}

#[test]
fn symbiosis_takes_cores_of_two_hardware_threads_and_counters() {
    let message = refused(corun(&[
        "calibrate",
        "--symbiosis",
        "--set",
        "host.topology=1n1l4c1t",
    ]));
    assert!(
        message.contains("expected cores of two hardware threads"),
        "{message}"
    );
    for (option, value) in [
        ("--scheduler", "credit"),
        ("--svg", "x.svg"),
        ("--with", "threads"),
    ] {
        let message = refused(corun(&[
            "calibrate",
            "--symbiosis",
            "--here",
            option,
            value,
        ]));
        assert!(message.contains("cannot be used with"), "{message}");
    }
}

#[test]
fn what_the_kernels_own_scheduler_cannot_keep_is_refused() {
    for promise in [
        ["--only", "web1"],
        ["--max-ready", "10"],
        ["--max-pressure", "10"],
    ] {
        let said = refused(corun(
            &[
                &["host", "--backend", "fair", "--policy", "affinity"],
                &promise[..],
            ]
            .concat(),
        ));
        assert!(
            said.contains(&format!("{}: goes with the dispatcher only", promise[0])),
            "{said}"
        );
    }
}

#[test]
fn what_is_set_of_a_hosts_policy_is_checked_first() {
    let refused = |args: &[&str]| refused(corun(&[&["host", "--backend", "fair"], args].concat()));
    let unknown = refused(&["--policy", "microsliced", "--set", "slize=3ms"]);
    assert!(
        unknown.contains("microsliced has no parameter \"slize\""),
        "{unknown}"
    );
    let long = refused(&["--policy", "microsliced", "--set", "slice=3min"]);
    assert!(
        long.contains("expected a time from 100 µs to 1.00 s"),
        "{long}"
    );
    assert!(refused(&["--set", "slice"]).contains("KEY=VALUE"));
}

#[test]
fn this_machine_is_no_scenario() {
    let said = refused(corun(&["calibrate", "--here", "--host", "a.toml"]));
    assert!(said.contains("--here"), "{said}");
    let said = refused(corun(&["calibrate", "--with", "guests"]));
    assert!(said.contains("--here"), "{said}");
}

/// The command as guests' processes, on this machine. Where it runs no guests, the test says so and passes.
#[test]
fn guests_run_beside_each_other_and_are_gone_afterwards() {
    use corun_linux::trial::guests::Guests;
    use corun_linux::trial::{Program, Trial, TrialError, possible};
    let found = Guests::find(env!("CARGO_BIN_EXE_corun").into(), &["calibration-guest"]);
    let guests = match (found, possible()) {
        (Ok(guests), Ok(())) => guests,
        (Err(why), _) | (_, Err(why)) => {
            eprintln!("skipped, this machine runs no guests, or gives no slices: {why}");
            return;
        }
    };
    let mut trial = Trial {
        subject: (Program::List(256 << 10), 1),
        others: vec![Program::Pages, Program::Spin],
        pcpus: vec![corun_model::PcpuId(0)],
        slice: 5_000_000,
        warm_up: 100_000_000,
        time: 400_000_000,
    };
    let outcome = guests.run(&trial).unwrap();
    assert!(outcome.time_per_work > 0.0, "{outcome:?}");
    assert!(outcome.turns.len() > 3, "{outcome:?}");
    assert!(!outcome.periods[0].is_empty(), "{outcome:?}");
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children.trim(), "");

    trial.subject.0 = Program::List(1 << 50);
    let memory = guests.run(&trial).unwrap_err();
    assert!(matches!(memory, TrialError::Memory { .. }), "{memory}");
}
