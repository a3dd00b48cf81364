// SPDX-License-Identifier: GPL-2.0-only
//! Why a file cannot be used as a recording, and what would help.

use crate::note::{Place, Quote};
use std::io;

/// Why a file cannot be used as a recording. The message names the file, what was seen in it and
/// what is accepted.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be opened or read at all.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is packed, and the packing is damaged.
    #[error("{file}: damaged after line {line}: {why}; `gzip -t` tests it. Copy it again")]
    Damaged {
        /// The file.
        file: String,
        /// The last line that could be unpacked.
        line: u64,
        /// What the unpacker said.
        why: String,
    },
    /// It is one of corun's own recordings, but cannot be read.
    #[error("{file}: no recording that can be read: {why}")]
    Native {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// There is nothing in it.
    #[error("{file}: the file is empty; {ACCEPTED}")]
    Empty {
        /// The file.
        file: String,
    },
    /// It is something else.
    #[error("{file}: this is {what}; {remedy}; {ACCEPTED}")]
    Foreign {
        /// The file.
        file: String,
        /// What it is.
        what: &'static str,
        /// The command that turns it into a recording, or what to do instead.
        remedy: &'static str,
    },
    /// It is text, but no line of it is an event.
    #[error("{file}: no line is an event{}; {ACCEPTED}", begins(.first))]
    NoEvents {
        /// The file.
        file: String,
        /// The first line not understood.
        first: Option<Quote>,
    },
    /// It has events, but none that shows which task ran.
    #[error(
        "{file}: there are no sched_switch events{}, only {found}; record sched_switch, sched_waking \
         and sched_wakeup on all pCPUs (`trace-cmd record -e sched -e kvm`, `perf sched record`)",
        that_were(.skipped)
    )]
    NoSwitches {
        /// The file.
        file: String,
        /// The most frequent events.
        found: String,
        /// How many lines were not understood, and the first of them.
        skipped: Option<(u64, Quote)>,
    },
    /// No task in it is a vCPU.
    #[error(
        "{file}: there is no vCPU thread. Looked for threads named `CPU n/KVM`, `fc_vcpu n` or \
         `vcpun` and for kvm_entry events, found {found}. Record on the host, on all pCPUs, while \
         VMs run, with the kvm events or with QEMU's `-name debug-threads=on`"
    )]
    NoVcpus {
        /// The file.
        file: String,
        /// The tasks that ran longest.
        found: String,
    },
    /// It is too short to show anything.
    #[error("{file}: all events happened at the same time; a recording must last a while")]
    NoTime {
        /// The file.
        file: String,
    },
    /// It is several recordings, or one whose clock jumps.
    #[error(
        "{file}: {at}: time jumps by more than an hour, and most events come after that; \
         give one recording, with a clock that does not jump (`mono`)"
    )]
    TimeJumps {
        /// The file.
        file: String,
        /// Where it jumps.
        at: Place,
    },
    /// Its lines are out of order.
    #[error(
        "{file}: {at}: {events} of {total} events go back in time further than the {window} \
         events within which they are put in order. Is it several recordings in one file? \
         Otherwise sort it by time (`trace-cmd report` and `perf script` do)"
    )]
    Disordered {
        /// The file.
        file: String,
        /// The first event out of order.
        at: Place,
        /// How many events.
        events: u64,
        /// Out of how many.
        total: u64,
        /// The window.
        window: usize,
    },
    /// The host is larger than corun handles.
    #[error("{file}: the host has {seen} pCPUs; at most {max} are supported", max = corun_model::Topology::MAX_PCPUS)]
    TooManyPcpus {
        /// The file.
        file: String,
        /// The number stated.
        seen: u64,
    },
    /// There is too much in it to keep in memory.
    #[error("{file}: {at}: too many {what} (at most {max}); record for a shorter time")]
    TooLarge {
        /// The file.
        file: String,
        /// Where the limit was reached.
        at: Place,
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        max: u64,
    },
}

impl ImportError {
    /// Is the file not a recording at all, rather than one that cannot be used?
    pub fn is_something_else(&self) -> bool {
        matches!(
            self,
            Self::Empty { .. } | Self::Foreign { .. } | Self::NoEvents { .. }
        )
    }
}

/// What is accepted.
const ACCEPTED: &str = "accepted are recordings by `corun record`, the text of \
                        /sys/kernel/tracing/trace, of `trace-cmd report` and of `perf script`, and \
                        Perfetto's traces with ftrace events, plain or gzip'ed";

/// ` that can be read (2 lines were skipped: line 3, …: why)`
fn that_were(skipped: &Option<(u64, Quote)>) -> String {
    let told = |(lines, Quote { line, text, why }): &(u64, Quote)| {
        let were = if *lines == 1 {
            "line was"
        } else {
            "lines were"
        };
        format!(" that can be read ({lines} {were} skipped: line {line}, {text:?}: {why})")
    };
    skipped.as_ref().map_or(String::new(), told)
}

/// `: line 3 begins "…": why`
fn begins(first: &Option<Quote>) -> String {
    let quote = |Quote { line, text, why }: &Quote| format!(": line {line} begins {text:?}: {why}");
    first.as_ref().map_or(String::new(), quote)
}
