// SPDX-License-Identifier: GPL-2.0-only
//! `corun top`, `metrics`, `preflight`, `status` and `pages` as users start them: on whatever machine this is, with a
//! process that looks like a VM.

use crate::common::{corun, left};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A KVM vCPU that children have open, too; `None` if there is no KVM, where names make a VM, or it may not be used.
fn vcpu() -> Option<OwnedFd> {
    const CREATE_VM: libc::Ioctl = 0xAE01;
    const CREATE_VCPU: libc::Ioctl = 0xAE41;
    let kvm = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .ok()?;
    let made = |of: &dyn AsRawFd, what| {
        // SAFETY: takes a number and gives a descriptor that nobody else has.
        unsafe {
            let made = libc::ioctl(of.as_raw_fd(), what, 0);
            (made >= 0).then(|| OwnedFd::from_raw_fd(made))
        }
    };
    let vm = made(&kvm, CREATE_VM)?;
    let vcpu = made(&vm, CREATE_VCPU)?;
    // SAFETY: takes numbers.
    unsafe { libc::fcntl(vcpu.as_raw_fd(), libc::F_SETFD, 0) };
    Some(vcpu)
}

/// A process whose thread is named as QEMU names vCPUs. It ends with its input.
struct Fake(Child);

/// A child that starts meanwhile would have another one's vCPU open.
fn alone() -> MutexGuard<'static, ()> {
    static SPAWNING: Mutex<()> = Mutex::new(());
    SPAWNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn there_is_kvm() -> bool {
    Path::new("/sys/module/kvm").exists()
}

impl Fake {
    /// One with a vCPU, where there is KVM; `None`: it may not be used.
    fn vm(name: &str) -> Option<Self> {
        let _alone = alone();
        // Closed here, once the child has it.
        let vcpu = vcpu();
        (vcpu.is_some() || !there_is_kvm()).then(|| Self::spawn(name))
    }

    fn start(name: &str) -> Self {
        let _alone = alone();
        Self::spawn(name)
    }

