// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler that the recorded host runs under, as a recording names it.
//!
//! The kernel names a sched_ext scheduler; otherwise it is the kernel's own, named by its version. Which policy decides
//! under corun, only corun's daemon knows; without that a replay could not be compared with what was recorded.

use crate::sched_ext;
use crate::socket;
use crate::socket::protocol::{Command, InForce};
use corun_recording::scheduler;
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take. The recording waits for it: a daemon that does not answer is not worth more.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is in charge now, on a host with this `kernel` whose daemon, if there is one, listens at `daemon`.
pub(super) fn in_charge(kernel: &str, daemon: &Path) -> String {
    match sched_ext::scheduler().filter(|name| !name.is_empty()) {
        Some(name) if name == scheduler::CORUN => of_corun(daemon),
        Some(name) => name,
        None => of_kernel(kernel).to_string(),
    }
}

fn of_corun(daemon: &Path) -> String {
    match socket::call_within::<InForce>(PATIENCE, daemon, &Command::Policy) {
        Ok(in_force) => scheduler::under(&in_force.policy),
        Err(_) => scheduler::CORUN.to_string(),
    }
}

/// The kernel's own, which is EEVDF since 6.6.
fn of_kernel(kernel: &str) -> &'static str {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match next().zip(next()) {
        Some(version) if version < (6, 6) => "CFS",
        _ => "EEVDF",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::protocol::Reply;
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn which_scheduler_a_kernel_has() {
        assert_eq!(of_kernel("6.5.13-amd64"), "CFS");
        assert_eq!(of_kernel("6.6"), "EEVDF");
        assert_eq!(of_kernel("odd"), "EEVDF");
    }

    #[test]
    fn the_daemon_tells_the_policy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.sock");
        let daemon = UnixListener::bind(&path).unwrap();
        let asked = std::thread::spawn(move || of_corun(&path));
        let (mut stream, _) = daemon.accept().unwrap();
        let mut question = String::new();
        BufReader::new(&stream).read_line(&mut question).unwrap();
        assert_eq!(question.as_bytes(), Command::Policy.line());
        let in_force = InForce {
            policy: "balance".into(),
            summary: String::new(),
            source: String::new(),
            parameters: BTreeMap::new(),
            for_s: 1.0,
            changes: 0,
            vms: Vec::new(),
            status: Vec::new(),
        };
        let answer = serde_json::to_string(&Reply::ok(&in_force)).unwrap();
        writeln!(stream, "{answer}").unwrap();
        assert_eq!(asked.join().unwrap(), "corun balance");
    }

    #[test]
    fn without_a_daemon_the_policy_is_not_known() {
        assert_eq!(of_corun(Path::new("/nonexistent/socket")), "corun");
    }
}
