// SPDX-License-Identifier: GPL-2.0-only
//! The application types of AQL_Sched (EuroSys 2016, §3.2).

use std::fmt;

/// What a vCPU runs. The order is the one in which types win if cursors are equal.
///
/// Ties are common (an I/O-bound vCPU that hardly uses the last-level cache has both cursors at
/// 100), and the paper leaves them open. Here the type that a wrong slice harms most comes first:
/// I/O and spinning before caches, friends of the last-level cache before types that do not depend
/// on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// I/O-intensive: interrupts must be handled soon.
    IoInt,
    /// Concurrent, synchronising by spin locks.
    ConSpin,
    /// Friend of the last-level cache: its working set fits there.
    Llcf,
    /// Overflows the last-level cache: it loses nothing, but disturbs others.
    Llco,
    /// Friend of lower caches.
    LoLcf,
    /// Neither I/O nor spinning, and nothing counts what it does to caches. The paper has no such
    /// type: it always has counters.
    Unknown,
}

impl Kind {
    /// The paper's five, in the order of ties.
    pub const KNOWN: [Kind; 5] = [
        Kind::IoInt,
        Kind::ConSpin,
        Kind::Llcf,
        Kind::Llco,
        Kind::LoLcf,
    ];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::IoInt => "IOInt",
            Kind::ConSpin => "ConSpin",
            Kind::Llcf => "LLCF",
            Kind::Llco => "LLCO",
            Kind::LoLcf => "LoLCF",
            Kind::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A vCPU's type, and whether it drives others out of the last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    /// The type.
    pub kind: Kind,
    /// Of [`Kind::IoInt`] and [`Kind::ConSpin`]: is its LLCO cursor above 50? The paper's IOInt+
    /// and ConSpin+.
    pub plus: bool,
}

impl Type {
    /// Undecided, or without counters to decide by.
    pub const UNKNOWN: Type = Type {
        kind: Kind::Unknown,
        plus: false,
    };

    /// Does it belong on the paper's "trashing" list (Algorithm 1)? Its line 5 as printed tests for
    /// LLCF; text, figure and the list's name mean LLCO.
    pub fn trashes(self) -> bool {
        self.kind == Kind::Llco || self.plus
    }
}
