// SPDX-License-Identifier: GPL-2.0-only
//! Calibration's programs on real pCPUs, beside each other, at a slice: what `corun calibrate --here`
//! measures (AQL_Sched, EuroSys 2016, §3.4).
//!
//! vCPUs of a host without sched_ext are threads that ask the kernel for a slice, as
//! [`crate::stock`] does it. [`guests`] are VMs of KVM, made for this and gone with it, so that no other VMs are
//! touched. Where there is no KVM, [`run`] does it with threads of this process, which cannot show what only guests do:
//! exits.
//!
//! A turn on a pCPU ends where the program's clock jumps: the slice that a thread gets may differ from the one that it
//! asks for, and this shows the former without the kernel's help.

pub mod guests;
mod programs;
pub mod symbiosis;
mod threads;
mod turns;

pub use programs::Program;
pub use threads::run;
pub use turns::Turns;

use crate::perf::VcpuCounters;
use crate::stock::thread::{own_slice, set_slice};
use corun_model::{LlcSeen, Nanos, PcpuId, Signals};
use corun_system::{affinity, procfs};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// What runs side by side.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is looked at: this many vCPUs of it, on as many pCPUs.
    pub subject: (Program, usize),
    /// What runs beside it, a vCPU each.
    pub others: Vec<Program>,
    /// The pCPUs; vCPU n is on the n-th, over and over.
    pub pcpus: Vec<PcpuId>,
    /// The slice that all ask for, ns; 0.1 to 100 ms.
    pub slice: Nanos,
    /// How long they run before it counts, ns.
    pub warm_up: Nanos,
    /// How long it counts, ns.
    pub time: Nanos,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Time per work of the subject, in any unit; NaN if it did nothing.
    pub time_per_work: f64,
    /// Lengths of all vCPUs' turns, ns.
    pub turns: Vec<Nanos>,
    /// What the subject did in the last-level cache all the time, where this machine counts it; for threads.
    pub llc: Option<LlcSeen>,
    /// What each of the subject's vCPUs did in each period in which it ran; pause-loop exits are those of the
    /// whole VM. For guests.
    pub periods: Vec<Vec<Signals>>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The kernel is too old.
    #[error("this kernel takes no slices from threads: Linux 6.12 and newer do")]
    NoSlices,
    /// The kernel refused something.
    #[error("a thread could not be set up: {0}")]
    Thread(#[from] io::Error),
    /// A thread ended before its time.
    #[error("a thread of a calibration program ended before its time")]
    Ended,
    /// The lists would not fit.
    #[error(
        "the programs' lists take {} MiB together, and {} MiB of memory are free",
        needed >> 20,
        free >> 20
    )]
    Memory {
        /// What it takes, bytes.
        needed: u64,
        /// What there is, bytes.
        free: u64,
    },
    /// A guest failed, or there are none.
    #[error("{0}")]
    Guest(String),
}

/// What a vCPU has done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    /// Work, or requests.
    work: u64,
    /// Time that counts against it, ns.
    time: Nanos,
    turns: Vec<Nanos>,
    llc: Option<LlcSeen>,
    periods: Vec<Signals>,
}

impl Outcome {
    /// Of all vCPUs; the first `count` are the subject's.
    fn of(done: Vec<Done>, count: usize) -> Self {
        let (work, time) = done[..count].iter().fold((0, 0), |(work, time), one| {
            (work + one.work, time + one.time)
        });
        let periods = done[..count].iter().map(|one| one.periods.clone());
        Self {
            time_per_work: if work == 0 {
                f64::NAN
            } else {
                time as f64 / work as f64
            },
            llc: done.first().and_then(|first| first.llc),
            periods: periods.collect(),
            turns: done.into_iter().flat_map(|one| one.turns).collect(),
        }
    }
}

/// Does this kernel take slices from threads?
///
/// # Errors
/// [`TrialError::NoSlices`].
pub fn possible() -> Result<(), TrialError> {
    own_slice().map(|_| ()).ok_or(TrialError::NoSlices)
}

impl Trial {
    /// The pCPU of vCPU `number`.
    fn pcpu(&self, number: usize) -> io::Result<PcpuId> {
        let cpu = self.pcpus.get(number % self.pcpus.len().max(1)).copied();
        cpu.ok_or_else(|| io::Error::other("no pCPUs"))
    }

    /// Is there memory for all lists?
    fn check_memory(&self) -> Result<(), TrialError> {
        let (subject, count) = self.subject;
        let others = self.others.iter().map(Program::memory).sum::<u64>();
        let needed = others.saturating_add(subject.memory().saturating_mul(count as u64));
        match free_memory() {
            Some(free) if needed > free => Err(TrialError::Memory { needed, free }),
            _ => Ok(()),
        }
    }
}

/// What programs may take without others having to give, bytes; `None` if the kernel does not say.
fn free_memory() -> Option<u64> {
    let text = procfs::line(Path::new("/proc/meminfo"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Puts this thread on its pCPU, at the slice. Returns its number.
fn settle(cpu: PcpuId, slice: Nanos) -> io::Result<u32> {
    // SAFETY: takes nothing and always works.
    let tid = u32::try_from(unsafe { libc::gettid() }).map_err(io::Error::other)?;
    affinity::pin(tid, cpu)?;
    set_slice(tid, Some(slice))?;
    Ok(tid)
}

#[cfg(test)]
mod tests;
