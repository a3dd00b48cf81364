// SPDX-License-Identifier: GPL-2.0-only
//! `corun policy` against a daemon's socket; the daemon behind it is played.

use crate::common::{corun, left};
use corun_linux::socket::Server;
use corun_linux::socket::protocol::{Command as Asked, ErrorKind, InForce, Reply};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn socket(name: &str) -> PathBuf {
    // Names of sockets have at most 107 bytes, which the target directory may well exceed.
    std::env::temp_dir().join(format!("corun-{}-{name}.sock", std::process::id()))
}

fn policy(socket: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let to = ["--socket", socket.to_str().unwrap()];
    left(corun(&[&["policy"], args, &to].concat()))
}

/// Answers as a daemon would, but has no host.
fn answer(asked: Asked, in_force: &mut InForce) -> Reply {
    match asked {
        Asked::SetPolicy(wanted) if wanted.name == "fair" => {
            in_force.policy = wanted.name;
            in_force.parameters = wanted.set;
            in_force.changes += 1;
        }
        Asked::SetPolicy(wanted) => {
            let message = format!("unknown policy {:?}", wanted.name);
            return Reply::refusal(ErrorKind::UnknownPolicy, message, &["fair", "balance"]);
        }
        Asked::Policy | Asked::Status => {}
    }
    Reply::ok(in_force)
}

#[test]
fn a_running_daemon_is_asked_and_told() {
    let path = socket("asked");
    let mut server = Server::bind(&path).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let daemon = thread::spawn(move || {
        let mut in_force = InForce {
            policy: "balance".into(),
            summary: "apart".into(),
            source: "EuroSys 2011".into(),
            parameters: Default::default(),
            for_s: 12.34,
            changes: 0,
            vms: Vec::new(),
            status: Vec::new(),
        };
        while !until.load(Ordering::Relaxed) {
            let mut answer = |asked| answer(asked, &mut in_force);
            server.turn(10_000_000, &mut answer).unwrap();
        }
    });
    let (code, out, _) = policy(&path, &[]);
    let expected = "balance  apart\nin force for 12.3 s, since the daemon began\nEuroSys 2011\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    let (code, out, _) = policy(&path, &["fair", "--set", "slot=5ms"]);
    assert_eq!(code, Some(0));
    let good = out.starts_with("fair ") && out.contains("changed once");
    assert!(good && out.ends_with("  slot = 5ms\n"), "{out}");
    let (code, _, error) = policy(&path, &["fair", "--set", "slot"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("expected KEY=VALUE"), "{error}");
    let (_, out, _) = policy(&path, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&json["policy"], &json["changes"]),
        (&"fair".into(), &1.into())
    );
    let (code, _, error) = policy(&path, &["balnce"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("unknown policy \"balnce\", did you mean \"balance\"?"),
        "{error}"
    );
    over.store(true, Ordering::Relaxed);
    daemon.join().unwrap();
    let (code, _, error) = policy(&path, &[]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("no corun host runs: nothing answers on"),
        "{error}"
    );
}
