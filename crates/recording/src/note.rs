// SPDX-License-Identifier: GPL-2.0-only
//! What a reader of the results must know about how the recording was read.

use corun_model::{Nanos, counted, time};
use std::fmt;

/// Where in a file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this line of a text, from 1.
    Line(u64),
    /// In this block of a recording of corun's own, from 1.
    Block(u64),
    /// In this packet of a trace of Perfetto, from 1.
    Packet(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Block(number) => write!(f, "block {number}"),
            Self::Packet(number) => write!(f, "packet {number}"),
        }
    }
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Line number in the file, from 1.
    pub line: u64,
    /// Its beginning.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Something that was skipped, repaired or guessed. `Display` states it in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Lines that are not understood were skipped.
    Unparsed {
        /// How many.
        lines: u64,
        /// The first few.
        examples: Vec<Quote>,
    },
    /// The file ends in the middle of a line; that line was left out.
    CutShort {
        /// The last complete line.
        line: u64,
    },
    /// The packed file breaks off; what came before was used.
    BrokenOff {
        /// The last complete line.
        line: u64,
    },
    /// The file ends, or cannot be read on, before the recording ended; what came before was used.
    Cut {
        /// Where that is.
        at: Place,
        /// Where that begins, bytes.
        byte: u64,
        /// Why.
        why: &'static str,
    },
    /// Something comes after the recording's end; it was left out.
    Behind {
        /// Where the recording ends, bytes.
        byte: u64,
        /// How many bytes come after.
        bytes: u64,
    },
    /// Events with numbers that no kernel has were left out.
    Unusable {
        /// How many.
        events: u64,
    },
    /// Events earlier than the one before them were put in order.
    Reordered {
        /// How many.
        events: u64,
    },
    /// Events too far out of order were left out.
    TooLate {
        /// How many.
        events: u64,
        /// The first of them.
        at: Place,
    },
    /// Events more than an hour after all others were left out.
    FarAway {
        /// How many.
        events: u64,
        /// The first of them.
        at: Place,
    },
    /// Nothing happens for far longer than all the rest of the recording lasts.
    Silence {
        /// How long, ns.
        gap: Nanos,
        /// How long the rest lasts, ns.
        rest: Nanos,
        /// The last event before, and the first one after.
        between: [Place; 2],
    },
    /// The recording lost events while it was taken.
    Lost {
        /// How many, as far as it says.
        events: u64,
        /// Places where it says that some were lost.
        gaps: u64,
    },
    /// The trace buffer was too small: its oldest entries were overwritten.
    Overwritten {
        /// Entries kept.
        kept: u64,
        /// Entries written.
        written: u64,
    },
    /// Events contradict each other; each was believed.
    Contradictions {
        /// Tasks that ran without having been woken.
        no_wakeup: u64,
        /// Switches from or to a task that was elsewhere.
        no_switch: u64,
        /// Tasks that did something after they had exited.
        after_exit: u64,
    },
    /// There are no wake-up events: which task woke which is unknown, and so is how long a task was
    /// ready after it was woken.
    NoWakeups,
    /// The recording does not distinguish interrupts from tasks; causes of wake-ups are guessed.
    ContextUnknown {
        /// Wake-ups concerned.
        wakeups: u64,
    },
    /// Which vCPUs form a VM is guessed, because no processes are stated.
    GroupingInferred {
        /// VMs concerned.
        vms: u64,
    },
    /// The recording names a pCPU beyond the number of pCPUs that it states.
    MorePcpus {
        /// The number stated.
        stated: u64,
        /// The number used.
        seen: u32,
    },
}

