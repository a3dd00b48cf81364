// SPDX-License-Identifier: GPL-2.0-only
//! `corun guest` as a user meets it: beginning, ending, being killed, and what stands in its way. To see what it moves
//! and when takes a VM whose vCPUs lose their pCPUs: testbed/guest.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const CORUN: &str = env!("CARGO_BIN_EXE_corun");

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CORUN);
    command.arg("guest").args(words);
    command.arg("--state").arg(folder.join("state.json"));
    command.arg("--status").arg(folder.join("status.json"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn corun(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

/// Masks and priorities of others may be set here; if not, only refusals can be tested.
fn is_permitted() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"))
        .unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap();
    mask >> 23 & 1 == 1 // CAP_SYS_NICE
}

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Ended {
    Ended(Command::new("sleep").arg("60").spawn().unwrap())
}

fn allowed(process: &Ended) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    list.unwrap().to_string()
}

fn start(folder: &Path, words: &[&str]) -> Ended {
    let daemon = Ended(command(folder, words).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(30);
    while !folder.join("status.json").exists() && Instant::now() < until {
        sleep(Duration::from_millis(20));
    }
    daemon
}

/// What a daemon that was killed leaves: `process` pinned to its first vCPU, and written down.
fn leave_pinned(folder: &Path, process: &Ended) {
    let id = process.0.id();
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let start = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(19)
        .unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let list = allowed(process);
    let text = format!(
        r#"{{"boot":"{}","threads":[{{"tgid":{id},"tid":{id},"start":{start},"allowed":"{list}","free":true,"since":0}}]}}"#,
        boot.trim()
    );
    fs::write(folder.join("state.json"), text).unwrap();
    let first: String = list.chars().take_while(char::is_ascii_digit).collect();
    let pinned = Command::new("taskset")
        .args(["-pc", &first, &id.to_string()])
        .output()
        .unwrap();
    assert!(pinned.status.success());
}

#[test]
fn it_begins_says_how_it_is_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics.prom");
    let metrics = metrics.to_str().unwrap();
    let words = ["run", "--metrics", metrics, "--detector", "proc"];
    if !is_permitted() {
        let output = corun(folder.path(), &words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("CAP_SYS_NICE"), "{}", said(&output));
        return;
    }
    let mut daemon = start(folder.path(), &words);
    let status = corun(folder.path(), &["status", "--json"]);
    assert_eq!(status.status.code(), Some(0), "{}", said(&status));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["pid"], daemon.0.id());
    assert_eq!(status["detector"], "/proc");
    assert!(
        fs::read_to_string(metrics)
            .unwrap()
            .contains("corun_guest_working")
    );
    let second = corun(folder.path(), &["run"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(said(&second).contains("another"), "{}", said(&second));
    let restore = corun(folder.path(), &["restore"]);
    assert_eq!(
        restore.status.code(),
        Some(1),
        "a daemon's threads are not taken from it"
    );
    let asked = Command::new("kill")
        .arg(daemon.0.id().to_string())
        .status()
        .unwrap();
    assert!(asked.success());
    assert!(daemon.0.wait().unwrap().success());
    assert!(!folder.path().join("status.json").exists());
    assert_eq!(corun(folder.path(), &["status"]).status.code(), Some(1));
}

#[test]
fn what_a_killed_daemon_left_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let process = sleeper();
    let before = allowed(&process);
    leave_pinned(folder.path(), &process);
    let told = ["status.json", "guest.prom"].map(|name| folder.path().join(name));
    for file in &told {
        fs::write(file, "").unwrap();
    }
    let status = corun(folder.path(), &["status"]);
    assert!(
        said(&status).contains("corun guest restore"),
        "{}",
        said(&status)
    );
    let metrics = told[1].to_str().unwrap();
    let restored = corun(folder.path(), &["restore", "--metrics", metrics]);
    assert_eq!(restored.status.code(), Some(0), "{}", said(&restored));
    assert!(told.iter().all(|file| !file.exists()));
    assert_eq!(allowed(&process), before);
    assert!(!folder.path().join("state.json").exists());
}

#[test]
fn the_next_start_gives_back_what_sigkill_left() {
    if !is_permitted() {
        return; // it would not start
    }
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = start(folder.path(), &["run"]);
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    let process = sleeper();
    let before = allowed(&process);
    leave_pinned(folder.path(), &process);
    let output = corun(folder.path(), &["run", "--for", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(allowed(&process), before);
}

#[test]
fn without_privileges_it_says_so() {
    if !is_root() {
        return; // tested above as the user that runs this
    }
    let folder = tempfile::tempdir().unwrap();
    let corun = command(folder.path(), &["run"]);
    let mut bounded = Command::new("setpriv");
    bounded.args(["--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]);
    bounded.arg(corun.get_program()).args(corun.get_args());
    let output = bounded.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("CAP_SYS_NICE"), "{}", said(&output));
}

#[test]
fn who_is_not_root_is_told_that_a_restore_takes_root() {
    if !is_root() {
        return; // whose folder would it be?
    }
    let folder = tempfile::tempdir().unwrap();
    let corun = command(folder.path(), &["restore"]);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--clear-groups"]);
    other.arg(corun.get_program()).args(corun.get_args());
    let output = other.output().unwrap();
    let said = said(&output);
    if said.starts_with("setpriv:") {
        return; // the build is root's alone
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("state.json: Permission denied"), "{said}");
    assert!(said.contains("run this as root"), "{said}");
}

/// A thread that nothing helps does not keep the daemon from starting, and is named.
#[test]
fn a_mask_that_cannot_be_given_back_is_told_by_thread_and_does_not_keep_it_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let process = sleeper();
    let before = allowed(&process);
    if !is_permitted() || !before.contains(['-', ',']) {
        return; // it would not start, or every mask is a single vCPU
    }
    leave_pinned(folder.path(), &process);
    let state = folder.path().join("state.json");
    // No such vCPU exists.
    let text = fs::read_to_string(&state).unwrap();
    let text = text.replace(
        &format!("\"{before}\",\"free\":true"),
        "\"511\",\"free\":false",
    );
    fs::write(&state, text).unwrap();
    let id = process.0.id();
    let named = format!("thread {id} of process {id} cannot be given back vCPUs 511: Invalid");
    for command in ["restore", "status"] {
        let output = corun(folder.path(), &[command]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let is_restore = command == "restore";
        assert_eq!(
            said(&output).contains(&named),
            is_restore,
            "{}",
            said(&output)
        );
    }
    let mut daemon = start(folder.path(), &["run", "--detector", "proc"]);
    let status = corun(folder.path(), &["status"]);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(told.contains(&named), "{told}{}", said(&status));
    let mut kill = Command::new("kill");
    assert!(
        kill.arg(daemon.0.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
    let taskset = ["-pc", &before, &id.to_string()];
    let freed = Command::new("taskset").args(taskset).output().unwrap();
    assert!(freed.status.success());
    let output = corun(folder.path(), &["restore"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!state.exists());
}

#[test]
fn a_read_only_proc_is_enough_and_none_is_not() {
    if !is_root() {
        return; // needs a mount namespace of its own
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |mount: &str| {
        let files = folder.path().display();
        let script = format!(
            "{mount} && exec {CORUN} guest run --for 200ms --state {files}/a.json --status {files}/b.json"
        );
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .output();
        output.unwrap()
    };
    let read_only = run("mount -o remount,bind,ro /proc");
    assert_eq!(read_only.status.code(), Some(0), "{}", said(&read_only));
    let none = run("mount -t tmpfs none /proc");
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(
        said(&none).contains("/proc is not mounted"),
        "{}",
        said(&none)
    );
}

#[test]
fn it_outlives_a_storm_of_processes() {
    if !is_permitted() {
        return; // it would not start
    }
    for detector in ["auto", "proc"] {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = start(folder.path(), &["run", "--detector", detector]);
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < Duration::from_secs(2) {
            // Each of them creates another, and does some I/O.
            let script = "head -c 65536 /dev/zero >/dev/null & :";
            Command::new("sh").args(["-c", script]).status().unwrap();
            count += 2;
        }
        assert!(count > 20);
        assert!(
            daemon.0.try_wait().unwrap().is_none(),
            "{detector}: it has ended"
        );
        Command::new("kill")
            .arg(daemon.0.id().to_string())
            .status()
            .unwrap();
        assert!(daemon.0.wait().unwrap().success());
    }
}

#[test]
fn files_of_others_are_neither_overwritten_nor_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("foreign"), "dear\n").unwrap();
    fs::write(at("host.prom"), "# HELP corun_daemon_up whose\n").unwrap();
    for name in ["foreign", "host.prom"] {
        let before = fs::read(at(name)).unwrap();
        for command in ["run", "restore"] {
            let file = at(name);
            let output = corun(
                folder.path(),
                &[command, "--metrics", file.to_str().unwrap()],
            );
            assert_eq!(output.status.code(), Some(2), "{command}");
            let said = said(&output);
            assert!(said.contains("--metrics") && said.contains(name), "{said}");
            assert!(said.contains("holds something else; expected"), "{said}");
            assert_eq!(fs::read(&file).unwrap(), before, "{command}");
        }
    }
    fs::write(at("status.json"), "dear\n").unwrap();
    for command in ["run", "restore"] {
        let output = corun(folder.path(), &[command]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(said(&output).contains("--status"), "{}", said(&output));
        assert_eq!(fs::read(at("status.json")).unwrap(), b"dear\n");
    }
    let state = at("state.json");
    let output = corun(
        folder.path(),
        &["run", "--metrics", state.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("is the same file"),
        "{}",
        said(&output)
    );
}

#[test]
fn nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["run", "--heartbeat", "1us"][..],
        &["run", "--heartbeat", "fast"],
        &["run", "--user", "no such user"],
        &["run", "--own-permille", "0"],
        &["run", "--detector", "guess"],
    ] {
        assert_eq!(
            corun(folder.path(), words).status.code(),
            Some(2),
            "{words:?}"
        );
    }
    fs::write(folder.path().join("state.json"), "nonsense").unwrap();
    let output = corun(folder.path(), &["restore"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("state.json"), "{}", said(&output));
    assert!(said(&output).contains("remove it"), "{}", said(&output));
}
