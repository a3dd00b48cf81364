// SPDX-License-Identifier: GPL-2.0-only
//! `corun host` as its service runs it, as far as possible without taking over a host.

use crate::common::corun;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CORUN: &str = env!("CARGO_BIN_EXE_corun");

/// With a file that it keeps as long as it is at work.
fn at_work(sighup: &str, file: &Path) -> Child {
    let signal = format!("--{sighup}-signal=HUP");
    let mut command = Command::new("env");
    command.args([
        &signal,
        CORUN,
        "host",
        "--backend=fair",
        "--policy=fair",
        "--interval=0s",
    ]);
    command
        .arg("--state")
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let began = Instant::now();
    while !file.with_extension("lock").exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn kill(signal: &str, child: &Child) {
    let killed = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
}

/// As over ssh, when the connection drops.
#[test]
fn a_lost_connection_ends_it_in_order_unless_it_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut lost = at_work("default", &folder.path().join("lost.json"));
    kill("-HUP", &lost);
    let ended = lost.wait().unwrap();
    assert!(ended.success(), "{ended}");
    let mut nohup = at_work("ignore", &folder.path().join("nohup.json"));
    kill("-HUP", &nohup);
    std::thread::sleep(Duration::from_millis(500));
    assert!(nohup.try_wait().unwrap().is_none(), "it goes on");
    kill("-TERM", &nohup);
    assert!(nohup.wait().unwrap().success());
}

/// What the service does after each run finds the files that its options name, not only the default ones: here with
/// files that have no meaning, which is noticed and dealt with.
#[test]
fn the_service_takes_back_what_is_written_down_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "backend = \"fair\"\npolicy = \"aql\"\nstate = \"{}\"\nstate-dir = \"{}\"\n",
        at("threads.json"),
        folder.path().display()
    );
    fs::write(at("host.toml"), text).unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/corun.service");
    let unit = fs::read_to_string(unit).unwrap();
    let after = unit
        .lines()
        .filter_map(|it| it.strip_prefix("ExecStopPost=-/usr/bin/corun "));
    let with_config = |line: &&str| line.contains("--config /etc/corun/host.toml");
    let line = after.clone().find(with_config).unwrap();
    let line = line.replace("/etc/corun/host.toml", &at("host.toml"));
    for options in [
        "",
        "--policy=balance --max-wait 2s",
        "--observe --only x --backend sched-ext",
    ] {
        for file in ["threads.json", "halt-poll.json"] {
            fs::write(at(file), "[{\"tgid\":1,").unwrap();
        }
        let line = line.replace("$CORUN_OPTIONS", options);
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = corun(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("could not be understood"), "{said}");
        assert!(said.contains("halt-poll.json"), "{said}");
        for file in ["threads.json", "halt-poll.json"] {
            assert!(!Path::new(&at(file)).exists(), "{file}");
        }
        let output = corun(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "corun: nothing was left\n");
    }
    // Other slips in the file, such as the one that ended the run, do not keep anything from being taken back.
    fs::write(at("threads.json"), "[").unwrap();
    let text = fs::read_to_string(at("host.toml")).unwrap() + "max-ready = 200\npolicy = \"b\"";
    fs::write(
        at("host.toml"),
        text.replacen("policy = ", "max-wait = ", 1),
    )
    .unwrap();
    let line = line.replace("$CORUN_OPTIONS", "");
    let output = corun(&line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{output:?}");
    assert!(!Path::new(&at("threads.json")).exists());
    // If nobody can read the options any more, the defaults remain.
    assert!(after.clone().any(|line| line == "host --restore"));
}

/// Limits that hold for one machine separate the types.
#[test]
fn who_has_not_calibrated_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("threads.json").display().to_string();
    for (policy, told) in [("aql", true), ("microsliced", false)] {
        let line = [
            "host",
            "--backend=fair",
            "--for=1s",
            "--interval=0s",
            "--policy",
            policy,
            "--state",
            &state,
        ];
        let said = String::from_utf8(corun(&line).stderr).unwrap();
        assert_eq!(said.contains("corun calibrate --here"), told, "{said}");
    }
}
