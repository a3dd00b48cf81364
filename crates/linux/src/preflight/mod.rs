// SPDX-License-Identifier: GPL-2.0-only
//! May corun take over this host's scheduling? Each finding says what, why it matters, and a remedy.
//!
//! A scheduler that takes over at the wrong time or on the wrong kernel can hang a host. What is known to make that
//! impossible or dangerous is looked for beforehand: [`kernel`] checks what the kernel can do and which of the known
//! bugs it has, [`state`] what the host is doing just now, [`contract`] which promises to its VMs corun could not keep.
//! Each check is a function of the host's files below a root directory, so that it can be tried on made-up hosts.
//! Dangers can be overridden, finding by finding, and that is put on record.

mod contract;
mod kernel;
mod state;

use crate::inventory::{self, Machine};
use crate::smt;
use corun_model::PcpuSet;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use contract::COOKIES;

/// What a finding means for taking over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It might hurt the host or its VMs: refused unless forced.
    Dangerous,
    /// It cannot work, forced or not.
    Impossible,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Dangerous => "dangerous",
            Self::Impossible => "impossible",
        }
    }
}

/// Something in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short name that stays.
    pub id: &'static str,
    /// What it means for taking over.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {}\n  why: {}\n  remedy: {}",
            self.id,
            self.severity.word(),
            self.what,
            self.why,
            self.remedy
        )?;
        match self.severity {
            Severity::Dangerous => write!(f, "; or --force {}", self.id),
            _ => Ok(()),
        }
    }
}

/// The findings that may be forced, by their names.
pub const FORCIBLE: [&str; 11] = [
    contract::COOKIES,
    "crash-loop",
    "cve-2026-43392",
    "cve-2026-43482",
    "host-reset",
    "kvm",
    "load",
    "memory-pressure",
    "psi-trigger",
    "rcu-starves",
    "realtime",
];

/// Findings that may pass by themselves: KVM is loaded late, load goes down. All others stay until
/// the administrator does something, and a service manager that tries again does not help.
const PASSING: [&str; 4] = ["kvm", "load", "memory-pressure", "other-scheduler"];

impl Finding {
    /// Does it stay until the administrator does something about it?
    pub fn stays(&self) -> bool {
        !PASSING.contains(&self.id)
    }
}

/// What was found, and what is done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What stands in the way.
    pub refused: Vec<Finding>,
    /// What stood in the way and was forced.
    pub forced: Vec<Finding>,
}

impl Verdict {
    /// Of these findings, when those named by `force` are not to stand in the way.
    pub fn of(findings: Vec<Finding>, force: &[String]) -> Self {
        let mut verdict = Self::default();
        for finding in findings {
            let forced = force.iter().any(|id| id == finding.id);
            match finding.severity {
                Severity::Dangerous if forced => verdict.forced.push(finding),
                _ => verdict.refused.push(finding),
            }
        }
        verdict
    }
}

/// A host as the checks see it.
struct Host<'a> {
    root: &'a Path,
    /// The core-scheduling cookie of a thread; 0 if it has none, an error if it cannot be read.
    cookie: &'a dyn Fn(u32) -> io::Result<u64>,
    vms: Vec<Machine>,
    /// `/proc/kallsyms`, which the kernel makes up line by line: some 100 ms.
    symbols: OnceCell<Option<String>>,
}

impl<'a> Host<'a> {
    fn below(root: &'a Path, cookie: &'a dyn Fn(u32) -> io::Result<u64>) -> Self {
        Self {
            root,
            cookie,
            vms: inventory::machines(root),
            symbols: OnceCell::new(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without the white space around it.
    fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_string())
    }

    /// The kernel's functions; `None` if it does not say.
    fn symbols(&self) -> Option<&str> {
        let read = || self.text("/proc/kallsyms");
        self.symbols.get_or_init(read).as_deref()
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

/// Looks at this host. Empty: nothing is in the way.
pub fn check() -> Vec<Finding> {
    check_in(Path::new("/"), &smt::cookie)
}

/// The cookies that there are already, or may be. To be called again once no more can be made.
pub(crate) fn cookies() -> Option<Finding> {
    contract::cookies(&Host::below(Path::new("/"), &smt::cookie))
}

fn check_in(root: &Path, cookie: &dyn Fn(u32) -> io::Result<u64>) -> Vec<Finding> {
    let host = Host::below(root, cookie);
    let checks = kernel::CHECKS
        .iter()
        .chain(state::CHECKS)
        .chain(contract::CHECKS);
    checks.filter_map(|check| check(&host)).collect()
}

/// A check: what it found, if it found something.
type Check = fn(&Host<'_>) -> Option<Finding>;

/// Does this process lack the rights to load programs into the kernel, as far as is known?
pub(crate) fn may_load_nothing() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").ok();
    status.and_then(|status| state::may_load(&status)) == Some(false)
}

/// The pCPUs that are online; `None` if there are more than corun handles.
pub(crate) fn online() -> Option<PcpuSet> {
    pcpus("online")
}

/// Those that can ever be: the others may be plugged in. `None` as above.
pub(crate) fn possible() -> Option<PcpuSet> {
    pcpus("possible")
}

fn pcpus(which: &str) -> Option<PcpuSet> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}")).ok()?;
    list.trim().parse().ok()
}

#[cfg(test)]
mod tests;
