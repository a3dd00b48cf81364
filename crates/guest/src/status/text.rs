// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's state for people.

use super::Status;
use crate::heart::Priority;
use corun_model::{Nanos, counted};
use std::fmt::Write;

impl Status {
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
                "vCPU {:<4}        descheduled {}, away {:.0} ms in all, slice {slice} ms",
                vcpu.vcpu,
                counted(vcpu.descheduled, "time"),
                ms(vcpu.away_ns)
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "note             {note}");
        }
        out
    }
}
