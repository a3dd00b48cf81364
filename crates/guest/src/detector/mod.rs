// SPDX-License-Identifier: GPL-2.0-only
//! Which threads do I/O, and for how much of their time: from the kernel's block layer where BPF
//! may look there ([`bpf`]), from /proc otherwise ([`sampled`]).

pub(crate) mod bpf;
pub(crate) mod sampled;

use bpf::Traced;
use corun_model::Nanos;
use corun_policies::vmigrater::Core;
use corun_system::procfs::ThreadKey;
use sampled::Sampled;
use std::io;

/// Where that is known from.
pub(crate) enum Detector {
    /// The block layer's tracepoints.
    Traced(Traced),
    /// /proc.
    Sampled(Sampled),
}

/// What a detector has to tell the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// This thread may be I/O-bound.
    Candidate(u32),
    /// A thread was created by one that may have been moved, or by an heir of it.
    Heir {
        /// The new one.
        tid: u32,
        /// The one that may have been moved.
        root: u32,
        /// What it has inherited: it may use this vCPU only.
        vcpu: u32,
    },
}

impl Detector {
    /// In a word or two, for people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Traced(_) => "BPF block tracepoints",
            Self::Sampled(_) => "/proc",
        }
    }

    /// Follows a thread's requests from now on.
    pub(crate) fn watch(&mut self, key: &ThreadKey, now: Nanos) -> io::Result<()> {
        match self {
            Self::Traced(traced) => traced.watch(key),
            Self::Sampled(sampled) => sampled.watch(key, now),
        }
    }

    /// Stops following it.
    pub(crate) fn unwatch(&mut self, tid: u32) {
        match self {
            Self::Traced(traced) => traced.unwatch(tid),
            Self::Sampled(sampled) => sampled.unwatch(tid),
        }
    }

    /// An heir of `root` was freed, or is pinned on purpose: what it creates from now on is no heir.
    pub(crate) fn judged(&self, tid: u32, root: u32) {
        if let Self::Traced(traced) = self {
            traced.judged(tid, root);
        }
    }

    /// On which vCPU a thread was seen last.
    pub(crate) fn vcpu(&self, tid: u32) -> u32 {
        match self {
            Self::Traced(traced) => traced.vcpu(tid),
            Self::Sampled(sampled) => sampled.vcpu(tid),
        }
    }

    /// The time that the host has taken from a vCPU since boot, ns; `None`: not available.
    pub(crate) fn stolen(&self, vcpu: u32) -> Option<Nanos> {
        match self {
            Self::Traced(traced) => traced.stolen(vcpu),
            Self::Sampled(_) => None,
        }
    }

    /// When `vcpu` last began to run something, after idling; `None`: not available.
    pub(crate) fn awake_since(&self, vcpu: u32) -> Option<Nanos> {
        match self {
            Self::Traced(traced) => traced.awake_since(vcpu),
            Self::Sampled(_) => None,
        }
    }

    /// Tells `core` what thread `tid` did since the last beat of its vCPU, if that has been active all
    /// the time since (`regular`).
    pub(crate) fn feed(&mut self, core: &mut Core, tid: u32, now: Nanos, regular: bool) {
        match self {
            Self::Traced(traced) => traced.feed(core, tid, now),
            Self::Sampled(sampled) => sampled.feed(core, tid, now, regular),
        }
    }
}
