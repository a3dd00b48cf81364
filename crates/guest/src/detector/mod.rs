// SPDX-License-Identifier: GPL-2.0-only
//! Who does I/O, and for how much of its time: from the kernel's block layer where BPF may look there
//! ([`bpf`]), from /proc otherwise ([`sampled`]).

pub(crate) mod bpf;
pub(crate) mod sampled;

use crate::proc::Key;
use bpf::Traced;
use corun_model::Nanos;
use corun_policies::vmigrater::Core;
use sampled::Sampled;
use std::io;

/// Where it is known from.
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
    /// This thread was created by one that may have been moved, and has inherited its mask.
    Heir(u32),
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
    pub(crate) fn watch(&mut self, key: &Key, now: Nanos) -> io::Result<()> {
        match self {
            Self::Traced(traced) => traced.watch(key),
            Self::Sampled(sampled) => sampled.watch(key, now),
        }
    }

    /// Follows it no more.
    pub(crate) fn unwatch(&mut self, tid: u32) {
        match self {
            Self::Traced(traced) => traced.unwatch(tid),
            Self::Sampled(sampled) => sampled.unwatch(tid),
        }
    }

    /// On which vCPU a thread was seen last.
    pub(crate) fn vcpu(&self, tid: u32) -> u32 {
        match self {
            Self::Traced(traced) => traced.vcpu(tid),
            Self::Sampled(sampled) => sampled.vcpu(tid),
        }
    }

    /// The time that the host has taken from a vCPU since boot, ns; `None`: not to be had.
    pub(crate) fn stolen(&self, vcpu: u32) -> Option<Nanos> {
        match self {
            Self::Traced(traced) => traced.stolen(vcpu),
            Self::Sampled(_) => None,
        }
    }

    /// When `vcpu` last began to run something, having idled; `None`: not to be had.
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