    fn spawn(name: &str) -> Self {
        let script = "echo 'CPU 0/KVM' >/proc/self/comm && echo ready && read end";
        let mut child = Command::new("sh")
            .args(["-c", script, "qemu", "-name", &format!("guest={name}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        let out = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(out, &mut ready).unwrap();
        Self(child)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.0.stdin.as_mut().unwrap().write_all(b"\n");
        let _ = self.0.wait();
    }
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    left(corun(args))
}

#[test]
fn top_and_metrics_see_a_vm() {
    let name = format!("fake-{}", std::process::id());
    let nobody = ["--socket", "/nowhere/host.sock"];
    if there_is_kvm() {
        let _named_so = Fake::start(&name);
        let (code, out, _) = run(&[&["top", "--json", "-d", "0.1"][..], &nobody].concat());
        assert_eq!(code, Some(0));
        assert!(!out.contains(&name), "a name makes no VM: {out}");
    }
    let Some(_vm) = Fake::vm(&name) else {
        return;
    };
    let (code, out, _) = run(&[&["top", "--json", "-d", "0.1", "-n", "2"][..], &nobody].concat());
    assert_eq!(code, Some(0));
    let looks: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(looks.len(), 2);
    for look in &looks {
        let vms = look.as_array().unwrap();
        let vm = vms.iter().find(|vm| vm["name"] == name.as_str()).unwrap();
        assert_eq!(
            (&vm["vcpus"], &vm["costop"]),
            (&1.into(), &Value::Null),
            "{vm}"
        );
        assert!(vm["wait"].as_f64().unwrap() > 0.5, "{vm}");
    }
    let (code, out, _) =
        run(&[&["top", "--csv", "-", "--vcpus", "-d", "0.1"][..], &nobody].concat());
    assert_eq!(code, Some(0));
    let mut lines = out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let domain = head.iter().position(|column| *column == "domain").unwrap();
    let line = lines.find(|cells| cells[domain] == name).unwrap();
    assert_eq!(line.len(), head.len());
    let (code, out, _) = run(&[&["metrics"][..], &nobody].concat());
    assert_eq!(code, Some(0));
    let wanted =
        format!("corun_vcpu_delay_seconds_total{{domain=\"{name}\",uuid=\"\",vcpu=\"0\"}} ");
    assert!(out.contains(&wanted), "{out}");
}

#[test]
fn preflight_says_what_is_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let (code, out, _) = run(&["preflight", "--json", "--state-dir", state]);
    let verdict: Value = serde_json::from_str(&out).unwrap();
    let refused = verdict["refused"].as_array().unwrap();
    assert_eq!(code, Some(i32::from(!refused.is_empty())));
    for finding in refused {
        assert!(
            finding["remedy"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{finding}"
        );
    }
    let (code, out, _) = run(&["preflight", "--state-dir", state]);
    assert_eq!(code == Some(0), out.contains("Nothing stands in the way"));
    let (code, _, err) = run(&["host", "--force", "everything"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("crash-loop"), "{err}");
    assert_eq!(
        std::fs::read_dir(state).unwrap().count(),
        0,
        "it only looks"
    );
}

/// As in a container that has no `--pid=host`.
#[test]
fn preflight_refuses_a_pid_namespace_of_its_own() {
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc"])
            .args(words);
        command.output()
    };
    if !inside(&["true"]).is_ok_and(|output| output.status.success()) {
        return; // takes rights
    }
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let corun = env!("CARGO_BIN_EXE_corun");
    let output = inside(&[corun, "preflight", "--json", "--state-dir", state]).unwrap();
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = verdict["refused"].as_array().unwrap();
    let is_it = |finding: &&Value| finding["id"] == "pid-namespace";
    assert_eq!(refused.iter().filter(is_it).count(), 1, "{verdict}");
}

#[test]
fn what_cannot_be_is_refused() {
    for args in [
        &["host", "--max-wait", "6s"][..],
        &["host", "--max-ready", "101"],
        &["host", "--window", "10ms"],
        &["host", "--observe", "--only", "web"],
        &["host", "--observe", "--max-ready", "20"],
        &["host", "--observe", "--scx-stats", "off"],
        &["host", "--observe", "--state", "threads.json"],
        &["top", "-d", "0"],
        &["top", "-n", "0"],
        &["top", "--sort", "colour"],
        &["metrics", "--listen", "everywhere"],
        &["metrics", "--interval", "2s"],
        &["metrics", "--textfile", "-"],
    ] {
        assert_eq!(run(args).0, Some(2), "{args:?}");
    }
    let (code, _, err) = run(&["status", "--socket", "/nowhere/host.sock"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no corun host runs"), "{err}");
}

#[test]
fn metrics_overwrite_no_file_but_their_own() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("corun.prom");
    let name = file.to_str().unwrap();
    let args = ["metrics", "--socket", "/nowhere/host.sock", "--textfile"];
    let begin = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
        command.args(args).arg(name).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let other = "# HELP node_boots Times.\n# TYPE node_boots counter\nnode_boots 3\n";
    let guest = "# HELP corun_guest_working 1 while threads are moved.\n";
    for text in [other, guest, "dear\n", "#"] {
        std::fs::write(&file, text).unwrap();
        let mut child = begin();
        let (code, _, err) = match ended(&mut child) {
            true => run(&[&args[..], &[name]].concat()),
            false => panic!("it goes on"),
        };
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("corun.prom: this file is there"), "{err}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    for text in ["", "# HELP corun_scheduler_info Of old.\n"] {
        std::fs::write(&file, text).unwrap();
        let mut child = begin();
        let written = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            let found = std::fs::read_to_string(&file).unwrap();
            found.contains("\ncorun_daemon_up 0\n")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(written, "{text:?}");
    }
}

/// Does a child end by itself, soon? It is gone afterwards.
fn ended(child: &mut Child) -> bool {
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap().is_some()
    });
    let _ = child.kill();
    let _ = child.wait();
    ended
}

#[test]
fn observing_changes_nothing_and_says_what_would_be() {
    let name = format!("seen-{}", std::process::id());
    let Some(_vm) = Fake::vm(&name) else {
        return;
    };
    let args = ["host", "--policy", "balance", "--observe", "--json"];
    let (code, out, err) = run(&[&args[..], &["--interval", "200ms", "--for", "1s"]].concat());
    assert_eq!(code, Some(0), "{err}");
    let line: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let names = line["names"].as_object().unwrap();
    assert!(
        names.values().any(|known| *known == name.as_str()),
        "{line}"
    );
    assert!(
        !line["plan"]["vms"].as_array().unwrap().is_empty(),
        "{line}"
    );
    let args = ["host", "--policy", "microsliced", "--set", "slice=7ms"];
    let observe = [
        "--observe",
        "--json",
        "--interval",
        "100ms",
        "--for",
        "500ms",
    ];
    let (code, out, err) = run(&[&args[..], &observe].concat());
    assert_eq!(code, Some(0), "{err}");
    let line: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(line["plan"]["tasks"][0]["slice"], 7_000_000, "{line}");
}
