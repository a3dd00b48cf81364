// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon tells of itself: a file that it writes anew every second, for `corun guest status`,
//! and one in Prometheus's text format for whoever collects metrics. It listens nowhere.

use crate::counts::{Moves, VcpuCounts};
use crate::file;
use crate::heart::Priority;
use corun_model::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The daemon's state, as of the last second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// How long it runs, ns.
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
    /// With which right heartbeats go first.
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
    /// What the daemon wrote last.
    ///
    /// # Errors
    /// If there is no such file, or it is none of the daemon's.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_str(&file::read(path)?)?)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        file::replace(path, &serde_json::to_string(self)?)
    }

    /// For people, several lines.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let ms = |time: Nanos| time as f64 / 1e6;
        let because = match self.because.is_empty() {
            true => String::new(),
            false => format!(": {}", self.because),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "corun guest, pid {}: {}{because}",
            self.pid, self.doing
        );
        let note = match self.detector_note.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.detector_note),
        };
        let _ = writeln!(out, "I/O known from   {}{note}", self.detector);
        let _ = writeln!(out, "steal known from {}", self.steal);
        let _ = writeln!(
            out,
            "heartbeats       every {:.1} ms, {}; own use {:.2} % of each vCPU",
            ms(self.heartbeat_ns),
            match self.priority {
                Priority::RealTime => "SCHED_FIFO",
                Priority::Nice => "nice -20",
            },
            self.own_permille / 10.0
        );
        let moves = &self.moves;
        let _ = writeln!(
            out,
            "threads          {} ({} I/O-bound now); moves: {} push, {} pull, {} soon, {} spread, {} refused",
            self.threads,
            self.io_bound,
            moves.push,
            moves.pull,
            moves.soon,
            moves.spread,
            moves.refused
        );
        for (reason, count) in &self.left_alone {
            let _ = writeln!(out, "left alone       {count} {reason}");
        }
        for vcpu in &self.vcpus {
            let slice = vcpu
                .slice_ns
                .map_or("-".into(), |it| format!("{:.1}", ms(it)));
            let _ = writeln!(
                out,
                "vCPU {:<4}        descheduled {} times, away {:.0} ms in all, slice {slice} ms",
                vcpu.vcpu,
                vcpu.descheduled,
                ms(vcpu.away_ns)
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "note             {note}");
        }
        out
    }

    /// As Prometheus reads it (text exposition format 0.0.4).
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
            let _ = writeln!(out, "# HELP corun_guest_{name} {help}");
            let _ = writeln!(out, "# TYPE corun_guest_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "corun_guest_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        let by_reason = |name: &str, value: u64| (format!("{{reason=\"{name}\"}}"), value as f64);
        let by_vcpu = |value: fn(&VcpuCounts) -> f64| -> Vec<_> {
            let line = |vcpu: &VcpuCounts| (format!("{{vcpu=\"{}\"}}", vcpu.vcpu), value(vcpu));
            self.vcpus.iter().map(line).collect()
        };
        let seconds = |time: Nanos| time as f64 / 1e9;
        let moves = &self.moves;
        metric(
            "working",
            "gauge",
            "1 while threads are moved, 0 while there is no need or reason not to",
            &one(f64::from(u8::from(self.doing == "working"))),
        );
        metric(
            "moves_total",
            "counter",
            "Threads moved to another vCPU",
            &[
                by_reason("push", moves.push),
                by_reason("pull", moves.pull),
                by_reason("soon", moves.soon),
                by_reason("spread", moves.spread),
            ],
        );
        metric(
            "moves_refused_total",
            "counter",
            "Moves that the kernel refused",
            &one(moves.refused as f64),
        );
        metric(
            "threads",
            "gauge",
            "Threads that may be moved",
            &one(self.threads as f64),
        );
        metric(
            "threads_io_bound",
            "gauge",
            "Those that are I/O-bound now",
            &one(self.io_bound as f64),
        );
        metric(
            "heartbeat_seconds",
            "gauge",
            "Period of the heartbeats",
            &one(seconds(self.heartbeat_ns)),
        );
        metric(
            "own_cpu_ratio",
            "gauge",
            "CPU time used by the daemon, for each vCPU",
            &one(self.own_permille / 1e3),
        );
        metric(
            "vcpu_descheduled_total",
            "counter",
            "Times a vCPU was descheduled",
            &by_vcpu(|it| it.descheduled as f64),
        );
        metric(
            "vcpu_away_seconds_total",
            "counter",
            "Time a vCPU was descheduled",
            &by_vcpu(|it| it.away_ns as f64 / 1e9),
        );
        out
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