impl Note {
    /// How many events are missing, or wrong, within the time that the recording covers. A recording that only begins
    /// later or ends earlier than it should has no gaps because of that.
    pub fn gaps(&self) -> u64 {
        match self {
            Self::Unparsed { lines: events, .. }
            | Self::Unusable { events }
            | Self::TooLate { events, .. }
            | Self::Lost { events, .. } => *events,
            Self::Contradictions {
                no_wakeup,
                no_switch,
                after_exit,
            } => no_wakeup + no_switch + after_exit,
            // All events of a kind are missing.
            Self::NoWakeups => u64::MAX,
            Self::CutShort { .. }
            | Self::BrokenOff { .. }
            | Self::Cut { .. }
            | Self::Behind { .. }
            | Self::Reordered { .. }
            | Self::FarAway { .. }
            | Self::Silence { .. }
            | Self::Overwritten { .. }
            | Self::ContextUnknown { .. }
            | Self::GroupingInferred { .. }
            | Self::MorePcpus { .. } => 0,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparsed { lines, examples } => unparsed(f, *lines, examples),
            Self::CutShort { line } => write!(
                f,
                "the file ends in the middle of a line, after line {line}; that line was left out"
            ),
            Self::BrokenOff { line } => write!(
                f,
                "the packed file breaks off after line {line}; what came before was used"
            ),
            Self::Cut { at, byte, why } => write!(
                f,
                "the recording was cut short at {at}, byte {byte} ({why}); what came \
                 before was used"
            ),
            Self::Behind { byte, bytes } => write!(
                f,
                "the recording ends at byte {byte} of the file; what comes after was left out: {}",
                counted(*bytes, "byte")
            ),
            Self::Unusable { events } => write!(
                f,
                "left out: {}, of pCPUs or threads that no kernel has",
                counted(*events, "event")
            ),
            Self::Reordered { events: 1 } => {
                f.write_str("1 event goes back in time; it was put in order")
            }
            Self::Reordered { events } => {
                write!(f, "{events} events go back in time; they were put in order")
            }
            Self::TooLate { events, at } => write!(
                f,
                "left out: {}, first in {at}, too far out of order",
                counted(*events, "event")
            ),
            Self::FarAway { events, at } => write!(
                f,
                "left out: {}, first in {at}, more than an hour after all others",
                counted(*events, "event")
            ),
            Self::Silence { gap, rest, between } => write!(
                f,
                "nothing happens for {} between {} and {}, and all the rest lasts {}: is a timestamp \
                 wrong? Replays go through all of that time; leave out what does not belong to the recording",
                time::show(*gap),
                between[0],
                between[1],
                time::show(*rest)
            ),
            Self::Lost { events, gaps } => write!(
                f,
                "the recording lost at least {} ({} marked); figures around the gaps are \
                 uncertain. A larger trace buffer helps",
                counted(*events, "event"),
                counted(*gaps, "gap")
            ),
            Self::Overwritten { kept, written } => write!(
                f,
                "the trace buffer kept only the last {kept} of {written} entries; the beginning \
                 is uncertain. A larger trace buffer helps"
            ),
            Self::Contradictions {
                no_wakeup,
                no_switch,
                after_exit,
            } => write!(
                f,
                "events contradict each other, as after lost events: tasks ran without \
                 a wake-up {}, switches did not fit {}, tasks acted after their exit {}",
                counted(*no_wakeup, "time"),
                counted(*no_switch, "time"),
                counted(*after_exit, "time")
            ),
            Self::NoWakeups => f.write_str(
                "there are no sched_waking or sched_wakeup events: causes of wake-ups are unknown, \
                 and time ready after a wake-up counts as waiting",
            ),
            Self::ContextUnknown { wakeups } => write!(
                f,
                "the recording does not tell whether a task or an interrupt caused {}; the causes \
                 are guessed. ftrace text with its latency column tells",
                counted(*wakeups, "wake-up")
            ),
            Self::GroupingInferred { vms } => write!(
                f,
                "which vCPUs form a VM is inferred for {} from wake-ups between vCPUs and \
                 thread ids. Recording thread groups (record-tgid) or `# process` lines states it",
                counted(*vms, "VM")
            ),
            Self::MorePcpus { stated, seen } => write!(
                f,
                "the recording states {} but has events of more; {seen} are assumed",
                counted(*stated, "pCPU")
            ),
        }
    }
}

fn unparsed(f: &mut fmt::Formatter<'_>, lines: u64, examples: &[Quote]) -> fmt::Result {
    write!(f, "not understood and skipped: {}", counted(lines, "line"))?;
    for quote in examples {
        write!(
            f,
            "\n  line {}: {}: {:?}",
            quote.line, quote.why, quote.text
        )?;
    }
    Ok(())
}
