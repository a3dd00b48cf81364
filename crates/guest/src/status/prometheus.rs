// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's state as Prometheus reads it (text exposition format 0.0.4).

use super::Status;
use crate::counts::VcpuCounts;
use std::fmt::Write;

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// How each file of metrics begins, whatever else it contains.
pub const BEGINNING: &str = "# HELP corun_guest_";

/// A metric: its name without the prefix, its kind, what it means, and its values by labels.
type Metric = (&'static str, &'static str, &'static str, Vec<(String, f64)>);

/// A metric with one value, without labels.
fn one(value: f64) -> Vec<(String, f64)> {
    vec![(String::new(), value)]
}

impl Status {
    /// As Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, values) in self.known() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP corun_guest_{name} {help}");
            let _ = writeln!(out, "# TYPE corun_guest_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "corun_guest_{name}{labels} {value}");
            }
        }
        out
    }

    #[rustfmt::skip] // a table
    fn known(&self) -> [Metric; 9] {
        let working = f64::from(u8::from(self.doing == "working"));
        let heartbeat = self.heartbeat_ns as f64 / 1e9;
        let descheduled = self.by_vcpu(|it| it.descheduled as f64);
        let away = self.by_vcpu(|it| it.away_ns as f64 / 1e9);
        [
            ("working", GAUGE, "1 while threads are moved, 0 while there is no need or reason not to", one(working)),
            ("moves_total", COUNTER, "Threads moved to another vCPU", self.moves_by_reason()),
            ("moves_refused_total", COUNTER, "Moves that the kernel refused", one(self.moves.refused as f64)),
            ("threads", GAUGE, "Threads that may be moved", one(self.threads as f64)),
            ("threads_io_bound", GAUGE, "Those that are I/O-bound now", one(self.io_bound as f64)),
            ("heartbeat_seconds", GAUGE, "Period of the heartbeats", one(heartbeat)),
            ("own_cpu_ratio", GAUGE, "CPU time used by the daemon, for each vCPU", one(self.own_permille / 1e3)),
            ("vcpu_descheduled_total", COUNTER, "Times a vCPU was descheduled", descheduled),
            ("vcpu_away_seconds_total", COUNTER, "Time a vCPU was descheduled", away),
        ]
    }

    fn moves_by_reason(&self) -> Vec<(String, f64)> {
        let moves = &self.moves;
        let by_reason = [
            ("push", moves.push),
            ("pull", moves.pull),
            ("soon", moves.soon),
            ("spread", moves.spread),
        ];
        let labelled = |(reason, count)| (format!("{{reason=\"{reason}\"}}"), count as f64);
        by_reason.map(labelled).to_vec()
    }

    fn by_vcpu(&self, value: fn(&VcpuCounts) -> f64) -> Vec<(String, f64)> {
        let line = |vcpu: &VcpuCounts| (format!("{{vcpu=\"{}\"}}", vcpu.vcpu), value(vcpu));
        self.vcpus.iter().map(line).collect()
    }
}
