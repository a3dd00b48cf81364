// SPDX-License-Identifier: GPL-2.0-only
//! What sharing a core and its caches does to a task's progress.
//!
//! Pure arithmetic without a clock or events: [`rate`] turns time into work, [`smt`] says what the
//! hardware threads of a core do to each other, [`cache`] holds lines of many owners, [`walk`] is a
//! running owner's way through its working set, and [`caches`] combines these two for a host.
//! The host asks when something changes ([`pacing`](super::pacing)).

mod cache;
mod caches;
mod rate;
mod smt;
mod walk;

pub use caches::CacheParams;
pub(super) use caches::Caches;
pub(super) use rate::{Lost, ONE, Pace, Progress};
pub use smt::SmtParams;
pub(super) use smt::{Seen, Smt};

use corun_model::Parameter;

/// What the hardware does beyond giving each task a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareParams {
    /// Interference between SMT siblings; `None`: hardware threads are as good as cores.
    pub smt: Option<SmtParams>,
    /// The caches that tasks share; `None`: each task has its own, always warm.
    pub caches: Option<CacheParams>,
}

/// Bytes of a cache line, on all x86 servers.
const LINE: u64 = 64;

impl HardwareParams {
    /// No task slows another down: necessary if demand was recorded with all such effects included.
    pub const UNSHARED: HardwareParams = HardwareParams {
        smt: None,
        caches: None,
    };

    /// All parameters with their sources.
    pub fn parameters() -> Vec<Parameter> {
        let (smt, caches) = (SmtParams::parameters(), CacheParams::parameters());
        smt.into_iter().chain(caches).collect()
    }
}

impl Default for HardwareParams {
    fn default() -> Self {
        Self {
            smt: Some(SmtParams::default()),
            caches: Some(CacheParams::default()),
        }
    }
}
