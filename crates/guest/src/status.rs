// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon reports about itself: a file that it writes anew every second, for `corun guest status`, and one in
//! Prometheus's text format for programs that collect metrics. It listens nowhere.

mod prometheus;
mod text;

pub use prometheus::BEGINNING as METRICS_BEGIN;

use crate::counts::{Moves, VcpuCounts};
use crate::heart::Priority;
use corun_model::Nanos;
use corun_system::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// How each status file begins.
pub const STATUS_BEGINS: &str = "{\"pid\":";

/// The daemon's state, as of the last second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// How long it has been running, ns.
    pub running_ns: Nanos,
    /// What it does: `working`, `watching` or `stood down`.
    pub doing: String,
    /// Why it does no more than that, in words.
    pub because: String,
    /// Where I/O is known from.
    pub detector: String,
    /// Why not from somewhere better; empty if it is the best.
    pub detector_note: String,
    /// Where the time that the host takes is known from.
    pub steal: String,
    /// What lets heartbeats run first.
    pub priority: Priority,
    /// Their period, ns.
    pub heartbeat_ns: Nanos,
    /// What this process used of a vCPU in the last second, for each vCPU, thousandths.
    pub own_permille: f64,
    /// The vCPUs with heartbeats.
    pub vcpus: Vec<VcpuCounts>,
    /// Threads that may be moved.
    pub threads: usize,
    /// Those of them that are I/O-bound now.
    pub io_bound: usize,
    /// Threads seen doing much I/O that are left alone, by reason, in the last ten seconds.
    pub left_alone: BTreeMap<String, usize>,
    /// Moves since the start.
    pub moves: Moves,
    /// Threads that had inherited a mask and were freed.
    pub heirs: u64,
    /// What is wrong, for people.
    pub notes: Vec<String>,
}

impl Status {
    /// Reads what the daemon wrote last.
    ///
    /// # Errors
    /// If there is no such file, or it is not the daemon's.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&files::read(path)?)?)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        files::replace(path, &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            pid: 7,
            running_ns: 1,
            doing: "working".into(),
            because: String::new(),
            detector: "/proc".into(),
            detector_note: "no BTF".into(),
            steal: "heartbeats".into(),
            priority: Priority::Nice,
            heartbeat_ns: 300_000,
            own_permille: 4.0,
            vcpus: vec![VcpuCounts {
                vcpu: 1,
                slice_ns: Some(11_000_000),
                away_ns: 2_500_000_000,
                ..VcpuCounts::default()
            }],
            threads: 2,
            io_bound: 1,
            left_alone: BTreeMap::from([("pinned by its user".into(), 3)]),
            moves: Moves {
                push: 5,
                ..Moves::default()
            },
            heirs: 0,
            notes: vec!["careful".into()],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status.json");
        status().write(&path).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.starts_with(STATUS_BEGINS), "{written}");
        assert_eq!(Status::read(&path).unwrap(), status());
        std::fs::write(&path, "{}").unwrap();
        assert!(Status::read(&path).is_err());
    }

    #[test]
    fn people_and_prometheus_are_told_the_same() {
        let text = status().text();
        for part in [
            "pid 7: working",
            "/proc (no BTF)",
            "0.40 %",
            "5 push",
            "3 pinned",
            "slice 11.0 ms",
            "careful",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let metrics = status().metrics();
        assert!(metrics.starts_with(METRICS_BEGIN), "{metrics}");
        for line in [
            "corun_guest_working 1",
            "corun_guest_moves_total{reason=\"push\"} 5",
            "corun_guest_vcpu_away_seconds_total{vcpu=\"1\"} 2.5",
            "corun_guest_own_cpu_ratio 0.004",
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
        }
        let described = metrics
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .count();
        assert_eq!(described, 9);
    }
}
