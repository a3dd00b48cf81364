// SPDX-License-Identifier: GPL-2.0-only
//! How a run of the daemon ends: as it was meant to ([`HostExit`]), or because something went wrong
//! ([`HostError`]). The host is on the kernel's own scheduler either way, unless [`HostError::NotBack`] says otherwise.

use crate::confine::ConfineError;
use crate::halt_poll::HaltPollError;
use crate::loader::{ExitInfo, LoadError};
use crate::preflight::{self, Finding};
use crate::recorder::Recorded;
use crate::safety::Breach;
use crate::safety::runs::End;
use crate::socket::SocketError;
use corun_model::TopologyError;
use corun_system::rights;
use std::io;

/// Why the daemon ended, if nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time it was given is over.
    TimeOver,
    /// SIGINT, SIGTERM or SIGHUP.
    Asked,
}

impl Cause {
    /// In words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TimeOver => "the time is over",
            Self::Asked => "asked to end",
        }
    }
}

/// An ordinary end: the host is back on the kernel's own scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostExit {
    /// Why.
    pub cause: Cause,
    /// What the kernel says about it.
    pub info: Option<ExitInfo>,
    /// What was recorded, if it was asked for.
    pub recorded: Option<Recorded>,
}

/// What went wrong. The host is on the kernel's own scheduler nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Something is in the way.
    #[error("corun cannot take over this host:\n{}", list(.0))]
    Preflight(Vec<Finding>),
    /// A task could make a core-scheduling cookie, which hangs the host.
    #[error(
        "nothing keeps tasks from making core-scheduling cookies, which have hung SMT hosts under every sched_ext \
         scheduler: the kernel refuses the program for it ({0:#}); switch SMT off, or --force {name}",
        name = preflight::COOKIES
    )]
    NewCookies(libbpf_rs::Error),
    /// A task has made one nevertheless.
    #[error(
        "the host is back on the kernel's own scheduler, because vCPUs have core-scheduling cookies, which have hung SMT \
         hosts under every sched_ext scheduler: {0}"
    )]
    Cookies(String),
    /// The dispatcher could not be loaded or put in charge.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What keeps the host safe cannot be written down.
    #[error("cannot remember runs in {path}: {}; name another directory with --state-dir", rights::in_words(.cause))]
    State {
        /// The directory.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A promise was broken: the host was handed back.
    #[error("the host is back on the kernel's own scheduler, because a promise was broken: {}", .0.what)]
    RolledBack(Breach),
    /// The kernel threw the dispatcher out.
    #[error("the kernel ejected the dispatcher: {}: {} (exit kind {}, code {})",
        .0.reason, .0.message, .0.kind, .0.code)]
    Ejected(ExitInfo),
    /// pCPUs came or went.
    #[error(
        "pCPUs came or went, so the host is as it was without corun ({0}); start corun again, as its systemd unit does"
    )]
    PcpusChanged(String),
    /// The kernel's own scheduler is not back.
    #[error("the scheduler is still {state} after it was unregistered; press SysRq-S to force it")]
    NotBack {
        /// What /sys/kernel/sched_ext/state says.
        state: String,
    },
    /// The dispatcher's tables cannot be read or written.
    #[error("cannot reach the dispatcher's tables: {0}")]
    Tables(#[from] libbpf_rs::Error),
    /// The recording cannot be written.
    #[error("cannot record to {path}: {cause}")]
    Record {
        /// The file.
        path: String,
        /// What failed.
        cause: io::Error,
    },
    /// Statistics cannot be written.
    #[error("cannot write statistics: {0}")]
    Output(io::Error),
    /// The control socket is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The control socket cannot be waited for.
    #[error("cannot wait for requests: {0}")]
    Wait(io::Error),
    /// A policy could not be put in force, nor the one before it put back.
    #[error(
        "between two policies: {wanted} could not be put in force ({cause}), and {before} could not be put back \
         ({again})"
    )]
    Between {
        /// The new one.
        wanted: &'static str,
        /// Why not.
        cause: libbpf_rs::Error,
        /// The old one.
        before: &'static str,
        /// Why not.
        again: libbpf_rs::Error,
    },
    /// Too many files are open.
    #[error("no descriptor is left: {0}")]
    Descriptors(io::Error),
    /// Signals cannot be watched for.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// The host's pCPUs cannot be found out.
    #[error("cannot tell this host's pCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// KVM's halt polling cannot be set or put back.
    #[error(transparent)]
    HaltPoll(#[from] HaltPollError),
    /// Privileges that are not needed any more cannot be given up.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The host has a shape corun does not know.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

fn list(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| format!("- {finding}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The kernel threw the dispatcher out.
pub(crate) fn ejected(info: ExitInfo) -> HostError {
    match info.asks_for_restart() {
        true => HostError::PcpusChanged(info.message),
        false => HostError::Ejected(info),
    }
}

/// The same for the journal of runs; `None`: the host was not touched, so it was no run.
pub(super) fn end_of(ended: &Result<HostExit, HostError>) -> Option<End> {
    Some(match ended {
        Ok(_) => End::Asked,
        Err(HostError::Load(LoadError::Taken { .. })) => return None,
        Err(HostError::RolledBack(_)) => End::RolledBack,
        Err(HostError::PcpusChanged(_)) => End::PcpusChanged,
        Err(HostError::Ejected(_)) => End::Ejected,
        Err(_) => End::Failed,
    })
}
